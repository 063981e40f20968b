//! One code for a graph and all its inner graphs. The programs of inner graphs are ordinary programs, which a
//! control starts. So a run needs no more memory for the thousandth iteration of a loop than for the first,
//! and no stack for nested graphs.
//!
//! ```text
//! programs   0: run a · control "loop" · run z     1: run mul          control "loop"   starts scope 0, again and again
//!                                                     └─ its end starts program 0, which stands at the control
//! ```

use super::code::{Code, Control, Home, Scope, Target};
use super::fabric::Fabric;
use super::lower::lower;
use super::{Schedule, StreamKind};
use crate::error::Result;
use crate::graph::NodeId;

impl Fabric {
    /// Turns a schedule into code. With `has_queues`, the code is for devices with queues, where each segment
    /// is one step. A host runs a node on one stream, even if it spans several devices.
    pub(super) fn lower(&self, schedule: &Schedule, has_queues: bool) -> Result<Code> {
        let mut link = Link { fabric: self, has_queues, next_stream: 0, code: Code::default() };
        link.append_outermost(schedule)?;
        for number in 0..schedule.inner().len() {
            link.append_inner(schedule, number)?;
        }
        link.add_controls();
        link.code.find_calls();
        Ok(link.code)
    }
}

struct Link<'a> {
    fabric: &'a Fabric,
    has_queues: bool,
    code: Code,
    /// The number of streams so far.
    next_stream: u32,
}

impl Link<'_> {
    fn append_outermost(&mut self, schedule: &Schedule) -> Result<()> {
        let (roots, streams) = self.append(schedule, None, Target::End)?;
        self.code.roots = roots;
        self.code.homes = streams.iter().map(|&stream| home(schedule, stream)).collect();
        self.code.streams = streams;
        // Only for the outermost graph: the steps of inner graphs are repeated.
        self.code.find_kinds();
        self.next_stream = schedule.streams();
        Ok(())
    }

    /// Adds the code of the outermost graph, or of the inner graph with this number.
    fn append(&mut self, schedule: &Schedule, inner: Option<usize>, end: Target) -> Result<(u32, Vec<u32>)> {
        let on_host = schedule.on_first_streams()?;
        let schedule = on_host.as_ref().unwrap_or(schedule);
        Ok(lower(&mut self.code, schedule, self.fabric.unit(inner), self.has_queues, end))
    }

    fn append_inner(&mut self, outermost: &Schedule, number: usize) -> Result<()> {
        let inner = &outermost.inner()[number];
        let (code, schedule) = (&self.code, inner.schedule());
        let control = NodeId(inner.around().map_or(0, |around| code.scopes[around].first_node) + inner.node().0);
        let at = code.program_of(code.step_of[control.index()]);
        let (first_program, gates, segments) = (code.programs(), code.gates.len(), code.segments.len());
        let first_node = code.step_of.len() as u32;
        // The end of the inner graph resumes the control.
        let (roots, streams) = self.append(schedule, Some(number), Target::Start { first: at, count: 1 })?;
        let code = &mut self.code;
        let added = |before: usize, now: usize| (before as u32, (now - before) as u32);
        let calls = code.starts[first_program as usize]..code.steps.len() as u32;
        let has_one_program = streams.len() == 1 && gates == code.gates.len() && segments == code.segments.len();
        let calls = Some(calls).filter(|calls| has_one_program && code.are_calls(calls.clone()));
        code.scopes.push(Scope {
            calls,
            programs: (first_program, streams.len() as u32),
            roots,
            gates: added(gates, code.gates.len()),
            segments: added(segments, code.segments.len()),
            first_node,
            control,
        });
        for stream in streams {
            let home = home(schedule, stream);
            let outer = code.homes[at as usize];
            // The first stream of the inner graph continues that of the control, if both are of the same
            // kind.
            let inherits = stream == 0 && (home.device, home.is_host) == (outer.device, outer.is_host);
            let number = if inherits { code.streams[at as usize] } else { self.next_stream + stream };
            code.homes.push(if inherits { outer } else { Home { id: number, ..home } });
            code.streams.push(number);
        }
        self.next_stream += schedule.streams();
        Ok(())
    }

    /// Adds the controls of all graphs, by step, and the cells that the end of a run clears.
    fn add_controls(&mut self) {
        let first_nodes = std::iter::once(0).chain(self.code.scopes.iter().map(|scope| scope.first_node));
        for (unit, first) in self.fabric.units().zip(first_nodes) {
            self.code.cells.extend(unit.left_behind.iter().copied());
            for draft in &unit.controls {
                let node = NodeId(first + draft.node.0);
                let step = self.code.step_of[node.index()];
                self.code.controls.push(Control { step, node, draft: draft.clone() });
                self.code.cells.extend(draft.cells.iter().copied());
            }
        }
        self.code.controls.sort_unstable_by_key(|control| control.step);
    }
}

fn home(schedule: &Schedule, stream: u32) -> Home {
    let device = match schedule.kind(stream) {
        StreamKind::Device(device) => device,
        StreamKind::Host => 0,
    };
    Home { device, id: schedule.id(stream), is_host: schedule.kind(stream) == StreamKind::Host }
}
