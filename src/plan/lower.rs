//! From a schedule to the code that hosts run. Linear in steps.

use super::code::{Code, Gate, HostStep, QueuedStep, Target, flag};
use super::queued::Causes;
use super::{Point, Schedule, Step};
use crate::graph::{Body, NodeId};
use crate::value::{Access, Arena};

/// The most that arrive at one gate; with more it becomes a tree.
const FAN_IN: usize = 32;

/// What the lowering must know besides the schedule, node by node.
pub(super) struct Lowering<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) bodies: &'a Arena<dyn Body>,
    pub(super) facts: &'a [Facts],
}

/// What a graph says of a node and its value.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(super) is_async: bool,
    /// The body may only enqueue the work.
    pub(super) is_queued: bool,
    /// The value is stored as an `Arc`.
    pub(super) is_shared: bool,
    /// A reader moves the value out.
    pub(super) is_taken: bool,
    /// The value, and all that the node reads, is in place.
    pub(super) is_in_place: bool,
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

pub(super) const NONE: u32 = u32::MAX;

impl Lowering<'_> {
    pub(super) fn lower(&self) -> Code {
        let records = Records::new(self.schedule);
        let mut causes = Causes::new(self.facts, &records);
        let programs = records.number_programs(self.schedule, &causes);
        let mut code = Code {
            steps: Vec::with_capacity(self.facts.len()),
            bodies: self.bodies.clone(),
            nodes: Vec::with_capacity(self.facts.len()),
            starts: Vec::with_capacity(programs.streams.len() + 1),
            streams: programs.streams,
            roots: programs.roots,
            targets: Vec::new(),
            gates: Vec::new(),
            step_of: vec![NONE; self.facts.len()],
            asyncs: Vec::new(),
            queued: Vec::new(),
            queued_of: Vec::new(),
            queue_waits: Vec::new(),
            events: 0,
            drops: Vec::new(),
        };
        // What each record leads to: gates are known only once all waits were seen, so this comes in two passes.
        let mut led_to = LedTo::new(causes.count());
        let mut gate_before = vec![NONE; self.facts.len()];
        for program in 0..code.programs() {
            self.add_gates(program, &records, &mut causes, &mut code, &mut led_to, &mut gate_before);
        }
        code.events = causes.events();
        led_to.start_programs(&programs.started_by, programs.roots);
        let led_to = led_to.sorted();
        let release_gates = self.add_release_gates(&mut code);
        let ends = self.add_end_gates(&mut code, &records);
        for program in 0..code.programs() {
            code.starts.push(code.steps.len() as u32);
            let end = ends[program as usize];
            self.add_steps(program, &records, &mut causes, &led_to, &gate_before, &release_gates, end, &mut code);
        }
        code.starts.push(code.steps.len() as u32);
        self.settle_releases(&mut code);
        code
    }

    /// Makes the gates before this program's nodes, and notes which records arrive at them.
    fn add_gates(
        &self,
        program: u32,
        records: &Records,
        causes: &mut Causes<'_>,
        code: &mut Code,
        led_to: &mut LedTo,
        gate_before: &mut [u32],
    ) {
        let steps = self.schedule.steps(code.streams[program as usize]);
        let mut previous = None;
        for stop in stops(steps, records) {
            let waits = &steps[stop.waits.0 as usize..stop.waits.1 as usize];
            let own = u32::from(!stop.is_first);
            // The stream's order makes a queued node wait for the one before it, but not a host node.
            let is_behind = |&before: &NodeId| causes.is_queued(before) && !causes.is_queued(stop.node);
            let behind = previous.replace(stop.node).filter(is_behind).map(|before| causes.behind(before));
            let arrivals = waits.iter().map(|step| causes.of(records.of_wait(step), stop.node));
            let arrivals: Vec<u32> = arrivals.chain(behind).collect();
            waits.iter().for_each(|step| _ = causes.wait(records.of_wait(step), stop.node));
            if arrivals.len() as u32 + own < 2 {
                continue;
            }
            let then = Target::Start { first: program, count: 1 };
            let gate =
                add_tree(&mut code.gates, arrivals.len(), own, then, |at, gate| led_to.push(arrivals[at], Target::Arrive(gate)));
            gate_before[stop.node.index()] = gate;
        }
    }

    /// Makes the gates of values that are released by several streams. Returns what one release of each node does.
    fn add_release_gates(&self, code: &mut Code) -> Vec<Option<Target>> {
        (0..self.facts.len() as u32)
            .map(|index| {
                let node = NodeId(index);
                let releases = self.schedule.releases_of(node);
                if releases == 0 || !self.must_drop(node) || self.facts[node.index()].is_taken {
                    return None;
                }
                // A node stands here for its step, which is not known yet; `settle_releases` puts that in.
                let then = Target::Release(index);
                if releases == 1 {
                    return Some(then);
                }
                code.gates.push(Gate { count: releases, then });
                Some(Target::Arrive(code.gates.len() as u32 - 1))
            })
            .collect()
    }

    /// Makes the gate at which every program arrives whose end nothing else waits for. Returns where each one arrives.
    fn add_end_gates(&self, code: &mut Code, records: &Records) -> Vec<Option<Target>> {
        let is_sink = |&program: &u32| {
            let last = stops(self.schedule.steps(code.streams[program as usize]), records).last();
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
        program: u32,
        records: &Records,
        causes: &mut Causes<'_>,
        led_to: &LedToSorted,
        gate_before: &[u32],
        release_gates: &[Option<Target>],
        end: Option<Target>,
        code: &mut Code,
    ) {
        let steps = self.schedule.steps(code.streams[program as usize]);
        let (mut previous, records_of): (Option<usize>, _) = (None, records);
        for stop in stops(steps, records) {
            let index = code.steps.len();
            let gate = gate_before[stop.node.index()];
            if let (Some(previous), true) = (previous, gate != NONE) {
                code.steps[previous].gate = gate;
                code.steps[previous].flags |= flag::GATE;
            }
            previous = Some(index);
            let targets = code.targets.len() as u32;
            let records = led_to.of(causes.submitted(stop.record));
            let releases = steps[stop.releases.0 as usize..stop.releases.1 as usize].iter().filter_map(|step| match step {
                Step::Release(node) => release_gates[node.index()],
                _ => None,
            });
            if stop.is_last {
                // Whatever follows a program's last target may find the run gone, so the releases come first.
                code.targets.extend(releases);
                code.targets.extend(records);
            } else {
                code.targets.extend(records);
                code.targets.extend(releases);
            }
            let end = if stop.is_last && stop.record == NONE { end } else { None };
            let submitted = code.targets.len() as u32;
            if self.facts[stop.node.index()].is_queued {
                code.targets.extend(led_to.of(causes.reached(stop.record)));
                code.targets.extend(led_to.of(causes.behind(stop.node)));
                code.targets.extend(end);
                let reached = (submitted, code.targets.len() as u32 - submitted);
                self.add_queued(&stop, &steps[stop.waits.0 as usize..stop.waits.1 as usize], reached, records_of, causes, code);
                self.add_step(&stop, targets, submitted - targets, code);
            } else {
                code.targets.extend(end);
                let len = code.targets.len() as u32 - targets;
                self.add_step(&stop, targets, len, code);
            }
        }
    }

    /// Adds what a step has besides whose body enqueues.
    fn add_queued(
        &self,
        stop: &Stop,
        waits: &[Step],
        reached: (u32, u32),
        records: &Records,
        causes: &mut Causes<'_>,
        code: &mut Code,
    ) {
        let first = code.queue_waits.len() as u32;
        code.queue_waits.extend(waits.iter().filter_map(|step| causes.wait(records.of_wait(step), stop.node)));
        let waits = (first, code.queue_waits.len() as u32 - first);
        let step = code.steps.len() as u32;
        code.queued_of.resize(self.facts.len(), NONE);
        code.queued_of[step as usize] = code.queued.len() as u32;
        code.queued.push(QueuedStep { step, waits, event: causes.event(stop.record), reached });
    }

    fn add_step(&self, stop: &Stop, targets: u32, len: u32, code: &mut Code) {
        let index = code.steps.len() as u32;
        let Facts { is_async, is_queued, .. } = self.facts[stop.node.index()];
        let mut flags = 0;
        let mut set = |is_set: bool, flag: u8| flags |= if is_set { flag } else { 0 };
        // The most common list is one arrival: it stands in the step itself.
        let (targets, targets_len) = match code.targets[targets as usize..] {
            [Target::Arrive(gate)] if !is_queued => {
                code.targets.truncate(targets as usize);
                set(true, flag::ARRIVE);
                (gate, 0)
            }
            _ => (targets, len),
        };
        set(targets_len > 0, flag::TARGETS);
        set(stop.is_last, flag::LAST);
        set(is_async, flag::ASYNC);
        set(is_queued, flag::QUEUED);
        code.step_of[stop.node.index()] = index;
        if is_async {
            code.asyncs.push(index);
        }
        if self.must_drop(stop.node) {
            code.drops.push(index);
        }
        code.nodes.push(stop.node);
        let access = self.access(stop.node);
        let call = self.bodies.get(stop.node.index()).call(access == Access::InPlace);
        code.steps.push(HostStep { call, targets, targets_len, gate: NONE, flags, access });
    }

    /// Turns the nodes in `Release` targets into their steps.
    fn settle_releases(&self, code: &mut Code) {
        let thens = code.gates.iter_mut().map(|gate| &mut gate.then);
        for target in code.targets.iter_mut().chain(thens) {
            if let Target::Release(node) = target {
                *node = code.step_of[*node as usize];
            }
        }
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

/// Makes a gate for `arrivals` and `own` more that arrive at its root; `arrive` is told the gate of each arrival.
fn add_tree(gates: &mut Vec<Gate>, arrivals: usize, own: u32, then: Target, mut arrive: impl FnMut(usize, u32)) -> u32 {
    // Levels from the arrivals up: level 0 are the arrivals, each further one the gates for FAN_IN of the level below.
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

/// Numbers all records: stream after stream.
pub(super) struct Records {
    /// The number of the first record of each stream, and of all.
    starts: Vec<u32>,
    /// The node of each record.
    nodes: Vec<NodeId>,
}

/// The programs in the order in which hosts number them.
struct Numbering {
    streams: Vec<u32>,
    roots: u32,
    /// For each program after the roots that one record starts: that record.
    started_by: Vec<u32>,
}

impl Records {
    fn new(schedule: &Schedule) -> Self {
        let (mut starts, mut nodes) = (vec![0], Vec::with_capacity(schedule.records()));
        for stream in 0..schedule.streams() {
            let mut last = NodeId(0);
            for step in schedule.steps(stream) {
                match step {
                    Step::Run(node) => last = *node,
                    Step::Record(_) => nodes.push(last),
                    _ => {}
                }
            }
            starts.push(nodes.len() as u32);
        }
        Self { starts, nodes }
    }

    /// Returns the node of a record.
    pub(super) fn node(&self, record: u32) -> NodeId {
        self.nodes[record as usize]
    }

    pub(super) fn count(&self) -> usize {
        self.starts[self.starts.len() - 1] as usize
    }

    fn of(&self, point: Point) -> u32 {
        self.starts[point.stream as usize] + point.seq - 1
    }

    fn of_wait(&self, step: &Step) -> u32 {
        match step {
            Step::Wait(point) => self.of(*point),
            _ => unreachable!("only the waits before a node are asked"),
        }
    }

    /// Roots first; then those that a single record starts, record after record, so that one ticket names all of them; then
    /// those behind a gate. Each in the order of their first nodes in the graph, because what was made together runs close in time, and lies
    /// close in memory too: in the order of streams a random graph of 10⁶ nodes took six times as long.
    fn number_programs(&self, schedule: &Schedule, causes: &Causes<'_>) -> Numbering {
        let (mut roots, mut started, mut gated) = (Vec::new(), Vec::new(), Vec::new());
        let first = |stream: &u32| {
            schedule.steps(*stream).iter().find_map(|step| if let Step::Run(node) = step { Some(*node) } else { None })
        };
        for stream in 0..schedule.streams() {
            match schedule.steps(stream) {
                // A stream that only has further parts of nodes: the host has nothing to do there.
                [] => {}
                [Step::Wait(_), Step::Wait(_), ..] => gated.push(stream),
                [Step::Wait(point), Step::Run(node), ..] => {
                    let record = self.of(*point);
                    started.push((self.node(record), causes.of(record, *node), stream));
                }
                [Step::Wait(_), ..] => unreachable!("a node follows its waits"),
                _ => roots.push(stream),
            }
        }
        roots.sort_by_cached_key(first);
        gated.sort_by_cached_key(first);
        started.sort_unstable();
        let count = roots.len() as u32;
        let started_by = started.iter().map(|&(_, cause, _)| cause).collect();
        let streams = roots.into_iter().chain(started.into_iter().map(|(.., stream)| stream)).chain(gated).collect();
        Numbering { streams, roots: count, started_by }
    }
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
