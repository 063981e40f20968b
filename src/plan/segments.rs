//! Segments: the nodes of one device that are submitted as one, because no host stands between them.
//!
//! ```text
//! a (gpu) ─▶ b (gpu) ─▶ h (host) ─▶ d (gpu)        segments {a, b, c} and {d}: nobody waits for the host who need not,
//!     └────▶ c (gpu) ─────────────────▲            and no way leaves a segment and comes back
//! ```
//! Two nodes may share a segment if the same nodes of the host, and of other devices, come before both: then neither waits longer than it
//! would alone. What comes before a node is a set; sets are numbered as they appear, by what they are made of (hash consing), so that all
//! this is linear. A node that a host waits for ends its segment, with what comes before it there.

use std::collections::{BTreeMap, HashMap};

use super::lower::{Facts, NONE};
use super::order::{Links, Rows};
use super::{Schedule, Step, StreamKind};
use crate::graph::NodeId;

/// The most nodes of a segment: its values live until it is submitted, and a device is to begin while the host goes on.
const MEMBERS_MAX: usize = 256;

/// Which nodes are submitted together.
pub(super) struct Segments {
    /// The segment of each node, or [`NONE`].
    pub(super) of: Vec<u32>,
    /// The nodes of each segment, in issue order, first by first.
    starts: Vec<u32>,
    members: Vec<NodeId>,
    /// What comes right before each node on its stream, and what it waits for.
    pub(super) before: Rows,
    /// The values that the stream of each node no longer needs after it.
    pub(super) releases: Rows,
}

/// What makes nodes of one device wait: a set that is known already, or a node elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Cause {
    On(u32),
    Set(u32),
    Elsewhere(NodeId),
}

impl Segments {
    pub(super) fn new(schedule: &Schedule, facts: &[Facts]) -> Self {
        let (before, releases) = around(schedule);
        let mut search = Search {
            schedule,
            facts,
            before: &before,
            is_heard: vec![false; facts.len()],
            set_of: vec![NONE; facts.len()],
            sets: HashMap::new(),
            open: BTreeMap::new(),
            of: vec![NONE; facts.len()],
            starts: vec![0],
            members: Vec::new(),
        };
        search.hear();
        schedule.order().iter().for_each(|&node| search.visit(node));
        std::mem::take(&mut search.open).into_values().for_each(|open| search.close(open));
        let Search { of, starts, members, .. } = search;
        Self { of, starts, members, before, releases }
    }

    /// Returns the nodes of a segment, in issue order.
    pub(super) fn members(&self, segment: u32) -> &[NodeId] {
        &self.members[self.starts[segment as usize] as usize..self.starts[segment as usize + 1] as usize]
    }

    /// Returns the node that stands for this one: the first of its segment.
    pub(super) fn lead(&self, node: NodeId) -> NodeId {
        match self.of[node.index()] {
            NONE => node,
            segment => self.members(segment)[0],
        }
    }
}

/// Returns for each node what comes before it, on its stream and through waits, and what is released behind it.
fn around(schedule: &Schedule) -> (Rows, Rows) {
    let mut records: Vec<Vec<NodeId>> = vec![Vec::new(); schedule.streams() as usize];
    let (mut edges, mut releases) = (Vec::new(), Vec::new());
    let runs = |stream: u32| schedule.steps(stream).iter();
    for stream in 0..schedule.streams() {
        let mut last = None;
        for step in runs(stream) {
            match *step {
                Step::Run(node) => edges.extend(last.replace(node).map(|before| (before, node, false))),
                Step::Record(_) => records[stream as usize].extend(last),
                Step::Release(value) => releases.extend(last.map(|reader| (reader, value, false))),
                Step::Wait(_) => {}
            }
        }
    }
    for stream in 0..schedule.streams() {
        let mut waits = Vec::new();
        for step in runs(stream) {
            match *step {
                Step::Wait(point) => waits.push(records[point.stream as usize][point.seq as usize - 1]),
                Step::Run(node) => edges.extend(waits.drain(..).map(|source| (source, node, false))),
                _ => {}
            }
        }
    }
    let nodes = schedule.order().len();
    (Links::of(nodes, edges.into_iter()).into, Links::of(nodes, releases.into_iter()).out)
}

struct Search<'a> {
    schedule: &'a Schedule,
    facts: &'a [Facts],
    before: &'a Rows,
    /// Whether someone waits for the node's end who is not of its device.
    is_heard: Vec<bool>,
    /// What must be done elsewhere before each node.
    set_of: Vec<u32>,
    sets: HashMap<Vec<Cause>, u32>,
    /// For each set the nodes that are in no segment yet, in issue order.
    open: BTreeMap<u32, Vec<NodeId>>,
    of: Vec<u32>,
    starts: Vec<u32>,
    members: Vec<NodeId>,
}

impl Search<'_> {
    /// The device of a node whose body enqueues.
    fn device(&self, node: NodeId) -> Option<u32> {
        let kind = || match self.schedule.kind(self.schedule.stream_of(node)) {
            StreamKind::Device(device) => device,
            StreamKind::Host => 0,
        };
        self.facts[node.index()].is_queued.then(kind)
    }

    fn hear(&mut self) {
        for &node in self.schedule.order() {
            for &source in self.before.of(node) {
                self.is_heard[source.index()] |= self.device(source) != self.device(node);
            }
        }
    }

    fn visit(&mut self, node: NodeId) {
        let Some(device) = self.device(node) else { return };
        let set = self.set(node, device);
        self.set_of[node.index()] = set;
        let open = self.open.entry(set).or_default();
        open.push(node);
        if self.is_heard[node.index()] {
            self.close_up_to(node);
        } else if open.len() == MEMBERS_MAX {
            let all = std::mem::take(open);
            self.close(all);
        }
    }

    /// Returns the number of the set of what must be done elsewhere before this node.
    fn set(&mut self, node: NodeId, device: u32) -> u32 {
        let cause = |&before: &NodeId| match self.device(before) == Some(device) {
            true => Cause::Set(self.set_of[before.index()]),
            false => Cause::Elsewhere(before),
        };
        let mut causes: Vec<Cause> = self.before.of(node).iter().map(cause).collect();
        causes.sort_unstable();
        causes.dedup();
        if let [Cause::Set(set)] = causes[..] {
            return set;
        }
        causes.push(Cause::On(device));
        let next = self.sets.len() as u32;
        *self.sets.entry(causes).or_insert(next)
    }

    /// Makes a segment of a node and all that comes before it and is in none yet.
    fn close_up_to(&mut self, node: NodeId) {
        let set = self.set_of[node.index()];
        let open = self.open.get_mut(&set).expect("the node is open");
        let mut found = vec![node];
        let mut next = 0;
        while let Some(&reached) = found.get(next) {
            next += 1;
            for &source in self.before.of(reached) {
                let is_open = self.set_of[source.index()] == set && self.of[source.index()] == NONE;
                if is_open && !found.contains(&source) {
                    found.push(source);
                }
            }
        }
        let (closed, left) = open.iter().partition(|&member| found.contains(member));
        *open = left;
        self.close(closed);
    }

    fn close(&mut self, members: Vec<NodeId>) {
        if members.is_empty() {
            return;
        }
        let segment = self.starts.len() as u32 - 1;
        members.iter().for_each(|node| self.of[node.index()] = segment);
        self.members.extend(members);
        self.starts.push(self.members.len() as u32);
    }
}
