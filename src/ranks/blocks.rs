//! The work of a graph as a partition sees it: blocks of nodes that run on the same rank, and the bytes that
//! go between them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::units::Unit;
use crate::error::{Error, Kind, Result};
use crate::graph::{Edge, EdgeKind, Graph, NodeId, Ranks, Shape, check};

/// Chooses a rank for each block of a graph's nodes. [`Graph::partition`](crate::Graph::partition) takes one.
pub trait Partition {
    /// Returns the policy's name, for errors.
    fn name(&self) -> &str;

    /// Returns the rank of each block, below `ranks`. That of a block that has one already does not count.
    ///
    /// # Errors
    /// If the policy has no answer. [`Partition::refuse`] makes the error.
    fn partition(&self, blocks: &Blocks, ranks: u32) -> Result<Vec<u32>>;

    /// Returns the error of a policy that has no answer. `fault` continues the sentence "policy 'name' ...".
    fn refuse(&self, fault: &str) -> Error {
        Kind::Policy { policy: self.name().to_owned(), node: None, fault: fault.to_owned() }.into()
    }
}

/// Blocks of nodes, in topological order. A block is a node, or a value that a node takes with all nodes that
/// read it: the owner of a state that is updated in place. Nodes that run on all ranks are in no block.
#[derive(Debug, Default)]
pub struct Blocks {
    pub(super) blocks: Vec<Block>,
    /// The block of each node.
    pub(super) of: Vec<Option<u32>>,
}

/// One block.
#[derive(Debug, Default)]
pub struct Block {
    pub(super) cost_us: f64,
    pub(super) rank: Option<u32>,
    pub(super) links: Vec<(u32, f64)>,
}

impl Block {
    /// Returns the expected work, in microseconds.
    pub fn cost_us(&self) -> f64 {
        self.cost_us
    }

    /// Returns the rank, if the graph sets it.
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Returns the other blocks that this one exchanges values with, and the expected bytes in both
    /// directions.
    pub fn links(&self) -> &[(u32, f64)] {
        &self.links
    }
}

impl Blocks {
    /// Returns the blocks, by number.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

/// What a link counts at least, in bytes: a message costs something, whatever its size is.
const LINK_BYTES_MIN: f64 = 64.0;

impl Blocks {
    /// `is_taken` says whether some node takes the value that an edge reads. `size` is the size of its type.
    fn new(unit: &Unit, is_taken: impl Fn(&Edge) -> bool, size: impl Fn(&Edge) -> u32) -> Self {
        let shape = &*unit.shape;
        let mut merged = Merged::new(unit);
        for edge in shape.edges().iter().filter(|edge| edge.is_data() && is_taken(edge)) {
            merged.join(edge.source, edge.target);
        }
        let mut all = Self { blocks: Vec::new(), of: vec![None; shape.nodes().len()] };
        let mut numbers = HashMap::new();
        for node in shape.topological_order() {
            let Some(root) = merged.root(node) else { continue };
            let number = *numbers.entry(root).or_insert_with(|| {
                all.blocks.push(Block { rank: merged.rank[root.index()], ..Block::default() });
                all.blocks.len() as u32 - 1
            });
            all.blocks[number as usize].cost_us += shape.nodes()[node.index()].cost_us;
            all.of[node.index()] = Some(number);
        }
        all.link(shape, size);
        all
    }

    /// Adds the links. A value that several nodes of a block read goes there once.
    fn link(&mut self, shape: &Shape, size: impl Fn(&Edge) -> u32) {
        let mut bytes: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut seen = HashSet::new();
        for edge in shape.edges() {
            let ends = [edge.source, edge.target].map(|node| self.of[node.index()]);
            let [Some(from), Some(to)] = ends else { continue };
            let value = if let EdgeKind::Data { output, .. } = edge.kind { Some(output) } else { None };
            if from == to || !seen.insert((edge.source, value, to)) {
                continue;
            }
            let size = value.map_or(0.0, |_| {
                let set = shape.nodes()[edge.source.index()].bytes.map(|bytes| bytes as f64);
                set.unwrap_or(f64::from(size(edge)))
            });
            *bytes.entry((from, to)).or_default() += size.max(LINK_BYTES_MIN);
            *bytes.entry((to, from)).or_default() += size.max(LINK_BYTES_MIN);
        }
        bytes.into_iter().for_each(|((from, to), bytes)| self.blocks[from as usize].links.push((to, bytes)));
    }
}

/// Nodes that run on the same rank (a union of sets, with paths halved).
struct Merged {
    /// A node of the same set, towards its root. None for nodes that run on all ranks.
    above: Vec<Option<NodeId>>,
    /// The rank of each root, if the graph sets it.
    rank: Vec<Option<u32>>,
}

impl Merged {
    fn new(unit: &Unit) -> Self {
        let nodes = unit.shape.ids().zip(unit.shape.nodes());
        let above = nodes.map(|(node, shape)| {
            let is_free = shape.ranks.is_none() && shape.communication.is_none() && !unit.inside.contains_key(&node);
            (is_free || Ranks::one(shape.ranks).is_some()).then_some(node)
        });
        let rank = unit.shape.nodes().iter().map(|shape| Ranks::one(shape.ranks));
        Self { above: above.collect(), rank: rank.collect() }
    }

