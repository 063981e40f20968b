//! The one question that a policy answers, and the answer. Labels are the policy's own; a schedule numbers the streams that
//! are really used, and keeps the labels for people.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Kind, Result, panic_message};
use crate::graph::{Backend, NodeId, Shape};

/// The largest label that a policy may give a stream.
pub(super) const LABEL_MAX: u32 = 1 << 30;

/// Decides which device stream each node goes to.
///
/// The shape that a policy is asked about has passed the graph's checks: it has no cycle, and all ids are its own. The answer
/// must depend on nothing else than the shape. Every `gpu` and `mixed` node needs a stream; a `cpu` node may have one, and runs
/// on a host stream of the plan's choosing if it has none. Waits are not the policy's business: a plan keeps every edge,
/// whatever the assignment.
///
/// # Examples
/// ```
/// use anabranch::{Assignment, Backend, Policy, Result, Shape};
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
///         for (node, stream) in anabranch::topological_order(shape).into_iter().zip((0..self.0).cycle()) {
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
/// assert_eq!(shape.schedule(&RoundRobin(2))?.waits(), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub trait Policy {
    /// Returns the policy's name, as plans and errors print it.
    fn name(&self) -> &str;

    /// Returns a stream for each node that shall have one.
    ///
    /// # Errors
    /// What [`Policy::refuse`] makes, if the policy has no answer for this shape.
    fn assign(&self, shape: &Shape) -> Result<Assignment>;

    /// Returns the error of a policy that has no answer; `fault` continues the sentence "policy 'name' ...".
    fn refuse(&self, fault: &str) -> Error {
        Kind::Policy { policy: self.name().to_owned(), fault: fault.to_owned() }.into()
    }
}

/// A policy's answer: for each node the label of its stream, or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    streams: Vec<Option<u32>>,
}

impl Assignment {
    /// Returns the assignment that gives no node of `shape` a stream.
    pub fn none(shape: &Shape) -> Self {
        Self { streams: vec![None; shape.nodes().len()] }
    }

    /// Puts `node` on the stream with this label.
    ///
    /// # Panics
    /// If `node` is not a node of the assignment's shape.
    pub fn set(&mut self, node: NodeId, stream: u32) {
        self.streams[node.index()] = Some(stream);
    }

    /// Returns the label of the node's stream.
    ///
    /// # Panics
    /// If `node` is not a node of the assignment's shape.
    pub fn of(&self, node: NodeId) -> Option<u32> {
        self.streams[node.index()]
    }
}

/// Asks the policy, and checks its name and its answer. Returns both.
///
/// A policy is foreign code: if it panics, that is an error of the policy and not the end of the caller.
pub(super) fn ask(policy: &dyn Policy, shape: &Shape) -> Result<(String, Assignment)> {
    let name = guard("?", || policy.name().to_owned())?;
    let assignment = guard(&name, || policy.assign(shape))??;
    match fault_of(&assignment, shape) {
        None => Ok((name, assignment)),
        Some(fault) => Err(Kind::Policy { policy: name, fault }.into()),
    }
}

fn guard<T>(name: &str, question: impl FnOnce() -> T) -> Result<T> {
    // Unwind safety: what the panic may have left half done is inside the policy, and it is not asked again here.
    catch_unwind(AssertUnwindSafe(question)).map_err(|panic| {
        let fault = format!("panicked: {}", panic_message(panic));
        Kind::Policy { policy: name.to_owned(), fault }.into()
    })
}

fn fault_of(assignment: &Assignment, shape: &Shape) -> Option<String> {
    let (given, nodes) = (assignment.streams.len(), shape.nodes().len());
    if given != nodes {
        return Some(format!("answered for {given} nodes, the graph has {nodes}: make the answer with Assignment::none(shape)"));
    }
    shape.nodes().iter().zip(&assignment.streams).find_map(|(node, stream)| match (stream, node.backend) {
        (None, Backend::Gpu) => Some(format!("left the gpu node '{}' without a stream: give it one", node.name)),
        (None, Backend::Mixed) => Some(format!("left the mixed node '{}' without a stream: give it one", node.name)),
        (Some(label), _) if *label > LABEL_MAX => {
            Some(format!("put node '{}' on stream {label}: the largest label is {LABEL_MAX}", node.name))
        }
        _ => None,
    })
}
