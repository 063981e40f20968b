//! Failures that only `idle` reports, and priorities when the pushing thread runs the operations.

use std::sync::{Arc, Mutex};

use anabranch::engine::Pushed;
use anabranch::{BoxError, Engine, Error, Flow, Op, Result, Var};

use super::{engine, engines, idle, push, pushed};
use crate::support::{block_on, poll_once, until};

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("it goes off");
    }
}

#[test]
fn a_value_that_panics_when_it_is_freed_is_told_by_idle() {
    // Seen to fail (not reported) without `tell_idle` in `perform`.
    for (_exec, engine) in engines() {
        drop(engine.var("bomb", Bomb));
        let error = idle(&engine).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!((error.node(), &cause[..]), (Some("free"), "dropping the value of 'bomb' panicked: it goes off"));
        idle(&engine).unwrap();
    }
}

fn fail(engine: &Engine) {
    push(engine, Op::try_task("fails", (), (), || Err("no".into())));
}

#[test]
fn the_last_failure_that_is_told_says_how_many_were_lost() {
    let (_exec, engine) = engine(1);
    // Failures of operations that write something count, too.
    let x = engine.var("x", 1);
    (0..1030).for_each(|number| if number % 2 == 0 { fail(&engine) } else { drop(failing(&engine, &x)) });
    drop(x);
    let errors: Vec<Error> = std::iter::from_fn(|| idle(&engine).err()).collect();
    let last = errors.last().unwrap();
    assert_eq!((errors.len(), last.node()), (1024, Some("fails")));
    let said = "operation 'fails' failed, and 6 later failures were lost: an engine keeps 1024 until `idle` reports them, so await it more often";
    assert_eq!(last.to_string(), said);
}

#[test]
fn all_who_wait_hear_of_a_failure() {
    // Seen to fail with a `tell` that gives each failure to one waiter.
    for (_exec, engine) in engines() {
        let waiting = [engine.idle(), engine.idle()];
        drop(failing(&engine, &engine.var("x", 1)));
        let heard = waiting.map(|waits| block_on(waits).unwrap_err().node().map(str::to_owned));
        assert_eq!(heard, [Some("fails".to_owned()), Some("fails".to_owned())]);
        idle(&engine).unwrap();
    }
}

#[test]
fn without_workers_what_an_operation_pushed_goes_by_priority() {
    let (_exec, engine) = engine(0);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (there, seen) = (engine.clone(), log.clone());
    let pushes = move || {
        for (number, priority) in [(1, 0), (2, -1), (3, 5), (4, 0), (5, 5)] {
            let seen = seen.clone();
            let note = Op::task("note", (), (), move || seen.lock().unwrap().push(number)).priority(priority);
            there.try_push(note).map_err(Error::from).unwrap();
        }
    };
    push(&engine, Op::task("pushes", (), (), pushes));
    assert_eq!(*log.lock().unwrap(), [3, 5, 1, 4, 2]);
}

/// Seen to fail (the panic comes out of the variable's drop) when pending operations are freed without a
/// shield.
#[test]
fn a_value_that_panics_when_nobody_is_left_to_be_told_harms_nobody() {
    let exec = anabranch::Executor::sim(1);
    let engine = anabranch::Engine::new(&exec).unwrap();
    let bomb = engine.var("bomb", Bomb);
    drop(engine);
    drop(bomb);
    drop(exec);
}

/// The end of a variable that an operation failed to write.
type Ends = fn(&Engine, Var<i32>);

const FREED: Ends = |_, x| drop(x);
const OVERWRITTEN: Ends = |engine, x| push(engine, Op::task("overwrite", (), &x, || 7));
/// It is read, but the reader's result is dropped, too.
const READ_IN_VAIN: Ends = |engine, x| {
    let y = engine.var("y", 1);
    push(engine, Op::task("second", &x, &y, |x: &i32| *x));
};

fn fails(x: &Var<i32>) -> Op<'_> {
    Op::try_task("fails", (), x, || Err("no luck".into()))
}

/// Pushes an operation that fails to write `x`, and returns the handle.
fn failing(engine: &Engine, x: &Var<i32>) -> Pushed {
    pushed(engine, fails(x))
}

/// Seen to fail (not reported) without `tell_at_last`.
#[test]
fn what_nobody_was_told_and_nobody_can_be_told_any_more_is_told_by_idle() {
    for (_exec, engine) in engines() {
        for ends in [FREED, OVERWRITTEN, READ_IN_VAIN] {
            let x = engine.var("x", 1);
            drop(failing(&engine, &x));
            idle(&engine).unwrap();
            ends(&engine, x);
            assert_eq!(format!("{:#}", idle(&engine).unwrap_err()), "operation 'fails' failed: no luck");
            idle(&engine).unwrap();
        }
    }
}

