//! Tries the ways to tell the host of the end of work, before an executor relies on one.
//!
//! Some drivers accept a call and never carry it out, or only when the host waits for the stream. Only the
//! watchdog's query would report progress of such a lane, two milliseconds late. A trial makes a lane, queues
//! a little work and a mark behind it, and reads the lane as the reactor does. It makes no other call in the
//! meantime, because another call might let the mark through.
//!
//! ```text
//!  the mark          the stream, asked after the bound    outcome
//!  is refused                                             Failed
//!  is there in time                                       Works
//!  is not there      done; after a wait it is there       AfterSync
//!  is not there      done; after a wait it is not there   Never
//!  is not there      busy, and ends later                 the next try; after the last one as if done
//!  is not there      busy to the end                      Unfinished
//! ```
//!
//! Outcomes are kept for the process, because a way that does not work costs its whole bound, and drivers and
//! devices do not change.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute::{
    self, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS as WORDS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 as HALF_WORDS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as POOLS,
};

use super::Completion;
use super::context::{Context, Stream};
use super::driver::{Driver, NOT_READY, SUCCESS};
use super::events::Events;
use super::lane::{CudaLane, Signal};
use super::self_test::{SelfTest, Trial, TrialOutcome};
use crate::device::queue::Timeline;
use crate::error::{Kind, Result};
use crate::sync::spawn;

/// The signals, in the order of preference.
const SIGNALS: [Signal; 4] = [Signal::Word64, Signal::Word32, Signal::Event, Signal::HostFunction];
/// The time in which a mark must reach the host.
const ARRIVAL_MAX: Duration = Duration::from_millis(100);
/// The time in which a stream must come to its end after that.
const END_MAX: Duration = Duration::from_secs(2);
/// The number of tries on a busy device.
const TRIES: u64 = 3;
/// The time during which a thread only yields between two checks. Later it sleeps.
const YIELDING: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(100);

/// The outcomes that are known, for each device.
static KNOWN: Mutex<BTreeMap<(u32, Signal), TrialOutcome>> = Mutex::new(BTreeMap::new());

/// Tries each way in which the GPU with this ordinal can tell the host that work is done. Some drivers accept
/// a call and never carry it out. An executor makes the same trials when it is built, until one succeeds, and
/// the outcomes are kept for the process. This function tries again. Executors that are built later use its
/// outcomes.
///
/// A trial takes a few driver calls. A failed one takes a tenth of a second, or two seconds if the GPU does
/// not come to the end of a small piece of work.
///
/// # Errors
/// If there is no driver, it is too old, there is no such GPU, or the GPU does no work.
///
/// # Examples
/// ```no_run
/// use anabranch::cuda::{Completion, self_test};
///
/// let test = self_test(0)?;
/// println!("{test}");
/// assert!(test.works(Completion::Event));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn self_test(ordinal: u32) -> Result<SelfTest> {
    let context = Arc::new(Context::retain(Driver::with_device(ordinal)?, ordinal)?);
    has_pools(&context)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(other, _), _| *other != ordinal);
    drop(known);
    all(&context)
}

/// Returns the signal by which a device will tell the host of points: the requested one, or the first that
/// works.
pub(super) fn choose(context: &Arc<Context>, asked: Option<Completion>) -> Result<Signal> {
    has_pools(context)?;
    for signal in SIGNALS.into_iter().filter(|signal| asked.is_none_or(|asked| signal.completion() == asked)) {
        if outcome(context, signal)?.works() {
            return Ok(signal);
        }
    }
    Err(Kind::Completion { device: context.device_name(), fault: all(context)?.fault(asked) }.into())
}

fn has_pools(context: &Context) -> Result<()> {
    if has(context, POOLS)? {
        return Ok(());
    }
    Err(Kind::OldDevice { ordinal: context.ordinal(), lacks: "stream-ordered memory" }.into())
}

fn has(context: &Context, attribute: CUdevice_attribute) -> Result<bool> {
    Ok(context.driver.attribute(context.ordinal(), attribute)? > 0)
}

fn all(context: &Arc<Context>) -> Result<SelfTest> {
    let trials: Result<Vec<Trial>> =
        SIGNALS.into_iter().map(|signal| Ok(Trial::new(signal, outcome(context, signal)?))).collect();
    Ok(SelfTest::new(context.device_name(), trials?))
}

/// Returns the known outcome of a signal, or tries it.
fn outcome(context: &Arc<Context>, signal: Signal) -> Result<TrialOutcome> {
    let is_supported = match signal {
        Signal::Word64 => has(context, WORDS)?,
        Signal::Word32 => has(context, HALF_WORDS)?,
        Signal::Event | Signal::HostFunction => true,
    };
    if !is_supported {
        return Ok(TrialOutcome::Unsupported);
    }
    let key = (context.ordinal(), signal);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outcome) = known().get(&key) {
        return Ok(outcome.clone());
    }
    // Two threads may try at once, which does no harm.
    let outcome = try_out(context, signal)?;
    if !matches!(outcome, TrialOutcome::Unfinished) {
        // A device that is busy now may have time later.
        known().insert(key, outcome.clone());
    }
    Ok(outcome)
}

