//! From a schedule to the code that hosts run. O(steps).

use super::causes::Causes;
use super::code::{Code, Gate, HostStep, Member, Segment, Target, flag};
use super::fabric::{Facts, Unit};
use super::numbering::Numbering;
use super::programs::Programs;
use super::queued::Queued;
use super::records::Records;
use super::segments::Segments;
use super::{NONE, Schedule, Step};
use crate::graph::{NodeId, Rows};
use crate::value::Access;

/// The most arrivals at one gate. A gate with more becomes a tree.
const FAN_IN: usize = 32;

/// The schedule of one graph whose code is being appended to the code of others. The schedule has its own
/// numbers of nodes and programs. In the code, they are numbered after the existing ones.
struct Lowering<'a> {
    schedule: &'a Schedule,
    unit: &'a Unit,
    segments: Option<&'a Segments>,
    programs: &'a Programs<'a>,
    records: &'a Records,
    numbering: &'a Numbering,
    causes: Causes<'a>,
    queued: Queued,
    code: &'a mut Code,
    first_node: u32,
    first_program: u32,
    /// The target at the end of the graph.
    end: Target,
    /// The gate before each node, or [`NONE`].
    gate_before: Vec<u32>,
    /// The target of one release of each node.
    release_of: Vec<Option<Target>>,
}

/// One `Run` step of the schedule, with the steps that belong to it.
struct Stop<'a> {
    node: NodeId,
    waits: &'a [Step],
    record: u32,
    releases: &'a [Step],
    is_first: bool,
    is_last: bool,
}

/// Appends the code of a graph, with the target `end` at its end. With `has_queues`, each segment becomes one
/// step. Returns the number of programs that wait for nothing, and for each program its stream in the
/// schedule, which the caller adds to the code. In a pipeline, the end of each phase is a target of its own.
pub(super) fn lower(code: &mut Code, schedule: &Schedule, unit: &Unit, has_queues: bool, end: Target) -> (u32, Vec<u32>) {
    let segments = has_queues.then(|| Segments::new(schedule, &unit.facts));
    let segments = segments.as_ref();
    let programs = &Programs::new(schedule, segments);
    let records = &Records::new(programs);
    let queued = Queued::new(schedule, segments, code.events);
    let causes = Causes::new(segments, records, code.events + queued.events());
    let phase = |node: NodeId| schedule.phases().map_or(0, |phases| phases[node.index()]);
    let numbering = &Numbering::new(programs, records, &causes, phase);
    let (first_node, first_program) = (code.step_of.len() as u32, code.programs());
    let (gate_before, release_of) = (vec![NONE; unit.facts.len()], Vec::new());
    Lowering {
        schedule,
        unit,
        segments,
        programs,
        records,
        numbering,
        causes,
        queued,
        code,
        first_node,
        first_program,
        end,
        gate_before,
        release_of,
    }
    .lower();
    if schedule.phases().is_some() {
        let mut first = first_program;
        for &(phase, count) in &numbering.roots_of {
            code.phases.resize(phase as usize + 1, (first, 0));
            code.phases[phase as usize] = (first, count);
            first += count;
        }
    }
    (numbering.roots, numbering.order.iter().map(|&program| programs.stream(program)).collect())
}

impl<'a> Lowering<'a> {
    fn lower(mut self) {
        let nodes = self.unit.facts.len();
        self.code.steps.reserve(nodes);
        self.code.nodes.reserve(nodes);
        self.code.step_of.resize(self.code.step_of.len() + nodes, NONE);
        self.code.bodies.append(&self.unit.bodies);
        // The targets of each record. There are two passes, because the number of a gate is known only after
        // all waits are counted.
        let mut led_to = Vec::with_capacity(self.causes.count());
        for program in 0..self.numbering.order.len() as u32 {
            self.add_gates(program, &mut led_to);
        }
        self.code.events = self.causes.next_event();
        // One target starts all programs with the same cause.
        let mut first = self.first_program + self.numbering.roots;
        for group in self.numbering.started_by.chunk_by(|a, b| a == b) {
            let count = group.len() as u32;
            led_to.push((group[0], Target::Start { first, count }));
            first += count;
        }
        let led_to = Rows::sorted(self.causes.count(), led_to.iter().copied());
        self.add_release_gates();
        let ends = self.add_end_gates();
        self.code.starts.pop();
        self.code.starts.reserve(ends.len() + 1);
        for (program, end) in (0..).zip(ends) {
            self.code.starts.push(self.code.steps.len() as u32);
            self.add_steps(program, &led_to, end);
        }
        self.code.starts.push(self.code.steps.len() as u32);
        // An inner graph has no phases.
        if self.schedule.phases().is_some() {
            self.code.queued = self.queued.devices;
        }
    }

