//! The reactor: a thread that reads the lanes that devices move, wakes their waiters, and notices when a
//! device is lost. It parks when no lane is awaited.
//!
//! ```text
//!  is_parked   event                                    next     then
//!  false       reactor finds no waiter: park            true     checks for waiters again, then parks
//!  true        reactor finds a waiter after all         false    goes on
//!  true        registration, or the reactor's drop      false    this thread unparks the reactor
//!  false       registration, or the reactor's drop      false    nothing: the reactor is awake
//! ```
//!
//! Of "set is_parked, check for waiters" and "register, load is_parked" one side sees the other. See
//! README.md beside this file.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{LaneFaults, RemoteLane, WaiterKey, inside_executor};
use crate::device::queue::Fault;
use crate::sync::{AtomicBool, OnceLock, Ordering, Thread, current, fence, park, spawn, spin_loop, yield_now};

/// The time that an awaited lane may stand still before the driver is queried, and between two queries.
const PATIENCE: Duration = if cfg!(anabranch_loom) { Duration::ZERO } else { Duration::from_millis(2) };

/// How the reactor waits for a device.
///
/// # Examples
/// An executor that leaves the cores to other work while a GPU is busy:
/// ```
/// # #[cfg(feature = "cuda")] {
/// use anabranch::Executor;
/// use anabranch::cuda::Pace;
///
/// match Executor::builder().cuda(&[0]).pace(Pace::LowCpu).build() {
///     Ok(exec) => println!("a GPU, and {} workers", exec.workers()),
///     Err(error) => println!("no GPU: {error}"),
/// }
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, unreachable_pub))]
#[non_exhaustive]
pub enum Pace {
    /// Spins: wakes come within a microsecond, and a core is busy while there are waiters.
    Latency,
    /// Spins for 50 microseconds, then sleeps for a sixteenth of the time waited, at most two milliseconds.
    #[default]
    Balanced,
    /// Sleeps at once, half a millisecond and more at a time.
    LowCpu,
}

/// A thread for all lanes of an executor that devices move. It ends when this was dropped and no waiter is
/// left.
pub(crate) struct Reactor {
    shared: Arc<Watch>,
}

struct Watch {
    lanes: Box<[Arc<RemoteLane>]>,
    faults: LaneFaults,
    pace: Pace,
    thread: OnceLock<Thread>,
    is_parked: AtomicBool,
    is_over: AtomicBool,
}

