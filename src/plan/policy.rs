//! Policies, and their answers. The labels of streams are chosen by the policy. A schedule numbers the used
//! streams, and keeps the labels for its text.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Kind, Result, panic_message};
use crate::graph::{Backend, Edge, NodeId, Shape};
use crate::name::Name;

/// The largest label that a policy may give a stream.
pub(super) const LABEL_MAX: u32 = 1 << 30;

/// Chooses a device stream for each node. [`Graph::compile_with`](crate::Graph::compile_with) takes a policy.
///
/// The shape has passed the checks of its graph: it has no cycle, and all ids are valid. The answer must
/// depend on the shape only. Each `gpu` and `mixed` node needs a stream. A `cpu` node may have one; without
/// one, the plan chooses a host stream. The policy does not set waits: a plan keeps every edge for any
/// assignment.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::{Assignment, Policy};
/// use anabranch::Result;
///
/// /// Deals the nodes out over a fixed number of streams.
/// struct RoundRobin(u32);
///
/// impl Policy for RoundRobin {
///     fn name(&self) -> &str {
///         "round-robin"
///     }
///
///     fn assign(&self, shape: &Shape) -> Result<Assignment> {
///         if self.0 == 0 {
///             return Err(self.refuse("needs at least one stream"));
///         }
///         let mut assignment = Assignment::none(shape);
///         for (node, stream) in shape.topological_order().into_iter().zip((0..self.0).cycle()) {
///             assignment.set(node, stream);
///         }
///         Ok(assignment)
///     }
/// }
///
/// let mut shape = Shape::new();
/// let a = shape.node("a", Backend::Gpu);
/// let b = shape.node("b", Backend::Gpu);
/// shape.read(a, 0, b);
/// assert_eq!(shape.schedule_with(&RoundRobin(2))?.waits(), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub trait Policy {
    /// Returns the policy's name, for plans and errors.
    fn name(&self) -> &str;

    /// Assigns streams to nodes.
    ///
    /// # Errors
    /// If the policy has no answer for this shape. [`Policy::refuse`] makes the error.
    fn assign(&self, shape: &Shape) -> Result<Assignment>;

    /// Returns the error of a policy that has no answer. `fault` continues the sentence "policy 'name' ...".
    fn refuse(&self, fault: &str) -> Error {
        Kind::Policy { policy: self.name().to_owned(), node: None, fault: fault.to_owned() }.into()
    }
}

/// A policy's answer: the labels of each node's streams. A node may have no stream.
///
/// The same label on nodes of several devices means one stream on each of the devices.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::Assignment;
///
/// let mut shape = Shape::new();
/// let (load, scale) = (shape.node("load", Backend::Cpu), shape.node("scale", Backend::Gpu));
/// let mut assignment = Assignment::none(&shape);
/// assignment.set(scale, 3);
/// assert_eq!(assignment.of(scale).collect::<Vec<_>>(), [3]);
/// assert_eq!(assignment.of(load).len(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The first stream of each node.
    streams: Vec<Option<u32>>,
    /// All streams of each node that has several.
    more: BTreeMap<NodeId, Vec<u32>>,
    order: Option<Vec<NodeId>>,
    remark: Option<String>,
}

impl Assignment {
    /// Returns the assignment that gives no node of `shape` a stream.
    pub fn none(shape: &Shape) -> Self {
        Self { streams: vec![None; shape.nodes().len()], more: BTreeMap::new(), order: None, remark: None }
    }

    /// Puts `node` on the stream with this label. A node that spans several devices is put on the stream with
    /// this label on each device.
    ///
    /// # Panics
    /// If `node` is not a node of the assignment's shape.
    pub fn set(&mut self, node: NodeId, stream: u32) {
        self.set_all(node, &[stream]);
    }

    /// Puts `node` on these streams: one for each of its devices, in the same order.
    ///
    /// # Panics
    /// If `node` is not a node of the assignment's shape.
    pub fn set_all(&mut self, node: NodeId, streams: &[u32]) {
        self.streams[node.index()] = streams.first().copied();
        match streams {
            [] | [_] => _ = self.more.remove(&node),
            _ => _ = self.more.insert(node, streams.to_vec()),
        }
    }

    /// Sets the order in which nodes are issued, instead of [`Shape::topological_order`]. It must contain
    /// each node once, after all of its predecessors.
    pub fn set_order(&mut self, order: Vec<NodeId>) {
        self.order = Some(order);
    }

    /// Sets a remark on the answer. The plan prints it after the policy's name.
    pub fn set_remark(&mut self, remark: impl Into<String>) {
        self.remark = Some(remark.into());
    }

