//! Segments: nodes of one device that are submitted as one unit, because they do not need the host in
//! between.
//!
//! ```text
//! a (gpu) ─▶ b (gpu) ─▶ h (host) ─▶ d (gpu)        segments {a, b, c} and {d}: no node waits for the host without need,
//!     └────▶ c (gpu) ─────────────────▲            and no way leaves a segment and comes back
//! ```
//! Two nodes may share a segment if they have the same predecessors on the host and on other devices: then
//! neither waits longer than it would alone. These predecessors are a set. Sets are numbered as they appear,
//! by their parts (hash consing), so the search is linear. If the host waits for a node, the segment ends
//! with this node and its predecessors in the segment.

use std::collections::{BTreeMap, HashMap};

use super::fabric::Facts;
use super::runs::Runs;
use super::{NONE, Schedule, StreamKind};
use crate::graph::{NodeId, Rows};

/// The most nodes of a segment. Its values live until it is submitted.
const MEMBERS_MAX: usize = 256;

/// The nodes that are submitted together.
pub(super) struct Segments {
    /// The segment of each node, or [`NONE`].
    pub(super) of: Vec<u32>,
    /// The nodes of each segment, in issue order. Segments are ordered by their first nodes.
    members: Rows<NodeId>,
    /// For each node, the node before it on its stream, and the nodes that it waits for.
    pub(super) before: Rows<NodeId>,
    /// For each node, the values that its stream does not read any more after it.
    pub(super) releases: Rows<NodeId>,
}

/// A part of a set of predecessors: a known set, or a node of the host or another device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Cause {
    /// A device, and a phase.
    On(u32, u32),
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
            is_awaited_elsewhere: vec![false; facts.len()],
            set_of: vec![NONE; facts.len()],
            sets: HashMap::new(),
            open: BTreeMap::new(),
            of: vec![NONE; facts.len()],
            members: Rows::with_capacity(0),
        };
        search.find_awaited();
        schedule.order().iter().for_each(|&node| search.visit(node));
        std::mem::take(&mut search.open).into_values().for_each(|open| search.close(open));
        let Search { of, members, .. } = search;
        Self { of, members, before, releases }
    }

    pub(super) fn members(&self, segment: u32) -> &[NodeId] {
        self.members.row(segment)
    }

    /// Returns the node that represents this one: the first node of its segment.
    pub(super) fn lead(&self, node: NodeId) -> NodeId {
        match self.of[node.index()] {
            NONE => node,
            segment => self.members(segment)[0],
        }
    }
}

/// Returns for each node the nodes before it, on its stream and by waits, and the releases after it. Each
/// node is on one stream.
fn around(schedule: &Schedule) -> (Rows<NodeId>, Rows<NodeId>) {
    let runs = Runs::new(schedule);
    let node = |run: usize| runs.all[run].node;
    let before = (0..runs.all.len()).flat_map(|run| runs.before(run).map(move |before| (node(run).0, node(before))));
    let before: Vec<(u32, NodeId)> = before.collect();
    let releases = |run: usize| schedule.releases.after.row(run as u32).iter().map(move |&value| (node(run).0, value));
    let releases: Vec<(u32, NodeId)> = (0..runs.all.len()).flat_map(releases).collect();
    let nodes = schedule.order().len();
    (Rows::sorted(nodes, before.iter().copied()), Rows::sorted(nodes, releases.iter().copied()))
}

struct Search<'a> {
    schedule: &'a Schedule,
    facts: &'a [Facts],
    before: &'a Rows<NodeId>,
    /// Whether a node of the host, or of another device, waits for the end of this node.
    is_awaited_elsewhere: Vec<bool>,
    /// For each node, the set of its predecessors on the host and on other devices.
    set_of: Vec<u32>,
    sets: HashMap<Vec<Cause>, u32>,
    /// For each set, its nodes that have no segment yet, in issue order.
    open: BTreeMap<u32, Vec<NodeId>>,
    of: Vec<u32>,
    members: Rows<NodeId>,
}

