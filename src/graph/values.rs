//! What is known of a graph's values while it is built: who makes each, who reads it, how it gets into a run
//! and out of it.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use super::builder::Graph;
use super::source::{Use, Value};
use super::{Edge, EdgeKind, NodeId, PORTS_MAX};
use crate::error::Kind;
use crate::value::{Cells, Layout, Slot};

/// What is known of one value while the graph is built.
pub(crate) struct ValueInfo {
    pub(super) type_id: TypeId,
    pub(super) type_name: &'static str,
    pub(super) offset: u32,
    pub(super) transfer: &'static Transfer,
    pub(crate) maker: Maker,
    pub(crate) is_read: bool,
    pub(super) last_reader: Option<NodeId>,
    pub(crate) taker: Option<NodeId>,
    /// Why the value is an `Arc`, if it is.
    pub(crate) sharer: Option<Sharer>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Maker {
    Input(u32),
    Node(NodeId),
}

#[derive(Clone, Copy)]
pub(crate) enum Sharer {
    Output(u32),
    Async(NodeId),
    /// A loop or a branch, which keeps it for as long as it likes.
    Control(NodeId),
}

/// A named input: how a run's value gets into its cell.
#[derive(Clone)]
pub(crate) struct InputPort {
    pub(crate) name: Arc<str>,
    pub(crate) type_id: TypeId,
    pub(crate) type_name: &'static str,
    pub(crate) value: u32,
    pub(crate) offset: u32,
    pub(crate) readers: Vec<NodeId>,
    pub(crate) transfer: &'static Transfer,
}

/// A named output: how a finished run's value gets out of its cell.
#[derive(Clone)]
pub(crate) struct OutputPort {
    pub(crate) name: Arc<str>,
    pub(super) value: u32,
    pub(crate) type_name: &'static str,
    pub(crate) offset: u32,
    pub(crate) transfer: &'static Transfer,
}

/// A type of values: what of it is known when the program runs.
#[derive(Clone, Copy)]
pub(super) struct Type {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
    pub(super) transfer: &'static Transfer,
}

impl Type {
    pub(super) fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>(), transfer: Transfer::of::<T>() }
    }
}

