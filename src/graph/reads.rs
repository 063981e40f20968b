//! The use of a graph's values by its nodes: reads and takes become edges, and conflicts become mistakes.

use std::any::TypeId;

use super::between::ItemEdge;
use super::builder::Graph;
use super::handle::Value;
use super::values::{Maker, Sharer, Type, Use, ValueInfo};
use super::{Edge, EdgeKind, NodeId, Ranks};
use crate::error::{Kind, PortKind};
use crate::name::Name;
use crate::value::Slot;

impl Graph {
    pub(super) fn value<T: Send + Sync + 'static>(&mut self, slot: Slot<T>, maker: Maker) -> Value<T> {
        Value::new(self.address(), self.value_of_type(Type::of::<T>(), slot.offset(), maker), slot.offset())
    }

    pub(super) fn value_of_type(&mut self, of: Type, offset: u32, maker: Maker) -> u32 {
        let index = self.values.len() as u32;
        self.values.push(ValueInfo {
            of,
            offset,
            maker,
            // A unit carries no data, so a graph in which no node reads it is valid.
            is_read: of.id == TypeId::of::<()>(),
            last_reader: None,
            taker: None,
            output: None,
            sharer: None,
            kept: None,
        });
        index
    }

    /// Returns the handle to a value of this graph, by its number. The caller knows its type.
    pub(super) fn value_at<T>(&self, value: u32) -> Value<T> {
        Value::new(self.address(), value, self.values[value as usize].offset)
    }

    /// Records that `reader` uses `value`. Returns the key of its cell.
    pub(super) fn read_value<T: 'static>(&mut self, value: &Value<T>, reader: NodeId, how: Use) -> Slot<T> {
        if !self.owns(value) {
            return self.capture(value, reader, how).unwrap_or_else(|| {
                let name = self.full_name(reader);
                self.mistake(Kind::ForeignValue { name }.into());
                Slot::dangling()
            });
        }
        Slot::at(self.read_own(value.index, reader, how))
    }

    /// Records that `reader` uses a value of this graph, by its number. Returns the offset of its cell.
    pub(super) fn read_own(&mut self, value: u32, reader: NodeId, how: Use) -> u32 {
        self.note_use(value, reader, how);
        match self.values[value as usize].maker {
            Maker::Node(source) => {
                let output = value - self.works[source.index()].value;
                self.shape_mut().read(source, output, reader);
            }
            Maker::Input(input) => self.inputs[input as usize].readers.push(reader),
        }
        self.values[value as usize].offset
    }

    /// Records a use of a value, without an edge.
    pub(super) fn note_use(&mut self, value: u32, reader: NodeId, how: Use) {
        let info = &mut self.values[value as usize];
        info.is_read = true;
        let (maker, previous) = (info.maker, info.taker);
        let reads_too = info.last_reader.replace(reader) == Some(reader);
        match how {
            Use::Take if previous.is_some() => self.taken_twice(maker, previous, reader),
            Use::Take if reads_too => self.taken_and_read(maker, reader),
            Use::Take => info.taker = Some(reader),
            Use::Read | Use::Await | Use::Keep if previous == Some(reader) => self.taken_and_read(maker, reader),
            Use::Read => {}
            Use::Await => self.share(value, Sharer::Async(reader)),
            Use::Keep => {
                self.share(value, Sharer::Control(reader));
                self.kept.push((reader, value));
            }
        }
    }

    /// Marks a value as shared: it becomes an `Arc`. A job shares all of its values or none.
    pub(super) fn share(&mut self, value: u32, sharer: Sharer) {
        let info = &mut self.values[value as usize];
        info.sharer.get_or_insert(sharer);
        let Maker::Node(maker) = info.maker else { return };
        let work = self.works[maker.index()];
        if work.is_async {
            let others = &mut self.values[work.value as usize..(work.value + work.values) as usize];
            others.iter_mut().for_each(|other| _ = other.sharer.get_or_insert(Sharer::Beside(value)));
        }
    }

    /// Returns the value that the target of an edge reads.
    pub(crate) fn value_of(&self, edge: &Edge) -> u32 {
        let output = if let EdgeKind::Data { output, .. } = edge.kind { output } else { 0 };
        self.works[edge.source.index()].value + output
    }

    /// Returns the type of a value of a node.
    pub(crate) fn type_of(&self, node: NodeId, output: u32) -> Type {
        self.values[(self.works[node.index()].value + output) as usize].of
    }

    /// Leaves a value of `rank` to the readers there: a node of another rank takes what arrives.
    pub(crate) fn leave_to(&mut self, node: NodeId, output: u32, rank: u32) {
        let value = &mut self.values[(self.works[node.index()].value + output) as usize];
        let nodes = self.shape.nodes();
        value.taker = value.taker.filter(|taker| Ranks::has(nodes[taker.index()].ranks, rank));
    }

    /// Returns the outputs that nodes make, each with its node.
    pub(crate) fn outputs_by_node(&self) -> impl Iterator<Item = (&Name, NodeId)> {
        self.outputs.iter().filter_map(|port| match self.values[port.value as usize].maker {
            Maker::Node(node) => Some((&port.name, node)),
            Maker::Input(_) => None,
        })
    }

    pub(super) fn order_after<T: 'static>(&mut self, earlier: &Value<T>, later: NodeId) {
        if !self.owns(earlier) {
            if self.read_around(earlier, Some(later), None).is_none() {
                let name = self.full_name(later);
                self.mistake(Kind::ForeignValue { name }.into());
            }
            return;
        }
        self.order_own(earlier.index, later);
    }

    /// Adds an edge from item to item: from the node that makes a value to `target`.
    pub(super) fn order_items<T: 'static>(&mut self, earlier: &Value<T>, target: NodeId, items: u32) {
        if items == 0 {
            let node = self.full_name(target);
            return self.mistake(Kind::NoItemsBefore { node }.into());
        }
        if self.is_inner() {
            let what = format!(
                "the wait of '{}' for an earlier item, which no node of a loop or branch can have,",
                self.full_name(target)
            );
            return self.mistake(Kind::OnlyInPipeline { what }.into());
        }
        if !self.owns(earlier) {
            let name = self.full_name(target);
            return self.mistake(Kind::ForeignValue { name }.into());
        }
        // Inputs exist before an item begins.
        if let Maker::Node(source) = self.values[earlier.index as usize].maker {
            self.item_edges.push(ItemEdge { source, target, items });
        }
    }

    /// Adds an order-only edge from the node that makes a value of this graph, by the value's number.
    pub(super) fn order_own(&mut self, earlier: u32, later: NodeId) {
        // Inputs exist before the run starts.
        if let Maker::Node(source) = self.values[earlier as usize].maker {
            self.shape_mut().order(source, later);
        }
    }

    /// Returns the name of a value's maker for messages. The name of a state is longer.
    pub(crate) fn maker_name(&self, maker: Maker) -> String {
        match maker {
            Maker::Node(node) => format!("'{}'", self.full_name(node)),
            Maker::Input(input) if self.is_inner() => self.inputs[input as usize].name.to_string(),
            Maker::Input(input) => {
                let (kind, name) = (self.input_kind(input), &self.inputs[input as usize].name);
                if kind == PortKind::Input { format!("'{name}'") } else { format!("{kind} '{name}'") }
            }
        }
    }

    /// Returns the name of the sharer of a value.
    pub(crate) fn sharer_name(&self, sharer: Sharer) -> String {
        match sharer {
            Sharer::Output(output) => format!("the output '{}'", self.outputs[output as usize].name),
            Sharer::Async(node) => format!("the async node '{}'", self.full_name(node)),
            Sharer::Beside(value) => {
                let ValueInfo { maker, sharer, .. } = self.values[value as usize];
                let sharer = sharer.map_or_else(String::new, |sharer| self.sharer_name(sharer));
                format!("{sharer} (all values of {} are shared if one is)", self.maker_name(maker))
            }
            Sharer::Control(node) => format!("the loop or branch '{}'", self.full_name(node)),
        }
    }

    fn taken_twice(&mut self, maker: Maker, first: Option<NodeId>, second: NodeId) {
        let first = first.expect("the value was taken before");
        let [first, second] = [first, second].map(|node| self.full_name(node));
        self.mistake(Kind::TakenTwice { value: self.maker_name(maker), first, second }.into());
    }

    /// Records a mistake: a body that takes a value and also reads it would hold a dangling reference.
    fn taken_and_read(&mut self, maker: Maker, node: NodeId) {
        let node = self.full_name(node);
        self.mistake(Kind::TakenAndRead { value: self.maker_name(maker), node }.into());
    }
}
