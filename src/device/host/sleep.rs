//! The sleep of workers without work. A worker announces itself, checks once more for work, then parks. A
//! thread that adds work checks for announced workers. So the worker's check finds work that was added before
//! it, and a thread that adds work later finds the worker.

use std::time::Duration;

use super::Barrier;
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, Thread, current, fence, lock, park, park_for};

/// A bit of `idle`, set permanently once the kernel has refused the barrier's heavy side. A thread that adds
/// work and sees the bit runs a full fence before it looks for sleepers. The bit makes `idle` more than 0, so
/// other pushes pay nothing for the check.
const FENCED: u32 = 1 << 31;

/// The time between two checks for work, for a worker that cannot rely on the barrier yet.
const PATIENCE: Duration = Duration::from_millis(1);

/// The workers that sleep or are about to.
pub(crate) struct Sleep {
    /// The number of sleepers, and [`FENCED`].
    idle: AtomicU32,
    sleepers: Mutex<Sleepers>,
    threads: Box<[OnceLock<Thread>]>,
    barrier: Barrier,
}

struct Sleepers {
    workers: Vec<usize>,
    /// The workers that may not have seen [`FENCED`] yet, because they have not held the lock since it was
    /// set.
    unaware: Vec<usize>,
}

impl Sleep {
    pub(crate) fn new(workers: usize, barrier: Barrier) -> Self {
        Self {
            idle: AtomicU32::new(0),
            sleepers: Mutex::new(Sleepers { workers: Vec::with_capacity(workers), unaware: Vec::new() }),
            threads: (0..workers).map(|_| OnceLock::new()).collect(),
            barrier,
        }
    }

    /// Called once by each worker's own thread, before it sleeps.
    pub(crate) fn register(&self, worker: usize) {
        let _ = self.threads[worker].set(current());
    }

    /// Sleeps until the worker is woken, unless `has_work` finds work. Its argument is true if the barrier is
    /// refused. Then it must check the common queue under that queue's lock.
    pub(crate) fn sleep(&self, worker: usize, has_work: impl Fn(bool) -> bool) {
        self.change(|sleepers| {
            sleepers.workers.push(worker);
            sleepers.unaware.retain(|&unaware| unaware != worker);
        });
        // ORDERING: pairs with the light side in `wake_one`, where "add work, light, load idle" is the
        // frequent path. This is the heavy side, because sleeping is rare.
        let is_refused = !self.barrier.heavy();
        let mut is_ordered = !is_refused || self.fall_back();
        loop {
            if has_work(is_refused) {
                return self.change(|sleepers| sleepers.workers.retain(|&sleeper| sleeper != worker));
            }
            if is_ordered {
                break;
            }
            park_for(PATIENCE);
            let (is_listed, all_aware) = self.look(worker);
            if !is_listed {
                return;
            }
            is_ordered = all_aware;
        }
        // The end of the sleep is the removal from the list: a park may also return without a reason.
        while self.look(worker).0 {
            park();
        }
    }

    /// Returns the number of sleepers, which may be old.
    pub(crate) fn count(&self) -> usize {
        // ORDERING: Relaxed: a count, which may be old.
        (self.idle.load(Ordering::Relaxed) & !FENCED) as usize
    }

    /// Wakes one sleeper, if there is one. Called after work was added.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.barrier.light();
        // ORDERING: Relaxed: the barrier above orders the work before the load. It pairs with the heavy side
        // in `sleep`.
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.wake(1);
        }
    }

    pub(crate) fn wake_all(&self) {
        // The lock orders this. A worker that announces itself later also checks later, and sees the reason
        // for the wake.
        self.wake_listed(usize::MAX);
    }

    #[cold]
    fn wake(&self, most: usize) {
        // ORDERING: Relaxed: a thread that does not see the bit yet is covered: see the README.
        if self.idle.load(Ordering::Relaxed) & FENCED != 0 {
            // ORDERING: SeqCst pairs with the fence in `Barrier::heavy`: of "add work, fence, load idle" and
            // "store idle, fence, check" at least one side sees the other.
            fence(Ordering::SeqCst);
            if self.idle.load(Ordering::Relaxed) == FENCED {
                return;
            }
        }
        self.wake_listed(most);
    }

    fn wake_listed(&self, most: usize) {
        for _ in 0..most {
            let woken = self.change(|sleepers| sleepers.workers.pop());
            let Some(thread) = woken.and_then(|worker| self.threads[worker].get()) else { return };
            thread.unpark();
        }
    }

    /// Makes threads that add work run a full fence from now on. Returns true if every worker has seen the
    /// change.
    #[cold]
    fn fall_back(&self) -> bool {
        self.change(|sleepers| {
            // ORDERING: Relaxed: `idle` changes only under the lock.
            let idle = self.idle.load(Ordering::Relaxed);
            if idle & FENCED == 0 {
                // A worker on the list takes the lock before it continues.
                sleepers.unaware = (0..self.threads.len()).filter(|worker| !sleepers.workers.contains(worker)).collect();
                self.idle.store(idle | FENCED, Ordering::Relaxed);
            }
            sleepers.unaware.is_empty()
        })
    }

    /// Returns whether the worker is on the list, and whether no worker is unaware of [`FENCED`].
    fn look(&self, worker: usize) -> (bool, bool) {
        let sleepers = lock(&self.sleepers);
        (sleepers.workers.contains(&worker), sleepers.unaware.is_empty())
    }

    /// Changes the list, and sets `idle` to match.
    fn change<T>(&self, change: impl FnOnce(&mut Sleepers) -> T) -> T {
        let mut sleepers = lock(&self.sleepers);
        let changed = change(&mut sleepers);
        // ORDERING: Relaxed, both: the barrier orders the store, and the lock keeps it equal to the list.
        let fenced = self.idle.load(Ordering::Relaxed) & FENCED;
        self.idle.store(sleepers.workers.len() as u32 | fenced, Ordering::Relaxed);
        changed
    }
}
