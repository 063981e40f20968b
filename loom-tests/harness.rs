//! The parts of models: threads, memory without any order of its own, and a task that counts. No other file
//! of the models names loom.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(anabranch_loom)]
pub(super) use loom::thread::{JoinHandle, spawn};
#[cfg(not(anabranch_loom))]
pub(super) use std::thread::{JoinHandle, spawn};

#[cfg(anabranch_loom)]
use loom::{cell::UnsafeCell, sync::Condvar};
#[cfg(not(anabranch_loom))]
use std::{cell::UnsafeCell, sync::Condvar};

use crate::runtime::{Lane, WaiterKey};
use crate::sync::{Mutex, lock, yield_now};

/// Runs every execution of a model. Without loom, runs the model a number of times on plain threads.
pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
    explore(None, model);
}

/// Runs those executions of a large model in which threads are interrupted at most `preemptions` times.
pub(super) fn check_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(Some(preemptions), model);
}

#[cfg(anabranch_loom)]
fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicU32::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.or(builder.preemption_bound);
    builder.max_branches = 10_000;
    builder.check(move || {
        // ORDERING: Relaxed: a count outside of the model.
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}

#[cfg(not(anabranch_loom))]
fn explore(_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    (0..200).for_each(|_| model());
}

pub(super) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no thread of a model panics")
}

/// A word of plain memory. Loom fails the model when two threads race for it; so does ThreadSanitizer.
#[derive(Debug)]
pub(super) struct Plain(UnsafeCell<u32>);

// SAFETY: models order all accesses to the word. Loom and ThreadSanitizer check that they do.
unsafe impl Send for Plain {}
// SAFETY: models order all accesses to the word. Loom and ThreadSanitizer check that they do.
unsafe impl Sync for Plain {}

impl Plain {
    pub(super) fn new(word: u32) -> Self {
        Self(UnsafeCell::new(word))
    }

    #[cfg(anabranch_loom)]
    pub(super) fn get(&self) -> u32 {
        // SAFETY: loom has checked that no thread writes the word now.
        self.0.with(|word| unsafe { *word })
    }

    #[cfg(anabranch_loom)]
    pub(super) fn set(&self, new: u32) {
        // SAFETY: loom has checked that no other thread accesses the word now.
        self.0.with_mut(|word| unsafe { *word = new });
    }

    #[cfg(not(anabranch_loom))]
    pub(super) fn get(&self) -> u32 {
        // SAFETY: the model orders all accesses to the word, as its run under loom has checked.
        unsafe { *self.0.get() }
    }

    #[cfg(not(anabranch_loom))]
    pub(super) fn set(&self, new: u32) {
        // SAFETY: the model orders all accesses to the word, as its run under loom has checked.
        unsafe { *self.0.get() = new }
    }
}

/// A word that threads change between steps that a model needs in every order.
///
/// Loom remembers only the last access to each word. After "one thread loads, another loads and then stores"
/// it no longer knows of the first load, and may not try the store before it. It always tries both orders of
/// two changes.
pub(super) struct Turns(crate::sync::AtomicU32);

impl Turns {
    pub(super) fn new() -> Self {
        Self(crate::sync::AtomicU32::new(0))
    }

    pub(super) fn take(&self) {
        // ORDERING: Relaxed: only the order of the change itself matters to loom.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that counts its wakes and its wakers.
pub(super) struct Task(Arc<Wakes>);

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        // ORDERING: SeqCst costs nothing in a model. It pairs with the load in `wakes`.
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Task {
    pub(super) fn new() -> Self {
        Self(Arc::new(Wakes::default()))
    }

    /// Polls a lane once, as a future of this task would.
    pub(super) fn poll(&self, lane: &Lane, n: u64, key: &mut WaiterKey) -> Poll<()> {
        let waker = Waker::from(self.0.clone());
        lane.poll(n, key, &mut Context::from_waker(&waker))
    }

    /// Polls a future once.
    pub(super) fn poll_future<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(self.0.clone());
        future.poll(&mut Context::from_waker(&waker))
    }

    /// Returns the number of wakes of the task.
    pub(super) fn wakes(&self) -> u32 {
        // ORDERING: SeqCst costs nothing in a model. It pairs with the addition in `wake`.
        self.0.0.load(Ordering::SeqCst)
    }

    /// Returns the number of wakers of this task. When it is 0 again, each was dropped exactly once.
    pub(super) fn wakers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// Waits for a future. If its wake is lost, loom reports a deadlock.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_with(future, || ())
}

/// Waits for a future that wakes itself. Other threads run between two polls.
pub(super) fn block_on_in_turns<F: Future>(future: F) -> F::Output {
    block_on_with(future, yield_now)
}

fn block_on_with<F: Future>(future: F, between: impl Fn()) -> F::Output {
    let mut future = pin!(future);
    let doorbell = Arc::new(Doorbell::default());
    let waker = Waker::from(doorbell.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        doorbell.wait();
        between();
    }
}

/// The signal for a thread that waits for a future.
#[derive(Default)]
struct Doorbell {
    is_rung: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_rung) = true;
        self.rings.notify_one();
    }
}

impl Doorbell {
    fn wait(&self) {
        let mut is_rung = lock(&self.is_rung);
        while !std::mem::take(&mut *is_rung) {
            is_rung = self.rings.wait(is_rung).expect("nothing panics while it holds the lock");
        }
    }
}
