//! The commands of operations, before any check.

use std::sync::Arc;

use super::allocation::Allocation;
use super::callback::HostCall;
use super::kernel::{Arguments, Kernel};
use super::violation::Name;
use crate::wire::Which;

/// A command. It holds addresses, which are looked up each time it is issued, because a graph issues the same
/// command repeatedly.
#[derive(Clone)]
pub(crate) enum Command {
    /// A node of a graph that only orders others.
    Nothing,
    Kernel(Launch),
    Copy(Copy),
    Fill(Fill),
    WriteValue(WriteValue),
    Call(HostCall),
    /// Memory that is allocated in stream order.
    Allocate(Arc<Allocation>),
    /// Memory that is freed in stream order.
    Free(Arc<Allocation>),
}

#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) arguments: Arguments,
}

/// One end of a copy.
#[derive(Clone)]
pub(crate) enum End {
    /// Memory that the driver must have given out.
    Device(usize),
    /// Host memory: pinned if the driver allocated it, otherwise pageable.
    Host(usize),
    /// Bytes copied from pageable memory at the call.
    Staged(Arc<[u8]>),
}

impl End {
    pub(crate) fn address(&self) -> usize {
        match self {
            End::Device(address) | End::Host(address) => *address,
            End::Staged(bytes) => bytes.as_ptr() as usize,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) name: &'static str,
    pub(crate) into: End,
    pub(crate) from: End,
    pub(crate) len: usize,
}

#[derive(Clone)]
pub(crate) struct Fill {
    pub(crate) into: usize,
    pub(crate) value: u32,
    /// Bytes of the value that are written: 1, 2 or 4.
    pub(crate) width: usize,
    pub(crate) count: usize,
}

#[derive(Clone)]
pub(crate) struct WriteValue {
    pub(crate) into: usize,
    pub(crate) value: u64,
    pub(crate) is_64_bit: bool,
}

/// A range of memory that a command accesses.
pub(crate) struct Touch {
    pub(crate) address: usize,
    /// None stands for the whole allocation that the address is in.
    pub(crate) len: Option<usize>,
    pub(crate) is_write: bool,
    /// Whether the memory may be foreign: the driver does not check memory that it did not allocate.
    pub(crate) may_be_foreign: bool,
}

impl Command {
    pub(crate) fn which(&self) -> Which {
        match self {
            Command::Nothing => Which::Any,
            Command::Kernel(_) => Which::Kernel,
            Command::Copy(_) => Which::Copy,
            Command::Fill(_) => Which::Memset,
            Command::WriteValue(_) => Which::WriteValue,
            Command::Call(_) => Which::HostFunction,
            Command::Allocate(_) | Command::Free(_) => Which::Memory,
        }
    }

    pub(crate) fn name(&self) -> Name {
        match self {
            Command::Nothing => Name::Other("empty node"),
            Command::Kernel(launch) => Name::Kernel(launch.kernel.name.clone()),
            Command::Copy(copy) => Name::Other(copy.name),
            Command::Fill(_) => Name::Other("memset"),
            Command::WriteValue(_) => Name::Other("write of a value"),
            Command::Call(_) => Name::Other("host function"),
            Command::Allocate(_) => Name::Other("allocation"),
            Command::Free(_) => Name::Other("free"),
        }
    }

    /// Returns true if the command's effect may tell the host how far the stream has come.
    pub(crate) fn informs_host(&self) -> bool {
        matches!(self, Command::WriteValue(_) | Command::Call(_))
    }

    /// Visits the memory that the command accesses.
    pub(crate) fn for_each_touch(&self, mut visit: impl FnMut(Touch)) {
        let touch = |address, len, is_write| Touch { address, len, is_write, may_be_foreign: false };
        match self {
            Command::Nothing | Command::Call(_) => {}
            Command::Kernel(launch) => launch.kernel.for_each_pointer(&launch.arguments, |address, len, is_write| {
                // A kernel may get a null pointer in place of a buffer.
                if address != 0 {
                    visit(touch(address, len, is_write));
                }
            }),
            Command::Copy(copy) => {
                for (end, is_write) in [(&copy.from, false), (&copy.into, true)] {
                    match *end {
                        End::Device(address) => visit(touch(address, Some(copy.len), is_write)),
                        End::Host(address) => visit(Touch { may_be_foreign: true, ..touch(address, Some(copy.len), is_write) }),
                        End::Staged(_) => {}
                    }
                }
            }
            Command::Fill(fill) => visit(touch(fill.into, Some(fill.width * fill.count), true)),
            Command::WriteValue(write) => visit(touch(write.into, Some(if write.is_64_bit { 8 } else { 4 }), true)),
            Command::Allocate(allocation) | Command::Free(allocation) => visit(touch(allocation.start(), None, true)),
        }
    }
}
