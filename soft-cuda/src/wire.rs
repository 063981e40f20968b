//! The interface of the client and the driver: plain C data, because each of them has its own standard
//! library.
//!
//! Neither side frees memory of the other, and no panic crosses.

use std::ffi::c_void;

/// The name of the only symbol that the client looks up.
pub(crate) const CONTROL_SYMBOL: &[u8] = b"anabranch_soft_cuda_control";

/// The version of this file. The client and the driver must have been built from the same one.
pub(crate) const WIRE: u32 = 3;

/// The ordinal of the process, for settings that belong to no device.
pub(crate) const PROCESS: u32 = u32::MAX;

/// The number of devices.
pub(crate) const DEVICES: u32 = 64;

/// The use of a parameter by a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ParamKind {
    /// A value.
    Scalar,
    /// A pointer to an allocation that the kernel reads.
    Read,
    /// A pointer to an allocation that the kernel writes.
    Write,
    /// A pointer to an allocation that the kernel reads and writes.
    ReadWrite,
}

/// One parameter of a kernel: the number of bytes that are copied at the launch, and its use by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Param {
    /// The size in bytes.
    pub size: usize,
    /// The use by the kernel.
    pub kind: ParamKind,
    /// For a pointer: the parameter that has the number of elements, and the size of an element in bytes. A
    /// size of 0 stands for the whole allocation.
    pub counted: (u32, u32),
}

impl Param {
    /// A pointer that is read.
    pub const READ: Param = Param::pointer(ParamKind::Read);
    /// A pointer that is written.
    pub const WRITE: Param = Param::pointer(ParamKind::Write);
    /// A pointer that is read and written.
    pub const READ_WRITE: Param = Param::pointer(ParamKind::ReadWrite);

    const fn pointer(kind: ParamKind) -> Param {
        Param { size: 8, kind, counted: (0, 0) }
    }

    /// Returns a pointer to as many elements of `T` as another parameter says. That parameter is passed by
    /// value and has 4 or 8 bytes. Other pointers stand for their whole allocation.
    pub const fn counted_by<T>(self, param: u32) -> Param {
        Param { counted: (param, size_of::<T>() as u32), ..self }
    }

    /// Returns a parameter that is passed by value.
    pub const fn scalar<T>() -> Param {
        Param { size: size_of::<T>(), kind: ParamKind::Scalar, counted: (0, 0) }
    }
}

/// One launch, as passed from the driver to the client.
#[repr(C)]
pub(crate) struct RawLaunch {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// The number of pointers at `params`.
    pub(crate) count: u32,
    pub(crate) params: *const *const c_void,
}

/// Runs a registered kernel and returns a code.
pub(crate) type KernelCall = unsafe extern "C" fn(user: *const c_void, launch: *const RawLaunch) -> u32;

/// Text that is borrowed for the time of a call.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Text {
    start: *const u8,
    len: usize,
}

impl Text {
    pub(crate) fn of(text: &str) -> Self {
        Self { start: text.as_ptr(), len: text.len() }
    }

    /// # Safety
    /// The text that it was made of is still live.
    pub(crate) unsafe fn as_str<'a>(self) -> &'a str {
        // SAFETY: `of` took both from one `str`, which is still live: the contract of this function.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.len) };
        // SAFETY: the bytes are those of a `str`, which is valid UTF-8.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }
}

/// A kernel to be registered.
#[repr(C)]
pub(crate) struct RawKernel {
    pub(crate) name: Text,
    pub(crate) params: *const Param,
    pub(crate) count: usize,
    pub(crate) call: KernelCall,
    pub(crate) user: *const c_void,
}

/// The operations that a fault is counted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Which {
    /// All of them.
    Any,
    /// Kernels.
    Kernel,
    /// Copies.
    Copy,
    /// Memsets.
    Memset,
    /// Host functions.
    HostFunction,
    /// Values written by the stream.
    WriteValue,
    /// Allocations and frees in stream order.
    Memory,
    /// Records of events with times, which do not count as operations otherwise.
    TimedEvent,
}

/// What happens to host functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFunctions {
    /// They are called by their stream's thread.
    Called,
    /// They are never called, and the stream continues.
    Dropped,
    /// They are called this many microseconds late.
    LateUs(u64),
    /// One thread of the device calls all of them, one after the other.
    Serialised,
}

/// When the host learns of the work that a stream has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Seen {
    /// As soon as it is done.
    AtOnce,
    /// When the host has waited for the stream, for an event behind it, or for the context.
    AfterSync,
    /// Never.
    Never,
}

