//! The one order of communication that all ranks keep, from the plan. Also the facts by which ranks find out
//! whether they have built the same graph.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use super::pairs::peer_of;
use super::units::{Unit, graphs, reads, values_of};
use crate::graph::{Control, ControlKind, ControlNode, Graph, Links, Ranks, Test};
use crate::name::Name;

/// The order of communication of one rank.
pub(crate) struct Order {
    /// The position of each node that communicates, by its full name.
    pub(crate) positions: HashMap<Name, Position>,
    /// The full names of the nodes without which some communication does not start.
    pub(crate) leading: HashSet<Name>,
    /// The number of units: the graph and its inner graphs.
    pub(crate) units: usize,
    /// The number of operations of a run. None if loops or branches have some.
    pub(crate) total: Option<u64>,
    /// Of each node: its name, and a hash of what must be the same on all ranks.
    pub(crate) nodes: Vec<(Name, u64)>,
}

/// Where an operation stands in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// A collective: its number among those of its unit, and how many these are.
    Turn { unit: u32, number: u32, of: u32 },
    /// A send or a receive: the other rank, and the number of the message. None without a peer.
    Message(Option<(u32, u32)>),
}

impl Order {
    /// `units` are those of the graph.
    pub(crate) fn new(graph: &Graph, units: &[Unit], rank: u32, size: u32) -> Self {
        let mut order =
            Self { positions: HashMap::new(), leading: leading(units), units: units.len(), total: None, nodes: Vec::new() };
        let mut tag = 0;
        for (unit, number) in units.iter().zip(0..) {
            order.add_turns(unit, number);
            order.add_messages(unit, &mut tag, rank, size);
        }
        graphs(graph).into_iter().for_each(|graph| order.add_nodes(graph, size));
        let has_inner = units.iter().any(|unit| !unit.inside.is_empty());
        order.total = (!has_inner).then_some(order.positions.len() as u64);
        order
    }

    fn add_turns(&mut self, unit: &Unit, number: u32) {
        let order = unit.meetings().into_iter();
        let collectives: Vec<_> = order.filter(|node| unit.is_collective(*node)).collect();
        let of = collectives.len() as u32;
        for (&node, at) in collectives.iter().zip(0..) {
            self.positions.insert(unit.full_name(node), Position::Turn { unit: number, number: at, of });
        }
    }

    /// Numbers the messages between this rank and each other one: the n-th send to a rank has the tag of the
    /// n-th receive there.
    fn add_messages(&mut self, unit: &Unit, tag: &mut u32, rank: u32, size: u32) {
        let mut counts: HashMap<(u32, bool), u32> = HashMap::new();
        let mut nodes = 0;
        for (node, shape) in unit.communications() {
            let Some((peer, sends)) = peer_of(shape) else { continue };
            nodes += 1;
            if !Ranks::has(shape.ranks, rank) {
                continue;
            }
            let message = peer.of(rank, size).map(|peer| {
                let count = counts.entry((peer, sends)).or_default();
                *count += 1;
                (peer, *tag + *count - 1)
            });
            self.positions.insert(unit.full_name(node), Position::Message(message));
        }
        *tag += nodes;
    }

    fn add_nodes(&mut self, unit: &Graph, size: u32) {
        let (reads, edges) = (reads(unit), Links::new(unit.shape()));
        for (node, shape) in unit.shape().ids().zip(unit.shape().nodes()) {
            let mut hasher = DefaultHasher::new();
            let name = unit.full_name(node);
            (size, &name, shape.backend, &reads[node.index()], shape.ranks).hash(&mut hasher);
            // Edges without a value change the order, too.
            edges.into.of(node).hash(&mut hasher);
            let communication = shape.communication.as_ref();
            communication.map(|is| (&is.exchange, &is.of, &is.operator)).hash(&mut hasher);
            if let Some(control) = unit.controls.iter().find(|control| control.node == node) {
                hash_control(control, &mut hasher);
            }
            if let Some(Control::Repeat { max_iterations, .. }) = shape.control.as_deref() {
                max_iterations.hash(&mut hasher);
            }
            let work = unit.works[node.index()];
            let types = &unit.values[work.value as usize..(work.value + work.values) as usize];
            types.iter().for_each(|value| value.of.name.hash(&mut hasher));
            values_of(unit, node).for_each(|offset| offset.hash(&mut hasher));
            self.nodes.push((name, hasher.finish()));
        }
    }

    /// Returns a number that is the same if all else is.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.nodes.hash(&mut hasher);
        hasher.finish()
    }
}

/// Hashes by what a loop or a branch decides, and where its states come from.
fn hash_control(control: &ControlNode, hasher: &mut impl Hasher) {
    match &control.flow {
        ControlKind::Repeat { condition, test: Test::Times(times), .. } => (0, condition.is_some(), times).hash(hasher),
        ControlKind::Repeat { condition, test: Test::Value(asked), .. } => {
            (1, condition.is_some(), asked.offset, asked.is_own).hash(hasher);
        }
        ControlKind::Branch { selector, arms, .. } => (2, selector, arms.len()).hash(hasher),
    }
    for state in &control.states {
        (state.offset, state.first, &state.name).hash(hasher);
    }
    control.flow.givers().iter().for_each(|giver| giver.results.hash(hasher));
}

/// Returns the nodes without which some communication does not start: those that lead to a node that
/// communicates, or to a loop or branch that does, and all inner nodes of such a loop or branch.
fn leading(units: &[Unit]) -> HashSet<Name> {
    let mut all = HashSet::new();
    let mut of_units: Vec<Vec<bool>> = Vec::with_capacity(units.len());
    for unit in units {
        // Inside of what leads, the failure of any node counts.
        let counts = unit.around.is_some_and(|(around, node)| of_units[around][node.index()]);
        let mut leads = vec![counts; unit.shape.nodes().len()];
        unit.inside.keys().for_each(|node| leads[node.index()] = true);
        let edges = Links::new(&unit.shape);
        for node in unit.shape.topological_order().into_iter().rev() {
            let communicates = |node: usize| unit.shape.nodes()[node].communication.is_some();
            let mut behind = edges.out.of(node).iter().map(|behind| behind.index());
            leads[node.index()] |= behind.any(|behind| leads[behind] || communicates(behind));
        }
        all.extend(unit.shape.ids().filter(|node| leads[node.index()]).map(|node| unit.full_name(node)));
        of_units.push(leads);
    }
    all
}
