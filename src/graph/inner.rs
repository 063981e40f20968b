//! Inner graphs: the condition and the body of a loop, the arms of a branch. Each is a graph of its own,
//! which the graph around owns. All their values lie in the memory of the outermost one, so that a value of a
//! graph around is read in place. Nothing recurses over them.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use super::builder::Graph;
use super::source::{Use, Value};
use super::{Backend, NodeId};
use crate::error::{Error, Kind};
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

/// The number of an inner graph among those of the graph around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InnerId(u32);

/// The inner graphs of the loops and branches of a graph, by number.
#[derive(Default)]
pub(crate) struct InnerGraphs(Vec<Arc<Graph>>);

/// What an inner graph knows of the graphs around it. It has no access to them, so a closure that replaces
/// its graph harms no other.
pub(super) struct Around {
    place: Arc<Place>,
    /// Its reads there, in this order, until it is built.
    reads: Vec<Read>,
}

/// The place of an inner graph: its loop or branch, and its role there.
struct Place {
    outer: Option<Arc<Place>>,
    control: Arc<str>,
    role: Role,
}

/// A value of a graph around that is read in an inner graph.
struct Read {
    graph: usize,
    value: u32,
    offset: u32,
    type_id: TypeId,
    /// None for a node that only waits for it.
    how: Option<Use>,
    /// The inner graph, and the node there that reads it. None if the graph gives it, or if it is the
    /// condition's answer.
    place: Arc<Place>,
    reader: Option<Arc<str>>,
}

/// A part of a graph that is not complete. A usable graph has none.
#[derive(Clone, Copy)]
pub(super) enum Unfinished {
    /// A branch without its end.
    Branch(NodeId),
    /// A closure is building an inner graph of this node. If it panics, only this mark remains.
    Inner(NodeId),
}

impl InnerGraphs {
    pub(crate) fn get(&self, id: InnerId) -> &Graph {
        &self.0[id.0 as usize]
    }

    /// All of them are shared with a section of the graph.
    pub(super) fn share(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Level by level, because graphs may be nested deeper than a stack is.
impl Drop for InnerGraphs {
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.0);
        while let Some(graph) = open.pop() {
            Arc::into_inner(graph).into_iter().for_each(|mut graph| open.append(&mut graph.inner.0));
        }
    }
}

