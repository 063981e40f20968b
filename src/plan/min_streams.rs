//! `MinStreams`: the fewest streams on which no two independent nodes share a stream.

use super::order::ranks;
use super::streams::Devices;
use super::{Assignment, EXACT_NODES_MAX, NONE, Policy, Ranked, needs};
use crate::error::Result;
use crate::graph::{Links, NodeId, Shape, kahn_order};

/// Covers the nodes that need a stream with the fewest chains. Their number is the size of the largest set of
/// independent nodes (Dilworth, "A decomposition theorem for partially ordered sets", 1950). Each device has
/// chains of its own.
///
/// The cover is a maximum matching between nodes and their successors, direct or indirect (Fulkerson, 1956).
/// A node is first matched with the successor of the highest rank. O(n³/64) at worst, so it is used for
/// graphs of up to 4,096 nodes. Larger graphs get the chains of [`Ranked`], which may be more than needed,
/// and the plan says so.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::MinStreams;
///
/// let mut shape = Shape::new();
/// let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| shape.node(name, Backend::Gpu));
/// [(a, b), (a, c), (b, d), (c, d)].into_iter().for_each(|(from, to)| shape.read(from, 0, to));
/// // Only `b` and `c` are independent.
/// assert_eq!(shape.schedule_with(&MinStreams)?.streams(), 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MinStreams;

impl Policy for MinStreams {
    fn name(&self) -> &str {
        "min-streams"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        if shape.nodes().len() > EXACT_NODES_MAX {
            let mut assignment = Ranked::default().assign(shape)?;
            assignment.set_remark(format!("greedy, above {EXACT_NODES_MAX} nodes"));
            return Ok(assignment);
        }
        let links = Links::new(shape);
        let order = kahn_order(&links);
        let needs = needs::stream_needs(shape);
        let devices = Devices::new(shape, &links);
        let mut placed: Vec<(u32, NodeId)> =
            order.iter().copied().flat_map(|node| devices.of(node).iter().map(move |&device| (device, node))).collect();
        placed.retain(|(_, node)| needs[node.index()]);
        // The sort is stable: the nodes of one device stay in issue order.
        placed.sort_by_key(|&(device, _)| device);
        let reach = Reach::new(&links, &order);
        let mut streams: Vec<Vec<(u32, u32)>> = vec![Vec::new(); links.nodes()];
        let mut next = 0;
        for group in placed.chunk_by(|one, other| one.0 == other.0) {
            let nodes: Vec<NodeId> = group.iter().map(|placed| placed.1).collect();
            let (chains, count) = Cover::new(&reach, &nodes).chains();
            for (&node, chain) in nodes.iter().zip(chains) {
                streams[node.index()].push((group[0].0, next + chain));
            }
            next += count;
        }
        let mut assignment = Assignment::none(shape);
        for node in shape.ids() {
            let on = |device: u32| streams[node.index()].iter().find(|stream| stream.0 == device).map(|stream| stream.1);
            assignment.set_all(node, &devices.of(node).iter().copied().filter_map(on).collect::<Vec<u32>>());
        }
        Ok(assignment)
    }
}

/// The successors of each node, direct or indirect, as a bit set. A node's bit is its place by falling rank,
/// so that the first bit of a set has the highest rank.
struct Reach {
    bit_of: Vec<u32>,
    words: usize,
    rows: Vec<u64>,
}

impl Reach {
    fn new(links: &Links, order: &[NodeId]) -> Self {
        let (nodes, ranks) = (links.nodes(), ranks(links, order));
        let mut by_rank: Vec<NodeId> = order.to_vec();
        by_rank.sort_by_key(|node| std::cmp::Reverse(ranks[node.index()]));
        let mut bit_of = vec![0; nodes];
        by_rank.iter().zip(0..).for_each(|(node, bit)| bit_of[node.index()] = bit);
        let words = nodes.div_ceil(64);
        let mut reach = Self { bit_of, words, rows: vec![0; words * nodes] };
        for &node in order.iter().rev() {
            for &target in links.out.of(node) {
                for word in 0..words {
                    reach.rows[node.index() * words + word] |= reach.rows[target.index() * words + word];
                }
                let bit = reach.bit_of[target.index()] as usize;
                reach.rows[node.index() * words + bit / 64] |= 1 << (bit % 64);
            }
        }
        reach
    }

