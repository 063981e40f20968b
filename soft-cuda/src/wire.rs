//! What the client and the driver say to each other: plain C data, because each of the two has a standard
//! library of its own.
//!
//! Nothing that one side allocated is freed by the other, and no panic crosses.

use std::ffi::c_void;

/// The name of the one symbol the client looks up.
pub(crate) const CONTROL_SYMBOL: &[u8] = b"anabranch_soft_cuda_control";

/// Counts changes of this file; client and driver must have been built from the same one.
pub(crate) const WIRE: u32 = 3;

/// The ordinal that stands for the process, where a setting belongs to no device.
pub(crate) const PROCESS: u32 = u32::MAX;

/// The number of devices.
pub(crate) const DEVICES: u32 = 64;

/// What a kernel does with one of its parameters.
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

/// One parameter of a kernel: how many bytes are copied at the launch, and what the kernel does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Param {
    /// The size in bytes.
    pub size: usize,
    /// What the kernel does with it.
    pub kind: ParamKind,
    /// For a pointer: the parameter that has the number of elements there, and their size in bytes; a size of
    /// 0 stands for the whole allocation.
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

    /// Returns a pointer to so many elements of `T` as another parameter says, which is passed by value and
    /// has 4 or 8 bytes. Other pointers stand for the whole allocation that they are in.
    pub const fn counted_by<T>(self, param: u32) -> Param {
        Param { counted: (param, size_of::<T>() as u32), ..self }
    }

    /// Returns a parameter that is passed by value.
    pub const fn scalar<T>() -> Param {
        Param { size: size_of::<T>(), kind: ParamKind::Scalar, counted: (0, 0) }
    }
}

/// One launch, as the driver hands it to the client.
#[repr(C)]
pub(crate) struct RawLaunch {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// How many pointers stand at `params`.
    pub(crate) count: u32,
    pub(crate) params: *const *const c_void,
}

/// Runs a registered kernel and returns a code.
pub(crate) type KernelCall = unsafe extern "C" fn(user: *const c_void, launch: *const RawLaunch) -> u32;

/// A piece of text, borrowed for the length of a call.
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
    /// The text it was made of must still be live.
    pub(crate) unsafe fn as_str<'a>(self) -> &'a str {
        // SAFETY: `of` took both from one live `str`; the caller vouches that it still is.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.len) };
        // SAFETY: the bytes are those of a `str`.
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
}

/// What becomes of host functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFunctions {
    /// They are called by their stream's thread.
    Called,
    /// They are never called; the stream goes on.
    Dropped,
    /// They are called this many microseconds late.
    LateUs(u64),
    /// All of them are called by one thread of the device, one after the other.
    Serialised,
}

/// When the host learns what a stream has done.
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

/// What can be set, each with up to three numbers.
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
    /// The one that was issued first of those in force.
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

/// What can be listed, line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum List {
    /// The functions called, each with how often.
    Calls,
    /// The violations, each with its kind.
    Violations,
    /// The log.
    Log,
}

/// Takes one line of a list.
pub(crate) type Sink = unsafe extern "C" fn(into: *mut c_void, number: u64, text: Text);

/// What a device holds and has done.
///
/// Everything that is live is zero again after the last release of the context, and so is what a program that
/// frees all it has taken sees before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// How often the primary context is retained.
    pub retains: u64,
    /// Live streams, the default one not counted.
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
    /// The most bytes of device memory that were ever allocated at once.
    pub peak_bytes: u64,
    /// Live allocations of pinned host memory.
    pub pinned_allocations: u64,
    /// Bytes of pinned host memory allocated.
    pub pinned_bytes: u64,
    /// Threads that streams have and that have not ended.
    pub threads: u64,
    /// Operations issued; the nodes of a graph count one each at every launch.
    pub issued: u64,
    /// Operations executed. Those that failed or were skipped are not among them.
    pub executed: u64,
    /// Asynchronous copies from or to host memory that is not pinned.
    pub pageable_copies: u64,
    /// Streams that stand still at an operation that was stalled.
    pub stalled: u64,
}

/// What is wrong with a use of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ViolationKind {
    /// Two accesses to one allocation with no order between them, one of them a write.
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

/// The driver's side, as the client finds it behind [`CONTROL_SYMBOL`]. `wire` stands first for ever.
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