/// Seen to fail without each of the places that record the report: handles, reads, and the failures that
/// `idle` keeps.
#[test]
fn what_somebody_was_told_is_not_told_by_idle() {
    for (_exec, engine) in engines() {
        for ends in [FREED, OVERWRITTEN, READ_IN_VAIN] {
            let [by_handle, by_read, by_reader, by_idle, downstream] = ["a", "b", "c", "d", "e"].map(|name| engine.var(name, 1));
            block_on(failing(&engine, &by_handle)).unwrap_err();
            ends(&engine, by_handle);

            drop(failing(&engine, &by_read));
            block_on(by_read.read()).unwrap_err();
            ends(&engine, by_read);

            drop(failing(&engine, &by_reader));
            let z = engine.var("z", 1);
            block_on(pushed(&engine, Op::task("reads", &by_reader, &z, |x: &i32| *x))).unwrap_err();
            ends(&engine, by_reader);
            drop(z);
            idle(&engine).unwrap();

            drop(failing(&engine, &by_idle));
            push(&engine, Op::task("looks", &by_idle, (), |_: &i32| ()));
            assert!(idle(&engine).unwrap_err().is_skipped());
            ends(&engine, by_idle);

            let y = engine.var("y", 1);
            drop(failing(&engine, &downstream));
            push(&engine, Op::task("second", &downstream, &y, |x: &i32| *x));
            ends(&engine, downstream);
            idle(&engine).unwrap();
            block_on(y.read()).unwrap_err();
            drop(y);
            idle(&engine).unwrap();
        }
    }
}

/// Seen to fail with a handle that does not record that it has reported the failure.
#[test]
fn as_long_as_there_is_a_handle_it_is_for_that() {
    for (_exec, engine) in engines() {
        for is_awaited in [true, false] {
            let (x, y) = (engine.var("x", 1), engine.var("y", 1));
            let both = Op::try_task("fails", (), (&x, &y), || Err::<(i32, i32), _>("no luck".into()));
            let handle = pushed(&engine, both);
            drop((x, y));
            idle(&engine).unwrap();
            if is_awaited {
                assert_eq!(block_on(handle).unwrap_err().node(), Some("fails"));
            } else {
                drop(handle);
                assert_eq!(idle(&engine).unwrap_err().node(), Some("fails"));
            }
            idle(&engine).unwrap();
        }
    }
}

/// Seen to fail without `tell_at_last`.
#[test]
fn joined_operations_and_futures_are_told_as_others() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        push(&engine, Op::join("both", [fails(&x), Op::task("well", (), &y, || 2)]));
        drop(x);
        assert_eq!(idle(&engine).unwrap_err().node(), Some("fails"));
        push(&engine, Op::future("later", (), &y, || async { Err("no luck".into()) }));
        drop(y);
        assert_eq!(idle(&engine).unwrap_err().node(), Some("later"));
        idle(&engine).unwrap();
    }
}

/// Seen to fail (reported again) with a flow that does not record that it reports the reason of the refusal.
#[test]
fn what_a_flow_ends_with_is_not_told_by_idle() {
    for (exec, engine) in engines() {
        let foreign = Engine::new(&exec).unwrap().var("foreign", 1);
        let flow = engine.flow(async |f: &Flow| -> Result<()> {
            let y: Var<i32> = f.task("y", &foreign, |x: &i32| *x);
            drop(f.task("z", &y, |y: &i32| *y));
            std::future::pending().await
        });
        assert_eq!(block_on(flow).unwrap_err().node(), Some("y"));
        idle(&engine).unwrap();
        // A failure that the flow did not await is reported by `idle`.
        let flow = engine.flow(async |f: &Flow| Ok(drop(f.try_task("fails", (), || Err::<i32, BoxError>("no".into())))));
        block_on(flow).unwrap();
        assert_eq!(idle(&engine).unwrap_err().node(), Some("fails"));
    }
}

/// Seen to fail (it is kept as long as the other flow runs) when the engine that an executor's flows share
/// keeps failures.
#[test]
fn failures_that_nobody_can_ask_for_are_not_kept() {
    #[derive(Debug, thiserror::Error)]
    #[error("no")]
    struct Holds(Arc<()>);
    for (exec, _engine) in engines() {
        let mut other = Box::pin(exec.flow(async |_: &Flow| -> Result<()> { std::future::pending().await }));
        assert!(poll_once(&mut other).is_pending());
        let alive = Arc::new(());
        let holds = Holds(alive.clone());
        let flow = exec.flow(async |f: &Flow| {
            drop(f.try_task("fails", (), || Err::<i32, BoxError>(holds.into())));
            f.get(&f.task("well", (), || 1)).await.map(|one| *one)
        });
        assert_eq!(block_on(flow).unwrap(), 1);
        until(|| Arc::strong_count(&alive) == 1);
    }
}

/// Seen to fail when only a caller of shutdown counts as informed.
#[test]
fn what_was_cancelled_is_not_told_nor_what_reads_from_there() {
    for (_exec, engine) in engines() {
        let mut made = None;
        let mut flow = Box::pin(engine.flow(async |f: &Flow| -> Result<()> {
            let never: Var<i32> = f.future("never", (), || async { std::future::pending().await });
            made = Some(f.task("second", &never, |x: &i32| *x));
            std::future::pending().await
        }));
        assert!(poll_once(&mut flow).is_pending());
        flow.cancel();
        assert!(block_on(&mut flow).unwrap_err().is_cancelled());
        drop(flow);
        let (made, y) = (made.unwrap(), engine.var("y", 1));
        push(&engine, Op::task("looks", &made, (), |_: &i32| ()));
        push(&engine, Op::task("copies", &made, &y, |x: &i32| *x));
        drop((made, y));
        idle(&engine).unwrap();
    }
}
