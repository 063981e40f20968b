//! Failures that only `idle` tells, and priorities where the thread that pushes runs what it pushes.

use std::sync::{Arc, Mutex};

use anabranch::{Error, Op};

use super::{engine, engines, idle, push};
use crate::support::block_on;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("it goes off");
    }
}

#[test]
fn a_value_that_panics_when_it_is_freed_is_told_by_idle() {
    // Seen to fail (told to nobody) without `tell_idle` in `perform`.
    for (_exec, engine) in engines() {
        drop(engine.var("bomb", Bomb));
        let error = idle(&engine).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!((error.node(), &cause[..]), (Some("free"), "dropping the value of 'bomb' panicked: it goes off"));
        idle(&engine).unwrap();
    }
}

fn fail(engine: &anabranch::Engine) {
    push(engine, Op::try_task("fails", (), (), || Err("no".into())));
}

#[test]
fn the_last_failure_that_is_told_says_how_many_were_lost() {
    let (_exec, engine) = engine(1);
    (0..1030).for_each(|_| fail(&engine));
    let errors: Vec<Error> = std::iter::from_fn(|| idle(&engine).err()).collect();
    let last = errors.last().unwrap();
    assert_eq!((errors.len(), last.node()), (1024, Some("fails")));
    let said = "operation 'fails' failed, and 6 later ones that write nothing: 1024 such failures are kept until they are told";
    assert_eq!(last.to_string(), said);
}

#[test]
fn all_who_wait_hear_of_a_failure() {
    // Seen to fail with a `tell` that gives each failure to one.
    for (_exec, engine) in engines() {
        let waiting = [engine.idle(), engine.idle()];
        fail(&engine);
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
            drop(there.try_push(note).map_err(|(error, _)| error).unwrap());
        }
    };
    push(&engine, Op::task("pushes", (), (), pushes));
    assert_eq!(*log.lock().unwrap(), [3, 5, 1, 4, 2]);
}

/// Seen to fail (the panic comes out of the variable's drop) where what was pending is freed without a shield.
#[test]
fn a_value_that_panics_when_nobody_is_left_to_be_told_harms_nobody() {
    let exec = anabranch::Executor::sim(1);
    let engine = anabranch::Engine::new(&exec).unwrap();
    let bomb = engine.var("bomb", Bomb);
    drop(engine);
    drop(bomb);
    drop(exec);
}
