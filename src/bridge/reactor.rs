//! The reactor: a thread that reads the lanes that devices move, wakes who waits for them, and notices when a device is lost.
//!
//! It parks when nobody waits, and who comes to wait then unparks it: of "say parked, look for waiters" and "register, look for parked"
//! one side sees the other. See README.md beside this file.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{RemoteLane, WaiterKey};
use crate::device::queue::Fault;
use crate::sync::{AtomicBool, OnceLock, Ordering, Thread, current, fence, park, spawn, spin_loop, yield_now};

/// How long a lane may stand still, awaited, before the driver is asked what is wrong; and then how often.
const PATIENCE: Duration = if cfg!(anabranch_loom) { Duration::ZERO } else { Duration::from_millis(2) };

/// How the reactor waits for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, unreachable_pub))]
pub enum Pace {
    /// Spins: wakes come within a microsecond, and a core is busy while anyone waits.
    Latency,
    /// Spins for 50 microseconds, then sleeps for a sixteenth of the time waited, up to two milliseconds at a time.
    #[default]
    Balanced,
    /// Sleeps at once, half a millisecond and more at a time.
    LowCpu,
}

/// A thread for all lanes of an executor that devices move. Ends when it is dropped and nobody waits any more.
pub(crate) struct Reactor {
    shared: Arc<Shared>,
}

struct Shared {
    lanes: Box<[Arc<RemoteLane>]>,
    pace: Pace,
    thread: OnceLock<Thread>,
    is_parked: AtomicBool,
    is_over: AtomicBool,
}

impl Reactor {
    /// Starts the thread.
    pub(crate) fn start(lanes: Vec<Arc<RemoteLane>>, pace: Pace) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            lanes: lanes.into(),
            pace,
            thread: OnceLock::new(),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let watching = shared.clone();
        spawn("anabranch-reactor".into(), move || watching.watch())?;
        Ok(Self { shared })
    }

    /// Waits for point `n` of a lane; see [`RemoteLane::poll`].
    pub(crate) fn poll(&self, lane: usize, n: u64, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let polled = self.shared.lanes[lane].poll(n, key, cx);
        if polled.is_pending() {
            self.shared.unpark();
        }
        polled
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // ORDERING: Release, for the reactor's look before it parks.
        self.shared.is_over.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.shared.unpark();
    }
}

impl Shared {
    /// Called after a waiter was registered, and a fence.
    fn unpark(&self) {
        // ORDERING: Relaxed: the fence after the registration orders this load. The swap lets one of many callers pay for the unpark; its
        // Acquire pairs with the Release in `park` and brings the thread's handle along.
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::AcqRel) {
            self.thread.get().expect("it was set before the first park").unpark();
        }
    }

    /// The life of the thread.
    fn watch(&self) {
        let _ = self.thread.set(current());
        sleep_exactly();
        let mut rest = Rest::new(self.pace);
        let mut doubts = Doubts::new(self.lanes.len());
        loop {
            let mut is_awaited = false;
            for (lane, doubt) in self.lanes.iter().zip(&mut doubts.0) {
                if lane.update() {
                    *doubt = None;
                    rest.reset();
                }
                if !lane.is_awaited() {
                    *doubt = None;
                    continue;
                }
                is_awaited = true;
                match asked(lane, doubt) {
                    Some(fault) if fault.is_fatal => self.lose(lane.device, &fault),
                    Some(fault) => lane.upset(&fault),
                    None => {}
                }
            }
            if is_awaited {
                rest.rest();
            } else if !self.park() {
                return;
            } else {
                rest.reset();
            }
        }
    }

    /// Ends all waits on a device.
    fn lose(&self, device: u32, fault: &Fault) {
        self.lanes.iter().filter(|lane| lane.device == device).for_each(|lane| lane.lose(fault));
    }

    /// Sleeps until someone waits. Returns false when nobody ever will.
    fn park(&self) -> bool {
        // ORDERING: Release: see `unpark`. A swap, because loom does not see that a store comes after the swap of a late unpark.
        self.is_parked.swap(true, Ordering::AcqRel);
        // ORDERING: pairs with the fence after a registration (`Lane::poll`), and the one in `drop`.
        fence(Ordering::SeqCst);
        if self.lanes.iter().any(|lane| lane.is_awaited()) {
            self.is_parked.store(false, Ordering::Relaxed);
            return true;
        }
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        // What counts is that someone took the flag down: a park may also return for no reason.
        while self.is_parked.load(Ordering::Acquire) {
            park();
        }
        true
    }
}

/// Since when each lane has stood still.
struct Doubts(Vec<Option<Instant>>);

impl Doubts {
    fn new(lanes: usize) -> Self {
        Self(vec![None; lanes])
    }
}

/// Asks the driver about a lane that has stood still for too long. Returns what is wrong.
fn asked(lane: &RemoteLane, doubt: &mut Option<Instant>) -> Option<Fault> {
    let now = Instant::now();
    if now - *doubt.get_or_insert(now) < PATIENCE {
        return None;
    }
    *doubt = Some(now);
    lane.check().err()
}

/// How long the reactor has waited in vain, and so how long it rests before it looks again.
struct Rest {
    pace: Pace,
    since: Option<Instant>,
    looks: u32,
}

/// Looks between two readings of the clock.
const LOOKS: u32 = 64;
const LOW_CPU_SLEEP: Duration = Duration::from_micros(500);
const SPIN: Duration = Duration::from_micros(50);
const LATE_BY: u32 = 16;
const SLEEP_MIN: Duration = Duration::from_micros(5);
const SLEEP_MAX: Duration = Duration::from_millis(2);

impl Rest {
    fn new(pace: Pace) -> Self {
        Self { pace, since: None, looks: 0 }
    }

    fn reset(&mut self) {
        (self.since, self.looks) = (None, 0);
    }

    fn rest(&mut self) {
        if cfg!(anabranch_loom) {
            return yield_now();
        }
        self.looks += 1;
        match self.pace {
            Pace::Latency if self.looks.is_multiple_of(LOOKS) => yield_now(),
            Pace::Latency => spin_loop(),
            Pace::LowCpu => self.back_off(Duration::ZERO, LOW_CPU_SLEEP),
            Pace::Balanced => self.back_off(SPIN, SLEEP_MIN),
        }
    }

    /// Spins at first, then sleeps for a part of what it has waited: so much later than the work itself is a wake at most.
    fn back_off(&mut self, spin: Duration, sleep_min: Duration) {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if waited < spin {
            return if self.looks.is_multiple_of(LOOKS) { yield_now() } else { spin_loop() };
        }
        std::thread::sleep((waited / LATE_BY).clamp(sleep_min, SLEEP_MAX));
    }
}

/// Lets this thread's sleeps end when they should: by default Linux adds 50 microseconds.
fn sleep_exactly() {
    #[cfg(all(target_os = "linux", not(anabranch_loom)))]
    // SAFETY: it sets a number of this thread's.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize);
    }
}
