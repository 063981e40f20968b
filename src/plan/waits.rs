//! The fewest waits that keep every edge: the cross-stream edges in the transitive reduction of the graph's
//! edges and the order of the streams.

use super::NONE;
use super::marks::Marks;
use crate::graph::{Links, NodeId, Rows};

/// The most nodes that the search for one target visits, if it need not be exact.
const EFFORT_MAX: usize = 32;

/// Finds the waits of a schedule that issues nodes by number. `stream_of` has the stream of each node. In
/// this file, a node may be a part of a node, see [`super::parts`].
///
/// A wait u → v is redundant exactly if a longer path leads from u to v, over edges and over the order of the
/// streams. The waits are the transitive reduction, which is unique (Aho, Garey and Ullman, "The transitive
/// reduction of a directed graph", 1972). So for each target, one search goes backwards from its direct
/// predecessors. A candidate is implied if the search meets it or a later node of its stream:
///
/// ```text
///   stream 0   u ──── y          candidate u of v: the search from v's predecessor w meets y, which stream 0
///              │      │          runs after u, so waiting for w is waiting for u
///              │      ▼
///   stream 1   │      w ─▶ v
///              └───────────┘
/// ```
///
/// A reduction orders the same nodes as the graph. So the search follows the waits already found instead of
/// the edges: it jumps along each stream from one node with waits to the previous one. It stops at the lowest
/// level and the earliest place of the remaining candidates. Levels count the order of streams too. Published
/// schedulers keep vector clocks instead, which cost O(nodes × streams).
///
/// O(n + m) apart from the searches. They are exhaustive if `is_exact`. Otherwise each visits at most
/// [`EFFORT_MAX`] nodes per target, and a redundant wait may remain. No wait can be missing: every edge
/// starts as a candidate.
pub(super) fn fewest(links: &Links, stream_of: &[u32], streams: usize, is_exact: bool) -> Rows<NodeId> {
    let mut waits = Rows::with_capacity(links.nodes());
    let mut reduction = Reduction::new(links, stream_of, streams, is_exact);
    for target in links.ids() {
        reduction.enter(target);
        reduction.collect(target);
        if !reduction.candidates.is_empty() {
            reduction.search(&waits, target);
        }
        reduction.keep(&mut waits, target);
    }
    waits
}

/// The facts about a node that the search needs, together in memory.
#[derive(Clone, Copy)]
struct Spot {
    stream: u32,
    /// The length of the longest path to it, over edges and over the order of streams.
    level: u32,
    /// The previous node on its stream.
    before: u32,
    /// The last node with waits on its stream, up to and including itself.
    turn: u32,
}

struct Reduction<'a> {
    links: &'a Links,
    spots: Vec<Spot>,
    /// The last node of each stream so far.
    last: Vec<u32>,
    /// For each stream, its candidate, if there is one.
    wanted: Vec<u32>,
    /// The candidates of the current target: at most one for each stream.
    candidates: Vec<NodeId>,
    /// The state of the search: the visited nodes that have waits, and those of them that are not expanded
    /// yet.
    seen: Marks,
    met: Vec<NodeId>,
    effort: usize,
}

impl<'a> Reduction<'a> {
    fn new(links: &'a Links, stream_of: &[u32], streams: usize, is_exact: bool) -> Self {
        let spot = |&stream: &u32| Spot { stream, level: 0, before: NONE, turn: NONE };
        let spots = stream_of.iter().map(spot).collect();
        Self {
            links,
            spots,
            last: vec![NONE; streams],
            wanted: vec![NONE; streams],
            candidates: Vec::new(),
            seen: Marks::new(links.nodes()),
            met: Vec::new(),
            effort: if is_exact { usize::MAX } else { EFFORT_MAX },
        }
    }

