//! Phases that only continue another phase. A run treats both as one phase, without a gate between them.
//!
//! A phase continues another one if it begins exactly when that one ends, for any durations of nodes:
//!
//! ```text
//!  the first phase      its end leads to the other phase of its item, and to nothing else
//!  the other phase      nothing else leads to it, and each of its first nodes depends on each last node
//!                       of the first phase
//! ```
//! Neither has an edge from item to item. So with or without a gate, each node begins at the same time. Both
//! are on the host: a phase of kernels is queued as one unit, behind that of the item before.

use std::collections::{HashMap, HashSet};

use super::Pipelining;
use super::pipelining::{Arrow, Feed, PhaseRule};
use crate::graph::{Backend, Graph, NodeId};

impl Pipelining {
    /// Returns the joined phase of each phase. None if no phase continues another.
    pub(crate) fn joined_of(&self, graph: &Graph, phase_of: &[u32]) -> Option<Vec<u32>> {
        if !(0..self.phases.len()).any(|phase| self.only_next(phase).is_some()) {
            return None;
        }
        // Whether such an edge has arrows depends on the number of items in flight. The joined phases must
        // not.
        let mut has_item_edge = vec![false; self.phases.len()];
        for edge in &graph.item_edges {
            [edge.source, edge.target].iter().for_each(|node| has_item_edge[phase_of[node.index()] as usize] = true);
        }
        let ends = Ends::new(graph, phase_of, self.phases.len());
        let mut last: Vec<u32> = (0..self.phases.len() as u32).collect();
        for phase in (0..self.phases.len()).rev() {
            let is_free = |next: u32| !has_item_edge[phase] && !has_item_edge[next as usize];
            if let Some(next) = self.only_next(phase).filter(|&next| is_free(next) && ends.is_continued(phase as u32, next)) {
                last[phase] = last[next as usize];
            }
        }
        let mut kept = last.clone();
        kept.sort_unstable();
        kept.dedup();
        let number = |last: u32| kept.binary_search(&last).expect("it is among them") as u32;
        (kept.len() < last.len()).then(|| last.into_iter().map(number).collect())
    }

    /// Returns the phase that a phase leads to, if it leads to no other, and no other phase leads there.
    fn only_next(&self, phase: usize) -> Option<u32> {
        let rule = &self.phases[phase];
        match rule.arrows[..] {
            // A phase that feeds also has an arrow to itself.
            [Arrow { phase: next, shift: 0 }] if self.phases[next as usize].arrivals == 1 => Some(next),
            _ => None,
        }
    }

    /// Returns how the graph runs over items with these joined phases.
    pub(crate) fn joined(&self, joined_of: &[u32]) -> Self {
        let mut phases: Vec<PhaseRule> = Vec::new();
        for (rule, &number) in self.phases.iter().zip(joined_of) {
            let to_joined = |arrow: &Arrow| Arrow { phase: joined_of[arrow.phase as usize], ..*arrow };
            let rule = PhaseRule { arrows: rule.arrows.iter().map(to_joined).collect(), ..rule.clone() };
            phases.resize_with(phases.len().max(number as usize + 1), PhaseRule::default);
            let joined = &mut phases[number as usize];
            // The first of the joined phases has the gate. The last one has the arrows.
            let arrivals = if joined.arrivals == 0 { rule.arrivals } else { joined.arrivals };
            *joined = PhaseRule { arrivals, ..rule };
        }
        let mut begun_by_source: Vec<u32> = self.begun_by_source.iter().map(|&phase| joined_of[phase as usize]).collect();
        begun_by_source.sort_unstable();
        let feeds = self.feeds.iter().map(|feed| Feed { phase: joined_of[feed.phase as usize], ..*feed }).collect();
        Self { phases, begun_by_source, feeds, ..self.clone() }
    }
}

