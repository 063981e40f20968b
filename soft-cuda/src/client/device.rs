//! The control of one device: its faults, its switches, its findings and its counters.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::code::Code;
use crate::wire::{Control, Counters, DEVICES, HostFunctions, List, Seen, Setting, Text, ViolationKind, Which};

/// A wrong use of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of error.
    pub kind: ViolationKind,
    /// The operations concerned, each with its kernel or kind, its stream and its number.
    pub text: String,
}

/// The control of one device. Faults count from the time when they are planned: the first operation, call or
/// allocation after that is number 1. Each planned fault happens once.
#[derive(Clone)]
pub struct Device {
    control: &'static Control,
    ordinal: u32,
    _claim: Option<Arc<Claim>>,
}

/// The devices that have an owner, as bits.
static CLAIMED: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(DEVICES <= u64::BITS);

/// Prevents a second owner of a device, even while the device has no context.
struct Claim(u32);

impl Claim {
    fn new(ordinal: u32) -> Option<Self> {
        // ORDERING: Acquire pairs with the Release in `drop`: the new owner resets the device after all calls
        // of the previous owner.
        let before = CLAIMED.fetch_or(1 << ordinal, Ordering::AcqRel);
        (before & 1 << ordinal == 0).then(|| Self(ordinal))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `new`.
        CLAIMED.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

impl Device {
    pub(super) fn new(control: &'static Control, ordinal: u32) -> Self {
        Self { control, ordinal, _claim: None }
    }

    /// Makes this and its clones the device's only owners. Returns None if the device has an owner, or a
    /// context.
    pub(super) fn claim(mut self) -> Option<Self> {
        self._claim = Some(Arc::new(Claim::new(self.ordinal)?));
        (self.counters().retains == 0).then_some(self)
    }

    /// Returns the number of the device, as `CudaContext::new` takes it.
    pub fn ordinal(&self) -> usize {
        self.ordinal as usize
    }

    /// Makes the `nth` call from now of a driver function return the code and do nothing.
    ///
    /// # Panics
    /// If the driver has no function of that name.
    pub fn fail_call(&self, name: &str, nth: u64, code: Code) {
        fail_call(self.control, self.ordinal, name, nth, code);
    }

    /// Makes the `nth` operation from now fail when its stream reaches it. If the code is fatal, the context
    /// returns only this code from then on, and executes no more operations. Otherwise the next query or
    /// synchronisation of the stream returns it, once.
    pub fn fail_operation(&self, which: Which, nth: u64, code: Code) {
        self.set(Setting::FailOperation, which as u64, nth, u64::from(code.0));
    }

    /// Delays the start of the `nth` operation from now.
    pub fn delay_operation(&self, which: Which, nth: u64, delay: Duration) {
        self.set(Setting::DelayOperation, which as u64, nth, micros(delay));
    }

    /// Delays the start of every operation.
    pub fn delay_every_operation(&self, delay: Duration) {
        self.set(Setting::DelayEveryOperation, micros(delay), 0, 0);
    }

    /// Stops the stream at the `nth` operation from now, until [`release_stall`](Self::release_stall) or the
    /// end of the context.
    pub fn stall_operation(&self, which: Which, nth: u64) {
        self.set(Setting::StallOperation, which as u64, nth, 0);
    }

    /// Releases every stopped stream, and every stall whose operation was already issued.
    pub fn release_stall(&self) {
        self.set(Setting::ReleaseStall, 0, 0, 0);
    }

    /// Releases one stream: the one whose stalled operation was issued first.
    pub fn release_first_stall(&self) {
        self.set(Setting::ReleaseFirstStall, 0, 0, 0);
    }

    /// Makes the `nth` allocation from now fail, of device or pinned memory.
    pub fn fail_allocation(&self, nth: u64) {
        self.set(Setting::FailAllocation, nth, 0, 0);
    }

    /// Sets the limit of allocated device memory, in bytes.
    pub fn memory_limit(&self, bytes: u64) {
        self.set(Setting::MemoryLimit, bytes, 0, 0);
    }

    /// Sets what happens to host functions that streams reach from now on.
    pub fn host_functions(&self, mode: HostFunctions) {
        let (mode, time_us) = match mode {
            HostFunctions::Called => (0, 0),
            HostFunctions::Dropped => (1, 0),
            HostFunctions::LateUs(time_us) => (2, time_us),
            HostFunctions::Serialised => (3, 0),
        };
        self.set(Setting::HostFunctions, mode, time_us, 0);
    }

    /// Sets when the host sees values that streams write from now on. The calls succeed in any case.
    pub fn written_values(&self, seen: Seen) {
        self.set(Setting::WrittenValues, seen as u64, 0, 0);
    }

    /// Sets when queries of events succeed, from now on. Waits for events do not change.
    pub fn event_queries(&self, seen: Seen) {
        self.set(Setting::Events, seen as u64, 0, 0);
    }

    /// Sets an attribute of the device, by its number in `CUdevice_attribute`. The value 0 for 115 (memory
    /// pools), 92 (stream memory operations) or 122 (those of 64 bits) also makes their functions refuse.
    pub fn attribute(&self, attribute: u32, value: i32) {
        self.set(Setting::Attribute, u64::from(attribute), value as u32 as u64, 0);
    }

    /// Sets whether the driver reports that there is no such device.
    pub fn absent(&self, is_absent: bool) {
        self.set(Setting::Absent, u64::from(is_absent), 0, 0);
    }

    /// Switches the check of order off or on. Call this before the first stream is created.
    pub fn track_races(&self, is_tracked: bool) {
        self.set(Setting::TrackRaces, u64::from(is_tracked), 0, 0);
    }

    /// Sets whether the host counts as having seen every value that a stream has written, which is the
    /// default, or only those that [`host_saw`](Self::host_saw) names. The latter finds more races, because
    /// the result no longer depends on the speed of streams. Called host functions inform the host in either
    /// case.
    pub fn words_inform_host(&self, do_they: bool) {
        self.set(Setting::WordsInformHost, u64::from(do_they), 0, 0);
    }

    /// Declares that the host has read the word at the address, where streams write values.
    pub fn host_saw(&self, word: *const c_void) {
        self.set(Setting::HostSaw, word as u64, 0, 0);
    }

    /// Declares that the host reads pinned memory now.
    pub fn host_reads(&self, start: *const c_void, bytes: usize) {
        self.set(Setting::HostReads, start as u64, bytes as u64, 0);
    }

    /// Declares that the host writes pinned memory now.
    pub fn host_writes(&self, start: *const c_void, bytes: usize) {
        self.set(Setting::HostWrites, start as u64, bytes as u64, 0);
    }

    /// Removes every planned fault, attribute and limit, and releases stopped streams.
    pub fn clear_faults(&self) {
        self.set(Setting::ClearFaults, 0, 0, 0);
    }

    /// Removes the faults, violations, log and counts, and resets the switches. Live objects stay.
    pub fn reset(&self) {
        self.set(Setting::Reset, 0, 0, 0);
    }

    /// Returns the counters of the device.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: `counters` has room for them.
        unsafe { (self.control.counters)(self.ordinal, &mut counters) };
        counters
    }

    /// Returns the functions that were called, each with the number of calls.
    pub fn calls(&self) -> Vec<(String, u64)> {
        calls(self.control, self.ordinal)
    }

    /// Returns the number of calls of a function.
    pub fn calls_of(&self, name: &str) -> u64 {
        self.calls().into_iter().find(|(known, _)| known == name).map_or(0, |(_, count)| count)
    }

    /// Returns the violations, in the order in which they were found. Up to a thousand are kept.
    pub fn violations(&self) -> Vec<Violation> {
        let lines = lines(self.control, self.ordinal, List::Violations);
        let kind = |number: u64| ViolationKind::ALL.into_iter().find(|&kind| kind as u64 == number);
        lines.into_iter().filter_map(|(number, text)| Some(Violation { kind: kind(number)?, text })).collect()
    }

    /// Sets whether calls are logged from now on.
    pub fn keep_log(&self, is_kept: bool) {
        self.set(Setting::KeepLog, u64::from(is_kept), 0, 0);
    }

    /// Returns the calls in the order in which they returned, each as `name stream=2 detail -> code`. The
    /// stream, the detail and a code of 0 are left out if there is none.
    pub fn log(&self) -> Vec<String> {
        lines(self.control, self.ordinal, List::Log).into_iter().map(|(_, line)| line).collect()
    }

    fn set(&self, setting: Setting, first: u64, second: u64, third: u64) {
        (self.control.set)(self.ordinal, setting, first, second, third);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

pub(super) fn fail_call(control: &Control, ordinal: u32, name: &str, nth: u64, code: Code) {
    // SAFETY: the name lives as long as the call.
    let is_known = unsafe { (control.fail_call)(ordinal, Text::of(name), nth, code.0) };
    assert!(is_known, "the soft driver has no function `{name}`");
}

pub(super) fn calls(control: &Control, ordinal: u32) -> Vec<(String, u64)> {
    lines(control, ordinal, List::Calls).into_iter().map(|(count, name)| (name, count)).collect()
}

fn lines(control: &Control, ordinal: u32, list: List) -> Vec<(u64, String)> {
    let mut lines: Vec<(u64, String)> = Vec::new();
    // SAFETY: `take` expects a vector of lines, and `lines` lives as long as the call.
    unsafe { (control.list)(ordinal, list, take, (&raw mut lines).cast()) };
    lines
}

unsafe extern "C" fn take(into: *mut c_void, number: u64, text: Text) {
    // SAFETY: `lines` passes a vector that no other code uses during the call.
    let lines = unsafe { &mut *into.cast::<Vec<(u64, String)>>() };
    // SAFETY: the driver passes text that lives as long as the call.
    let text = unsafe { text.as_str() };
    lines.push((number, text.to_owned()));
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
