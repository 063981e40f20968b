//! From a schedule to the code that hosts run. Linear in steps.

use super::causes::Causes;
use super::code::{Code, Gate, HostStep, Member, NONE, Segment, Target, flag};
use super::facts::Facts;
use super::numbering::Numbering;
use super::programs::Programs;
use super::records::Records;
use super::segments::Segments;
use super::{Schedule, Step};
use crate::graph::{Body, NodeId};
use crate::value::{Access, Arena};

/// The most that arrive at one gate; with more it becomes a tree.
const FAN_IN: usize = 32;

/// What the lowering must know besides the schedule, node by node.
pub(super) struct Lowering<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) bodies: &'a Arena<dyn Body>,
    pub(super) facts: &'a [Facts],
    pub(super) programs: Programs<'a>,
    /// What is drawn together in the programs, for devices with queues.
    pub(super) segments: Option<&'a Segments>,
}

/// One `Run` step of the schedule with what stands around it.
struct Stop {
    node: NodeId,
    waits: (u32, u32),
    record: u32,
    releases: (u32, u32),
    is_first: bool,
    is_last: bool,
}

impl Lowering<'_> {
    pub(super) fn lower(&self) -> Code {
        let records = Records::new(&self.programs);
        let mut causes = Causes::new(self.segments, &records);
        let programs = Numbering::new(&self.programs, &records, &causes);
        let mut code = Code {
            steps: Vec::with_capacity(self.facts.len()),
            bodies: self.bodies.clone(),
            nodes: Vec::with_capacity(self.facts.len()),
            starts: Vec::with_capacity(programs.order.len() + 1),
            homes: Vec::new(),
            scopes: Vec::new(),
            controls: Vec::new(),
            cells: Vec::new(),
            streams: programs.order.iter().map(|&program| self.programs.stream(program)).collect(),
            roots: programs.roots,
            targets: Vec::new(),
            gates: Vec::new(),
            step_of: vec![NONE; self.facts.len()],
            asyncs: Vec::new(),
            segments: Vec::new(),
            members: Vec::new(),
            member_waits: Vec::new(),
            segment_waits: Vec::new(),
            events: 0,
            drops: Vec::new(),
        };
        // What each record leads to: gates are known only once all waits were seen, so this comes in two
        // passes.
        let mut led_to = LedTo::new(causes.count());
        let mut gate_before = vec![NONE; self.facts.len()];
        for program in 0..code.programs() {
            let steps = self.programs.steps(programs.order[program as usize]);
            self.add_gates(program, steps, &records, &mut causes, &mut code, &mut led_to, &mut gate_before);
        }
        code.events = causes.events();
        led_to.start_programs(&programs.started_by, programs.roots);
        let led_to = led_to.sorted();
        let release_gates = self.add_release_gates(&mut code);
        let ends = self.add_end_gates(&programs.order, &mut code, &records);
        for program in 0..code.programs() {
            code.starts.push(code.steps.len() as u32);
            let steps = self.programs.steps(programs.order[program as usize]);
            let end = ends[program as usize];
            self.add_steps(steps, &records, &causes, &led_to, &gate_before, &release_gates, end, &mut code);
        }
        code.starts.push(code.steps.len() as u32);
        code
    }

    /// Makes the gates before this program's nodes, and notes which records arrive at them.
    #[allow(clippy::too_many_arguments)]
    fn add_gates(
        &self,
        program: u32,
        steps: &[Step],
        records: &Records,
        causes: &mut Causes<'_>,
        code: &mut Code,
        led_to: &mut LedTo,
        gate_before: &mut [u32],
    ) {
        for stop in stops(steps, records) {
            let waits = &steps[stop.waits.0 as usize..stop.waits.1 as usize];
            let own = u32::from(!stop.is_first);
            waits.iter().for_each(|step| causes.wait(records.of_wait(step), stop.node));
            if waits.len() as u32 + own < 2 {
                continue;
            }
            let then = Target::Start { first: program, count: 1 };
            let cause = |at: usize| causes.of(records.of_wait(&waits[at]), stop.node);
            let gate = add_tree(&mut code.gates, waits.len(), own, then, |at, gate| led_to.push(cause(at), Target::Arrive(gate)));
            gate_before[stop.node.index()] = gate;
        }
    }

    /// Makes the gates of values that are released by several streams. Returns what one release of each node
    /// does.
    fn add_release_gates(&self, code: &mut Code) -> Vec<Option<Target>> {
        (0..self.facts.len() as u32)
            .map(|index| {
                let node = NodeId(index);
                let releases = self.schedule.releases_of(node);
                if releases == 0 || !self.must_drop(node) || self.facts[node.index()].is_taken {
                    return None;
                }
                let then = Target::Release(node);
                if releases == 1 {
                    return Some(then);
                }
                code.gates.push(Gate { count: releases, then });
                Some(Target::Arrive(code.gates.len() as u32 - 1))
            })
            .collect()
    }

    /// Makes the gate at which every program arrives whose end nothing else waits for. Returns where each one
    /// arrives.
    fn add_end_gates(&self, order: &[u32], code: &mut Code, records: &Records) -> Vec<Option<Target>> {
        let is_sink = |&program: &u32| {
            let last = stops(self.programs.steps(order[program as usize]), records).last();
            last.is_some_and(|stop| stop.record == NONE)
        };
        let sinks: Vec<u32> = (0..code.programs()).filter(is_sink).collect();
        let mut ends = vec![None; code.programs() as usize];
        match sinks[..] {
            [] => {}
            [sink] => ends[sink as usize] = Some(Target::End),
            _ => {
                add_tree(&mut code.gates, sinks.len(), 0, Target::End, |at, gate| {
                    ends[sinks[at] as usize] = Some(Target::Arrive(gate));
                });
            }
        }
        ends
    }

    #[allow(clippy::too_many_arguments)]
    fn add_steps(
        &self,
        steps: &[Step],
        records: &Records,
        causes: &Causes<'_>,
        led_to: &LedToSorted,
        gate_before: &[u32],
        release_gates: &[Option<Target>],
        end: Option<Target>,
        code: &mut Code,
    ) {
        let mut previous: Option<usize> = None;
        for stop in stops(steps, records) {
            let index = code.steps.len();
            let gate = gate_before[stop.node.index()];
            if let (Some(previous), true) = (previous, gate != NONE) {
                code.steps[previous].gate = gate;
                code.steps[previous].flags |= flag::GATE;
            }
            previous = Some(index);
            let end = if stop.is_last && stop.record == NONE { end } else { None };
            let told = led_to.of(causes.submitted(stop.record));
            if let Some(segment) = causes.segment(stop.node) {
                let targets = extend(&mut code.targets, told);
                let reached = extend(&mut code.targets, led_to.of(causes.reached(stop.record)).chain(end));
                let waits = steps[stop.waits.0 as usize..stop.waits.1 as usize].iter().map(|step| records.of_wait(step));
                let waits = extend(&mut code.segment_waits, waits.filter_map(|record| causes.event(record)));
                let members = self.add_members(segment, release_gates, code);
                let (step, event) = (index as u32, causes.event(stop.record));
                code.segments.push(Segment { step, members, waits, event, reached, key: Default::default() });
                self.add_step(&stop, targets, true, code);
                continue;
            }
            let releases = steps[stop.releases.0 as usize..stop.releases.1 as usize].iter().filter_map(|step| match step {
                Step::Release(node) => release_gates[node.index()],
                _ => None,
            });
            // Whatever follows a program's last target may find the run gone, so the releases come first.
            let targets = match stop.is_last {
                true => extend(&mut code.targets, releases.chain(told).chain(end)),
                false => extend(&mut code.targets, told.chain(releases)),
            };
            self.add_step(&stop, targets, false, code);
        }
    }

    /// Adds the nodes of a segment.
    fn add_members(&self, segment: u32, release_gates: &[Option<Target>], code: &mut Code) -> (u32, u32) {
        let segments = self.segments.expect("there are segments");
        let members = segments.members(segment);
        let first = code.members.len() as u32;
        let awaits = |&node: &NodeId| {
            let stream = self.schedule.stream_of(node);
            let others = segments.before.of(node).iter().filter(move |source| self.schedule.stream_of(**source) != stream);
            others.filter_map(|source| members.iter().position(|member| member == source)).map(|at| at as u32)
        };
        let mut is_awaited = vec![false; members.len()];
        members.iter().flat_map(awaits).for_each(|at| is_awaited[at as usize] = true);
        for (node, is_awaited) in members.iter().zip(is_awaited) {
            let releases = segments.releases.of(*node).iter().filter_map(|value| release_gates[value.index()]);
            let releases = extend(&mut code.targets, releases);
            let waits = extend(&mut code.member_waits, awaits(node));
            let access = self.access(*node);
            let call = self.bodies.get(node.index()).call(access == Access::InPlace);
            let stream = self.schedule.id(self.schedule.stream_of(*node));
            code.members.push(Member { node: *node, call, access, stream, waits, is_awaited, releases });
        }
        (first, members.len() as u32)
    }

    fn add_step(&self, stop: &Stop, (targets, len): (u32, u32), is_segment: bool, code: &mut Code) {
        let index = code.steps.len() as u32;
        let is_async = self.facts[stop.node.index()].is_async;
        let mut flags = 0;
        let mut set = |is_set: bool, flag: u8| flags |= if is_set { flag } else { 0 };
        // The most common list is one arrival: it stands in the step itself.
        let (targets, targets_len) = match code.targets[targets as usize..] {
            [Target::Arrive(gate)] if !is_segment => {
                code.targets.truncate(targets as usize);
                set(true, flag::ARRIVE);
                (gate, 0)
            }
            _ => (targets, len),
        };
        set(targets_len > 0, flag::TARGETS);
        set(stop.is_last, flag::LAST);
        set(is_async, flag::ASYNC);
        set(self.facts[stop.node.index()].is_control, flag::CONTROL);
        set(is_segment, flag::SEGMENT);
        if is_async {
            code.asyncs.push(index);
        }
        let nodes = match self.segments {
            Some(segments) if is_segment => segments.members(segments.of[stop.node.index()]),
            _ => &[stop.node],
        };
        nodes.iter().for_each(|node| code.step_of[node.index()] = index);
        code.drops.extend(nodes.iter().filter(|node| self.must_drop(**node)));
        code.nodes.push(stop.node);
        let access = self.access(stop.node);
        let call = self.bodies.get(stop.node.index()).call(access == Access::InPlace);
        code.steps.push(HostStep { call, targets, targets_len, gate: NONE, flags, access });
    }

    fn access(&self, node: NodeId) -> Access {
        let Facts { is_in_place, is_shared, .. } = self.facts[node.index()];
        match (is_in_place, is_shared) {
            (true, _) => Access::InPlace,
            (false, false) => Access::Tagged,
            (false, true) => Access::Share,
        }
    }

    fn must_drop(&self, node: NodeId) -> bool {
        self.facts[node.index()].is_shared || self.bodies.get(node.index()).needs_release()
    }
}

