//! Executes issued work on the thread of a stream, without locks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::callback::HostCall;
use super::clock::Kept;
use super::command::{Command, Copy, Fill, WriteValue};
use super::fault::Fault;
use super::issue::Issued;
use super::lock;
use super::queue::{Launched, Work};
use super::stall::delay;
use super::stream::Stream;
use crate::code::{Code, Outcome};
use crate::wire::{HostFunctions, Seen, ViolationKind};

/// Executes one piece of work. After a fatal error nothing is executed, and the streams drain.
pub(crate) fn execute(stream: &Stream, work: Work) {
    match work {
        Work::Operation(operation) => run(stream, &operation.command, &operation.issued),
        Work::Graph(graph) => run_graph(stream, &graph),
        Work::Wait(other, position) => wait(stream, &other, position),
        Work::Stamp(stamp, fault) => {
            // A dead context has no times.
            if suffer(stream, fault) && !stream.device.context.is_over() {
                let _ = stamp.set(Instant::now());
            }
        }
    }
}

fn run_graph(stream: &Stream, graph: &Launched) {
    let mut issued = graph.issued.iter().peekable();
    for (place, command) in graph.commands.iter().enumerate() {
        let own = issued.next_if(|(at, _)| *at == place);
        run(stream, command, own.map_or(&Issued::default(), |(_, issued)| issued));
    }
}

fn wait(stream: &Stream, other: &Stream, position: u64) {
    let context = &stream.device.context;
    // A context that is being torn down waits only for work that can still end. The work of a stopped stream
    // cannot.
    let is_pointless = || context.is_over() || context.is_let_go() && other.device.faults.stalls.stopped() > 0;
    if !other.progress.wait_for(position, is_pointless) {
        context.abandon();
    }
}

fn run(stream: &Stream, command: &Command, issued: &Issued) {
    let device = stream.device;
    if issued.fault.is_any() && !suffer(stream, issued.fault) || device.context.is_over() {
        return;
    }
    match perform(stream, command, &issued.informs) {
        Ok(()) => {
            // ORDERING: Relaxed: a statistic, which the Release of the position publishes.
            device.numbers.executed.fetch_add(1, Ordering::Relaxed);
        }
        Err(code) => fail(stream, code),
    }
}

fn fail(stream: &Stream, code: Code) {
    if code.is_fatal() {
        stream.device.context.fail(code);
    } else {
        stream.fail_once(code);
    }
}

/// Applies the fault. Returns true if the operation must be done all the same.
fn suffer(stream: &Stream, fault: Fault) -> bool {
    let context = &stream.device.context;
    if context.is_over() {
        return false;
    }
    if let Some(ticket) = fault.stall {
        let is_pointless = || context.is_over() || context.is_let_go();
        if !stream.device.faults.stalls.wait(ticket, is_pointless) {
            context.abandon();
            return false;
        }
    }
    if let Some(time) = fault.delay {
        delay(time, || context.is_over() || context.is_let_go());
    }
    if let Some(code) = fault.code {
        fail(stream, code);
        return false;
    }
    true
}

fn perform(stream: &Stream, command: &Command, informs: &Kept) -> Outcome {
    match command {
        Command::Nothing => {}
        Command::Kernel(launch) => launch.kernel.run(launch.grid, launch.block, launch.shared_bytes, &launch.arguments)?,
        Command::Copy(copy) => move_bytes(copy),
        Command::Fill(fill) => fill_bytes(fill),
        Command::WriteValue(write) => match stream.device.faults.written_values.get() {
            Seen::AtOnce => write_value(stream, write, informs),
            Seen::AfterSync => stream.hold(write.clone(), informs.clone()),
            Seen::Never => {}
        },
        Command::Call(call) => call_host(stream, *call, informs),
        Command::Allocate(allocation) => allocation.poison_fresh(),
        Command::Free(allocation) => {
            if !allocation.poison_freed() {
                let text = format!("somebody wrote behind an allocation of {} bytes", allocation.len());
                stream.device.violations.add(ViolationKind::Overrun, text);
            }
        }
    }
    Ok(())
}

/// Informs the host's clock of what the host learns from the effect. Must precede the effect, so that calls
/// made after seeing it find the clock.
fn inform(stream: &Stream, word: usize, informs: &Kept) {
    let Some(clock) = informs else { return };
    // ORDERING: Relaxed: a switch that a test sets before it makes calls.
    if stream.device.switches.words_inform_host.load(Ordering::Relaxed) {
        stream.device.host().join(clock);
    } else {
        lock(&stream.device.words).insert(word, clock.clone());
    }
}

fn move_bytes(copy: &Copy) {
    let (from, into) = (copy.from.address() as *const u8, copy.into.address() as *mut u8);
    // SAFETY: at issue, both ends were found within allocations, which the operation keeps mapped, or they
    // are the caller's memory, valid by the contract of the CUDA call. Accesses by other streams at the same
    // time were reported as races.
    unsafe { std::ptr::copy(from, into, copy.len) };
}

fn fill_bytes(fill: &Fill) {
    let bytes = fill.value.to_le_bytes();
    let into = fill.into as *mut u8;
    if fill.width == 1 {
        // SAFETY: at issue, the range was found within an allocation, which the operation keeps mapped.
        unsafe { into.write_bytes(bytes[0], fill.count) };
        return;
    }
    for at in 0..fill.count {
        // SAFETY: at issue, the whole range was found within an allocation, which the operation keeps mapped;
        // element `at` is within it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.wrapping_add(at * fill.width), fill.width) };
    }
}

pub(crate) fn write_value(stream: &Stream, write: &WriteValue, informs: &Kept) {
    inform(stream, write.into, informs);
    if write.is_64_bit {
        // SAFETY: at issue, the eight bytes were found within an allocation, which the operation keeps
        // mapped; the call checked their alignment.
        let word = unsafe { AtomicU64::from_ptr(write.into as *mut u64) };
        // ORDERING: Release pairs with the Acquire of the thread that reads the value: it sees all
        // earlier work of the stream.
        word.store(write.value, Ordering::Release);
    } else {
        // SAFETY: at issue, the four bytes were found within an allocation, which the operation keeps mapped;
        // the call checked their alignment.
        let word = unsafe { AtomicU32::from_ptr(write.into as *mut u32) };
        // ORDERING: Release pairs with the Acquire of the thread that reads the value: it sees all
        // earlier work of the stream.
        word.store(write.value as u32, Ordering::Release);
    }
}

fn call_host(stream: &Stream, call: HostCall, informs: &Kept) {
    let device = stream.device;
    match device.faults.host_functions() {
        HostFunctions::Called => {}
        HostFunctions::Dropped => return,
        HostFunctions::LateUs(time_us) => {
            let context = &device.context;
            delay(Duration::from_micros(time_us), || context.is_over() || context.is_let_go());
            if context.is_over() {
                return;
            }
        }
        HostFunctions::Serialised => {
            // A function may wake a thread, and later calls of that thread come after all work of this
            // stream.
            informs.iter().for_each(|clock| device.host().join(clock));
            return device.serial_caller.call(call);
        }
    }
    informs.iter().for_each(|clock| device.host().join(clock));
    call.call();
}