    /// Returns the nodes of a program, with the steps that belong to them.
    fn stops(&self, program: u32) -> impl Iterator<Item = Stop<'a>> + use<'a> {
        stops(self.programs.steps(self.numbering.order[program as usize]), self.records)
    }

    /// Returns the number of a node, among the nodes of all graphs.
    fn number(&self, node: NodeId) -> NodeId {
        NodeId(self.first_node + node.0)
    }

    fn phase(&self, node: NodeId) -> Option<u32> {
        self.schedule.phases().map(|phases| phases[node.index()])
    }

    fn facts(&self, node: NodeId) -> &'a Facts {
        &self.unit.facts[node.index()]
    }

    fn record_of(&self, wait: &Step) -> u32 {
        let Step::Wait(point) = wait else { unreachable!("only waits stand before a node") };
        self.records.of(*point)
    }

    /// Makes the gates before the nodes of this program, and notes the records that arrive at them.
    fn add_gates(&mut self, program: u32, led_to: &mut Vec<(u32, Target)>) {
        for stop in self.stops(program) {
            let own = u32::from(!stop.is_first);
            for wait in stop.waits {
                self.causes.wait(self.record_of(wait), stop.node);
            }
            if stop.waits.len() as u32 + own < 2 {
                continue;
            }
            let then = Target::Start { first: self.first_program + program, count: 1 };
            let root = add_tree(&mut self.code.gates, stop.waits.len(), own, then, |at, gate| {
                let Step::Wait(point) = stop.waits[at] else { unreachable!("only waits stand before a node") };
                led_to.push((self.causes.of(self.records.of(point), stop.node), Target::Arrive(gate)));
            });
            self.gate_before[stop.node.index()] = root;
        }
    }

    /// Makes the gates of values that several streams release.
    fn add_release_gates(&mut self) {
        for node in self.schedule.shape().ids() {
            let releases = self.schedule.releases_of(node);
            let is_own = releases > 0 && self.must_drop(node) && !self.facts(node).is_taken;
            let then = Target::Release(self.number(node));
            let release = match releases {
                _ if !is_own => None,
                1 => Some(then),
                _ => {
                    self.code.gates.push(Gate { count: releases, then });
                    Some(Target::Arrive(self.code.gates.len() as u32 - 1))
                }
            };
            self.release_of.push(release);
        }
    }

    /// Makes the gate for the ends of programs: each program whose end no other program waits for arrives
    /// there. In a pipeline, there is one gate for each phase. Returns the target of each program.
    fn add_end_gates(&mut self) -> Vec<Option<Target>> {
        let programs = 0..self.numbering.order.len() as u32;
        let sink = |program| Some(self.stops(program).last()?).filter(|stop| stop.record == NONE);
        let sinks = programs.filter_map(|program| sink(program).map(|stop| (self.phase(stop.node), program)));
        let mut sinks: Vec<(Option<u32>, u32)> = sinks.collect();
        sinks.sort_unstable();
        let mut ends = vec![None; self.numbering.order.len()];
        for sinks in sinks.chunk_by(|one, other| one.0 == other.0) {
            let end = match sinks[0].0 {
                None => self.end,
                Some(phase) if self.queued.is_queued(phase) => Target::PhaseReached(phase),
                Some(phase) => Target::Phase(phase),
            };
            match sinks {
                [(_, sink)] => ends[*sink as usize] = Some(end),
                _ => {
                    add_tree(&mut self.code.gates, sinks.len(), 0, end, |at, gate| {
                        ends[sinks[at].1 as usize] = Some(Target::Arrive(gate));
                    });
                }
            }
        }
        ends
    }

    fn add_steps(&mut self, program: u32, led_to: &Rows<Target>, end: Option<Target>) {
        let led_by = |cause: u32| if cause == NONE { &[] } else { led_to.row(cause) };
        let mut previous: Option<usize> = None;
        for stop in self.stops(program) {
            let index = self.code.steps.len();
            let gate = self.gate_before[stop.node.index()];
            if let (Some(previous), true) = (previous, gate != NONE) {
                self.code.steps[previous].gate = gate;
                self.code.steps[previous].flags |= flag::GATE;
            }
            previous = Some(index);
            let end = if stop.is_last && stop.record == NONE { end } else { None };
            let submitted = led_by(self.causes.submitted(stop.record)).iter().copied();
            if let Some(segment) = self.causes.segment(stop.node) {
                let phase = self.phase(stop.node).filter(|&phase| self.queued.is_queued(phase));
                let targets = extend(&mut self.code.targets, submitted.chain(phase.map(Target::PhaseQueued)));
                let reached = led_by(self.causes.reached(stop.record)).iter().copied().chain(end);
                let reached = extend(&mut self.code.targets, reached);
                let waits: Vec<u32> = stop.waits.iter().filter_map(|wait| self.causes.event(self.record_of(wait))).collect();
                let waits = waits.into_iter().chain(phase.into_iter().flat_map(|phase| self.queued.waits(phase)));
                let waits = extend(&mut self.code.segment_waits, waits);
                let members = self.add_members(segment);
                let event = self.causes.event(stop.record).or_else(|| self.queued.event(phase?));
                let step = index as u32;
                self.code.segments.push(Segment { step, members, waits, event, reached, key: Default::default() });
                self.add_step(&stop, targets, true);
                continue;
            }
            let releases = stop.releases.iter().filter_map(|step| match step {
                Step::Release(node) => self.release_of[node.index()],
                _ => None,
            });
            // After the last target of a program, the run may be dropped. So the releases come first.
            let targets = match stop.is_last {
                true => extend(&mut self.code.targets, releases.chain(submitted).chain(end)),
                false => extend(&mut self.code.targets, submitted.chain(releases)),
            };
            self.add_step(&stop, targets, false);
        }
    }

    /// Adds the nodes of a segment.
    fn add_members(&mut self, segment: u32) -> (u32, u32) {
        let (schedule, segments) = (self.schedule, self.segments.expect("there are segments"));
        let members = segments.members(segment);
        let first = self.code.members.len() as u32;
        let awaits = |&node: &NodeId| {
            let stream = schedule.stream_of(node);
            let others = segments.before.of(node).iter().filter(move |source| schedule.stream_of(**source) != stream);
            others.filter_map(|source| members.iter().position(|member| member == source)).map(|at| at as u32)
        };
        let mut is_awaited = vec![false; members.len()];
        members.iter().flat_map(awaits).for_each(|at| is_awaited[at as usize] = true);
        for (node, is_awaited) in members.iter().zip(is_awaited) {
            let releases = segments.releases.of(*node).iter().filter_map(|value| self.release_of[value.index()]);
            let releases = extend(&mut self.code.targets, releases);
            let waits = extend(&mut self.code.member_waits, awaits(node));
            let access = self.access(*node);
            let call = self.unit.bodies.get(node.index()).call(access == Access::InPlace);
            let stream = schedule.id(schedule.stream_of(*node));
            let node = self.number(*node);
            self.code.members.push(Member { node, call, access, stream, waits, is_awaited, releases });
        }
        (first, members.len() as u32)
    }

    fn add_step(&mut self, stop: &Stop<'_>, (targets, len): (u32, u32), is_segment: bool) {
        let index = self.code.steps.len() as u32;
        let is_async = self.facts(stop.node).is_async;
        let mut flags = 0;
        let mut set = |is_set: bool, flag: u8| flags |= if is_set { flag } else { 0 };
        // The most common list is one arrival, which is stored in the step itself.
        let (targets, targets_len) = match self.code.targets[targets as usize..] {
            [Target::Arrive(gate)] if !is_segment => {
                self.code.targets.truncate(targets as usize);
                set(true, flag::ARRIVE);
                (gate, 0)
            }
            _ => (targets, len),
        };
        set(targets_len > 0, flag::TARGETS);
        set(stop.is_last, flag::LAST);
        set(is_async, flag::ASYNC);
        set(self.facts(stop.node).is_control, flag::CONTROL);
        set(is_segment, flag::SEGMENT);
        if is_async {
            self.code.asyncs.push(index);
        }
        let nodes = match self.segments {
            Some(segments) if is_segment => segments.members(segments.of[stop.node.index()]),
            _ => &[stop.node],
        };
        for &node in nodes {
            let number = self.number(node);
            self.code.step_of[number.index()] = index;
            if self.must_drop(node) {
                self.code.drops.push(number);
            }
        }
        self.code.nodes.push(self.number(stop.node));
        let access = self.access(stop.node);
        let call = self.unit.bodies.get(stop.node.index()).call(access == Access::InPlace);
        self.code.steps.push(HostStep { call, targets, targets_len, gate: NONE, flags, access });
    }

    fn access(&self, node: NodeId) -> Access {
        let Facts { is_in_place, is_shared, .. } = *self.facts(node);
        match (is_in_place, is_shared) {
            (true, _) => Access::InPlace,
            (false, false) => Access::Tagged,
            (false, true) => Access::Share,
        }
    }

    fn must_drop(&self, node: NodeId) -> bool {
        self.facts(node).is_shared || self.unit.bodies.get(node.index()).needs_release()
    }
}

