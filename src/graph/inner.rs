//! Inner graphs: the condition and the body of a loop, the arms of a branch. Each is a graph of its own while it is built; all lie in one
//! list, parents first, and all their values in the memory of the outermost one, so that nothing recurses over them, and a value of a
//! graph around is read where it is.

use std::fmt;
use std::sync::Arc;

use super::builder::Graph;
use super::source::{Use, Value};
use super::{Backend, NodeId};
use crate::error::Kind;
use crate::value::Slot;

/// Which inner graph of a loop or a branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// What a loop asks before each iteration.
    Condition,
    /// What a loop repeats.
    Body,
    /// One of the ways of a branch, by its number.
    Arm(u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition => f.write_str("condition"),
            Self::Body => f.write_str("body"),
            Self::Arm(arm) => write!(f, "arm {arm}"),
        }
    }
}

/// The number of an inner graph among those of the outermost one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InnerId(pub(crate) u32);

/// All inner graphs of an outermost graph, by number; none stands for one that is being built.
#[derive(Default)]
pub(crate) struct InnerGraphs(Vec<Option<Arc<InnerGraph>>>);

/// An inner graph that was built.
pub(crate) struct InnerGraph {
    pub(crate) graph: Graph,
}

/// What is around an inner graph while it is built.
pub(super) struct Around {
    graph: Box<Graph>,
    /// The loop or branch, in the graph around.
    node: NodeId,
    role: Role,
}

impl InnerGraphs {
    pub(crate) fn get(&self, id: InnerId) -> &InnerGraph {
        self.0[id.0 as usize].as_ref().expect("graphs are used when they are built")
    }

    /// All of them are shared with a section of the graph.
    pub(super) fn share(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Graph {
    /// Builds an inner graph of a loop or a branch. What `build` reads of this graph, and of those around it, becomes something that
    /// the control reads.
    pub(super) fn within<V>(&mut self, node: NodeId, role: Role, build: impl FnOnce(&mut Graph) -> V) -> (InnerId, V) {
        let mut inner = Graph { layout: self.layout, inner: std::mem::take(&mut self.inner), ..Graph::new() };
        let id = InnerId(inner.inner.0.len() as u32);
        inner.inner.0.push(None);
        // Until `build` has returned. If it panics, that is all that is left.
        let torn = Graph { mistake: Some(Kind::Torn { node: self.shape().name_of(node).clone() }.into()), ..Graph::new() };
        inner.around = Some(Around { graph: Box::new(std::mem::replace(self, torn)), node, role });
        let address = inner.address();
        let built = build(&mut inner);
        let around = inner.around.take().filter(|_| inner.address() == address);
        *self = *around.expect("the graph that a closure is given stays where it is").graph;
        self.layout = inner.layout;
        self.inner = std::mem::take(&mut inner.inner);
        inner.mistake.take().into_iter().for_each(|mistake| self.mistake(mistake));
        let is_device = |backend| backend != Backend::Cpu;
        if inner.shape().nodes().iter().any(|node| is_device(node.backend)) {
            self.shape_mut().nodes_mut()[node.index()].backend = Backend::Gpu;
        }
        self.inner.0[id.0 as usize] = Some(Arc::new(InnerGraph { graph: inner }));
        (id, built)
    }

    /// Reads a value of a graph around this one. None if none of them has it.
    pub(super) fn capture<T: 'static>(&mut self, value: &Value<T>, reader: NodeId, how: Use) -> Option<Slot<T>> {
        if how == Use::Take {
            let (node, value) = (self.full_name(reader), self.name_around(value)?);
            self.mistake(Kind::TakenFromAround { node, value }.into());
            return Some(Slot::dangling());
        }
        let how = if how == Use::Read { Use::Read } else { Use::Keep };
        let slot = self.read_around(value, how)?;
        self.captors.push(reader);
        Some(slot)
    }

    /// Lets the control around this graph read a value of the graph around, or one further out, in which case the control around that reads
    /// it.
    pub(super) fn read_around<T: 'static>(&mut self, value: &Value<T>, how: Use) -> Option<Slot<T>> {
        let mut around = self.around.as_mut();
        while let Some(Around { graph, node, .. }) = around {
            if graph.owns(value) {
                let info = &graph.values[value.index as usize];
                let slot = Slot::at(info.offset);
                // One edge for all that its inner graphs read of a value: nothing else is added to the graph around meanwhile.
                match info.last_reader {
                    Some(last) if last == *node => graph.note_use(value.index, *node, how),
                    _ => _ = graph.read_value(value, *node, how),
                }
                return Some(slot);
            }
            around = graph.around.as_mut();
        }
        None
    }

    /// Lets the control around this graph wait for a node of a graph around. False if none of them has it.
    pub(super) fn order_around<T: 'static>(&mut self, earlier: &Value<T>) -> bool {
        let mut around = self.around.as_mut();
        while let Some(Around { graph, node, .. }) = around {
            if graph.owns(earlier) {
                graph.order_after(earlier, *node);
                return true;
            }
            around = graph.around.as_mut();
        }
        false
    }

    /// Returns the name of what makes a value of a graph around this one.
    fn name_around<T: 'static>(&self, value: &Value<T>) -> Option<Arc<str>> {
        let mut around = self.around.as_ref();
        while let Some(Around { graph, .. }) = around {
            if graph.owns(value) {
                return Some(graph.maker_name(graph.values[value.index as usize].maker));
            }
            around = graph.around.as_ref();
        }
        None
    }

    /// Returns the path of a node from the outermost graph on: `loop/body/mul`.
    pub(super) fn full_name(&self, node: NodeId) -> Arc<str> {
        let name = self.shape().name_of(node);
        if self.around.is_none() {
            return name.clone();
        }
        let mut parts = vec![name.to_string()];
        let mut around = self.around.as_ref();
        while let Some(Around { graph, node, role }) = around {
            parts.extend([role.to_string(), graph.shape().name_of(*node).to_string()]);
            around = graph.around.as_ref();
        }
        parts.reverse();
        parts.join("/").into()
    }

    /// An inner graph gets its values from around, and gives what its closure returns.
    pub(super) fn check_is_outermost(&mut self, what: &'static str, name: &Arc<str>) {
        if self.is_inner() {
            self.mistake(Kind::InnerPort { what, name: name.clone() }.into());
        }
    }

    /// An inner graph gives a value that is neither its own nor of a graph around it. Returns no place.
    pub(super) fn foreign_result(&mut self) -> u32 {
        let around = self.around.as_ref();
        let name = around.map(|Around { graph, node, role }| format!("{}/{role}", graph.full_name(*node)));
        self.mistake(Kind::ForeignValue { name: name.unwrap_or_default().into() }.into());
        u32::MAX
    }

    /// A branch was left without its end.
    pub(super) fn not_joined(&mut self, node: NodeId) {
        let node = self.full_name(node);
        self.mistake(Kind::NotJoined { node }.into());
    }

    /// Whether this is an inner graph that is being built.
    pub(crate) fn is_inner(&self) -> bool {
        self.around.is_some()
    }
}
