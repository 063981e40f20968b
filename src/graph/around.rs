//! An inner graph's view of the graphs around it: its place, and its reads there.

use std::any::TypeId;
use std::sync::Arc;

use super::nested::Role;
use super::shape::NodeId;
use super::values::Use;
use crate::name::Name;

/// What an inner graph knows of the graphs around it. It has no access to them, so a closure that replaces
/// its graph harms no other.
pub(super) struct Around {
    pub(super) place: Arc<Place>,
    /// Its reads there, in this order, until it is built.
    pub(super) reads: Vec<OuterRead>,
}

/// The place of an inner graph: its loop or branch, and its role there.
pub(super) struct Place {
    pub(super) outer: Option<Arc<Place>>,
    pub(super) control: Name,
    pub(super) role: Role,
}

/// A value of a graph around that is read in an inner graph.
pub(super) struct OuterRead {
    pub(super) graph: usize,
    pub(super) value: u32,
    pub(super) offset: u32,
    pub(super) type_id: TypeId,
    /// None for a node that only waits for it.
    pub(super) how: Option<Use>,
    /// The inner graph, and the node there that reads it. None if it is a result of the graph, or the
    /// condition's answer.
    pub(super) place: Arc<Place>,
    pub(super) reader: Option<Name>,
}

/// A part of a graph that is not complete. A usable graph has none.
#[derive(Clone, Copy)]
pub(super) enum Unfinished {
    /// A branch without its end.
    Branch(NodeId),
    /// A closure is building an inner graph of this node. If it panics, only this mark remains.
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

/// Drops the places around it in a loop, because graphs may be nested deeper than a stack is.
impl Drop for Place {
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut place) = outer.and_then(Arc::into_inner) {
            outer = place.outer.take();
        }
    }
}
