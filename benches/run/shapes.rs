//! The five graph shapes that every peer runs, as plain data: for each node, its predecessors.
//!
//! Nodes are numbered in topological order: a predecessor's number is always smaller than its successor's.

use std::fmt;

/// Seed of the random graphs, printed with every report.
pub(crate) const SEED: u64 = 0x0A7A_B2A7_C4ED;

/// How far back a node of a random graph may reach for a predecessor.
const REACH: usize = 200;

/// The family a shape belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Form {
    /// Each node after the one before it.
    Chain,
    /// One source, `n - 2` nodes after it, one sink after them all.
    Fan,
    /// A square: node (i, j) after (i-1, j) and (i, j-1).
    Wavefront,
    /// Each node after 0 to 3 of the 200 nodes before it.
    Random,
    /// A binary out-tree: node i after node (i-1)/2.
    Tree,
}

impl Form {
    /// All forms, in the order of the tables.
    pub(crate) const ALL: [Self; 5] = [Self::Chain, Self::Fan, Self::Wavefront, Self::Random, Self::Tree];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Fan => "fan",
            Self::Wavefront => "wavefront",
            Self::Random => "random",
            Self::Tree => "tree",
        }
    }

    /// Builds the graph of this form with about `size` nodes: a wavefront rounds to the nearest square.
    pub(crate) fn shape(self, size: usize) -> Shape {
        self.seeded_shape(size, SEED)
    }

    /// As `shape`; each seed gives another random graph.
    pub(crate) fn seeded_shape(self, size: usize, seed: u64) -> Shape {
        assert!(size >= 3 || self == Self::Chain, "the smallest fan has 3 nodes");
        match self {
            Self::Chain => Shape::new(self, size, |node, preds| preds.extend(node.checked_sub(1))),
            Self::Fan => Shape::new(self, size, |node, preds| fan(size, node, preds)),
            Self::Wavefront => {
                let side = (size as f64).sqrt().round() as usize;
                Shape::new(self, side * side, |node, preds| wavefront(side, node, preds))
            }
            Self::Random => {
                let mut draw = SplitMix64(seed);
                Shape::new(self, size, |node, preds| random(&mut draw, node, preds))
            }
            Self::Tree => Shape::new(self, size, |node, preds| preds.extend(node.checked_sub(1).map(|above| above / 2))),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn fan(size: usize, node: usize, preds: &mut Vec<usize>) {
    match node {
        0 => {}
        last if last == size - 1 => preds.extend(1..last),
        _ => preds.push(0),
    }
}

fn wavefront(side: usize, node: usize, preds: &mut Vec<usize>) {
    if node >= side {
        preds.push(node - side);
    }
    if !node.is_multiple_of(side) {
        preds.push(node - 1);
    }
}

fn random(draw: &mut SplitMix64, node: usize, preds: &mut Vec<usize>) {
    let reach = node.min(REACH);
    let count = draw.below(4).min(reach);
    while preds.len() < count {
        let pred = node - 1 - draw.below(reach);
        if !preds.contains(&pred) {
            preds.push(pred);
        }
    }
}

/// A graph as data: the predecessors of all nodes in one row, and where each node's part starts.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    starts: Vec<u32>,
    preds: Vec<u32>,
}

impl Shape {
    fn new(form: Form, nodes: usize, mut preds_of: impl FnMut(usize, &mut Vec<usize>)) -> Self {
        let mut shape = Self { form, starts: vec![0], preds: Vec::new() };
        let mut own = Vec::new();
        for node in 0..nodes {
            own.clear();
            preds_of(node, &mut own);
            assert!(own.iter().all(|&pred| pred < node), "nodes come in topological order");
            shape.preds.extend(own.iter().map(|&pred| pred as u32));
            shape.starts.push(shape.preds.len() as u32);
        }
        shape
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the predecessors of `node`.
    pub(crate) fn preds(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.preds[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Returns the nodes, in topological order.
    pub(crate) fn nodes(&self) -> std::ops::Range<u32> {
        0..self.len() as u32
    }

    /// Returns the number of nodes on the longest path.
    pub(crate) fn depth(&self) -> usize {
        let mut depths = vec![0; self.len()];
        for node in self.nodes() {
            let above = self.preds(node).iter().map(|&pred| depths[pred as usize]).max();
            depths[node as usize] = above.unwrap_or(0) + 1;
        }
        depths.into_iter().max().unwrap_or(0)
    }

    /// Returns the sum of all values when each node's value is 1 plus its predecessors', all of it wrapping.
    pub(crate) fn checksum(&self) -> u64 {
        let mut values = vec![0_u64; self.len()];
        for node in self.nodes() {
            values[node as usize] = self.preds(node).iter().fold(1, |sum, &pred| sum.wrapping_add(values[pred as usize]));
        }
        values.into_iter().fold(0, u64::wrapping_add)
    }

    /// Returns the graph as `peers/tbb.cpp` reads it: node count, edge count, starts and predecessors, as
    /// native `u32`s.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let counts = [self.len() as u32, self.preds.len() as u32];
        counts.iter().chain(&self.starts).chain(&self.preds).flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// Steele, Lea and Flood's generator ("Fast splittable pseudorandom number generators", 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number in `0..bound`; the bias of the multiply-and-shift is below 2^-56 for the bounds used
    /// here.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