/// Makes a gate, or a tree of gates, for `arrivals` from below and `own` arrivals at its root. `arrive` gets
/// the gate of each arrival.
fn add_tree(gates: &mut Vec<Gate>, arrivals: usize, own: u32, then: Target, mut arrive: impl FnMut(usize, u32)) -> u32 {
    // Levels from the bottom up: level 0 are the arrivals. A gate of a level above counts up to FAN_IN gates
    // of the level below it.
    let mut widths = vec![arrivals];
    while widths[widths.len() - 1] > FAN_IN {
        widths.push(widths[widths.len() - 1].div_ceil(FAN_IN));
    }
    let top = widths.len() - 1;
    let root = gates.len() as u32;
    gates.push(Gate { count: widths[top] as u32 + own, then });
    let mut above = root;
    for level in (0..top).rev() {
        let first = gates.len() as u32;
        for group in 0..widths[level + 1] {
            let count = FAN_IN.min(widths[level] - group * FAN_IN) as u32;
            let parent = if level + 1 == top { root } else { above + (group / FAN_IN) as u32 };
            gates.push(Gate { count, then: Target::Arrive(parent) });
        }
        above = first;
    }
    for at in 0..arrivals {
        arrive(at, if top == 0 { root } else { above + (at / FAN_IN) as u32 });
    }
    root
}

