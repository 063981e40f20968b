//! Parts with equal expected work, and few bytes between them.

use std::collections::BTreeMap;

use super::blocks::{Blocks, Partition};
use crate::error::Result;

/// Divides a graph into parts with equal expected work, and few bytes that cross from part to part.
///
/// The work of a node is its [`cost_us`](crate::graph::NodeMut::cost_us), the size of its value its
/// [`bytes`](crate::graph::NodeMut::bytes).
///
/// At first, the parts are runs of blocks in topological order. Then blocks move to the part of a neighbour
/// as long as fewer bytes cross, and no part gets too much work (after Fiduccia and Mattheyses, "A
/// linear-time heuristic for improving network partitions", 1982, without moves for the worse). O(n + m) for
/// each pass, of which there are at most eight.
///
/// # Examples
/// See [`Graph::partition`](crate::Graph::partition).
#[derive(Clone, Copy, Debug)]
pub struct Balanced {
    slack: f64,
}

/// The most passes over all blocks.
const PASSES: u32 = 8;

impl Default for Balanced {
    /// Returns the policy that gives no rank more than 5 % more work than the mean.
    fn default() -> Self {
        Self { slack: 0.05 }
    }
}

impl Balanced {
    /// Sets by which part of the mean a rank may have more work. A rank may always have one block.
    #[must_use]
    pub fn slack(mut self, slack: f64) -> Self {
        self.slack = slack;
        self
    }
}

impl Partition for Balanced {
    fn name(&self) -> &str {
        "balanced"
    }

    fn partition(&self, blocks: &Blocks, ranks: u32) -> Result<Vec<u32>> {
        if !(0.0..=1e9).contains(&self.slack) {
            return Err(self.refuse("needs a slack of 0 or more"));
        }
        let mut parts = Parts::new(blocks, ranks, self.slack);
        for _ in 0..PASSES {
            if !parts.pass() {
                break;
            }
        }
        Ok(parts.ranks)
    }
}

struct Parts<'b> {
    blocks: &'b Blocks,
    /// The rank of each block.
    ranks: Vec<u32>,
    /// The work of each rank, and the most that one may have.
    loads_us: Vec<f64>,
    most_us: f64,
}

impl<'b> Parts<'b> {
    /// Gives each rank a run of blocks, beside those that it has already.
    fn new(blocks: &'b Blocks, count: u32, slack: f64) -> Self {
        let costs = || blocks.blocks().iter().map(|block| block.cost_us());
        let mean_us = costs().sum::<f64>() / f64::from(count);
        let most_us = costs().fold(mean_us * (1.0 + slack), f64::max);
        let mut parts = Self { blocks, ranks: vec![0; blocks.blocks().len()], loads_us: vec![0.0; count as usize], most_us };
        for (at, block) in blocks.blocks().iter().enumerate() {
            if let Some(rank) = block.rank().filter(|rank| *rank < count) {
                parts.put(at, rank);
            }
        }
        let mut rank = 0;
        for (at, block) in blocks.blocks().iter().enumerate().filter(|(_, block)| block.rank().is_none()) {
            while rank + 1 < count && parts.loads_us[rank as usize] + block.cost_us() / 2.0 > mean_us {
                rank += 1;
            }
            parts.put(at, rank);
        }
        parts
    }

    fn put(&mut self, block: usize, rank: u32) {
        self.ranks[block] = rank;
        self.loads_us[rank as usize] += self.blocks.blocks()[block].cost_us();
    }

    /// Moves each block to the rank of a neighbour if fewer bytes cross then. Returns whether one has moved.
    fn pass(&mut self) -> bool {
        let mut has_moved = false;
        for (at, block) in self.blocks.blocks().iter().enumerate().filter(|(_, block)| block.rank().is_none()) {
            let here = self.ranks[at];
            let mut bytes: BTreeMap<u32, f64> = BTreeMap::new();
            block.links().iter().for_each(|&(to, size)| *bytes.entry(self.ranks[to as usize]).or_default() += size);
            let stays = bytes.remove(&here).unwrap_or(0.0);
            let has_room = |rank: u32| self.loads_us[rank as usize] + block.cost_us() <= self.most_us;
            let open = bytes.into_iter().filter(|&(rank, size)| size > stays && has_room(rank));
            // Of equals, the first: equal graphs have equal parts.
            let best = open.reduce(|best, other| if other.1 > best.1 { other } else { best });
            if let Some((rank, _)) = best {
                self.loads_us[here as usize] -= block.cost_us();
                self.put(at, rank);
                has_moved = true;
            }
        }
        has_moved
    }
}
