//! An operation on device memory, as the thread of a communicator carries it out.

use crate::comm::native::{Element, Operation};
use crate::comm::op::{Op, Place};
use crate::device::queue::Memory;
use crate::device::{Buffer, Element as DeviceElement};
use crate::error::BoxError;
use crate::graph::{Exchange, Made, Shared};

/// The memory that an operation writes, and the number of its elements. None on a rank that gets nothing.
pub(super) type NewMemory = Option<(Box<dyn Memory>, usize)>;

/// What an operation needs to know of its buffers' type.
pub(crate) struct OnDevice {
    /// The size of an element in bytes.
    element: usize,
    /// Returns the memory of a buffer and the number of its elements. None if a host has it.
    given: fn(&Shared) -> Option<(&dyn Memory, usize)>,
    /// Makes the value of the node.
    made: fn(NewMemory) -> Made,
}

/// What NCCL is asked to do. Sizes are in bytes, except those of reductions, which are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    AllReduce {
        count: usize,
        element: Element,
        operation: Operation,
    },
    ReduceScatter {
        count: usize,
        element: Element,
        operation: Operation,
    },
    AllGather {
        bytes: usize,
    },
    Broadcast {
        bytes: usize,
        root: u32,
    },
    /// A send and a receive, each with the other rank.
    SendRecv {
        send: Option<(usize, u32)>,
        receive: Option<(usize, u32)>,
    },
}

/// A call, and the number of elements that it makes.
pub(super) struct Wanted {
    pub(super) call: Call,
    pub(super) made: Option<usize>,
}

impl OnDevice {
    /// Returns the facts for a node that makes a buffer of `T`.
    pub(super) fn buffer<T: DeviceElement>() -> Self {
        let made = |made: NewMemory| -> Made {
            let (memory, len) = made.expect("every rank gets a buffer");
            Box::new(Buffer::<T>::on_device(memory, len))
        };
        Self { element: size_of::<T>(), given: given::<T>, made }
    }

    /// Returns the facts for a node that makes a buffer of `T` on ranks that have a peer.
    pub(super) fn optional<T: DeviceElement>() -> Self {
        let made = |made: NewMemory| -> Made { Box::new(made.map(|(memory, len)| Buffer::<T>::on_device(memory, len))) };
        Self { element: size_of::<T>(), given: given::<T>, made }
    }

    /// Returns the memory of the buffer that a rank gives, and the number of its elements.
    pub(super) fn given<'v>(&self, value: &'v Shared) -> Result<(&'v dyn Memory, usize), BoxError> {
        (self.given)(value).ok_or_else(|| "its buffer is in the memory of a host: run the plan on a CUDA device".into())
    }

    pub(super) fn bytes(&self, elements: usize) -> usize {
        // A buffer of all ranks' elements may be too large for any memory.
        self.element.saturating_mul(elements)
    }

    pub(super) fn make(&self, memory: NewMemory) -> Made {
        (self.made)(memory)
    }
}

fn given<T: DeviceElement>(value: &Shared) -> Option<(&dyn Memory, usize)> {
    let buffer: &Buffer<T> = value.downcast_ref().expect("a node gets the type that it reads");
    Some((buffer.memory()?, buffer.len()))
}

impl Wanted {
    /// Returns what an operation asks of NCCL, from the lengths that the ranks give. All ranks find the same
    /// faults.
    pub(super) fn new(op: &Op, on_device: &OnDevice, place: Place, lengths: &[u64]) -> Result<Self, BoxError> {
        let length = |rank: u32| lengths[rank as usize] as usize;
        let (mine, ranks) = (length(place.rank), place.size as usize);
        if let Exchange::SendRecv { to, from } = &op.spec.communication.exchange {
            let (to, from) = (to.of(place.rank, place.size), from.of(place.rank, place.size));
            let send = to.map(|to| (on_device.bytes(mine), to));
            let receive = from.map(|from| (on_device.bytes(length(from)), from));
            return Ok(Self { call: Call::SendRecv { send, receive }, made: from.map(length) });
        }
        if let Some(rank) = (1..place.size).find(|&rank| length(rank) != length(0)) {
            return Err(crate::comm::combine::lengths_differ(lengths[0], rank, lengths[rank as usize]));
        }
        let (call, made) = match (&op.spec.communication.exchange, op.spec.reduction) {
            (Exchange::AllReduce { .. }, Some((element, operation))) => {
                (Call::AllReduce { count: mine, element, operation }, mine)
            }
            (Exchange::ReduceScatter { .. }, Some((element, operation))) => {
                let count = crate::comm::combine::part(mine, place.size)?;
                (Call::ReduceScatter { count, element, operation }, count)
            }
            (Exchange::Broadcast { root }, _) => (Call::Broadcast { bytes: on_device.bytes(mine), root: *root }, mine),
            _ => (Call::AllGather { bytes: on_device.bytes(mine) }, mine.saturating_mul(ranks)),
        };
        Ok(Self { call, made: Some(made) })
    }
}