/// The beginnings and ends of phases.
struct Ends {
    /// For each phase, the number of its nodes that depend on no other node of it, and of those on which no
    /// other node of it depends.
    firsts: Vec<usize>,
    lasts: Vec<usize>,
    is_on_host: Vec<bool>,
    /// The number of edges from a last node of one phase to a first node of another.
    pairs: HashMap<(u32, u32), usize>,
}

impl Ends {
    fn new(graph: &Graph, phase_of: &[u32], depth: usize) -> Self {
        let (shape, phase) = (graph.shape(), |node: NodeId| phase_of[node.index()]);
        let (mut is_first, mut is_last) = (vec![true; phase_of.len()], vec![true; phase_of.len()]);
        for edge in shape.edges().iter().filter(|edge| phase(edge.source) == phase(edge.target)) {
            (is_first[edge.target.index()], is_last[edge.source.index()]) = (false, false);
        }
        let mut ends =
            Self { firsts: vec![0; depth], lasts: vec![0; depth], is_on_host: vec![true; depth], pairs: HashMap::new() };
        for node in shape.ids() {
            let of = phase(node) as usize;
            ends.firsts[of] += usize::from(is_first[node.index()]);
            ends.lasts[of] += usize::from(is_last[node.index()]);
            ends.is_on_host[of] &= shape.nodes()[node.index()].backend == Backend::Cpu;
        }
        let edges: HashSet<_> = shape.edges().iter().map(|edge| (edge.source, edge.target)).collect();
        for (source, target) in edges.into_iter().filter(|(source, target)| is_last[source.index()] && is_first[target.index()]) {
            *ends.pairs.entry((phase(source), phase(target))).or_default() += 1;
        }
        ends
    }

