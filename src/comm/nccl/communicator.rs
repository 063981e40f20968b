//! A communicator of NCCL, which one thread uses. None of its calls blocks, except the last ones.

use std::ffi::{c_int, c_void};

use super::library::{Code, Comm, Config, IN_PROGRESS, Library, SUCCESS, Stream, UniqueId};
use super::on_device::Call;
use crate::comm::native::{Element, Operation};
use crate::comm::op::Place;

/// NCCL's number of the type of a byte.
const BYTE: c_int = 1;

pub(super) struct Communicator {
    library: &'static Library,
    handle: Comm,
}

/// Where a call takes its bytes, and where it leaves them.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Communicator {
    /// Begins to connect this rank with the others. The context of its GPU is current on this thread.
    pub(super) fn init(library: &'static Library, place: Place, id: UniqueId) -> Result<Self, String> {
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::non_blocking());
        let (size, rank) = (place.size as c_int, place.rank as c_int);
        // SAFETY: the call writes the handle at once, and copies the configuration.
        let code = unsafe { (library.init)(&mut handle, size, id, rank, &mut config) };
        let communicator = Self { library, handle };
        match library.check(code, "ncclCommInitRankConfig") {
            Ok(()) => Ok(communicator),
            Err(fault) => {
                communicator.abort();
                Err(fault)
            }
        }
    }

    /// Returns whether the last call is complete: its work is on the stream.
    pub(super) fn is_ready(&self) -> Result<bool, String> {
        let mut state: Code = SUCCESS;
        // SAFETY: the communicator lives, and the call writes one number, which outlives it.
        let code = unsafe { (self.library.async_error)(self.handle, &mut state) };
        self.library.check(code, "ncclCommGetAsyncError")?;
        if state == IN_PROGRESS {
            return Ok(false);
        }
        self.library.check(state, "an operation").map(|()| true)
    }

    /// Begins to enqueue a call. The communicator is ready.
    ///
    /// # Safety
    /// The memory at both ends has the bytes that the call says, and stays until the stream has passed the
    /// work, or the communicator is aborted and the stream has ended.
    pub(super) unsafe fn issue(&self, call: Call, ends: Ends, stream: Stream) -> Result<(), String> {
        let (from, to) = (address(ends.from).cast_const(), address(ends.to));
        let (library, comm) = (self.library, self.handle);
        let (code, name) = match call {
            Call::AllReduce { count, element, operation } => {
                let (of, by) = (number_of_element(element)?, number_of_operation(operation));
                // SAFETY: both ends have `count` elements, by the contract of this function.
                (unsafe { (library.all_reduce)(from, to, count, of, by, comm, stream) }, "ncclAllReduce")
            }
            Call::ReduceScatter { count, element, operation } => {
                let (of, by) = (number_of_element(element)?, number_of_operation(operation));
                // SAFETY: the result has `count` elements, and the memory at `from` as many for each rank.
                (unsafe { (library.reduce_scatter)(from, to, count, of, by, comm, stream) }, "ncclReduceScatter")
            }
            Call::AllGather { bytes } => {
                // SAFETY: the memory at `from` has so many bytes, and that at `to` as many for each rank.
                (unsafe { (library.all_gather)(from, to, bytes, BYTE, comm, stream) }, "ncclAllGather")
            }
            Call::Broadcast { bytes, root } => {
                let root = root as c_int;
                // SAFETY: both ends have so many bytes, by the contract of this function.
                (unsafe { (library.broadcast)(from, to, bytes, BYTE, root, comm, stream) }, "ncclBroadcast")
            }
            // SAFETY: the caller promises that the memory has these bytes and stays.
            Call::SendRecv { send, receive } => return unsafe { self.exchange(send, receive, ends, stream) },
        };
        self.library.check(code, name)
    }

    /// Sends and receives as one operation: neither waits for the other.
    ///
    /// # Safety
    /// As of [`issue`](Self::issue).
    unsafe fn exchange(
        &self,
        send: Option<(usize, u32)>,
        receive: Option<(usize, u32)>,
        ends: Ends,
        stream: Stream,
    ) -> Result<(), String> {
        let (library, comm) = (self.library, self.handle);
        let (from, to) = (address(ends.from).cast_const(), address(ends.to));
        // SAFETY: this thread ends the group below.
        library.check(unsafe { (library.group_start)() }, "ncclGroupStart")?;
        let sent = send.map_or(SUCCESS, |(bytes, peer)| {
            // SAFETY: the memory at `from` has so many bytes, by the contract of `issue`.
            unsafe { (library.send)(from, bytes, BYTE, peer as c_int, comm, stream) }
        });
        let received = receive.map_or(SUCCESS, |(bytes, peer)| {
            // SAFETY: the memory at `to` has so many bytes, by the contract of `issue`.
            unsafe { (library.receive)(to, bytes, BYTE, peer as c_int, comm, stream) }
        });
        // SAFETY: this thread has begun the group above.
        let ended = unsafe { (library.group_end)() };
        library.check(sent, "ncclSend")?;
        library.check(received, "ncclRecv")?;
        library.check(ended, "ncclGroupEnd")
    }

    /// Begins the end of a communicator whose operations all ranks have issued.
    pub(super) fn finalize(&self) -> Result<(), String> {
        // SAFETY: the communicator lives.
        self.library.check(unsafe { (self.library.finalize)(self.handle) }, "ncclCommFinalize")
    }

    /// Frees a communicator that is finalized and ready.
    pub(super) fn destroy(self) {
        // SAFETY: this is the last use of the handle. There is nothing to do about an error.
        let _ = unsafe { (self.library.destroy)(self.handle) };
    }

    /// Ends the work on the stream, and frees the communicator. Other ranks are not needed.
    pub(super) fn abort(self) {
        if !self.handle.is_null() {
            // SAFETY: this is the last use of the handle. There is nothing to do about an error.
            let _ = unsafe { (self.library.abort)(self.handle) };
        }
    }
}

/// Returns an address on the device in the form that NCCL takes.
fn address(of: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(of as usize)
}

/// Returns NCCL's number of a type.
fn number_of_element(element: Element) -> Result<c_int, String> {
    Ok(match element {
        Element::I8 => 0,
        Element::U8 => 1,
        Element::I32 => 2,
        Element::U32 => 3,
        Element::I64 => 4,
        Element::U64 => 5,
        Element::F32 => 7,
        Element::F64 => 8,
        Element::I16 | Element::U16 => return Err("NCCL does not reduce integers of 16 bits".into()),
    })
}

fn number_of_operation(operation: Operation) -> c_int {
    match operation {
        Operation::Sum => 0,
        Operation::Product => 1,
        Operation::Max => 2,
        Operation::Min => 3,
    }
}
