//! How an inner graph refers to the graphs around it: its place in them, and its reads of their values.

use std::any::TypeId;
use std::sync::Arc;

use super::nested::Role;
use super::shape::NodeId;
use super::values::Use;
use crate::name::Name;

/// The facts that an inner graph has about the graphs around it. It has no access to those graphs, so a
/// closure that replaces its graph cannot harm another one.
pub(super) struct Around {
    pub(super) place: Arc<Place>,
    /// The reads of the graphs around, in this order, until the inner graph is built.
    pub(super) reads: Vec<OuterRead>,
}

/// The place of an inner graph: its loop or branch, and its role there.
pub(super) struct Place {
    pub(super) outer: Option<Arc<Place>>,
    pub(super) control: Name,
    pub(super) role: Role,
}

/// A read, in an inner graph, of a value of a graph around.
pub(super) struct OuterRead {
    pub(super) graph: usize,
    pub(super) value: u32,
    pub(super) offset: u32,
    pub(super) type_id: TypeId,
    /// None for a node that only waits for the value.
    pub(super) how: Option<Use>,
    /// The inner graph, and the node in it that reads the value. The node is None if the value is a result of
    /// the inner graph or the answer of a condition.
    pub(super) place: Arc<Place>,
    pub(super) reader: Option<Name>,
}

/// A part of a graph that is not complete. A graph that can be compiled has none.
#[derive(Clone, Copy)]
pub(super) enum Unfinished {
    /// A branch that was not joined.
    Branch(NodeId),
    /// A closure builds an inner graph of this node. If the closure panics, this mark remains.
    Inner(NodeId),
}

impl Place {
    /// Returns the path of the graph, or of a node in it, from the outermost graph on: `loop/body/mul`.
    pub(super) fn path(&self, node: Option<&Name>) -> Name {
        let mut names: Vec<String> = node.map(ToString::to_string).into_iter().collect();
        let places = std::iter::successors(Some(self), |place| place.outer.as_deref());
        names.extend(places.map(|place| format!("{}/{}", place.control, place.role)));
        names.reverse();
        names.join("/").into()
    }
}

/// Drops the places around it in a loop: graphs may be nested deeper than the stack allows.
impl Drop for Place {
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut place) = outer.and_then(Arc::into_inner) {
            outer = place.outer.take();
        }
    }
}
