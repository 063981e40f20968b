//! Workers that go to sleep while work comes: either the worker's last look finds it, or whoever added it finds the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::harness::{check, check_within, join, spawn};
use crate::device::host::{Barrier, Sleep};
use crate::sync::{AtomicU32, spin_loop};

/// So much to do, and the workers' beds. All words are Relaxed: what makes them visible must be the barrier.
struct Model {
    sleep: Sleep,
    work: u32,
    added: AtomicU32,
    taken: AtomicU32,
}

impl Model {
    fn new(workers: usize, work: u32) -> Arc<Self> {
        let (added, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { sleep: Sleep::new(workers, Barrier::new()), work, added, taken })
    }

    fn add(&self) {
        self.added.fetch_add(1, Ordering::Relaxed);
        self.sleep.wake_one();
    }

    fn has_work(&self) -> bool {
        self.added.load(Ordering::Relaxed) > self.taken.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == self.work
    }

    fn take(&self) -> bool {
        let (taken, added) = (self.taken.load(Ordering::Relaxed), self.added.load(Ordering::Relaxed));
        taken < added && self.taken.compare_exchange(taken, taken + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// A worker's life: what it takes keeps it busy until all is taken. It does not end if work is missed.
    fn work(&self, worker: usize) {
        self.sleep.register(worker);
        while !self.is_over() {
            if self.take() {
                self.stay_busy();
            } else {
                self.sleep.sleep(worker, || self.has_work() || self.is_over());
            }
        }
    }

    fn stay_busy(&self) {
        while !self.is_over() {
            spin_loop();
        }
    }
}

// Seen to fail with any of: no second look; no heavy barrier in `sleep`; no light one in `wake_one`; the look before the
// announcement; a `wake` that leaves the woken one on the list (each: a deadlock).
#[test]
fn work_that_comes_while_the_worker_goes_to_sleep_is_done() {
    check(|| {
        let model = Model::new(1, 1);
        let worker = {
            let model = model.clone();
            spawn(move || model.work(0))
        };
        model.add();
        join(worker);
    });
}

// Seen to fail with all of the above, and with a worker that found work on its second look and says that nobody sleeps.
#[test]
fn work_that_comes_while_one_worker_is_busy_wakes_the_other() {
    check_within(2, || {
        let model = Model::new(2, 2);
        let workers = [0, 1].map(|worker| {
            let model = model.clone();
            spawn(move || model.work(worker))
        });
        model.add();
        model.add();
        workers.into_iter().for_each(join);
    });
}

// Seen to fail with a `wake_all` that wakes one, and without the second look (each: a deadlock).
#[test]
fn all_that_sleep_or_are_about_to_see_the_end() {
    check_within(2, || {
        let model = Model::new(2, 1);
        let workers = [0, 1].map(|worker| {
            let model = model.clone();
            spawn(move || {
                model.sleep.register(worker);
                while !model.is_over() {
                    model.sleep.sleep(worker, || model.is_over());
                }
            })
        });
        model.taken.store(1, Ordering::Relaxed);
        model.sleep.wake_all();
        workers.into_iter().for_each(join);
    });
}