    /// Returns whether a phase ends exactly when all first nodes of the next one can begin.
    fn is_continued(&self, phase: u32, next: u32) -> bool {
        let (lasts, firsts) = (self.lasts[phase as usize], self.firsts[next as usize]);
        let is_whole = self.pairs.get(&(phase, next)) == Some(&(lasts * firsts));
        is_whole && self.is_on_host[phase as usize] && self.is_on_host[next as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Value;
    use crate::plan::Wanted;

    const ELASTIC: Wanted = Wanted { slots: 4, is_lockstep: false, is_serial: false };

    fn piped(graph: &Graph, phase_of: &[u32], wanted: Wanted) -> Pipelining {
        Pipelining::new(graph, phase_of, &[], wanted).expect("the phases fit")
    }

    /// Returns the joined phases without lockstep.
    fn joined_of(graph: &Graph, phase_of: &[u32]) -> Option<Vec<u32>> {
        piped(graph, phase_of, ELASTIC).joined_of(graph, phase_of)
    }

    /// Returns a chain of nodes. The node with the number `holder` holds a state.
    fn row(nodes: usize, holder: Option<usize>) -> Graph {
        let mut g = Graph::new();
        let mut last: Value<u64> = g.input("item");
        for number in 0..nodes {
            let name = format!("node {number}");
            last = if holder == Some(number) {
                let mut state = g.state("state", || 0);
                g.task(name, (&mut state, &last), |_: &mut u64, x: &u64| *x)
            } else {
                g.task(name, &last, |x: &u64| *x)
            };
        }
        g.output("last", &last);
        g
    }

    #[test]
    fn phases_of_a_row_are_joined_up_to_a_state() {
        // Seen to fail with arrows that lead to the old phases.
        let each = |nodes: u32| (0..nodes).collect::<Vec<_>>();
        assert_eq!(joined_of(&row(4, None), &each(4)), Some(vec![0; 4]));
        assert_eq!(joined_of(&row(4, None), &[0, 0, 1, 1]), Some(vec![0; 2]));
        assert_eq!(joined_of(&row(4, None), &[0; 4]), None);
        // No phase is joined to the phase with the state: it begins after two phases, and its end begins two.
        assert_eq!(joined_of(&row(5, Some(2)), &each(5)), Some(vec![0, 0, 1, 2, 2]));
        let (graph, phase_of) = (row(5, Some(2)), each(5));
        let joined = piped(&graph, &phase_of, ELASTIC).joined(&[0, 0, 1, 2, 2]);
        let arrows: Vec<_> = joined.phases.iter().map(|rule| (rule.arrivals, &rule.arrows[..], rule.is_followed)).collect();
        let [own, next, last] = [(1, 1), (1, 0), (2, 0)].map(|(phase, shift)| Arrow { phase, shift });
        assert_eq!(arrows, [(1, &[next][..], true), (2, &[own, last], true), (1, &[], false)]);
        assert_eq!((joined.begun_by_source, joined.last_phases), (vec![0], 1));
    }

    #[test]
    fn phases_with_more_than_one_thing_to_wait_for_are_not_joined() {
        let (graph, each) = (row(3, None), [0, 1, 2]);
        let lockstep = piped(&graph, &each, Wanted { is_lockstep: true, ..ELASTIC });
        let serial = piped(&graph, &each, Wanted { is_serial: true, ..ELASTIC });
        assert_eq!((lockstep.joined_of(&graph, &each), serial.joined_of(&graph, &each)), (None, None));
        let mut g = Graph::new();
        let item = g.input::<u64>("item");
        let [left, right] = ["left", "right"].map(|name| g.task(name, &item, |x: &u64| *x));
        let sum = g.task("sum", (&left, &right), |x: &u64, y: &u64| x + y);
        g.output("sum", &sum);
        assert_eq!(joined_of(&g, &[0, 1, 2]), None);
        // Seen to fail without the count of the nodes between which there are edges.
        assert_eq!(joined_of(&g, &[0, 0, 1]), Some(vec![0; 2]));
        let more = g.task("more", &left, |x: &u64| *x);
        g.output("more", &more);
        assert_eq!(joined_of(&g, &[0, 0, 1, 1]), None);
    }

    #[test]
    fn a_phase_is_joined_to_one_that_is_not_the_next() {
        // Seen to fail with the old numbers of phases.
        let mut g = Graph::new();
        let item = g.input::<u64>("item");
        let [a, b] = ["a", "b"].map(|name| g.task(name, &item, |x: &u64| *x));
        let c = g.task("c", &a, |x: &u64| *x);
        let d = g.task("d", (&b, &c), |x: &u64, y: &u64| x + y);
        g.output("d", &d);
        let each = [0, 1, 2, 3];
        assert_eq!(joined_of(&g, &each), Some(vec![1, 0, 1, 2]));
        let joined = piped(&g, &each, ELASTIC).joined(&[1, 0, 1, 2]);
        let to_last = [Arrow { phase: 2, shift: 0 }];
        let arrows: Vec<_> = joined.phases.iter().map(|rule| (rule.arrivals, &rule.arrows[..])).collect();
        assert_eq!(arrows, [(1, &to_last[..]), (1, &to_last), (2, &[])]);
        assert_eq!((joined.begun_by_source, joined.last_phases), (vec![0, 1], 1));
    }

    #[test]
    fn a_feedback_keeps_its_age_when_phases_are_joined() {
        // Seen to fail with the old phases of feeds.
        let (mut g, each) = (Graph::new(), [0, 1, 2, 3]);
        let before = g.feedback("before", || 0);
        let mut last = g.task("first", &*before, |x: &u64| *x);
        for name in ["second", "third", "fourth"] {
            last = g.task(name, &last, |x: &u64| *x);
        }
        g.feed(before, &last);
        g.output("last", &last);
        assert_eq!(joined_of(&g, &each), Some(vec![0, 1, 1, 2]));
        let joined = piped(&g, &each, ELASTIC).joined(&[0, 1, 1, 2]);
        assert_eq!(joined.feeds.iter().map(|feed| (feed.phase, feed.lag)).collect::<Vec<_>>(), [(2, 4)]);
    }

    #[test]
    fn phases_of_a_device_are_not_joined() {
        let mut g = row(2, None);
        let value = g.value_named::<u64>("node 1");
        g.node(&value).backend(Backend::Gpu);
        assert_eq!(joined_of(&g, &[0, 1]), None);
    }
}
