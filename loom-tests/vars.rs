//! Whole engines: pushes, a worker, handles, frees and failures together. Every operation ends, every waiter
//! is notified of it, and every value is dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::harness::{block_on, check, check_within, join, spawn};
use super::runs::Alive;
use crate::engine::Pushed;
use crate::runtime::Parking;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::{Engine, Error, Executor, Op};

pub(super) fn engine() -> (Executor, Engine) {
    let exec = Executor::builder().workers(1).max_in_flight(1).build().expect("the settings are in range");
    let engine = Engine::builder(&exec).max_pending(4).build().expect("there is room");
    (exec, engine)
}

// Seen to fail (no thread continues) without the wake of the task that has marked an operation as awaited.
#[test]
fn an_operation_that_is_pushed_is_run_and_its_handle_hears_of_it() {
    check_within(2, || {
        let (_exec, engine) = engine();
        let x = engine.var("x", 1);
        let Ok(add) = engine.try_push(Op::task("add", &x, &x, |x: &i32| x + 1)) else { panic!("there is room") };
        block_on(add).expect("it cannot fail");
        assert_eq!(x.version(), 1);
    });
}

// Seen to fail (the read has a value) with a failure that does not poison.
#[test]
fn a_failure_comes_to_who_reads_what_should_have_been_written() {
    check_within(1, || {
        let (_exec, engine) = engine();
        let x = engine.var("x", 1);
        let Ok(fails) = engine.try_push(Op::try_task("fails", (), &x, || Err("no".into()))) else { panic!("there is room") };
        let read = x.read();
        drop(fails);
        assert!(block_on(read).is_err());
    });
}

// Seen to fail (`idle` reports nothing) with a drop of a handle that does not see the failure of an operation
// that has ended, because its exchange is Relaxed on failure.
#[test]
fn a_failure_is_reported_although_its_handle_is_dropped_meanwhile() {
    check_within(2, || {
        let (_exec, engine) = engine();
        let x = engine.var("x", 1);
        let Ok(fails) = engine.try_push(Op::try_task("fails", (), &x, || Err("no".into()))) else { panic!("there is room") };
        drop((fails, x));
        assert!(block_on(engine.idle()).is_err());
    });
}

// Seen to fail (an operation ends without a run) with a push that checks twice whether operations are
// pending, and relies on the second answer.
#[test]
fn two_threads_push_to_an_engine_without_workers_and_both_operations_are_run() {
    check_within(3, || {
        let exec = Executor::inline();
        let engine = Engine::builder(&exec).max_pending(4).build().expect("there is room");
        let (x, y) = (engine.var("x", 0), engine.var("y", 0));
        let (there, own) = (engine.clone(), y.clone());
        let other = spawn(move || {
            // An async operation is never run in place.
            let Ok(add) = there.try_push(Op::future("add", (), &own, async || Ok(1))) else { panic!("there is room") };
            block_on(add).expect("it cannot fail");
        });
        let Ok(add) = engine.try_push(Op::task("add", &x, &x, |x: &i32| x + 1)) else { panic!("there is room") };
        block_on(add).expect("it cannot fail");
        join(other);
        assert_eq!((x.version(), y.version()), (1, 1));
    });
}

// Seen to fail with a drop of the last handle that pushes nothing.
#[test]
fn a_variable_is_freed_once_behind_what_another_thread_pushed() {
    check_within(2, || {
        let alive = Alive::default();
        let (exec, engine) = engine();
        let x = engine.var("x", alive.value());
        let (others, there) = (x.clone(), engine.clone());
        let other = spawn(move || {
            let look = Op::task("look", &others, (), |_: &super::runs::Counted| ());
            there.try_push(look).map_err(Error::from).expect("there is room");
        });
        drop(x);
        join(other);
        block_on(engine.idle()).expect("nothing fails");
        assert_eq!(alive.count(), 0, "it was freed");
        drop((engine, exec));
    });
}

// Seen to fail (a deadlock: an operation stays pending, or the shutdown waits for ever) with any of: a thread
// that leaves a closed engine and checks for pending operations without the pushes' lock, does not check,
// does not check for other threads at work, or checks without the fence; a close, or a worker at its end,
// that does not check whether it can leave; a worker at its end that does not check again for ready
// operations, or does not continue with them; a thread that pushes without room and does not run the
// operation.
#[test]
fn what_is_pending_when_the_executor_is_shut_down_ends() {
    check_within(2, || {
        let (exec, engine) = engine();
        let x = engine.var("x", 1);
        let there = engine.clone();
        let other = spawn(move || {
            let pushed = there.try_push(Op::task("add", &x, &x, |x: &i32| x + 1)).map_err(Error::from);
            pushed.map_or_else(|error| assert!(error.is_shut_down()), |add| drop(block_on(add)));
        });
        block_on(exec.shutdown()).expect("it is outside");
        join(other);
        block_on(engine.idle()).expect("nothing that writes nothing fails");
    });
}

