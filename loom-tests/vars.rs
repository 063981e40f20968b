//! Whole engines: pushes, a worker, handles, frees and failures together. Every operation ends, every waiter hears of it, and every value is dropped.

use super::harness::{block_on, check_within, join, spawn};
use super::runs::Alive;
use crate::{Engine, Executor, Op};

fn engine() -> (Executor, Engine) {
    let exec = Executor::builder().workers(1).max_in_flight(1).build().expect("the settings are in range");
    let engine = Engine::builder(&exec).max_pending(4).build().expect("there is room");
    (exec, engine)
}

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

#[test]
fn a_failure_comes_to_who_reads_what_should_have_been_written() {
    check_within(2, || {
        let (_exec, engine) = engine();
        let x = engine.var("x", 1);
        let Ok(fails) = engine.try_push(Op::try_task("fails", (), &x, || Err("no".into()))) else { panic!("there is room") };
        let read = x.read();
        drop(fails);
        assert!(block_on(read).is_err());
    });
}

#[test]
fn a_variable_is_freed_once_behind_what_another_thread_pushed() {
    check_within(2, || {
        let alive = Alive::default();
        let (exec, engine) = engine();
        let x = engine.var("x", alive.value());
        let (others, there) = (x.clone(), engine.clone());
        let other = spawn(move || {
            let look = Op::task("look", &others, (), |_: &super::runs::Counted| ());
            drop(there.try_push(look).map_err(|(error, _)| error).expect("there is room"));
        });
        drop(x);
        join(other);
        block_on(engine.idle()).expect("nothing fails");
        assert_eq!(alive.count(), 0, "it was freed");
        drop((engine, exec));
    });
}

#[test]
fn what_is_pending_when_the_executor_is_shut_down_ends() {
    check_within(2, || {
        let (exec, engine) = engine();
        let x = engine.var("x", 1);
        let there = engine.clone();
        let other = spawn(move || {
            let pushed = there.try_push(Op::task("add", &x, &x, |x: &i32| x + 1)).map_err(|(error, _)| error);
            pushed.map_or_else(|error| assert!(error.is_shut_down()), |add| drop(block_on(add)));
        });
        block_on(exec.shutdown()).expect("it is outside");
        join(other);
        block_on(engine.idle()).expect("nothing that writes nothing fails");
    });
}