    /// Appends `target` to its stream.
    fn enter(&mut self, target: NodeId) {
        let stream = self.spots[target.index()].stream as usize;
        let before = std::mem::replace(&mut self.last[stream], target.0);
        let (above, turn) = self.spots.get(before as usize).map_or((0, NONE), |spot| (spot.level + 1, spot.turn));
        let level = self.links.into.of(target).iter().map(|source| self.spots[source.index()].level + 1).fold(above, u32::max);
        let spot = &mut self.spots[target.index()];
        (spot.level, spot.before, spot.turn) = (level, before, turn);
    }

    /// Gathers the candidates: for each other stream the last node with an edge to `target`.
    fn collect(&mut self, target: NodeId) {
        self.candidates.clear();
        let own = self.spots[target.index()].stream;
        for &source in self.links.into.of(target) {
            let spot = self.spots[source.index()];
            if spot.stream == own {
                continue;
            }
            let wanted = &mut self.wanted[spot.stream as usize];
            if *wanted == NONE {
                *wanted = source.0;
                self.candidates.push(source);
            } else {
                *wanted = source.0.max(*wanted);
            }
        }
        for candidate in &mut self.candidates {
            *candidate = NodeId(self.wanted[self.spots[candidate.index()].stream as usize]);
        }
    }

    /// Searches backwards from the candidates and from the node before `target` on its stream. Removes each
    /// implied candidate from `wanted`.
    fn search(&mut self, waits: &Rows<NodeId>, target: NodeId) {
        let (mut floor, mut left, mut visited) = (self.floor(), self.candidates.len(), 0);
        self.seen.clear();
        self.met.clear();
        for place in 0..self.candidates.len() {
            self.meet(self.candidates[place].0, floor);
        }
        self.meet(self.spots[target.index()].before, floor);
        while let Some(node) = self.met.pop().filter(|_| visited < self.effort) {
            visited += 1;
            let spot = self.spots[node.index()];
            for &source in waits.of(node) {
                let Spot { stream, .. } = self.spots[source.index()];
                let wanted = &mut self.wanted[stream as usize];
                if *wanted != NONE && *wanted <= source.0 {
                    *wanted = NONE;
                    left -= 1;
                    match left {
                        0 => return,
                        // Often enough to matter, and seldom enough to stay linear in the number of
                        // candidates.
                        1..=8 => floor = self.floor(),
                        _ => {}
                    }
                }
                self.meet(source.0, floor);
            }
            self.meet(spot.before, floor);
        }
    }

    /// Goes back along the stream of `node` to the last node with waits. Adds it to the search if a candidate
    /// can come before it.
    fn meet(&mut self, node: u32, floor: Floor) {
        let Some(&Spot { turn, .. }) = self.spots.get(node as usize) else { return };
        let Some(&Spot { level, .. }) = self.spots.get(turn as usize) else { return };
        if level > floor.level && turn > floor.node && self.seen.insert(NodeId(turn)) {
            self.met.push(NodeId(turn));
        }
    }

    /// Returns the lowest level and the first node of the candidates that remain.
    fn floor(&self) -> Floor {
        let spots = self.candidates.iter().map(|node| (node.0, self.spots[node.index()]));
        let wanted = spots.filter(|(_, spot)| self.wanted[spot.stream as usize] != NONE);
        let lower =
            |floor: Floor, (node, spot): (u32, Spot)| Floor { level: floor.level.min(spot.level), node: floor.node.min(node) };
        wanted.fold(Floor { level: NONE, node: NONE }, lower)
    }

    /// Stores the candidates that remain as waits. Leaves `wanted` empty.
    fn keep(&mut self, waits: &mut Rows<NodeId>, target: NodeId) {
        let Self { candidates, wanted, spots, .. } = self;
        let mut is_wanted = |spot: Spot| std::mem::replace(&mut wanted[spot.stream as usize], NONE) != NONE;
        waits.push(candidates.iter().copied().filter(|candidate| is_wanted(spots[candidate.index()])));
        if !waits.of(target).is_empty() {
            self.spots[target.index()].turn = target.0;
        }
    }
}

/// A bound: no candidate has a lower level or an earlier place.
#[derive(Clone, Copy)]
struct Floor {
    level: u32,
    node: u32,
}