impl Search<'_> {
    /// Returns the device of a node whose body only enqueues.
    fn device(&self, node: NodeId) -> Option<u32> {
        let kind = || match self.schedule.kind(self.schedule.stream_of(node)) {
            StreamKind::Device(device) => device,
            StreamKind::Host => 0,
        };
        self.facts[node.index()].is_queued.then(kind)
    }

    fn find_awaited(&mut self) {
        for &node in self.schedule.order() {
            for &source in self.before.of(node) {
                self.is_awaited_elsewhere[source.index()] |= self.device(source) != self.device(node);
            }
        }
    }

    fn visit(&mut self, node: NodeId) {
        let Some(device) = self.device(node) else { return };
        let set = self.set(node, device);
        self.set_of[node.index()] = set;
        let open = self.open.entry(set).or_default();
        open.push(node);
        if self.is_awaited_elsewhere[node.index()] {
            self.close_up_to(node);
        } else if open.len() == MEMBERS_MAX {
            let all = std::mem::take(open);
            self.close(all);
        }
    }

    /// Returns the number of the set of this node's predecessors on the host and on other devices.
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
        let phase = self.schedule.phases().map_or(0, |phases| phases[node.index()]);
        causes.push(Cause::On(device, phase));
        let next = self.sets.len() as u32;
        *self.sets.entry(causes).or_insert(next)
    }

    /// Makes a segment of a node and its predecessors that have the same set and no segment yet.
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
        members.iter().for_each(|node| self.of[node.index()] = self.members.count());
        self.members.push(members);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;
    use crate::graph::{Backend, Shape};
    use crate::plan::policies::{PerBackend, PerOperator, Policy, Ranked, Single};

    const QUEUED: Facts =
        Facts { is_async: false, is_control: false, is_queued: true, is_shared: false, is_taken: false, is_in_place: true };
    const HOST: Facts = Facts { is_queued: false, ..QUEUED };

    /// Returns segments by the names of their nodes. The names of host nodes begin with `h`.
    fn segments(edges: &[(&str, &str)], policy: &dyn Policy) -> BTreeSet<Vec<String>> {
        let mut shape = Shape::new();
        let mut nodes: BTreeMap<&str, NodeId> = BTreeMap::new();
        for (source, target) in edges {
            let [source, target] = [source, target].map(|name| {
                let backend = if name.starts_with('h') { Backend::Cpu } else { Backend::Gpu };
                *nodes.entry(name).or_insert_with(|| shape.node((*name).to_owned(), backend))
            });
            shape.order(source, target);
        }
        let facts = |node: &NodeId| if shape.name_of(*node).starts_with('h') { HOST } else { QUEUED };
        let facts: Vec<Facts> = shape.ids().map(|node| facts(&node)).collect();
        let schedule = shape.schedule_with(policy).expect("it is a valid graph");
        let found = Segments::new(&schedule, &facts);
        let names = |segment: u32| found.members(segment).iter().map(|node| shape.name_of(*node).to_string()).collect();
        (0..found.members.count()).map(names).collect()
    }

    fn sets(sets: &[&[&str]]) -> BTreeSet<Vec<String>> {
        sets.iter().map(|set| set.iter().map(|&name| name.to_owned()).collect()).collect()
    }

    #[test]
    fn what_no_host_node_stands_between_is_submitted_together() {
        let diamond = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")];
        for policy in [&PerOperator as &dyn Policy, &Single] {
            assert_eq!(segments(&diamond, policy), sets(&[&["a", "b", "c", "d"]]));
        }
        let around_a_host_node = [("a", "b"), ("a", "c"), ("b", "h"), ("h", "d"), ("c", "d")];
        assert_eq!(segments(&around_a_host_node, &PerOperator), sets(&[&["a", "b"], &["c"], &["d"]]));
    }

    #[test]
    fn a_node_with_fewer_waits_is_submitted_earlier() {
        // Seen to fail with one set for all nodes.
        let two_inputs = [("h1", "a"), ("h2", "b"), ("a", "c"), ("b", "c"), ("h1", "a2"), ("a2", "c")];
        assert_eq!(segments(&two_inputs, &PerOperator), sets(&[&["a", "a2"], &["b"], &["c"]]));
    }

    #[test]
    fn a_node_that_the_host_waits_for_does_not_wait_for_what_comes_later() {
        // Seen to fail without `close_up_to`.
        let early = [("a", "d1"), ("d1", "h"), ("a", "b"), ("b", "c")];
        assert_eq!(segments(&early, &PerOperator), sets(&[&["a", "d1"], &["b", "c"]]));
    }

    /// Checks the segments of a random graph with none of the data of the search.
    fn check(shape: &Shape, facts: &[Facts], policy: &dyn Policy) {
        let schedule = shape.schedule_with(policy).expect("it is a valid graph");
        let found = Segments::new(&schedule, facts);
        let elsewhere = elsewhere(&schedule, facts, &found.before);
        for segment in 0..found.members.count() {
            let members = found.members(segment);
            assert!(!members.is_empty() && members.len() <= MEMBERS_MAX);
            for node in members {
                assert!(facts[node.index()].is_queued && found.of[node.index()] == segment);
                assert_eq!(elsewhere[node.index()], elsewhere[members[0].index()], "what {members:?} wait for");
            }
        }
        assert!(schedule.order().iter().all(|node| (found.of[node.index()] == NONE) != facts[node.index()].is_queued));
        assert_no_cycle(&schedule, &found);
    }

    /// Returns for each node all host nodes that precede it, directly or indirectly.
    fn elsewhere(schedule: &Schedule, facts: &[Facts], before: &Rows<NodeId>) -> Vec<BTreeSet<NodeId>> {
        let mut sets = vec![BTreeSet::new(); facts.len()];
        for &node in schedule.order() {
            let mut set = BTreeSet::new();
            for &source in before.of(node) {
                set.extend(&sets[source.index()]);
                set.extend((!facts[source.index()].is_queued).then_some(source));
            }
            sets[node.index()] = set;
        }
        sets
    }

    /// Checks that the segments and other nodes can be ordered one after the other.
    fn assert_no_cycle(schedule: &Schedule, found: &Segments) {
        let unit = |node: NodeId| found.lead(node);
        let edges: BTreeSet<(NodeId, NodeId)> = schedule
            .order()
            .iter()
            .flat_map(|&node| found.before.of(node).iter().map(move |&source| (source, node)))
            .map(|(source, target)| (unit(source), unit(target)))
            .filter(|(source, target)| source != target)
            .collect();
        let units: BTreeSet<NodeId> = schedule.order().iter().map(|&node| unit(node)).collect();
        let mut missing: BTreeMap<NodeId, usize> = units.iter().map(|&unit| (unit, 0)).collect();
        edges.iter().for_each(|(_, target)| *missing.get_mut(target).expect("it is a unit") += 1);
        let mut ready: VecDeque<NodeId> = units.into_iter().filter(|unit| missing[unit] == 0).collect();
        let mut done = 0;
        while let Some(next) = ready.pop_front() {
            done += 1;
            for (_, target) in edges.iter().filter(|(source, _)| *source == next) {
                let missing = missing.get_mut(target).expect("it is a unit");
                *missing -= 1;
                ready.extend((*missing == 0).then_some(*target));
            }
        }
        assert_eq!(done, missing.len(), "segments wait for each other in a cycle");
    }

    #[test]
    fn segments_of_random_graphs_wait_for_the_same_and_never_in_a_cycle() {
        // Seen to fail (with a cycle) with all open nodes in one segment whenever another device or the host
        // waits for one of them, and with sets that leave out nodes elsewhere.
        for seed in 1..=200_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut dice = move |sides: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % sides
            };
            let (mut shape, mut facts) = (Shape::new(), Vec::new());
            for node in 0..40_u32 {
                let is_host = dice(4) == 0;
                let made = shape.node(node.to_string(), if is_host { Backend::Cpu } else { Backend::Gpu });
                facts.push(if is_host { HOST } else { QUEUED });
                let sources: BTreeSet<u32> = (0..dice(3)).filter(|_| node > 0).map(|_| dice(u64::from(node)) as u32).collect();
                sources.into_iter().for_each(|source| shape.order(NodeId(source), made));
            }
            for policy in [&PerOperator as &dyn Policy, &Single, &PerBackend, &Ranked::default()] {
                println!("seed {seed}, {}", policy.name());
                check(&shape, &facts, policy);
            }
        }
    }

    #[test]
    fn long_chains_are_cut() {
        let mut shape = Shape::new();
        let nodes: Vec<NodeId> = (0..1000).map(|node| shape.node(node.to_string(), Backend::Gpu)).collect();
        nodes.windows(2).for_each(|pair| shape.order(pair[0], pair[1]));
        check(&shape, &[QUEUED; 1000], &PerOperator);
    }
}
