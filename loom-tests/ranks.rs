//! The protocols between the operations of one rank: the order of their starts, the end of a world, and
//! futures that are polled by the threads that wake them.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::harness::{Plain, Task, block_on, check, join, spawn};
use crate::comm::{Health, Sleeper, Turn, Turns, detach};
use crate::error::WorldFault;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// Waits for a turn, and starts its operation: it finds what the one before has left.
fn start(turn: Turn, word: &Plain, before: u32) {
    block_on(turn.come());
    assert_eq!(word.get(), before);
    word.set(before + 1);
}

#[test]
fn operations_start_in_the_order_of_their_tickets() {
    check(|| {
        let (turns, word) = (Arc::<Turns>::default(), Arc::new(Plain::new(0)));
        let threads = [2, 1].map(|ticket| {
            let (turn, word) = (Turn::new(&turns, ticket.into()), word.clone());
            spawn(move || start(turn, &word, ticket))
        });
        start(Turn::new(&turns, 0), &word, 0);
        threads.into_iter().for_each(join);
        assert_eq!(word.get(), 3);
    });
}

// Seen to fail when the tickets that have passed early are forgotten: a deadlock.
#[test]
fn a_ticket_that_passes_early_stops_no_other() {
    check(|| {
        let turns = Arc::<Turns>::default();
        let (first, passes, last) = (Turn::new(&turns, 0), Turn::new(&turns, 1), Turn::new(&turns, 2));
        let threads = [spawn(move || drop(passes)), spawn(move || drop(first))];
        block_on(last.come());
        threads.into_iter().for_each(join);
    });
}

#[test]
fn a_world_that_breaks_ends_what_waits() {
    check(|| {
        let health = Arc::<Health>::default();
        let broken = health.clone();
        let thread = spawn(move || assert!(broken.break_by(WorldFault::Left { rank: 1 })));
        let ended = block_on(health.watch(pending::<()>()));
        assert_eq!(ended, Err(WorldFault::Left { rank: 1 }));
        join(thread);
    });
}

#[test]
fn an_operation_that_is_dropped_while_its_world_breaks_leaves_no_waker() {
    check(|| {
        let (health, task) = (Arc::<Health>::default(), Task::new());
        let (broken, other) = (health.clone(), health.clone());
        let threads = [spawn(move || _ = broken.break_by(WorldFault::Left { rank: 1 })), spawn(move || _ = other.fault())];
        {
            let mut watched = pin!(health.watch(pending::<()>()));
            _ = task.poll_future(watched.as_mut());
        }
        threads.into_iter().for_each(join);
        assert_eq!(task.wakers(), 0);
    });
}

// Seen to fail with a Relaxed count of wakes: the future does not see a flag.
#[test]
fn a_detached_future_sees_all_wakes() {
    check(|| {
        let flags = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let (waker, polls) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(Plain::new(0)));
        let (seen, kept, ended) = (flags.clone(), waker.clone(), Arc::new(AtomicU32::new(0)));
        let (end, polled) = (ended.clone(), polls.clone());
        detach(poll_fn(move |cx| {
            polled.set(polled.get() + 1);
            *lock(&kept) = Some(cx.waker().clone());
            // ORDERING: Relaxed: the wakes must make the flags visible.
            if seen.iter().any(|flag| flag.load(Ordering::Relaxed) == 0) {
                return Poll::Pending;
            }
            // ORDERING: Relaxed: the joins make it visible.
            end.store(1, Ordering::Relaxed);
            Poll::Ready(())
        }));
        let waker = lock(&waker).take().expect("it was polled");
        let threads = [0, 1].map(|at| {
            let (flags, waker) = (flags.clone(), waker.clone());
            spawn(move || {
                // ORDERING: Relaxed, as where it is read.
                flags[at].store(1, Ordering::Relaxed);
                waker.wake_by_ref();
            })
        });
        threads.into_iter().for_each(join);
        // ORDERING: Relaxed: the joins make it visible.
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    });
}

/// The requests that have come. Loom forgets the wake of a thread that waits for a mutex, so there is none.
#[derive(Default)]
struct Requests(AtomicU32);

impl Requests {
    fn add(&self) {
        // ORDERING: SeqCst, as `Done::leave`.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn are(&self, all: u32) -> bool {
        // ORDERING: SeqCst, as `Done::is_left`.
        self.0.load(Ordering::SeqCst) == all
    }
}

// Seen to fail, as a deadlock, when the thread looked for work before it told that it rests, and when a
// request that wakes itself woke no thread.
#[test]
fn a_thread_that_goes_to_sleep_misses_no_request() {
    check(|| {
        let shared = Arc::new((Sleeper::new(), Requests::default()));
        let threads = [Sleeper::wake, Sleeper::wake_from_sleep].map(|wake| {
            let shared = shared.clone();
            spawn(move || {
                shared.1.add();
                wake(&shared.0);
            })
        });
        let (sleeper, requests) = &*shared;
        sleeper.attach();
        sleeper.doze(Duration::ZERO, || requests.are(2));
        while !requests.are(2) {
            sleeper.sleep(|| requests.are(2));
        }
        threads.into_iter().for_each(join);
    });
}
