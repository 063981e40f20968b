//! Workers with nothing to do. A worker announces itself, looks once more, then parks; who adds work looks for the announced.
//! So work that was added before the look is found, and work that was added after it finds the worker.

use super::Barrier;
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, Thread, current, lock, park};

/// Who sleeps, or is about to.
pub(crate) struct Sleep {
    /// The length of `sleepers`.
    idle: AtomicU32,
    sleepers: Mutex<Vec<usize>>,
    threads: Box<[OnceLock<Thread>]>,
    barrier: Barrier,
}

impl Sleep {
    pub(crate) fn new(workers: usize, barrier: Barrier) -> Self {
        Self {
            idle: AtomicU32::new(0),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            threads: (0..workers).map(|_| OnceLock::new()).collect(),
            barrier,
        }
    }

    /// Called once by each worker's own thread, before it sleeps.
    pub(crate) fn register(&self, worker: usize) {
        let _ = self.threads[worker].set(current());
    }

    /// Sleeps until someone wakes this worker, unless `has_work` says that there is something to do already.
    pub(crate) fn sleep(&self, worker: usize, has_work: impl Fn() -> bool) {
        {
            let mut sleepers = lock(&self.sleepers);
            sleepers.push(worker);
            // ORDERING: Relaxed, here and below: the barrier orders it, the lock keeps it equal to the list.
            self.idle.store(sleepers.len() as u32, Ordering::Relaxed);
        }
        // ORDERING: the dear side of "add work, light, load idle" in `wake_one`. Sleeping is rare and adding work is not.
        self.barrier.heavy();
        if has_work() {
            self.remove(worker);
            return;
        }
        // Being taken off the list is what counts; a park may also return for no reason.
        while self.is_listed(worker) {
            park();
        }
    }

    /// Called after work was added: wakes one sleeper, if there is one.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.barrier.light();
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.wake(1);
        }
    }

    pub(crate) fn wake_all(&self) {
        self.barrier.light();
        self.wake(usize::MAX);
    }

    #[cold]
    fn wake(&self, most: usize) {
        for _ in 0..most {
            let woken = {
                let mut sleepers = lock(&self.sleepers);
                let woken = sleepers.pop();
                self.idle.store(sleepers.len() as u32, Ordering::Relaxed);
                woken
            };
            let Some(thread) = woken.and_then(|worker| self.threads[worker].get()) else { return };
            thread.unpark();
        }
    }

    fn remove(&self, worker: usize) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.retain(|&sleeper| sleeper != worker);
        self.idle.store(sleepers.len() as u32, Ordering::Relaxed);
    }

    fn is_listed(&self, worker: usize) -> bool {
        lock(&self.sleepers).contains(&worker)
    }
}