    fn root(&mut self, mut node: NodeId) -> Option<NodeId> {
        loop {
            let above = self.above[node.index()]?;
            if above == node {
                return Some(node);
            }
            self.above[node.index()] = self.above[above.index()];
            node = above;
        }
    }

    /// Joins the sets of two nodes, unless the graph sets different ranks for them.
    fn join(&mut self, first: NodeId, second: NodeId) {
        let (Some(first), Some(second)) = (self.root(first), self.root(second)) else { return };
        let ranks = [first, second].map(|node| self.rank[node.index()]);
        if first != second && !matches!(ranks, [Some(one), Some(other)] if one != other) {
            self.above[second.index()] = Some(first);
            self.rank[first.index()] = ranks[0].or(ranks[1]);
        }
    }
}

impl Graph {
    /// Sets the ranks of nodes that have none, by a policy, for a world of so many ranks. Nodes in which all
    /// ranks take part, and loops and branches that communicate inside, stay on all ranks, as do nodes that
    /// are marked with [`replicated`](crate::graph::NodeMut::replicated) or
    /// [`per_rank`](crate::graph::NodeMut::per_rank).
    ///
    /// Call it with the complete graph, on all ranks alike, before [`Graph::compile_for`].
    ///
    /// # Errors
    /// The first mistake of the graph; a policy without a valid answer; no ranks.
    ///
    /// # Examples
    /// ```
    /// use anabranch::Graph;
    /// use anabranch::comm::Balanced;
    /// use anabranch::graph::Ranks;
    ///
    /// let mut g = Graph::new();
    /// for part in 0..4 {
    ///     let x = g.task(format!("load {part}"), (), move || vec![part; 1000]);
    ///     g.node(&x).bytes(4000).cost_us(50.0);
    ///     let sum = g.task(format!("sum {part}"), &x, |x: &Vec<u32>| x.iter().sum::<u32>());
    ///     g.output(format!("sum {part}"), &sum);
    /// }
    /// g.partition(&Balanced::default(), 2)?;
    /// let ranks: Vec<Option<Ranks>> = g.shape().nodes().iter().map(|node| node.ranks).collect();
    /// // No rank needs a value of the other one.
    /// assert_eq!(ranks[..4], [Some(Ranks::One(0)); 4]);
    /// assert_eq!(ranks[4..], [Some(Ranks::One(1)); 4]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn partition(&mut self, policy: &dyn Partition, ranks: u32) -> Result<()> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let unit = Unit::outermost(self.shape());
        let value = |edge: &Edge| &self.values[self.value_of(edge) as usize];
        let blocks = Blocks::new(&unit, |edge| value(edge).taker.is_some(), |edge| value(edge).of.size);
        blocks.place(self.shape_mut(), policy, ranks)
    }
}

impl Shape {
    /// Sets the ranks of nodes that have none, by a policy; see [`Graph::partition`].
    ///
    /// # Errors
    /// If the shape is not valid; a policy without a valid answer; no ranks.
    pub fn partition(&mut self, policy: &dyn Partition, ranks: u32) -> Result<()> {
        check(self)?;
        let unit = Unit::outermost(self);
        let taken: HashSet<(NodeId, u32)> = self.taken_values().map(|(_, value)| value).collect();
        let is_taken = |edge: &Edge| matches!(edge.kind, EdgeKind::Data { output, .. } if taken.contains(&(edge.source, output)));
        let blocks = Blocks::new(&unit, is_taken, |_| 0);
        blocks.place(self, policy, ranks)
    }
}

impl Blocks {
    /// Sets the ranks of nodes that have none.
    fn place(&self, shape: &mut Shape, policy: &dyn Partition, ranks: u32) -> Result<()> {
        if ranks == 0 {
            return Err(policy.refuse("has no ranks to choose from: give one or more"));
        }
        let chosen = policy.partition(self, ranks)?;
        if chosen.len() != self.blocks.len() {
            let fault = format!("places {} of {} blocks: give a rank for each", chosen.len(), self.blocks.len());
            return Err(policy.refuse(&fault));
        }
        if let Some(rank) = chosen.iter().find(|rank| **rank >= ranks) {
            return Err(policy.refuse(&format!("gives rank {rank}, but there are {ranks}: give one below that")));
        }
        let nodes = shape.nodes_mut().iter_mut().zip(&self.of);
        for (node, block) in nodes.filter(|(node, _)| node.ranks.is_none()) {
            let block = block.map(|block| block as usize);
            node.ranks = block.map(|block| Ranks::One(self.blocks[block].rank.unwrap_or(chosen[block])));
        }
        Ok(())
    }
}