/// Makes a gate for `arrivals` and `own` more that arrive at its root; `arrive` is told the gate of each
/// arrival.
fn add_tree(gates: &mut Vec<Gate>, arrivals: usize, own: u32, then: Target, mut arrive: impl FnMut(usize, u32)) -> u32 {
    // Levels from the arrivals up: level 0 are the arrivals, each further one the gates for FAN_IN of the
    // level below.
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

/// Appends to a list. Returns where that begins, and how much it is.
fn extend<T>(list: &mut Vec<T>, more: impl Iterator<Item = T>) -> (u32, u32) {
    let first = list.len();
    list.extend(more);
    (first as u32, (list.len() - first) as u32)
}

/// Splits a program's steps at its nodes.
fn stops<'a>(steps: &'a [Step], records: &'a Records) -> impl Iterator<Item = Stop> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let end_of =
            |from: usize, is_part: fn(&Step) -> bool| from + steps[from..].iter().take_while(|step| is_part(step)).count();
        let waits_end = end_of(start, |step| matches!(step, Step::Wait(_)));
        let Some(&Step::Run(node)) = steps.get(waits_end) else { return None };
        let record = match steps.get(waits_end + 1) {
            Some(&Step::Record(point)) => records.of(point),
            _ => NONE,
        };
        let releases = waits_end + 1 + usize::from(record != NONE);
        at = end_of(releases, |step| matches!(step, Step::Release(_)));
        Some(Stop {
            node,
            waits: (start as u32, waits_end as u32),
            record,
            releases: (releases as u32, at as u32),
            is_first: start == 0,
            is_last: at == steps.len(),
        })
    })
}

