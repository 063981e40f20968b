//! Workers that go to sleep while work arrives: either the worker's last check finds the work, or the thread
//! that added it finds the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::harness::{check, check_within, join, spawn};
use crate::device::host::{Barrier, Sleep};
use crate::sync::{AtomicU32, Mutex, lock, spin_loop};

/// An amount of work, and the sleep of the workers. All words are Relaxed: the barrier must make them
/// visible.
struct Model {
    sleep: Sleep,
    work: u32,
    added: AtomicU32,
    taken: AtomicU32,
    /// Held to add work from a thread that is no worker, as with the pool's common queue.
    outside: Mutex<()>,
}

impl Model {
    fn new(workers: usize, work: u32) -> Arc<Self> {
        Self::with(Barrier::new(), workers, work)
    }

    /// A model in which the kernel refuses the heavy side, and the light side is no fence.
    fn refused(workers: usize, work: u32) -> Arc<Self> {
        Self::with(Barrier::refused(), workers, work)
    }

    fn with(barrier: Barrier, workers: usize, work: u32) -> Arc<Self> {
        let (added, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { sleep: Sleep::new(workers, barrier), work, added, taken, outside: Mutex::new(()) })
    }

    fn add(&self) {
        // ORDERING: Relaxed: the barrier in `wake_one` must make it visible.
        self.added.fetch_add(1, Ordering::Relaxed);
        self.sleep.wake_one();
    }

    fn has_work(&self) -> bool {
        // ORDERING: Relaxed: the barrier in `Sleep::sleep` must order it.
        self.added.load(Ordering::Relaxed) > self.taken.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        // ORDERING: Relaxed: the barrier in `Sleep::sleep` must order it.
        self.taken.load(Ordering::Relaxed) == self.work
    }

    fn take(&self) -> bool {
        // ORDERING: Relaxed, all: only the atomicity of the exchange matters.
        let (taken, added) = (self.taken.load(Ordering::Relaxed), self.added.load(Ordering::Relaxed));
        taken < added && self.taken.compare_exchange(taken, taken + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The loop of a worker. The work that it takes keeps it busy until all work is taken. It does not end if
    /// work is missed.
    fn work(&self, worker: usize) {
        self.sleep.register(worker);
        while !self.is_over() {
            if self.take() {
                self.stay_busy();
            } else {
                self.sleep.sleep(worker, |_| self.has_work() || self.is_over());
            }
        }
    }

    fn stay_busy(&self) {
        while !self.is_over() {
            spin_loop();
        }
    }
}

// Seen to fail with any of: no second check; no heavy barrier in `sleep`; no light one in `wake_one`; the
// check before the announcement; a `wake` that leaves the woken worker on the list (each: a deadlock).
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

// Seen to fail with the same changes as the model of one worker, and with a worker that finds work on its
// second check and reports no sleepers.
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

// Seen to fail with a `wake_all` that wakes one worker, and without the second check (each: a deadlock).
#[test]
fn all_that_sleep_or_are_about_to_see_the_end() {
    check_within(2, || {
        let model = Model::new(2, 1);
        let workers = [0, 1].map(|worker| {
            let model = model.clone();
            spawn(move || {
                model.sleep.register(worker);
                while !model.is_over() {
                    model.sleep.sleep(worker, |_| model.is_over());
                }
            })
        });
        // ORDERING: Relaxed: `wake_all` must make it visible.
        model.taken.store(1, Ordering::Relaxed);
        model.sleep.wake_all();
        workers.into_iter().for_each(join);
    });
}

/// Worker 1 looks for work. Worker 0 adds some after `before`, and then stays busy until it is taken.
fn one_worker_adds_for_another(before: fn(&Model)) {
    check_within(3, move || {
        let model = Model::refused(2, 1);
        let worker = {
            let model = model.clone();
            spawn(move || model.work(1))
        };
        model.sleep.register(0);
        before(&model);
        model.add();
        model.stay_busy();
        join(worker);
    });
}

// Seen to fail (the worker stays busy for ever) with any of: a `fall_back` that returns true; no unaware
// workers.
#[test]
fn work_of_a_worker_that_knows_nothing_of_the_refusal_is_found() {
    one_worker_adds_for_another(|_| ());
}

// Seen to fail (the worker stays busy for ever) without the fence in `wake`.
#[test]
fn work_of_a_worker_that_may_know_of_the_refusal_is_found() {
    one_worker_adds_for_another(|model| model.sleep.sleep(0, |_| true));
}

// Seen to fail (a deadlock) with a check that does not take the lock of the outside work.
#[test]
fn work_from_outside_is_done_though_the_barrier_is_refused() {
    check(|| {
        let model = Model::refused(1, 1);
        let worker = {
            let model = model.clone();
            spawn(move || {
                let has_work = || {
                    let _outside = lock(&model.outside);
                    model.has_work()
                };
                model.sleep.register(0);
                while !has_work() {
                    model.sleep.sleep(0, |_| has_work());
                }
            })
        };
        let outside = lock(&model.outside);
        // ORDERING: Relaxed: the lock of the outside work must make it visible.
        model.added.fetch_add(1, Ordering::Relaxed);
        drop(outside);
        model.sleep.wake_one();
        join(worker);
    });
}
