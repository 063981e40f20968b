//! The entry points of the client: plain C functions behind one symbol.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::calls::{Api, Calls};
use super::device::{self, Device};
use super::fault::Effect;
use super::{host, kernel, lock, memory};
use crate::code::Code;
use crate::wire::{Control, Counters, HostFunctions, List, PROCESS, RawKernel, Seen, Setting, Sink, Text, WIRE, Which};

/// The state of the process that belongs to no device.
pub(crate) struct Process {
    pub(crate) is_initialized: AtomicBool,
    pub(crate) has_no_device: AtomicBool,
    pub(crate) version: AtomicU32,
    pub(crate) calls: Calls,
}

pub(crate) static PROCESS_STATE: Process = Process {
    is_initialized: AtomicBool::new(false),
    has_no_device: AtomicBool::new(false),
    version: AtomicU32::new(13010),
    calls: Calls::new(),
};

static CONTROL: Control = Control { wire: WIRE, register_kernel, set, fail_call, counters, list };

/// The one symbol that the client looks up.
#[unsafe(no_mangle)]
extern "C" fn anabranch_soft_cuda_control() -> *const Control {
    &CONTROL
}

unsafe extern "C" fn register_kernel(raw: *const RawKernel) {
    // SAFETY: the client passes a kernel that lives as long as the call.
    let raw = unsafe { &*raw };
    // SAFETY: the name lives as long as the call.
    let name = unsafe { raw.name.as_str() };
    // SAFETY: `params` is a slice of `count` parameters that lives as long as the call.
    let params = unsafe { std::slice::from_raw_parts(raw.params, raw.count) };
    kernel::register(name, params, raw.call, raw.user);
}

extern "C" fn set(ordinal: u32, setting: Setting, first: u64, second: u64, third: u64) -> bool {
    if ordinal == PROCESS {
        set_process(setting, first);
        return true;
    }
    let Some(device) = device::known(ordinal) else { return false };
    let time = Duration::from_micros;
    match setting {
        // ORDERING: Relaxed: switches that a test sets before it makes the calls that read them.
        Setting::TrackRaces => device.switches.tracks_races.store(first != 0, Ordering::Relaxed),
        Setting::WordsInformHost => device.switches.words_inform_host.store(first != 0, Ordering::Relaxed),
        Setting::Absent => device.switches.is_absent.store(first != 0, Ordering::Relaxed),
        Setting::KeepLog => device.log.keep(first != 0),
        Setting::MemoryLimit => device.memory.set_limit_bytes(first),
        Setting::FailAllocation => device.faults.fail_allocation(first),
        Setting::FailOperation => device.faults.add(which(first), second, Effect::Fail(Code(third as u32))),
        Setting::DelayOperation => device.faults.add(which(first), second, Effect::Delay(time(third))),
        Setting::DelayEveryOperation => device.faults.delay_every(time(first)),
        Setting::StallOperation => device.faults.add(which(first), second, Effect::Stall),
        Setting::ReleaseStall => device.faults.stalls.release(),
        Setting::ReleaseFirstStall => device.faults.stalls.release_first(),
        Setting::HostFunctions => device.faults.set_host_functions(host_functions(first, second)),
        Setting::WrittenValues => device.faults.written_values.set(Seen::of(first)),
        Setting::Events => device.faults.events.set(Seen::of(first)),
        Setting::Attribute => drop(lock(&device.attributes).insert(first as u32, second as i32)),
        Setting::ClearFaults => clear_faults(device),
        Setting::Reset => reset(device),
        Setting::HostSaw => host::saw(device, first as usize),
        Setting::HostReads => drop(host::touches(device, first as usize, second as usize, false, "read")),
        Setting::HostWrites => drop(host::touches(device, first as usize, second as usize, true, "write")),
        Setting::NoDevice | Setting::DriverVersion => return false,
    }
    true
}

fn set_process(setting: Setting, value: u64) {
    match setting {
        // ORDERING: Relaxed: settings that a test makes before it makes the calls that read them.
        Setting::NoDevice => PROCESS_STATE.has_no_device.store(value != 0, Ordering::Relaxed),
        Setting::DriverVersion => PROCESS_STATE.version.store(value as u32, Ordering::Relaxed),
        Setting::ClearFaults => PROCESS_STATE.calls.clear_faults(),
        _ => {}
    }
}

fn which(number: u64) -> Which {
    let all =
        [Which::Kernel, Which::Copy, Which::Memset, Which::HostFunction, Which::WriteValue, Which::Memory, Which::TimedEvent];
    all.into_iter().find(|&which| which as u64 == number).unwrap_or(Which::Any)
}

fn host_functions(mode: u64, time_us: u64) -> HostFunctions {
    match mode {
        1 => HostFunctions::Dropped,
        2 => HostFunctions::LateUs(time_us),
        3 => HostFunctions::Serialised,
        _ => HostFunctions::Called,
    }
}

fn clear_faults(device: &Device) {
    device.calls.clear_faults();
    device.faults.clear();
    device.faults.stalls.release();
    device.memory.set_limit_bytes(memory::TOTAL_BYTES);
    // ORDERING: Relaxed: a switch that a test sets before it makes the calls that read it.
    device.switches.is_absent.store(false, Ordering::Relaxed);
    lock(&device.attributes).clear();
}

/// Forgets all plans and findings. Live objects stay.
fn reset(device: &Device) {
    clear_faults(device);
    device.calls.clear_counts();
    device.violations.clear();
    device.log.clear();
    device.log.keep(false);
    device.memory.forget_peak();
    // ORDERING: Relaxed: switches that a test sets before it makes the calls that read them, and statistics.
    device.switches.tracks_races.store(true, Ordering::Relaxed);
    device.switches.words_inform_host.store(true, Ordering::Relaxed);
    let numbers = &device.numbers;
    for number in [&numbers.issued, &numbers.executed, &numbers.pageable_copies] {
        number.store(0, Ordering::Relaxed);
    }
}

unsafe extern "C" fn fail_call(ordinal: u32, name: Text, nth: u64, code: u32) -> bool {
    // SAFETY: the client passes text that lives as long as the call.
    let name = unsafe { name.as_str() };
    let Some(api) = Api::named(name) else { return false };
    match calls(ordinal) {
        Some(calls) => calls.fail(api, nth, Code(code)),
        None => return false,
    }
    true
}

fn calls(ordinal: u32) -> Option<&'static Calls> {
    if ordinal == PROCESS { Some(&PROCESS_STATE.calls) } else { device::known(ordinal).map(|device| &device.calls) }
}

unsafe extern "C" fn counters(ordinal: u32, into: *mut Counters) {
    let counters = device::known(ordinal).map(Device::counters).unwrap_or_default();
    // SAFETY: the client passes a pointer to room for the counters.
    unsafe { into.write(counters) };
}

unsafe extern "C" fn list(ordinal: u32, list: List, sink: Sink, into: *mut c_void) {
    // SAFETY: the client passes a function that accepts its own pointer and copies the text.
    let take = |number: u64, text: &str| unsafe { sink(into, number, Text::of(text)) };
    if list == List::Calls {
        if let Some(calls) = calls(ordinal) {
            calls.for_each(|name, count| take(count, name));
        }
        return;
    }
    let Some(device) = device::known(ordinal) else { return };
    match list {
        List::Violations => device.violations.for_each(|violation| take(violation.kind as u64, &violation.text)),
        List::Log => device.log.for_each(|line| take(0, line)),
        List::Calls => {}
    }
}
