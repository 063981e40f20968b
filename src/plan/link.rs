//! From the code of a graph and of each inner graph to one code: the programs of inner graphs are programs
//! like all others, which a control starts. A run of it needs no more memory for a loop's thousandth
//! iteration than for its first, and no stack for a graph in a graph.
//!
//! ```text
//! programs   0: run a · control "loop" · run z     1: run mul          control "loop"   starts scope 0, again and again
//!                                                     └─ its end starts program 0, which stands at the control
//! ```

use super::code::{Code, Control, Home, HostStep, Member, Scope, Segment, Target, flag};
use super::fabric::{Fabric, Unit};
use super::lower::Lowering;
use super::programs::Programs;
use super::segments::Segments;
use super::{Schedule, StreamKind};
use crate::error::Result;
use crate::graph::NodeId;

impl Fabric {
    /// Turns a schedule into code. A host runs a node on one stream, whatever devices it spans.
    pub(super) fn lower(&self, schedule: &Schedule) -> Result<Code> {
        link(schedule, self, |schedule, unit| {
            let on_host = schedule.on_first_streams()?;
            let schedule = on_host.as_ref().unwrap_or(schedule);
            let programs = Programs::of(schedule);
            Ok(Lowering { schedule, bodies: &unit.bodies, facts: &unit.facts, programs, segments: None }.lower())
        })
    }

    /// Turns a schedule into code for devices with queues: each segment is one step.
    pub(super) fn lower_segments(&self, schedule: &Schedule) -> Result<Code> {
        link(schedule, self, |schedule, unit| {
            let on_host = schedule.on_first_streams()?;
            let schedule = on_host.as_ref().unwrap_or(schedule);
            let segments = Segments::new(schedule, &unit.facts);
            let programs = Programs::drawn_together(schedule, &segments);
            Ok(Lowering { schedule, bodies: &unit.bodies, facts: &unit.facts, programs, segments: Some(&segments) }.lower())
        })
    }
}

/// Puts the code of all graphs together. `lower` makes the code of one.
fn link(schedule: &Schedule, fabric: &Fabric, lower: impl Fn(&Schedule, &Unit) -> Result<Code>) -> Result<Code> {
    let mut code = lower(schedule, fabric.unit(None))?;
    // Not for inner graphs, whose steps are repeated.
    code.find_kinds();
    code.homes = (0..code.programs()).map(|program| home(schedule, code.streams[program as usize])).collect();
    let mut link = Link { next_stream: schedule.streams(), first_nodes: vec![0], code };
    for (number, inner) in schedule.inner().iter().enumerate() {
        let around = inner.around().map_or(0, |around| around + 1);
        let control = link.first_nodes[around] + inner.node().index() as u32;
        link.append(inner.schedule(), lower(inner.schedule(), fabric.unit(Some(number)))?, control);
    }
    link.add_controls(fabric);
    Ok(link.code)
}

fn home(schedule: &Schedule, stream: u32) -> Home {
    let device = match schedule.kind(stream) {
        StreamKind::Device(device) => device,
        StreamKind::Host => 0,
    };
    Home { device, id: schedule.id(stream), is_host: schedule.kind(stream) == StreamKind::Host }
}

struct Link {
    code: Code,
    /// The number of the first node of each graph among all nodes: of the outermost, then of the inner ones.
    first_nodes: Vec<u32>,
    /// How many streams there are.
    next_stream: u32,
}

/// How many there were of each before a graph's code came behind them.
struct Before {
    steps: u32,
    nodes: u32,
    programs: u32,
    targets: u32,
    gates: u32,
    segments: u32,
    members: u32,
    member_waits: u32,
    segment_waits: u32,
    events: u32,
    /// What the end of the graph does.
    end: Target,
}

impl Before {
    fn target(&self, target: Target) -> Target {
        match target {
            Target::Start { first, count } => Target::Start { first: first + self.programs, count },
            Target::Arrive(gate) => Target::Arrive(gate + self.gates),
            Target::Release(node) => Target::Release(self.node(node)),
            Target::End => self.end,
        }
    }

    fn node(&self, node: NodeId) -> NodeId {
        NodeId(node.0 + self.nodes)
    }

