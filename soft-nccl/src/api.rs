//! The C functions, and the control for the client.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

use crate::combine::bytes_of;
use crate::communicator::{self, CUDA_ERROR, INVALID_ARGUMENT, INVALID_USAGE, Launch, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR};
use crate::frames::{Collective, Work};
use crate::root;
use crate::wire::Control;

type Comm = usize;
type Stream = usize;
/// An address on a device.
type Address = u64;

#[repr(C)]
struct Id([u8; 128]);

/// The beginning of `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

const MAGIC: u32 = 0xcafe_beef;

#[unsafe(no_mangle)]
extern "C" fn anabranch_soft_nccl_control() -> *const Control {
    static CONTROL: Control = Control { run, fail, live, aborted };
    &CONTROL
}

unsafe extern "C" fn run(number: u64, from: *const u8, reads: usize, to: *mut u8, writes: usize) {
    let given: &[u8] = if reads == 0 {
        &[]
    } else {
        // SAFETY: the kernel has memory of so many bytes, and its stream orders other uses of it.
        unsafe { std::slice::from_raw_parts(from, reads) }
    };
    let Some(bytes) = communicator::run(number, given) else { return };
    if writes > 0 {
        let length = writes.min(bytes.len());
        // SAFETY: the kernel has memory of so many bytes, which no other code uses.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), length) };
    }
}

extern "C" fn fail(ordinal: u32, nth: u64, code: i32) {
    communicator::plan_fault(ordinal, nth, code);
}

extern "C" fn live(ordinal: u32) -> u64 {
    communicator::live(ordinal)
}

extern "C" fn aborted(ordinal: u32) -> u64 {
    communicator::aborted(ordinal)
}

