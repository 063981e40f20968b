//! Models: loom runs each in every interleaving of its threads and Anabranch's, within a bound. In ordinary
//! builds each runs some times on plain threads. Executors are made and dropped inside of the model.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

#[cfg(not(anabranch_loom))]
use futures::executor::block_on;
#[cfg(anabranch_loom)]
use loom::{future::block_on, thread};
#[cfg(not(anabranch_loom))]
use std::thread;

use anabranch::{Executor, Graph, Plan};

use crate::{Done, SingleFlight, Uploads};

/// Runs those executions of a model in which threads are interrupted at most `preemptions` times.
#[cfg(anabranch_loom)]
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    // An atomic of std, which loom does not see: it counts across executions.
    let executions = Arc::new(AtomicU32::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}

/// Runs the model on plain threads.
#[cfg(not(anabranch_loom))]
fn check(_preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    (0..100).for_each(|_| model());
}

/// A plan whose only node counts how often it runs.
fn counting() -> (Plan, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let mut g = Graph::new();
    let answer = g.task("answer", (), move || {
        counted.fetch_add(1, Ordering::Relaxed);
        42
    });
    g.output("answer", &answer);
    (g.compile().expect("the graph is right"), count)
}

fn worker() -> Executor {
    Executor::builder().workers(1).max_in_flight(1).build().expect("the settings are in range")
}

/// Polls a future once, as a `select!` does whose other branch is ready.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// Seen to fail with any of: a lock that is let go between the look at an empty state and the next state (two
// runs); a task that waits because of what it read before it locked (a deadlock).
#[test]
fn tasks_that_ask_at_once_share_one_run() {
    check(2, || {
        let (plan, count) = counting();
        let answer = Arc::new(SingleFlight::<i32>::new(&worker(), &plan, "answer"));
        let there = answer.clone();
        let other = thread::spawn(move || block_on(there.get()).map(|answer| *answer));
        assert_eq!(*block_on(answer.get()).expect("nothing fails"), 42);
        assert_eq!(other.join().expect("it does not panic").expect("nothing fails"), 42);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    });
}

// Seen to fail (a deadlock) with any of: a lead that is dropped and leaves the state as it is; one that
// empties the state and wakes no task.
#[test]
fn a_task_that_gives_up_leaves_the_run_to_another() {
    check(2, || {
        let (plan, count) = counting();
        let answer = Arc::new(SingleFlight::<i32>::new(&worker(), &plan, "answer"));
        let there = answer.clone();
        let other = thread::spawn(move || drop(poll_once(pin!(there.get()))));
        assert_eq!(*block_on(answer.get()).expect("nothing fails"), 42);
        other.join().expect("it does not panic");
        assert!((1..=2).contains(&count.load(Ordering::Relaxed)));
    });
}

// Seen to fail (one file, no bytes) with any of: Relaxed in `Progress::add`; Relaxed instead of Acquire in
// `Progress::done`; bytes that are read before the files.
#[test]
fn a_progress_bar_counts_no_file_without_its_bytes() {
    check(2, || {
        let uploads = Uploads::new(&worker(), 4).expect("there is room");
        let added = uploads.add(b"three".to_vec()).expect("there is room");
        // The worker adds the file meanwhile.
        let seen = uploads.done();
        assert!(seen.bytes >= 5 * seen.files, "{seen:?}");
        block_on(added).expect("it cannot fail");
        assert_eq!(uploads.done(), Done { files: 1, bytes: 5 });
    });
}