/// How values of one type get into a run, out of it, and from cell to cell: functions of a run's cells and
/// the offsets of the values'.
pub(crate) struct Transfer {
    pub(crate) fill: fn(Cells<'_>, u32, Box<dyn Any>),
    pub(crate) fill_shared: fn(Cells<'_>, u32, Arc<dyn Any + Send + Sync>),
    pub(crate) clear: fn(Cells<'_>, u32),
    pub(crate) share: fn(Cells<'_>, u32) -> Arc<dyn Any + Send + Sync>,
    /// Moves a value as it is.
    pub(crate) carry: fn(Cells<'_>, u32, u32),
    /// Moves a value and makes it an `Arc`.
    pub(crate) carry_shared: fn(Cells<'_>, u32, u32),
    /// Makes a value an `Arc`, and gives a share of it.
    pub(crate) split: fn(Cells<'_>, u32, u32),
    /// Gives a share of a value that is an `Arc`.
    pub(crate) copy: fn(Cells<'_>, u32, u32),
    /// Makes a place for one more value.
    pub(super) place: fn(&mut Layout) -> u32,
}

impl Transfer {
    pub(super) fn of<T: Send + Sync + 'static>() -> &'static Self {
        const {
            &Self {
                fill: |cells, offset, given| cells.put(Slot::<T>::at(offset), *given.downcast().expect("checked by its TypeId")),
                fill_shared: |cells, offset, given| {
                    cells.put_shared(Slot::<T>::at(offset), given.downcast::<T>().expect("checked by its TypeId"))
                },
                clear: |cells, offset| cells.clear(Slot::<T>::at(offset)),
                share: |cells, offset| -> Arc<dyn Any + Send + Sync> { cells.share::<T>(Slot::at(offset)) },
                carry: |cells, from, to| cells.carry(Slot::<T>::at(from), Slot::at(to), false),
                carry_shared: |cells, from, to| cells.carry(Slot::<T>::at(from), Slot::at(to), true),
                split: |cells, from, to| cells.split(Slot::<T>::at(from), Slot::at(to)),
                copy: |cells, from, to| cells.put_shared(Slot::<T>::at(to), cells.share(Slot::at(from))),
                place: |layout| layout.slot::<T>().offset(),
            }
        }
    }
}

impl Graph {
    pub(super) fn value<T: Send + Sync + 'static>(&mut self, slot: Slot<T>, maker: Maker) -> Value<T> {
        Value::new(self.address(), self.value_of_type(Type::of::<T>(), slot.offset(), maker), slot.offset())
    }

    pub(super) fn value_of_type(&mut self, of: Type, offset: u32, maker: Maker) -> u32 {
        let index = self.values.len() as u32;
        self.values.push(ValueInfo {
            type_id: of.id,
            type_name: of.name,
            offset,
            transfer: of.transfer,
            maker,
            // A unit carries nothing that could be forgotten.
            is_read: of.id == TypeId::of::<()>(),
            last_reader: None,
            taker: None,
            sharer: None,
        });
        index
    }

    /// Adds an input, under a name that nobody has checked.
    pub(super) fn add_input<T: Send + Sync + 'static>(&mut self, name: Arc<str>, slot: Slot<T>) -> Value<T> {
        Value::new(self.address(), self.input_of_type(name, Type::of::<T>(), slot.offset()), slot.offset())
    }

    pub(super) fn input_of_type(&mut self, name: Arc<str>, of: Type, offset: u32) -> u32 {
        let value = self.value_of_type(of, offset, Maker::Input(self.inputs.len() as u32));
        let Type { id: type_id, name: type_name, transfer } = of;
        self.inputs.push(InputPort { name, type_id, type_name, value, offset, readers: Vec::new(), transfer });
        value
    }

    /// Returns the handle to a value of this graph, by its number; the caller knows its type.
    pub(super) fn value_at<T>(&self, value: u32) -> Value<T> {
        Value::new(self.address(), value, self.values[value as usize].offset)
    }

    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.token).addr()
    }

    /// The type is checked too, because an address can be used again after a graph is gone.
    pub(super) fn owns<T: 'static>(&self, value: &Value<T>) -> bool {
        let info = self.values.get(value.index as usize);
        value.graph == self.address() && info.is_some_and(|info| info.type_id == TypeId::of::<T>())
    }

    /// Notes that `reader` uses `value`, and returns the key of its cell.
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

    /// The same with a value of this graph, by its number. Returns where its cell is.
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

    /// Notes how a value is used, without an edge.
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
            Use::Await => _ = info.sharer.get_or_insert(Sharer::Async(reader)),
            Use::Keep => {
                info.sharer.get_or_insert(Sharer::Control(reader));
                self.kept.push((reader, value));
            }
        }
    }

    /// Returns the value that is read along an edge.
    pub(crate) fn value_of(&self, edge: &Edge) -> u32 {
        let output = if let EdgeKind::Data { output, .. } = edge.kind { output } else { 0 };
        self.works[edge.source.index()].value + output
    }

    pub(super) fn order_after<T: 'static>(&mut self, earlier: &Value<T>, later: NodeId) {
        if !self.owns(earlier) {
            if !self.order_around(earlier, later) {
                let name = self.full_name(later);
                self.mistake(Kind::ForeignValue { name }.into());
            }
            return;
        }
        self.order_own(earlier.index, later);
    }

    /// The same with a value of this graph, by its number.
    pub(super) fn order_own(&mut self, earlier: u32, later: NodeId) {
        // An input is there before the run starts: nothing to wait for.
        if let Maker::Node(source) = self.values[earlier as usize].maker {
            self.shape_mut().order(source, later);
        }
    }

    /// Returns the name of a value's maker in messages. States have longer names.
    pub(crate) fn maker_name(&self, maker: Maker) -> String {
        match maker {
            Maker::Node(node) => format!("'{}'", self.full_name(node)),
            Maker::Input(input) if self.is_inner() => self.inputs[input as usize].name.to_string(),
            Maker::Input(input) => format!("'{}'", self.inputs[input as usize].name),
        }
    }

    /// Returns the name of what shares a value.
    pub(crate) fn sharer_name(&self, sharer: Sharer) -> String {
        match sharer {
            Sharer::Output(output) => format!("the output '{}'", self.outputs[output as usize].name),
            Sharer::Async(node) => format!("the async node '{}'", self.full_name(node)),
            Sharer::Control(node) => format!("the loop or branch '{}'", self.full_name(node)),
        }
    }

    fn taken_twice(&mut self, maker: Maker, first: Option<NodeId>, second: NodeId) {
        let first = first.expect("the value was taken before");
        let [first, second] = [first, second].map(|node| self.full_name(node));
        self.mistake(Kind::TakenTwice { value: self.maker_name(maker), first, second }.into());
    }

    /// A reference that a body holds to what it was given by value would dangle.
    fn taken_and_read(&mut self, maker: Maker, node: NodeId) {
        let node = self.full_name(node);
        self.mistake(Kind::TakenAndRead { value: self.maker_name(maker), node }.into());
    }

    /// Names of ports are looked up one by one, so there is a bound.
    pub(super) fn check_ports(&mut self, what: &str, count: usize) {
        if count >= PORTS_MAX {
            self.mistake(Kind::Limit { what: format!("the number of {what}"), got: count + 1, limit: PORTS_MAX }.into());
        }
    }
}
