//! The facts about a graph's values while it is built: their types, makers, readers and ports.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use super::between::Kept;
use super::shape::NodeId;
use crate::name::Name;
use crate::value::{Cells, Layout, Slot, id_of};

#[derive(Clone)]
pub(crate) struct ValueInfo {
    pub(crate) of: Type,
    pub(crate) offset: u32,
    pub(crate) maker: Maker,
    pub(crate) is_read: bool,
    pub(super) last_reader: Option<NodeId>,
    pub(crate) taker: Option<NodeId>,
    /// The number of the last output that has this value.
    pub(crate) output: Option<u32>,
    /// The reason why the value is an `Arc`, if it is one.
    pub(crate) sharer: Option<Sharer>,
    /// In a pipeline, the reason why no node may take it: it is a result, is fed back, or is a feedback.
    pub(crate) kept: Option<Kept>,
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
    /// A loop or a branch, which may keep the value until its end.
    Control(NodeId),
    /// Another value of the same job is shared: this one.
    Beside(u32),
}

/// A named input: how a run's value gets into its cell.
#[derive(Clone)]
pub(crate) struct InputPort {
    pub(crate) name: Name,
    pub(crate) of: Type,
    pub(crate) value: u32,
    pub(crate) offset: u32,
    pub(crate) readers: Vec<NodeId>,
}

/// A named output: how the value of a finished run leaves its cell.
#[derive(Clone)]
pub(crate) struct OutputPort {
    pub(crate) name: Name,
    pub(super) value: u32,
    pub(crate) of: Type,
    pub(crate) offset: u32,
    /// Whether a later output has the same value.
    pub(crate) comes_again: bool,
    /// Whether the node makes other values too.
    pub(crate) has_siblings: bool,
}

impl OutputPort {
    pub(super) fn add_to(outputs: &mut Vec<Self>, name: Name, value: u32, info: &mut ValueInfo, has_siblings: bool) {
        if let Some(earlier) = info.output.replace(outputs.len() as u32) {
            outputs[earlier as usize].comes_again = true;
        }
        outputs.push(Self { name, value, of: info.of, offset: info.offset, comes_again: false, has_siblings });
    }
}

/// The type of a value, at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type {
    pub(crate) id: TypeId,
    /// [`id_of`] the type.
    pub(crate) id_fn: fn() -> TypeId,
    pub(crate) name: &'static str,
    /// The size in place, in bytes.
    pub(crate) size: u32,
    pub(crate) transfer: &'static Transfer,
}

impl Type {
    pub(super) fn of<T: Send + Sync + 'static>() -> Self {
        let (id, id_fn, name) = (TypeId::of::<T>(), id_of::<T> as fn() -> TypeId, type_name::<T>());
        Self { id, id_fn, name, size: size_of::<T>() as u32, transfer: Transfer::of::<T>() }
    }
}

/// The functions that move a value of one type into a run, out of it, and between cells. Their arguments are
/// a run's cells and offsets of cells.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) fill: fn(Cells<'_>, u32, Box<dyn Any>),
    pub(crate) clear: fn(Cells<'_>, u32),
    pub(crate) share: fn(Cells<'_>, u32) -> Arc<dyn Any + Send + Sync>,
    /// Moves out a value that is an `Arc`, or becomes one.
    pub(crate) take_as_shared: fn(Cells<'_>, u32) -> Arc<dyn Any + Send + Sync>,
    /// Moves out a value that is an `Arc`.
    pub(crate) take_shared: fn(Cells<'_>, u32) -> Arc<dyn Any + Send + Sync>,
    /// Moves a value in its present form.
    pub(crate) carry: fn(Cells<'_>, u32, u32),
    /// Moves a value and makes it an `Arc`.
    pub(crate) carry_shared: fn(Cells<'_>, u32, u32),
    /// Makes a value an `Arc`, and copies the `Arc` to another cell.
    pub(crate) split: fn(Cells<'_>, u32, u32),
    /// Copies a value that is an `Arc` to another cell.
    pub(crate) copy: fn(Cells<'_>, u32, u32),
    /// Places a cell for one more value.
    pub(super) place: fn(&mut Layout) -> u32,
    pub(crate) needs_drop: bool,
}

impl Transfer {
    pub(super) fn of<T: Send + Sync + 'static>() -> &'static Self {
        const {
            &Self {
                fill: |cells, offset, given| cells.put(Slot::<T>::at(offset), *given.downcast().expect("checked by its TypeId")),
                clear: |cells, offset| cells.clear(Slot::<T>::at(offset)),
                share: |cells, offset| -> Arc<dyn Any + Send + Sync> { cells.share::<T>(Slot::at(offset)) },
                take_as_shared: |cells, offset| -> Arc<dyn Any + Send + Sync> { cells.take_as_shared::<T>(Slot::at(offset)) },
                take_shared: |cells, offset| -> Arc<dyn Any + Send + Sync> { cells.take_shared::<T>(Slot::at(offset)) },
                carry: |cells, from, to| cells.carry(Slot::<T>::at(from), Slot::at(to), false),
                carry_shared: |cells, from, to| cells.carry(Slot::<T>::at(from), Slot::at(to), true),
                split: |cells, from, to| cells.split(Slot::<T>::at(from), Slot::at(to)),
                copy: |cells, from, to| cells.put_shared(Slot::<T>::at(to), cells.share(Slot::at(from))),
                place: |layout| layout.slot::<T>().offset(),
                needs_drop: std::mem::needs_drop::<T>(),
            }
        }
    }
}

/// The way in which a node uses a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Take,
    /// An async node reads it. The node outlives any borrow.
    Await,
    /// A loop or a branch reads it, for itself or for a node inside.
    Keep,
}