impl Place {
    /// Returns the path of the graph, or of a node in it, from the outermost graph on: `loop/body/mul`.
    fn path(&self, node: Option<&Arc<str>>) -> Arc<str> {
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

impl Graph {
    /// Lends this graph to a closure of the user, which may replace it with another. Returns none if it did:
    /// numbers of this graph mean nothing in the other one.
    pub(crate) fn lend<V>(&mut self, build: impl FnOnce(&mut Graph) -> V) -> Option<V> {
        // As long as there is a clone, no other graph has a token with this address.
        let token = self.token.clone();
        let built = build(self);
        Arc::ptr_eq(&token, &self.token).then_some(built)
    }

    /// Builds an inner graph of a loop or a branch, whose node is complete. The control then reads the values
    /// that `build` reads of this graph, and of those around it. Returns none if `build` has replaced its
    /// graph, which is recorded as a mistake.
    pub(super) fn within<V>(&mut self, node: NodeId, role: Role, build: impl FnOnce(&mut Graph) -> V) -> Option<(InnerId, V)> {
        let outer = self.around.as_ref().map(|around| around.place.clone());
        let place = Arc::new(Place { outer, control: self.shape().name_of(node).clone(), role });
        let around = Some(Around { place, reads: Vec::new() });
        let mut inner = Graph { layout: self.layout, around, ..Graph::new() };
        let unfinished = self.unfinished.replace(Unfinished::Inner(node));
        let built = inner.lend(build);
        self.unfinished = unfinished;
        let Some(built) = built else {
            let node = self.full_name(node);
            self.mistake(Kind::Replaced { of: format!("the {role} of '{node}'"), node: Some(node) }.into());
            return None;
        };
        self.layout = inner.layout;
        inner.fault().into_iter().for_each(|mistake| self.mistake(mistake));
        let reads = inner.around.as_mut().map(|around| std::mem::take(&mut around.reads));
        reads.into_iter().flatten().for_each(|read| self.read_inside(node, read));
        let is_device = |backend| backend != Backend::Cpu;
        if inner.shape().nodes().iter().any(|node| is_device(node.backend)) {
            self.shape_mut().nodes_mut()[node.index()].backend = Backend::Gpu;
        }
        self.inner.0.push(Arc::new(inner));
        Some((InnerId(self.inner.0.len() as u32 - 1), built))
    }

    /// Lets a control read what its inner graph reads of this graph. Reads of a graph further out are passed
    /// to the control around this graph.
    fn read_inside(&mut self, control: NodeId, read: Read) {
        let info = self
            .values
            .get(read.value as usize)
            .filter(|info| read.graph == self.address() && (info.type_id, info.offset) == (read.type_id, read.offset));
        let reader = || read.place.path(read.reader.as_ref());
        match (info, read.how) {
            (None, _) => match &mut self.around {
                Some(around) => around.reads.push(read),
                None => self.mistake(Kind::ForeignValue { name: reader() }.into()),
            },
            (Some(_), None) => self.order_own(read.value, control),
            (Some(info), Some(Use::Take)) => {
                let value = self.maker_name(info.maker);
                self.mistake(Kind::TakenFromAround { node: reader(), value }.into());
            }
            (Some(info), Some(_)) if info.taker == Some(control) => {
                let (control, value) = (self.full_name(control), self.maker_name(info.maker));
                self.mistake(Kind::TakenAndReadInside { control, value, reader: reader() }.into());
            }
            // One edge for all that its inner graphs read of a value: nothing else is added to this graph
            // meanwhile.
            (Some(info), Some(how)) if info.last_reader == Some(control) => self.note_use(read.value, control, how),
            (Some(_), Some(how)) => _ = self.read_own(read.value, control, how),
        }
    }

    /// Reads a value of a graph around this one. None if there is none.
    pub(super) fn capture<T: 'static>(&mut self, value: &Value<T>, reader: NodeId, how: Use) -> Option<Slot<T>> {
        let how = if let Use::Read | Use::Take = how { how } else { Use::Keep };
        let slot = self.read_around(value, Some(reader), Some(how))?;
        self.captors.push(reader);
        Some(slot)
    }

    /// Lets the control around this graph read a value of a graph around: one that this graph gives, or a
    /// condition's answer.
    pub(super) fn capture_result<T: 'static>(&mut self, value: &Value<T>, how: Use) -> Option<Slot<T>> {
        self.read_around(value, None, Some(how))
    }

    /// Lets the control around this graph wait for a node of a graph around. False if there is none.
    pub(super) fn order_around<T: 'static>(&mut self, earlier: &Value<T>, later: NodeId) -> bool {
        self.read_around(earlier, Some(later), None).is_some()
    }

    /// Records the read. Once this graph is built, [`Graph::read_inside`] finds the graph around that has the
    /// value.
    fn read_around<T: 'static>(&mut self, value: &Value<T>, reader: Option<NodeId>, how: Option<Use>) -> Option<Slot<T>> {
        let reader = reader.map(|reader| self.shape().name_of(reader).clone());
        let Around { place, reads } = self.around.as_mut()?;
        let Value { graph, index: value, offset, .. } = *value;
        reads.push(Read { graph, value, offset, type_id: TypeId::of::<T>(), how, place: place.clone(), reader });
        // The offset is that of the value's cell in the outermost graph, which all graphs around it share. A
        // read of a value that no graph around has, or of another type, is a fault, and a graph with a fault
        // is never run.
        Some(Slot::at(offset))
    }

    /// Returns the path of a node from the outermost graph on: `loop/body/mul`.
    pub(crate) fn full_name(&self, node: NodeId) -> Arc<str> {
        let name = self.shape().name_of(node);
        match &self.around {
            None => name.clone(),
            Some(around) => around.place.path(Some(name)),
        }
    }

    /// An inner graph gets its values from around, and gives what its closure returns.
    pub(super) fn check_is_outermost(&mut self, what: &'static str, name: &Arc<str>) {
        if self.is_inner() {
            self.mistake(Kind::InnerPort { what, name: name.clone() }.into());
        }
    }

    /// Returns the first mistake, or the part that is not complete.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.mistake.clone().or_else(|| {
            let kind = match self.unfinished? {
                Unfinished::Branch(node) => Kind::NotJoined { node: self.full_name(node) },
                Unfinished::Inner(node) => Kind::Torn { node: self.full_name(node) },
            };
            Some(kind.into())
        })
    }

    /// Returns true if this is the condition or the body of a loop, or an arm of a branch.
    pub(crate) fn is_inner(&self) -> bool {
        self.around.is_some()
    }
}