impl Reactor {
    /// Starts the thread. What it calls is inside of the executor with that address, as on its workers.
    pub(crate) fn start(lanes: Vec<Arc<RemoteLane>>, pace: Pace, executor: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Watch {
            lanes: lanes.into(),
            faults: LaneFaults::new(),
            pace,
            thread: OnceLock::new(),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let watching = shared.clone();
        spawn("anabranch-reactor".into(), move || inside_executor(executor, || watching.watch()))?;
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

    /// Returns the faults that were not fatal. Lanes are numbered as for [`poll`](Self::poll).
    pub(crate) fn faults(&self) -> &LaneFaults {
        &self.shared.faults
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `park`.
        self.shared.is_over.store(true, Ordering::Release);
        // ORDERING: pairs with the fence in `park`: of "store is_over, load is_parked" and "set is_parked,
        // load is_over" one side sees the other.
        fence(Ordering::SeqCst);
        self.shared.unpark();
    }
}

impl Watch {
    /// Wakes the reactor's thread if it is parked. Called after a registration and a fence.
    fn unpark(&self) {
        // ORDERING: Relaxed: the fence after the registration orders this load. By the swap only one of many
        // callers unparks. Its Acquire pairs with the Release in `park`: the thread's handle is visible.
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::AcqRel) {
            self.thread.get().expect("it was set before the first park").unpark();
        }
    }

    fn watch(&self) {
        let _ = self.thread.set(current());
        sleep_exactly();
        let mut rest = Rest::new(self.pace);
        let mut readings = vec![LaneReading::default(); self.lanes.len()];
        loop {
            if self.read_lanes(&mut readings) {
                rest.reset();
            }
            let mut is_awaited = false;
            for (number, (lane, reading)) in self.lanes.iter().zip(&mut readings).enumerate() {
                if !lane.lane.is_awaited() {
                    reading.doubt = None;
                    continue;
                }
                is_awaited = true;
                if reading.is_overdue() {
                    self.query(number);
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

    /// Signals the points that devices have reached, after a query whether the work before them succeeded.
    /// Returns whether there were new points.
    ///
    /// Work may have failed on a lane that another lane has waited for, and the host may not know that lane's
    /// points yet. So all lanes are read first. Then each is read again, and queried if it has moved. At last
    /// the points of the first reading are signalled, unless the device is lost. Each mark costs one query at
    /// most.
    fn read_lanes(&self, readings: &mut [LaneReading]) -> bool {
        let mut has_moved = false;
        for (lane, reading) in self.lanes.iter().zip(&mut *readings) {
            reading.reached = lane.timeline.reached();
            if reading.reached > reading.signalled {
                has_moved = true;
                reading.doubt = None;
            }
        }
        if !has_moved {
            return false;
        }
        for (number, (lane, reading)) in self.lanes.iter().zip(&mut *readings).enumerate() {
            let reached = lane.timeline.reached();
            if reached > reading.queried {
                reading.queried = reached;
                self.query(number);
                self.query_others(lane, reached);
            }
        }
        for (lane, reading) in self.lanes.iter().zip(readings) {
            if reading.reached > reading.signalled {
                reading.signalled = reading.reached;
                // A lost lane has signalled its certain points already.
                if !lane.is_lost() {
                    lane.lane.signal(reading.reached);
                }
            }
        }
        true
    }

    /// Queries the driver about a lane, and ends the waits that a fault affects.
    fn query(&self, number: usize) {
        let lane = &self.lanes[number];
        match lane.timeline.check() {
            Ok(()) => {}
            Err(fault) if fault.is_fatal => self.lose(lane.device, &fault),
            Err(fault) => {
                // Must precede the signal: a thread that sees a later point also sees the fault.
                self.faults.add(number, &fault);
                lane.fail_waits(&fault);
            }
        }
    }

    /// Queries the other lanes of the device that the work of a lane has used.
    fn query_others(&self, lane: &RemoteLane, reached: u64) {
        let mut others = lane.timeline.others(reached);
        if others == 0 {
            return;
        }
        let first = self.lanes.iter().position(|other| other.device == lane.device).expect("the lane is one of them");
        while others != 0 {
            self.query(first + others.trailing_zeros() as usize);
            others &= others - 1;
        }
    }

    fn lose(&self, device: u32, fault: &Fault) {
        self.lanes.iter().filter(|lane| lane.device == device).for_each(|lane| lane.lose(fault));
    }

    /// Sleeps until there is a waiter. Returns false if there will be none any more.
    fn park(&self) -> bool {
        // ORDERING: AcqRel: Release pairs with the swap in `unpark`. A swap, because loom does not see that a
        // store comes after the swap of a late unpark.
        self.is_parked.swap(true, Ordering::AcqRel);
        // ORDERING: pairs with the fence after a registration (`Lane::poll`), and the one in `drop`.
        fence(Ordering::SeqCst);
        if self.lanes.iter().any(|lane| lane.lane.is_awaited()) {
            // ORDERING: Relaxed: an unpark that still sees the flag does no harm.
            self.is_parked.store(false, Ordering::Relaxed);
            return true;
        }
        // ORDERING: Acquire pairs with the Release in `drop`.
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        // ORDERING: Acquire pairs with the swap in `unpark`. A park may return for no reason, so the flag
        // decides.
        while self.is_parked.load(Ordering::Acquire) {
            park();
        }
        true
    }
}

/// What the reactor knows of a lane.
#[derive(Clone, Copy, Default)]
struct LaneReading {
    /// The point read in this round.
    reached: u64,
    /// The point up to which the driver was queried.
    queried: u64,
    signalled: u64,
    /// The time at which the reactor first found it awaited and not moved, or last queried the driver about
    /// that.
    doubt: Option<Instant>,
}

impl LaneReading {
    /// Returns true if an awaited lane has not moved for so long that the driver must be queried.
    fn is_overdue(&mut self) -> bool {
        let now = Instant::now();
        let is_overdue = now - *self.doubt.get_or_insert(now) >= PATIENCE;
        if is_overdue {
            self.doubt = Some(now);
        }
        is_overdue
    }
}

/// How long the reactor has waited in vain, which decides how long it rests before it reads again.
struct Rest {
    pace: Pace,
    since: Option<Instant>,
    readings: u32,
}

const READINGS_PER_YIELD: u32 = 64;
const LOW_CPU_SLEEP: Duration = Duration::from_micros(500);
const SPIN: Duration = Duration::from_micros(50);
const LATE_BY: u32 = 16;
const SLEEP_MIN: Duration = Duration::from_micros(5);
const SLEEP_MAX: Duration = Duration::from_millis(2);

impl Rest {
    fn new(pace: Pace) -> Self {
        Self { pace, since: None, readings: 0 }
    }

    fn reset(&mut self) {
        (self.since, self.readings) = (None, 0);
    }

    fn rest(&mut self) {
        if cfg!(anabranch_loom) {
            return yield_now();
        }
        self.readings += 1;
        match self.pace {
            Pace::Latency if self.readings.is_multiple_of(READINGS_PER_YIELD) => yield_now(),
            Pace::Latency => spin_loop(),
            Pace::LowCpu => self.back_off(Duration::ZERO, LOW_CPU_SLEEP),
            Pace::Balanced => self.back_off(SPIN, SLEEP_MIN),
        }
    }

    /// Spins at first, then sleeps for a part of the time waited. So a wake is late by at most that part.
    fn back_off(&mut self, spin: Duration, sleep_min: Duration) {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if waited < spin {
            return if self.readings.is_multiple_of(READINGS_PER_YIELD) { yield_now() } else { spin_loop() };
        }
        std::thread::sleep((waited / LATE_BY).clamp(sleep_min, SLEEP_MAX));
    }
}

/// Makes this thread's sleeps end in time: by default Linux adds 50 microseconds.
fn sleep_exactly() {
    #[cfg(all(target_os = "linux", not(anabranch_loom)))]
    // SAFETY: this option takes one number, and changes only this thread's timers.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize);
    }
}