impl Seen {
    pub(crate) fn of(number: u64) -> Self {
        [Self::AfterSync, Self::Never].into_iter().find(|&seen| seen as u64 == number).unwrap_or(Self::AtOnce)
    }
}

/// The settings, each with up to three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Setting {
    /// On or off.
    TrackRaces,
    /// On or off.
    KeepLog,
    /// On or off.
    WordsInformHost,
    /// Bytes.
    MemoryLimit,
    /// The n-th allocation from now.
    FailAllocation,
    /// Which, n-th, code.
    FailOperation,
    /// Which, n-th, microseconds.
    DelayOperation,
    /// Microseconds.
    DelayEveryOperation,
    /// Which, n-th.
    StallOperation,
    ReleaseStall,
    /// The first that was issued of those in force.
    ReleaseFirstStall,
    /// 0 called, 1 dropped, 2 late (microseconds), 3 serialised.
    HostFunctions,
    /// When the host sees them.
    WrittenValues,
    /// When their queries succeed.
    Events,
    /// On or off.
    Absent,
    /// Attribute, value.
    Attribute,
    ClearFaults,
    Reset,
    /// Address of the word.
    HostSaw,
    /// Address, bytes.
    HostReads,
    /// Address, bytes.
    HostWrites,
    /// On or off; of the process.
    NoDevice,
    /// 1000 * major + 10 * minor; of the process.
    DriverVersion,
}

/// The lists that the client can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum List {
    /// The functions that were called, each with the number of calls.
    Calls,
    /// The violations, each with its kind.
    Violations,
    /// The log.
    Log,
}

/// Receives one line of a list.
pub(crate) type Sink = unsafe extern "C" fn(into: *mut c_void, number: u64, text: Text);

/// The objects of a device, and its statistics.
///
/// All counts of live objects are zero again after the last release of the context, and also before that in a
/// program that has freed all of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// The number of retains of the primary context.
    pub retains: u64,
    /// Live streams, without the default one.
    pub streams: u64,
    /// Live events.
    pub events: u64,
    /// Live modules.
    pub modules: u64,
    /// Live graphs.
    pub graphs: u64,
    /// Live executable graphs.
    pub executable_graphs: u64,
    /// Live allocations of device memory.
    pub allocations: u64,
    /// Bytes of device memory allocated.
    pub bytes: u64,
    /// The maximum of allocated bytes of device memory.
    pub peak_bytes: u64,
    /// Live allocations of pinned host memory.
    pub pinned_allocations: u64,
    /// Bytes of pinned host memory allocated.
    pub pinned_bytes: u64,
    /// Threads of streams that have not ended.
    pub threads: u64,
    /// Operations issued. At every launch of a graph, each node counts as one.
    pub issued: u64,
    /// Operations executed, without those that failed or were skipped.
    pub executed: u64,
    /// Asynchronous copies from or to host memory that is not pinned.
    pub pageable_copies: u64,
    /// Streams that are stopped at a stalled operation.
    pub stalled: u64,
}

/// The kinds of wrong use of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ViolationKind {
    /// Two accesses to one allocation without an order between them, one of which is a write.
    Race,
    /// An access to memory after it was freed.
    UseAfterFree,
    /// An access outside of every allocation.
    OutOfBounds,
    /// Memory freed twice, or freed though it was never allocated.
    DoubleFree,
    /// Memory that was still allocated when the context was released.
    Leak,
    /// The bytes behind an allocation were overwritten.
    Overrun,
    /// The driver was called from a host function or a kernel.
    CallInCallback,
}

impl ViolationKind {
    pub(crate) const ALL: [ViolationKind; 7] =
        [Self::Race, Self::UseAfterFree, Self::OutOfBounds, Self::DoubleFree, Self::Leak, Self::Overrun, Self::CallInCallback];
}

/// The driver's side, which the client finds behind [`CONTROL_SYMBOL`]. `wire` is the first field in all
/// versions.
#[repr(C)]
pub(crate) struct Control {
    pub(crate) wire: u32,
    pub(crate) register_kernel: unsafe extern "C" fn(kernel: *const RawKernel),
    /// Returns false if there is no such device.
    pub(crate) set: extern "C" fn(ordinal: u32, setting: Setting, first: u64, second: u64, third: u64) -> bool,
    /// Returns false if the driver has no function of that name.
    pub(crate) fail_call: unsafe extern "C" fn(ordinal: u32, name: Text, nth: u64, code: u32) -> bool,
    pub(crate) counters: unsafe extern "C" fn(ordinal: u32, into: *mut Counters),
    pub(crate) list: unsafe extern "C" fn(ordinal: u32, list: List, sink: Sink, into: *mut c_void),
}