/// The event that a future waits for. Another thread opens the gate.
#[derive(Default)]
pub(super) struct Gate(Mutex<(bool, Option<Waker>)>);

impl Gate {
    pub(super) fn open(&self) {
        let waker = {
            let mut gate = lock(&self.0);
            gate.0 = true;
            gate.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) async fn opened(&self) {
        poll_fn(|cx| {
            let mut gate = lock(&self.0);
            gate.1 = Some(cx.waker().clone());
            if gate.0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Pushes an operation that waits until the gate is open.
fn push_waiting(engine: &Engine, gate: &Arc<Gate>) -> Result<Pushed, Error> {
    let gate = gate.clone();
    let waits = Op::future("waits", (), (), move || async move {
        gate.opened().await;
        Ok(())
    });
    engine.try_push(waits).map_err(Error::from)
}

// Seen to fail (no thread continues) with a parking thread, or a waking one, that does not make the operation
// ready.
#[test]
fn a_future_that_is_woken_while_it_parks_goes_on() {
    check_within(2, || {
        let (_exec, engine) = engine();
        let gate = Arc::new(Gate::default());
        let waits = push_waiting(&engine, &gate).expect("there is room");
        let other = spawn(move || gate.open());
        block_on(waits).expect("it cannot fail");
        join(other);
    });
}

// Seen to fail (the shutdown waits for ever) with a lost wake between the check whether the engine is closed
// and the poll (`Later::poll`), and with a parking thread that finds the operation woken and does not see the
// reason.
#[test]
fn a_future_that_nobody_wakes_ends_when_the_executor_is_shut_down() {
    check_within(2, || {
        let (exec, engine) = engine();
        let gate = Arc::new(Gate::default());
        let waits = push_waiting(&engine, &gate).expect("there is room");
        block_on(exec.shutdown()).expect("it is outside");
        assert!(block_on(waits).expect_err("it was never opened").is_shut_down());
    });
}

// Seen to fail (it is run after its end) with a wake that makes an operation ready once more that is already
// woken, or that runs. Seen to fail (it never ends) with a parking thread that finds the operation woken and
// does not make it ready, with a closed operation that is polled all the same, and with a close that does not
// check whether the engine can leave.
#[test]
fn a_future_that_is_woken_while_the_executor_is_shut_down_ends_once() {
    check_within(2, || {
        let (exec, engine) = engine();
        let gate = Arc::new(Gate::default());
        let waits = push_waiting(&engine, &gate).expect("there is room");
        let other = spawn(move || gate.open());
        block_on(exec.shutdown()).expect("it is outside");
        join(other);
        assert!(block_on(waits).map_or_else(|error| error.is_shut_down(), |()| true));
    });
}

/// A future that two threads wake. Only one of them has an event for it.
struct Woken {
    parking: Parking,
    /// The number of times that it was made ready.
    ready: AtomicU32,
    flag: AtomicBool,
}

impl Woken {
    fn wake(&self) {
        if self.parking.wake() {
            // ORDERING: AcqRel: a count. The parking must order the accesses to the flag.
            self.ready.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Polls it. Returns true if that was the last time.
    fn run(&self) -> bool {
        self.parking.begin();
        // ORDERING: Relaxed: the wake must make it visible.
        let is_over = self.flag.load(Ordering::Relaxed);
        if !is_over && !self.parking.try_park() {
            self.ready.fetch_add(1, Ordering::AcqRel);
        }
        is_over
    }
}

// Seen to fail (no thread polls it again) with a parking thread that finds the operation woken and stores
// that, and with a Release swap at the beginning of a poll.
#[test]
fn a_future_sees_what_both_have_done_who_woke_it_while_it_parked() {
    check(|| {
        let woken = Woken { parking: Parking::new(), ready: AtomicU32::new(1), flag: AtomicBool::new(false) };
        let woken = Arc::new(woken);
        let (one, other) = (woken.clone(), woken.clone());
        let one = spawn(move || one.wake());
        let other = spawn(move || {
            // ORDERING: Relaxed: the wake must make it visible.
            other.flag.store(true, Ordering::Relaxed);
            other.wake();
        });
        let (mut polls, mut is_over) = (0, false);
        // ORDERING: Relaxed: the parking must make the flag visible.
        while !is_over && woken.ready.load(Ordering::Relaxed) > polls {
            polls += 1;
            is_over = woken.run();
        }
        join(one);
        join(other);
        assert!(is_over || woken.ready.load(Ordering::Relaxed) > polls, "nobody polls it again");
    });
}