/// Appends to a list. Returns the start and the number of the new items.
fn extend<T>(list: &mut Vec<T>, more: impl Iterator<Item = T>) -> (u32, u32) {
    let first = list.len();
    list.extend(more);
    (first as u32, (list.len() - first) as u32)
}

/// Splits a program into its nodes, with the steps that belong to them.
fn stops<'a>(steps: &'a [Step], records: &'a Records) -> impl Iterator<Item = Stop<'a>> {
    let mut rest = steps;
    std::iter::from_fn(move || {
        let is_first = rest.len() == steps.len();
        let waits = split_off(&mut rest, |step| matches!(step, Step::Wait(_)));
        let Some(Step::Run(node)) = rest.split_off_first() else { return None };
        let record = match rest.first() {
            Some(&Step::Record(point)) => records.of(point),
            _ => NONE,
        };
        rest = &rest[usize::from(record != NONE)..];
        let releases = split_off(&mut rest, |step| matches!(step, Step::Release(_)));
        Some(Stop { node: *node, waits, record, releases, is_first, is_last: rest.is_empty() })
    })
}

/// Removes the steps from the front for which `is_part` holds. Returns them.
fn split_off<'a>(steps: &mut &'a [Step], is_part: fn(&Step) -> bool) -> &'a [Step] {
    let count = steps.iter().take_while(|step| is_part(step)).count();
    steps.split_off(..count).expect("so many were counted")
}
