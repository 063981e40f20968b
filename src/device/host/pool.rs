//! What workers share: the entered clients, the queue for tickets from outside, each worker's deque. A client
//! is a run or an engine.

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

/// The most clients that can be entered at once: what fits in a ticket, but for one number that is no slot.
pub(crate) const SLOTS_MAX: usize = (1 << 16) - 1;

/// How workers resume the programs of one run. Plain pointers, because the run's last program may end, and
/// free the run, while another worker is on its way out of `resume`: what that worker still has of the run it
/// does not read any more.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(super) run: *const (),
    pub(super) resume: unsafe fn(*const (), Ticket, &mut Shared<'_>),
    pub(super) resume_alone: unsafe fn(*const (), Ticket, &mut Alone<'_>),
}

/// A run or an engine, whose programs tickets resume.
pub(crate) trait Resume {
    /// Resumes the programs of a ticket, one after the other as they lead to each other.
    ///
    /// # Safety
    /// `of` is what the ticket was made for, and the ticket keeps it alive.
    unsafe fn resume<'q, Q: Queue<'q>>(of: *const Self, ticket: Ticket, queue: &mut Q);
}

impl Entry {
    pub(crate) fn new<R: Resume>(of: *const R) -> Self {
        Self {
            run: of.cast(),
            // SAFETY: the worker has a ticket for this entry.
            resume: |of, ticket, queue| unsafe { R::resume(of.cast(), ticket, queue) },
            // SAFETY: the worker has a ticket for this entry.
            resume_alone: |of, ticket, queue| unsafe { R::resume(of.cast(), ticket, queue) },
        }
    }
}

pub(crate) struct Pool {
    slots: Box<[Slot]>,
    /// [`RUN`] for each run that is expected or entered, and [`STOPPING`] once no more will be. One word, so
    /// that the later of "the last run left" and "no run will come" knows that it is the later, and lets the
    /// workers end.
    runs: AtomicU64,
    common: Mutex<VecDeque<Ticket>>,
    /// The length of `common`.
    common_len: AtomicU64,
    pub(super) deques: Box<[Deque]>,
    pub(super) progress: Box<[Line<Progress>]>,
    pub(super) sleep: Sleep,
    /// Wraps each worker's life.
    pub(super) around: Around,
    /// Whether others than workers count gates down, too.
    has_outsiders: bool,
    pub(super) searcher: Searcher,
}

const STOPPING: u64 = 1;
const RUN: u64 = 2;

/// Called by each worker once, with its number and its life.
pub(crate) type Around = Box<dyn Fn(usize, &mut dyn FnMut()) + Send + Sync>;

struct Slot(UnsafeCell<Option<Entry>>);

// SAFETY: a slot is written by `enter` and `leave` only, while no ticket for it exists, and read only by
// holders of a ticket; tickets travel through queues that publish what came before.
unsafe impl Sync for Slot {}
// SAFETY: the pointer is used only with a ticket, and the run or engine behind it is Sync.
unsafe impl Send for Slot {}

impl Pool {
    /// Starts `workers` threads. `around` wraps the life of each; `has_outsiders` says that other threads
    /// follow their targets, too.
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
            // Reserved for a ticket of each run: when many runs are dropped at once, no drop pays for growing
            // the queue.
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

    /// Whether one thread does everything, so that what it counts needs no atomics.
    pub(super) fn is_alone(&self) -> bool {
        self.workers() == 1 && !self.has_outsiders
    }

    pub(crate) fn workers(&self) -> usize {
        self.deques.len()
    }

    /// Announces a run: the workers stay until it was entered and has left. Not after [`Pool::stop`].
    pub(crate) fn expect_run(&self) {
        // ORDERING: Relaxed: a lock of the caller's, or a word that both change, orders it before a `stop`.
        self.runs.fetch_add(RUN, Ordering::Relaxed);
    }

    /// Enters an expected run; its programs can be resumed until [`Pool::leave`].
    ///
    /// # Safety
    /// No other run is entered in the slot. The run stays alive, and its `resume` functions sound to call,
    /// until `leave` is called; and `leave` is called only when no ticket for the run exists and none will.
    pub(crate) unsafe fn enter(&self, slot: u16, entry: Entry) {
        // SAFETY: the slot is free, so no ticket for it exists.
        unsafe { *self.slots[slot as usize].0.get() = Some(entry) };
    }

    /// Ends what `enter` began.
    ///
    /// # Safety
    /// No ticket for the slot exists.
    pub(crate) unsafe fn leave(&self, slot: u16) {
        // SAFETY: no ticket for the slot exists, so no thread reads it.
        unsafe { *self.slots[slot as usize].0.get() = None };
        self.forget_run();
    }

    /// Takes back what [`Pool::expect_run`] announced.
    pub(crate) fn forget_run(&self) {
        // ORDERING: AcqRel: workers end after all that any run's last step did. A worker on its way to sleep
        // sees the word, or is on the list that `wake_all` takes.
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

    /// Queues a ticket from outside of the workers.
    pub(crate) fn submit(&self, ticket: Ticket) {
        self.push_common([ticket]);
        self.sleep.wake_one();
    }

    pub(super) fn push_common(&self, tickets: impl IntoIterator<Item = Ticket>) {
        let mut common = lock(&self.common);
        common.extend(tickets);
        // ORDERING: Release, so that a worker that sees the length from its last check before sleeping sees
        // the ticket.
        self.common_len.store(common.len() as u64, Ordering::Release);
    }

    pub(super) fn pop_common(&self) -> Option<Ticket> {
        if !self.has_common() {
            return None;
        }
        let mut common = lock(&self.common);
        let ticket = common.pop_front();
        // ORDERING: Release as for a push. It changes only under the lock.
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

    /// Returns whether a worker runs a node.
    pub(super) fn is_at_a_step(&self) -> bool {
        self.progress.iter().any(|progress| progress.0.is_at_a_step())
    }

    /// Returns the steps that workers are at, of the run in `slot`.
    pub(crate) fn steps_at(&self, slot: u16) -> impl Iterator<Item = u32> + '_ {
        self.progress.iter().filter_map(move |progress| progress.0.get(slot))
    }

    /// Lets the workers end once no run is expected or entered.
    pub(crate) fn stop(&self) {
        // ORDERING: AcqRel: a worker on its way to sleep sees the word, or is on the list that `wake_all`
        // takes.
        self.runs.fetch_or(STOPPING, Ordering::AcqRel);
        self.sleep.wake_all();
    }

    pub(super) fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with `forget_run`: what the last step of each run did is visible.
        self.runs.load(Ordering::Acquire) == STOPPING
    }
}