    /// Returns the labels of the node's streams.
    ///
    /// # Panics
    /// If `node` is not a node of the assignment's shape.
    pub fn of(&self, node: NodeId) -> impl ExactSizeIterator<Item = u32> + '_ {
        let first = self.streams[node.index()].as_slice();
        // Most graphs have no node with several streams. Then there is no lookup.
        let all = if self.more.is_empty() { None } else { self.more.get(&node) };
        all.map_or(first, Vec::as_slice).iter().copied()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.streams[node.index()].is_some()
    }

    /// Returns the label of each node's stream, if no node has more than one.
    pub(super) fn singles(&self) -> Option<&[Option<u32>]> {
        self.more.is_empty().then_some(&self.streams)
    }

    /// Gives the nodes of each phase their own streams.
    pub(super) fn split(&mut self, phases: &[u32]) {
        let pairs = |at: usize, labels: &[u32]| -> Vec<(u32, u32)> { labels.iter().map(|&label| (phases[at], label)).collect() };
        let first = self.streams.iter().enumerate().flat_map(|(at, label)| pairs(at, label.as_slice()));
        let more = self.more.iter().flat_map(|(node, labels)| pairs(node.index(), labels));
        let mut known: Vec<(u32, u32)> = first.chain(more).collect();
        known.sort_unstable();
        known.dedup();
        let number = |pair: (u32, u32)| known.binary_search(&pair).expect("each pair was found before") as u32;
        for (at, label) in self.streams.iter_mut().enumerate() {
            *label = label.map(|label| number((phases[at], label)));
        }
        for (node, labels) in &mut self.more {
            labels.iter_mut().for_each(|label| *label = number((phases[node.index()], *label)));
        }
    }

    pub(super) fn take_order(&mut self) -> Option<Vec<NodeId>> {
        self.order.take()
    }

    pub(super) fn take_remark(&mut self) -> Option<String> {
        self.remark.take()
    }
}

/// Calls the policy, and checks its name and its answer. Returns both.
///
/// A policy is user code: a panic in it becomes an error of the policy.
pub(super) fn ask(policy: &dyn Policy, shape: &Shape) -> Result<(String, Assignment)> {
    let name = guard("?", || policy.name().to_owned())?;
    let assignment = guard(&name, || policy.assign(shape))??;
    match fault_of(&assignment, shape) {
        None => Ok((name, assignment)),
        Some((node, fault)) => Err(Kind::Policy { policy: name, node, fault }.into()),
    }
}

fn guard<T>(name: &str, question: impl FnOnce() -> T) -> Result<T> {
    // Unwind safety: only the policy's own data may be half changed by the panic, and this function does not
    // call it again.
    catch_unwind(AssertUnwindSafe(question)).map_err(|panic| {
        let fault = format!("panicked: {}", panic_message(panic));
        Kind::Policy { policy: name.to_owned(), node: None, fault }.into()
    })
}

/// Returns the fault of an answer, and its node.
fn fault_of(assignment: &Assignment, shape: &Shape) -> Option<(Option<Name>, String)> {
    let (given, nodes) = (assignment.streams.len(), shape.nodes().len());
    if given != nodes {
        let fault = format!("answered for {given} nodes, the graph has {nodes}: make the answer with Assignment::none(shape)");
        return Some((None, fault));
    }
    let faults = shape.ids().zip(shape.nodes()).find_map(|(id, node)| {
        let (name, devices, labels) = (&node.name, node.devices().len().max(1), assignment.of(id));
        let fault = match (labels.len(), node.backend) {
            (0, Backend::Gpu) => Some(format!("left the gpu node '{name}' without a stream: give it one")),
            (0, Backend::Mixed) => Some(format!("left the mixed node '{name}' without a stream: give it one")),
            (2.., _) if labels.len() != devices => Some(format!(
                "put node '{name}' on {} streams, and it spans {devices} device{}: give it one stream, or one for each",
                labels.len(),
                if devices == 1 { "" } else { "s" }
            )),
            _ => assignment
                .of(id)
                .find(|&label| label > LABEL_MAX)
                .map(|label| format!("put node '{name}' on stream {label}: the largest label is {LABEL_MAX}")),
        };
        fault.map(|fault| (Some(name.clone()), fault))
    });
    faults.or_else(|| order_fault(assignment.order.as_deref()?, shape))
}

fn order_fault(order: &[NodeId], shape: &Shape) -> Option<(Option<Name>, String)> {
    let name = |node: NodeId| shape.name_of(node).clone();
    let mut places = vec![None; shape.nodes().len()];
    for (place, &node) in order.iter().enumerate() {
        match places.get_mut(node.index()) {
            Some(empty @ None) => *empty = Some(place),
            Some(_) => return Some((Some(name(node)), format!("ordered node '{}' twice", name(node)))),
            None => {
                let fault = format!("ordered a node of number {}, the graph has {}", node.index(), places.len());
                return Some((None, fault));
            }
        }
    }
    if let Some(node) = shape.ids().find(|node| places[node.index()].is_none()) {
        return Some((Some(name(node)), format!("left node '{}' out of its order", name(node))));
    }
    let is_late = |edge: &&Edge| places[edge.source.index()] > places[edge.target.index()];
    let edge = shape.edges().iter().find(is_late)?;
    let (source, target) = (name(edge.source), name(edge.target));
    Some((Some(target.clone()), format!("ordered node '{target}' before '{source}', which it depends on")))
}
