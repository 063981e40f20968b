//! Inner graphs: the condition and the body of a loop, the arms of a branch. Each is a graph of its own,
//! which the graph around owns. All their values lie in the memory of the outermost graph, so an inner graph
//! reads a value of a graph around in place. No function recurses over them.

use std::any::TypeId;
use std::sync::Arc;

use super::around::{Around, OuterRead, Place, Unfinished};
use super::builder::{Graph, NO_CELL};
use super::control_node::InnerId;
use super::handle::Value;
use super::values::Use;
use super::{Backend, NodeId, Role};
use crate::error::Kind;
use crate::value::Slot;

impl Graph {
    /// Lends this graph to a user closure. Returns None if the closure replaced it by another graph, in which
    /// the numbers of this graph have no meaning.
    pub(crate) fn lend<V>(&mut self, build: impl FnOnce(&mut Graph) -> V) -> Option<V> {
        // While this clone exists, no other graph has a token with this address.
        let token = self.token.clone();
        let built = build(self);
        Arc::ptr_eq(&token, &self.token).then_some(built)
    }

    /// Builds an inner graph of a loop or a branch whose node is complete. Afterwards the control reads the
    /// values of this graph, and of those around it, that `build` reads. Returns None if `build` replaced its
    /// graph, which is recorded as a mistake.
    pub(super) fn within<V>(&mut self, node: NodeId, role: Role, build: impl FnOnce(&mut Graph) -> V) -> Option<(InnerId, V)> {
        let outer = self.around.as_ref().map(|around| around.place.clone());
        let place = Arc::new(Place { outer, control: self.shape().name_of(node).clone(), role });
        let around = Some(Around { place, reads: Vec::new() });
        let mut inner = Graph { layout: self.layout, context: self.context, around, ..Graph::new() };
        let unfinished = self.unfinished.replace(Unfinished::Inner(node));
        let built = inner.lend(build);
        self.unfinished = unfinished;
        let Some(built) = built else {
            let node = self.full_name(node);
            self.mistake(Kind::Replaced { of: format!("the {role} of '{node}'"), node: Some(node) }.into());
            return None;
        };
        (self.layout, self.context) = (inner.layout, inner.context);
        if inner.chain.is_used {
            let before = self.chain.add_control(node);
            before.into_iter().for_each(|before| self.shape_mut().order(before, node));
        }
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

    /// Lets a control read a value of this graph that its inner graph reads. A read of a graph further out
    /// goes to the control around this graph.
    fn read_inside(&mut self, control: NodeId, read: OuterRead) {
        let info = self
            .values
            .get(read.value as usize)
            .filter(|info| read.graph == self.address() && (info.of.id, info.offset) == (read.type_id, read.offset));
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
            // A value has one edge for all reads of it by the control's inner graphs. No other node is added
            // to this graph meanwhile.
            (Some(info), Some(how)) if info.last_reader == Some(control) => self.note_use(read.value, control, how),
            (Some(_), Some(how)) => _ = self.read_own(read.value, control, how),
        }
    }

    /// Records a read of a value of a graph around this one. Returns None if there is no such graph.
    pub(super) fn capture<T: 'static>(&mut self, value: &Value<T>, reader: NodeId, how: Use) -> Option<Slot<T>> {
        let how = if let Use::Read | Use::Take = how { how } else { Use::Keep };
        let slot = self.read_around(value, Some(reader), Some(how))?;
        // All units have one offset, which is also that of another value.
        let is_unit = TypeId::of::<T>() == TypeId::of::<()>();
        self.captures.push((reader, if is_unit { NO_CELL } else { slot.offset() }));
        Some(slot)
    }

    /// Lets the control around this graph read a value of a graph around: for a node of this graph, or for
    /// the control itself, as a result or a condition's answer. Without `how`, the control only waits for the
    /// value. Returns None if there is no graph around.
    ///
    /// The read is recorded. Once this graph is built, [`Graph::read_inside`] finds the graph that has the
    /// value.
    pub(super) fn read_around<T: 'static>(
        &mut self,
        value: &Value<T>,
        reader: Option<NodeId>,
        how: Option<Use>,
    ) -> Option<Slot<T>> {
        let reader = reader.map(|reader| self.shape().name_of(reader).clone());
        let Around { place, reads } = self.around.as_mut()?;
        let Value { graph, index: value, offset, .. } = *value;
        reads.push(OuterRead { graph, value, offset, type_id: TypeId::of::<T>(), how, place: place.clone(), reader });
        // All graphs around share one memory, so the offset is valid. A wrong value is a fault, and a graph
        // with a fault never runs.
        Some(Slot::at(offset))
    }
}