fn put<T>(into: *mut T, value: T) -> c_int {
    if into.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the pointer is not null. So it points to a value, by the contract of the C function.
    unsafe { into.write(value) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    put(version, 22703)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    root::start().map_or(SYSTEM_ERROR, |root| put(id, Id(root.to_id())))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(comm: *mut Comm, size: c_int, id: Id, rank: c_int, config: *const Config) -> c_int {
    if comm.is_null() || config.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the pointer is not null. So it points to a configuration, by the contract of the C function.
    let config = unsafe { &*config };
    // A communicator that blocks would need another program.
    if config.magic != MAGIC || config.size < size_of::<Config>() || config.version < 21800 || config.blocking != 0 {
        return INVALID_ARGUMENT;
    }
    match communicator::init(id.0, size, rank) {
        Ok(handle) => match put(comm, handle as Comm) {
            SUCCESS => communicator::IN_PROGRESS,
            code => code,
        },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(comm: Comm, state: *mut c_int) -> c_int {
    communicator::get(comm as u64).map_or_else(|code| code, |comm| put(state, comm.poll()))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(comm: Comm) -> c_int {
    communicator::get(comm as u64).map_or_else(|code| code, |comm| comm.begin(None))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(comm: Comm) -> c_int {
    communicator::free(comm as u64, false).map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(comm: Comm) -> c_int {
    communicator::free(comm as u64, true).map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        3 => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        7 => c"operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Begins a collective. `reads` and `writes` are its bytes, for a number of ranks.
fn collective(
    comm: Comm,
    stream: Stream,
    what: Option<Collective>,
    ends: [Address; 2],
    bytes: impl Fn(usize) -> [Option<usize>; 2],
) -> c_int {
    if GROUP.with_borrow(|group| group.is_some()) {
        return INVALID_USAGE;
    }
    let comm = match communicator::get(comm as u64) {
        Ok(comm) => comm,
        Err(code) => return code,
    };
    let ([Some(reads), Some(writes)], Some(what)) = (bytes(comm.size()), what) else { return INVALID_ARGUMENT };
    let (from, to) = ((ends[0], reads as u64), (ends[1], writes as u64));
    comm.begin(Some(Launch { work: Work::Collective(what), from, to, stream }))
}

/// Returns whether the library has an operator.
fn has(by: c_int) -> bool {
    (0..4).contains(&by)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(from: Address, to: Address, count: usize, of: c_int, by: c_int, comm: Comm, stream: Stream) -> c_int {
    let what = has(by).then_some(Collective::AllReduce { count, of, by });
    collective(comm, stream, what, [from, to], |_| [bytes_of(of).map(|bytes| bytes * count); 2])
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    from: Address,
    to: Address,
    count: usize,
    of: c_int,
    by: c_int,
    comm: Comm,
    stream: Stream,
) -> c_int {
    let what = has(by).then_some(Collective::ReduceScatter { count, of, by });
    let part = bytes_of(of).map(|bytes| bytes * count);
    collective(comm, stream, what, [from, to], |size| [part.map(|part| part * size), part])
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(from: Address, to: Address, count: usize, of: c_int, comm: Comm, stream: Stream) -> c_int {
    let part = bytes_of(of).map(|bytes| bytes * count);
    let what = part.map(|bytes| Collective::AllGather { bytes });
    collective(comm, stream, what, [from, to], |size| [part, part.map(|part| part * size)])
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: Address,
    to: Address,
    count: usize,
    of: c_int,
    root: c_int,
    comm: Comm,
    stream: Stream,
) -> c_int {
    let bytes = bytes_of(of).map(|bytes| bytes * count);
    let what = bytes.filter(|_| root >= 0).map(|bytes| Collective::Broadcast { bytes, root });
    collective(comm, stream, what, [from, to], |size| if (root as usize) < size { [bytes; 2] } else { [None; 2] })
}

/// The sends and receives of a group: at most one of each, of one communicator and stream.
#[derive(Default)]
struct Group {
    comm: Option<(Comm, Stream)>,
    send: Option<(usize, (Address, u64))>,
    receive: Option<(usize, (Address, u64))>,
}

thread_local! {
    static GROUP: RefCell<Option<Group>> = const { RefCell::new(None) };
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|group| match group {
        Some(_) => INVALID_USAGE,
        None => {
            *group = Some(Group::default());
            SUCCESS
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let Some(group) = GROUP.take() else { return INVALID_USAGE };
    let Some((comm, stream)) = group.comm else { return SUCCESS };
    let work = Work::Exchange { send: group.send.map(|end| end.0), receive: group.receive.map(|end| end.0) };
    let [from, to] = [group.send, group.receive].map(|end| end.map_or((0, 0), |end| end.1));
    communicator::get(comm as u64).map_or_else(|code| code, |comm| comm.begin(Some(Launch { work, from, to, stream })))
}

fn message(address: Address, count: usize, of: c_int, peer: c_int, of_comm: (Comm, Stream), is_send: bool) -> c_int {
    let size = communicator::get(of_comm.0 as u64).map_or(0, |comm| comm.size());
    let Some(bytes) = bytes_of(of).filter(|_| (0..size as c_int).contains(&peer)) else { return INVALID_ARGUMENT };
    GROUP.with_borrow_mut(|group| {
        let Some(group) = group else { return INVALID_USAGE };
        if group.comm.is_some_and(|other| other != of_comm) {
            return INVALID_USAGE;
        }
        group.comm = Some(of_comm);
        let place = if is_send { &mut group.send } else { &mut group.receive };
        if place.is_some() {
            return INVALID_USAGE;
        }
        *place = Some((peer as usize, (address, (count * bytes) as u64)));
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(from: *const c_void, count: usize, of: c_int, peer: c_int, comm: Comm, stream: Stream) -> c_int {
    message(from as Address, count, of, peer, (comm, stream), true)
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(to: *mut c_void, count: usize, of: c_int, peer: c_int, comm: Comm, stream: Stream) -> c_int {
    message(to as Address, count, of, peer, (comm, stream), false)
}