    fn after(&self, node: NodeId) -> &[u64] {
        &self.rows[node.index() * self.words..(node.index() + 1) * self.words]
    }
}

/// A cover of some nodes with the fewest chains.
struct Cover<'a> {
    reach: &'a Reach,
    nodes: &'a [NodeId],
    /// For each node its match (the next node of its chain), and for each bit its match (the node before).
    next: Vec<u32>,
    before: Vec<u32>,
    /// The bits of these nodes that the search for one more match has not visited.
    unseen: Vec<u64>,
}

impl<'a> Cover<'a> {
    /// Covers `nodes`, which are in topological order.
    fn new(reach: &'a Reach, nodes: &'a [NodeId]) -> Self {
        let all = reach.bit_of.len();
        let mut cover = Self { reach, nodes, next: vec![NONE; all], before: vec![NONE; all], unseen: Vec::new() };
        let mut free = cover.bits();
        for &node in nodes {
            if let Some(bit) = first_common(reach.after(node), &free) {
                free[bit as usize / 64] &= !(1 << (bit % 64));
                cover.join(node, bit);
            }
        }
        cover.unseen = cover.bits();
        for &node in nodes {
            if cover.next[node.index()] == NONE && cover.augment(node) {
                cover.unseen = cover.bits();
            }
            // Bits that a failed search has visited stay out: they lead nowhere until a match changes.
        }
        cover
    }

    fn bits(&self) -> Vec<u64> {
        let mut bits = vec![0; self.reach.words];
        for node in self.nodes {
            let bit = self.reach.bit_of[node.index()] as usize;
            bits[bit / 64] |= 1 << (bit % 64);
        }
        bits
    }

    fn join(&mut self, node: NodeId, bit: u32) {
        self.next[node.index()] = bit;
        self.before[bit as usize] = node.0;
    }

    /// Matches `node`, and moves other matches if needed. A depth-first search with an explicit stack.
    fn augment(&mut self, node: NodeId) -> bool {
        let mut path: Vec<(NodeId, u32)> = Vec::new();
        let mut node = node;
        loop {
            match first_common(self.reach.after(node), &self.unseen) {
                Some(bit) => {
                    self.unseen[bit as usize / 64] &= !(1 << (bit % 64));
                    path.push((node, bit));
                    match self.before[bit as usize] {
                        NONE => break,
                        other => node = NodeId(other),
                    }
                }
                None => match path.pop() {
                    Some((before, _)) => node = before,
                    None => return false,
                },
            }
        }
        path.into_iter().for_each(|(node, bit)| self.join(node, bit));
        true
    }

    /// Returns the chain of each node, in the order of the nodes, and the number of chains. Chains are
    /// numbered in the order of their first nodes.
    fn chains(&self) -> (Vec<u32>, u32) {
        let (mut chain_of, mut count) = (vec![NONE; self.next.len()], 0);
        let chains = self.nodes.iter().map(|node| {
            let before = self.before[self.reach.bit_of[node.index()] as usize];
            let chain = chain_of.get(before as usize).copied().unwrap_or(count);
            count += u32::from(before == NONE);
            chain_of[node.index()] = chain;
            chain
        });
        let chains = chains.collect();
        (chains, count)
    }
}

/// Returns the first bit that is in both sets.
fn first_common(one: &[u64], other: &[u64]) -> Option<u32> {
    let word = one.iter().zip(other).position(|(one, other)| one & other != 0)?;
    Some(word as u32 * 64 + (one[word] & other[word]).trailing_zeros())
}