    fn step(&self, step: HostStep) -> HostStep {
        let targets = step.targets + if step.flags & flag::ARRIVE != 0 { self.gates } else { self.targets };
        let gate = if step.flags & flag::GATE != 0 { step.gate + self.gates } else { step.gate };
        HostStep { targets, gate, ..step }
    }

    fn segment(&self, segment: Segment) -> Segment {
        let moved = |(first, len): (u32, u32), by: u32| (first + by, len);
        Segment {
            step: segment.step + self.steps,
            members: moved(segment.members, self.members),
            waits: moved(segment.waits, self.segment_waits),
            event: segment.event.map(|event| event + self.events),
            reached: moved(segment.reached, self.targets),
            key: segment.key,
        }
    }

    fn member(&self, member: Member) -> Member {
        let moved = |(first, len): (u32, u32), by: u32| (first + by, len);
        let (waits, releases) = (moved(member.waits, self.member_waits), moved(member.releases, self.targets));
        Member { node: self.node(member.node), waits, releases, ..member }
    }
}

impl Link {
    /// Adds the code of an inner graph. `control` is the node that it is of, among all nodes.
    fn append(&mut self, schedule: &Schedule, inner: Code, control: u32) {
        let code = &mut self.code;
        let at = code.program_of(code.step_of[control as usize]);
        let before = Before {
            steps: code.steps.len() as u32,
            nodes: code.step_of.len() as u32,
            programs: code.programs(),
            targets: code.targets.len() as u32,
            gates: code.gates.len() as u32,
            segments: code.segments.len() as u32,
            members: code.members.len() as u32,
            member_waits: code.member_waits.len() as u32,
            segment_waits: code.segment_waits.len() as u32,
            events: code.events,
            // Whoever ends the graph goes on with the control.
            end: Target::Start { first: at, count: 1 },
        };
        self.first_nodes.push(before.nodes);
        code.scopes.push(Scope {
            programs: (before.programs, inner.programs()),
            roots: inner.roots,
            gates: (before.gates, inner.gates.len() as u32),
            segments: (before.segments, inner.segments.len() as u32),
            first_node: before.nodes,
            control: NodeId(control),
        });
        let starts = &inner.starts[..inner.starts.len() - 1];
        code.starts.pop();
        code.starts.extend(starts.iter().map(|start| start + before.steps));
        code.starts.push(before.steps + inner.steps.len() as u32);
        for &stream in &inner.streams {
            let home = home(schedule, stream);
            let outer = code.homes[at as usize];
            // The first stream goes on where the control stands, if it is of the same kind.
            let inherits = stream == 0 && (home.device, home.is_host) == (outer.device, outer.is_host);
            let number = if inherits { code.streams[at as usize] } else { self.next_stream + stream };
            code.homes.push(if inherits { outer } else { Home { id: number, ..home } });
            code.streams.push(number);
        }
        self.next_stream += schedule.streams();
        code.steps.extend(inner.steps.into_iter().map(|step| before.step(step)));
        code.nodes.extend(inner.nodes.into_iter().map(|node| before.node(node)));
        code.targets.extend(inner.targets.into_iter().map(|target| before.target(target)));
        code.gates.extend(inner.gates.into_iter().map(|mut gate| {
            gate.then = before.target(gate.then);
            gate
        }));
        code.step_of.extend(inner.step_of.into_iter().map(|step| step + before.steps));
        code.asyncs.extend(inner.asyncs.into_iter().map(|step| step + before.steps));
        code.segments.extend(inner.segments.into_iter().map(|segment| before.segment(segment)));
        code.members.extend(inner.members.into_iter().map(|member| before.member(member)));
        code.member_waits.extend(inner.member_waits);
        code.segment_waits.extend(inner.segment_waits.into_iter().map(|event| event + before.events));
        code.events += inner.events;
        code.drops.extend(inner.drops.into_iter().map(|node| before.node(node)));
        code.bodies.append(&inner.bodies);
    }

    /// Adds what the controls of all graphs do, by step.
    fn add_controls(&mut self, fabric: &Fabric) {
        for (unit, &first) in fabric.units().zip(&self.first_nodes) {
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