/// Tries a signal on a stream of its own.
///
/// # Errors
/// If the device is lost, or refuses work of other kinds.
fn try_out(context: &Arc<Context>, signal: Signal) -> Result<TrialOutcome> {
    // The driver has its address until the stream has come to its end.
    let lane = Box::new(CudaLane::new(Stream::new(context)?, signal)?);
    let mut events = Events::default();
    let tried = tries(&lane, &mut events);
    // The driver may still use a mark that has arrived: a host function has not returned yet.
    let ended = if matches!(tried, Ok(TrialOutcome::Unfinished)) { None } else { end(&lane) };
    events.destroy(context.driver);
    match ended {
        Some(code) => refused(context, context.check(code), tried?),
        None => {
            drop_at_end(lane);
            tried.map(|_| TrialOutcome::Unfinished)
        }
    }
}

/// Drops a lane when its stream has come to its end. Until then the stream may write the word, or call the
/// function.
fn drop_at_end(lane: Box<CudaLane>) {
    let lane = ManuallyDrop::new(lane);
    // The wait has no bound, so it gets a thread of its own. If none can be spawned, the lane is never
    // dropped.
    let _ = spawn("anabranch-cuda-end".into(), move || {
        let context = lane.stream.context.clone();
        let has_ended = context.check(context.set_current()).is_ok() && context.check(lane.stream.synchronize()).is_ok();
        if has_ended || context.alive().is_err() {
            drop(ManuallyDrop::into_inner(lane));
        }
    });
}

/// Returns the outcome, or the outcome that an error stands for. Returns the error if the device is lost.
fn refused(context: &Context, result: Result<()>, outcome: TrialOutcome) -> Result<TrialOutcome> {
    let Err(error) = result else { return Ok(outcome) };
    context.alive()?;
    Ok(TrialOutcome::Failed(error))
}

fn tries(lane: &CudaLane, events: &mut Events) -> Result<TrialOutcome> {
    let (context, mut point) = (&*lane.stream.context, 0);
    loop {
        point += 1;
        work(&lane.stream)?;
        let started = Instant::now();
        let marked = lane.mark(point, events);
        if marked.is_err() {
            return refused(context, marked, TrialOutcome::Never);
        }
        if until(ARRIVAL_MAX, || lane.reached() >= point) {
            return Ok(TrialOutcome::Works(started.elapsed()));
        }
        let queried = lane.query();
        let Some(ended) = end(lane) else { return Ok(TrialOutcome::Unfinished) };
        if queried == NOT_READY && point < TRIES {
            continue;
        }
        // The driver returns a code that is not fatal only once.
        let code = if matches!(queried, SUCCESS | NOT_READY) { ended } else { queried };
        let outcome = if lane.reached() >= point { TrialOutcome::AfterSync } else { TrialOutcome::Never };
        return refused(context, context.check(code), outcome);
    }
}

/// Queues work in front of the mark: an idle stream has nothing to signal.
fn work(stream: &Stream) -> Result<()> {
    let (context, mut address) = (&*stream.context, 0);
    // SAFETY: the call writes one address, and `address` outlives it.
    context.check(unsafe { (context.driver.alloc)(&mut address, size_of::<u32>(), stream.handle()) })?;
    // SAFETY: the memory was allocated above, for one word, in the order of this stream.
    let filled = context.check(unsafe { (context.driver.fill_32)(address, 0, 1, stream.handle()) });
    // SAFETY: only the fill uses the memory, and it precedes this call on the same stream.
    context.check(unsafe { (context.driver.free)(address, stream.handle()) })?;
    filled
}

/// Waits until the stream has come to its end, and returns the driver's code. Returns None after a time
/// limit: a wait by the driver would have no bound.
fn end(lane: &CudaLane) -> Option<u32> {
    let mut code = NOT_READY;
    let has_ended = until(END_MAX, || {
        code = lane.query();
        code != NOT_READY
    });
    if !has_ended {
        return None;
    }
    // This does not block, because the stream has ended. Some drivers need it to carry out accepted calls.
    let waited = lane.stream.synchronize();
    Some(if code == SUCCESS { waited } else { code })
}

/// Returns true if something becomes true in time.
fn until(bound: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_true() {
        match started.elapsed() {
            waited if waited >= bound => return false,
            waited if waited < YIELDING => std::thread::yield_now(),
            _ => std::thread::sleep(PAUSE),
        }
    }
    true
}