/// What the causes lead to, as pairs while it is gathered.
struct LedTo {
    pairs: Vec<(u32, Target)>,
    causes: usize,
}

/// What the causes lead to, cause after cause.
struct LedToSorted {
    starts: Vec<u32>,
    targets: Vec<Target>,
}

impl LedTo {
    fn new(causes: usize) -> Self {
        Self { pairs: Vec::with_capacity(causes), causes }
    }

    fn push(&mut self, cause: u32, target: Target) {
        self.pairs.push((cause, target));
    }

    /// Adds, for each run of programs with the same cause, one target that starts them all.
    fn start_programs(&mut self, started_by: &[u32], roots: u32) {
        let mut first = roots;
        for group in started_by.chunk_by(|a, b| a == b) {
            let count = group.len() as u32;
            self.pairs.push((group[0], Target::Start { first, count }));
            first += count;
        }
    }

    /// A counting sort; keeps the order within each cause.
    fn sorted(self) -> LedToSorted {
        let mut starts = vec![0u32; self.causes + 1];
        self.pairs.iter().for_each(|&(cause, _)| starts[cause as usize + 1] += 1);
        for cause in 0..self.causes {
            starts[cause + 1] += starts[cause];
        }
        let mut next = starts.clone();
        let mut targets = vec![Target::End; self.pairs.len()];
        for (cause, target) in self.pairs {
            targets[next[cause as usize] as usize] = target;
            next[cause as usize] += 1;
        }
        LedToSorted { starts, targets }
    }
}

impl LedToSorted {
    fn of(&self, cause: u32) -> impl Iterator<Item = Target> + '_ {
        let range =
            if cause == NONE { 0..0 } else { self.starts[cause as usize] as usize..self.starts[cause as usize + 1] as usize };
        self.targets[range].iter().copied()
    }
}
