//! State shared by workers: the entered clients, the queue for tickets from other threads, and each worker's
//! deque. A client is a run or an engine.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::searcher::Searcher;
use super::stopwatch::measure_pace;
use super::ticket::Queue;
use super::worker::{Alone, Shared, work};
use super::{Barrier, Deque, Progress, Ticket};
use crate::device::host::sleep::Sleep;
use crate::error::{Error, Kind, Result};
use crate::sync::{AtomicU64, Line, Mutex, Ordering, lock, spawn};

/// The most clients that can be entered at once: all numbers that fit in a ticket, except one that is no
/// slot.
pub(crate) const SLOTS_MAX: usize = (1 << 16) - 1;

/// How workers resume the programs of one run. The pointers are raw, because the run's last program may end,
/// and free the run, while another worker returns from `resume`: that worker does not read its pointer any
/// more.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(super) run: *const (),
    pub(super) resume: unsafe fn(*const (), Ticket, &mut Shared<'_>),
    pub(super) resume_alone: unsafe fn(*const (), Ticket, &mut Alone<'_>),
}

/// A run or an engine, whose programs tickets resume.
pub(crate) trait Resume {
    /// Resumes the programs of a ticket, and the programs that these make ready, one after the other.
    ///
    /// # Safety
    /// The ticket was made for `of`, and keeps it alive.
    unsafe fn resume<'q, Q: Queue<'q>>(of: *const Self, ticket: Ticket, queue: &mut Q);
}

impl Entry {
    pub(crate) fn new<R: Resume>(of: *const R) -> Self {
        Self {
            run: of.cast(),
            // SAFETY: the worker has a ticket for this entry, which keeps the run or engine alive.
            resume: |of, ticket, queue| unsafe { R::resume(of.cast(), ticket, queue) },
            // SAFETY: the worker has a ticket for this entry, which keeps the run or engine alive.
            resume_alone: |of, ticket, queue| unsafe { R::resume(of.cast(), ticket, queue) },
        }
    }
}

pub(crate) struct Pool {
    slots: Box<[Slot]>,
    /// [`RUN`] for each run that is expected or entered, and [`STOPPING`] once no more will come. Both are in
    /// one word, so that the later of "the last run left" and "no run will come" knows that it is the later,
    /// and lets the workers end.
    runs: AtomicU64,
    common: Mutex<VecDeque<Ticket>>,
    /// The length of `common`.
    common_len: AtomicU64,
    pub(super) deques: Box<[Deque]>,
    pub(super) progress: Box<[Line<Progress>]>,
    pub(super) sleep: Sleep,
    /// Called by each worker around its whole loop.
    pub(super) around: Around,
    /// Whether threads other than workers count gates down, too.
    has_outsiders: bool,
    pub(super) searcher: Searcher,
}

const STOPPING: u64 = 1;
const RUN: u64 = 2;

/// Called once by each worker, with its number and its loop.
pub(crate) type Around = Box<dyn Fn(usize, &mut dyn FnMut()) + Send + Sync>;

struct Slot(UnsafeCell<Option<Entry>>);

// SAFETY: only `enter` and `leave` write a slot, while no ticket for it exists. Only holders of a ticket read
// it, and tickets travel through queues that publish earlier writes.
unsafe impl Sync for Slot {}
// SAFETY: the pointer is used only with a ticket, and the run or engine behind it is Sync.
unsafe impl Send for Slot {}

impl Pool {
    /// Starts `workers` threads. `around` is called around the loop of each. `has_outsiders` says whether
    /// threads other than workers count gates down, too.
    pub(crate) fn start(
        workers: usize,
        slots: usize,
        barrier: Barrier,
        around: Around,
        has_outsiders: bool,
    ) -> Result<Arc<Self>> {
        measure_pace();
        let pool = Arc::new(Self {
            slots: (0..slots).map(|_| Slot(UnsafeCell::new(None))).collect(),
            runs: AtomicU64::new(0),
            // Reserves room for a ticket of each run: when many runs are dropped at once, no drop pays for
            // growing the queue.
            common: Mutex::new(VecDeque::with_capacity(slots)),
            common_len: AtomicU64::new(0),
            deques: (0..workers).map(|_| Deque::new()).collect(),
            progress: (0..workers).map(|_| Line(Progress::new())).collect(),
            sleep: Sleep::new(workers, barrier),
            searcher: Searcher::new(),
            around,
            has_outsiders,
        });
        for worker in 0..workers {
            let shared = pool.clone();
            let spawned = spawn(format!("anabranch-{worker}"), move || work(shared, worker));
            if let Err(cause) = spawned {
                pool.stop();
                return Err(Error::with_source(Kind::Thread, Box::new(cause)));
            }
        }
        Ok(pool)
    }

    /// Returns true if a single thread runs all programs, so that its counts need no atomics.
    pub(super) fn is_alone(&self) -> bool {
        self.workers() == 1 && !self.has_outsiders
    }

    pub(crate) fn workers(&self) -> usize {
        self.deques.len()
    }

    /// Announces a run: the workers stay until it was entered and has left. Must not be called after
    /// [`Pool::stop`].
    pub(crate) fn expect_run(&self) {
        // ORDERING: Relaxed: a lock of the caller, or a word that both threads change, orders this before a
        // `stop`.
        self.runs.fetch_add(RUN, Ordering::Relaxed);
    }

    /// Enters an expected run. Its programs can be resumed until [`Pool::leave`].
    ///
    /// # Safety
    /// No other run is entered in the slot. Until `leave` is called, the run stays alive, and its `resume`
    /// functions are sound to call. `leave` is called only when no ticket for the run exists and none will be
    /// made.
    pub(crate) unsafe fn enter(&self, slot: u16, entry: Entry) {
        // SAFETY: the slot is free, so no ticket for it exists.
        unsafe { *self.slots[slot as usize].0.get() = Some(entry) };
    }

    /// Removes a run that [`Pool::enter`] entered.
    ///
    /// # Safety
    /// No ticket for the slot exists.
    pub(crate) unsafe fn leave(&self, slot: u16) {
        // SAFETY: no ticket for the slot exists, so no thread reads it: the contract of this function.
        unsafe { *self.slots[slot as usize].0.get() = None };
        self.forget_run();
    }

    /// Undoes one call of [`Pool::expect_run`].
    pub(crate) fn forget_run(&self) {
        // ORDERING: AcqRel: the Release pairs with the Acquire in `is_over`, so workers end after the last
        // step of every run. A worker that is about to sleep sees the word, or is on the list that `wake_all`
        // takes.
        if self.runs.fetch_sub(RUN, Ordering::AcqRel) == RUN | STOPPING {
            self.sleep.wake_all();
        }
    }

    /// Returns the entry that a ticket is for.
    pub(super) fn entry(&self, ticket: Ticket) -> Entry {
        // SAFETY: a ticket exists, so no thread writes the slot.
        let entry = unsafe { *self.slots[ticket.slot() as usize].0.get() };
        entry.expect("a ticket exists only while its run is entered")
    }

    /// Queues a ticket from a thread other than a worker.
    pub(crate) fn submit(&self, ticket: Ticket) {
        self.push_common([ticket]);
        self.sleep.wake_one();
    }

    pub(super) fn push_common(&self, tickets: impl IntoIterator<Item = Ticket>) {
        let mut common = lock(&self.common);
        common.extend(tickets);
        // ORDERING: Release pairs with the Acquire in `has_common`: a worker that sees the length in its last
        // check before it sleeps finds the ticket.
        self.common_len.store(common.len() as u64, Ordering::Release);
    }

    pub(super) fn pop_common(&self) -> Option<Ticket> {
        if !self.has_common() {
            return None;
        }
        let mut common = lock(&self.common);
        let ticket = common.pop_front();
        // ORDERING: Release pairs with the Acquire in `has_common`. The length changes only under the lock.
        self.common_len.store(common.len() as u64, Ordering::Release);
        ticket
    }

    /// Returns the number of tickets in the common queue.
    pub(crate) fn queued(&self) -> usize {
        // ORDERING: Relaxed: a count, which may be old.
        self.common_len.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of workers that sleep.
    pub(crate) fn asleep(&self) -> usize {
        self.sleep.count()
    }

    pub(super) fn has_common(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `push_common`.
        self.common_len.load(Ordering::Acquire) > 0
    }

    /// As [`Pool::has_common`], for a worker that is about to sleep. If the barrier is refused, the lock
    /// orders this check against [`Pool::submit`], which threads outside of the pool call.
    pub(super) fn has_common_before_sleep(&self, is_refused: bool) -> bool {
        if is_refused { !lock(&self.common).is_empty() } else { self.has_common() }
    }

    /// Returns true if some worker runs a node.
    pub(super) fn is_at_a_step(&self) -> bool {
        self.progress.iter().any(|progress| progress.0.is_at_a_step())
    }

    /// Returns the steps of the run in `slot` that workers are at.
    pub(crate) fn steps_at(&self, slot: u16) -> impl Iterator<Item = u32> + '_ {
        self.progress.iter().filter_map(move |progress| progress.0.get(slot))
    }

    /// Lets the workers end once no run is expected or entered.
    pub(crate) fn stop(&self) {
        // ORDERING: AcqRel: pairs with `forget_run` and with the Acquire in `is_over`. A worker that is about
        // to sleep sees the word, or is on the list that `wake_all` takes.
        self.runs.fetch_or(STOPPING, Ordering::AcqRel);
        self.sleep.wake_all();
    }

    pub(super) fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `forget_run`: everything that the last step of each run
        // did is visible.
        self.runs.load(Ordering::Acquire) == STOPPING
    }
}
