//! The order between operations, and its absence.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};

use anabranch::engine::Each;
use anabranch::{Executor, Op, Var, take};
use futures::channel::oneshot;

use super::{engine, engines, idle, on, push, pushed};
use crate::support::{block_on, poll_once, until};

#[test]
fn a_chain_of_writes_goes_one_after_the_other() {
    for (exec, engine) in engines() {
        let x = engine.var("x", 0_u64);
        for step in 1..=1000 {
            push(&engine, Op::task("step", &x, &x, move |x: &u64| x.wrapping_mul(3) + step));
        }
        let wanted = (1..=1000).fold(0_u64, |x, step| x.wrapping_mul(3) + step);
        assert_eq!(*block_on(x.read()).unwrap(), wanted, "{exec:?}");
        assert_eq!(x.version(), 1000);
    }
}

#[test]
fn reads_side_by_side_go_together_and_a_write_waits_for_them() {
    let (_exec, engine) = engine(2);
    let (x, both) = (engine.var("x", 1), Arc::new(Barrier::new(2)));
    for _ in 0..2 {
        let both = both.clone();
        push(&engine, Op::task("read", &x, (), move |_: &i32| _ = both.wait()));
    }
    push(&engine, Op::task("write", (), &x, || 2));
    assert_eq!(*block_on(x.read()).unwrap(), 2);
    idle(&engine).unwrap();
}

#[test]
fn operations_without_a_common_variable_have_no_order() {
    let (_exec, engine) = engine(2);
    let both = Arc::new(Barrier::new(2));
    let vars = [engine.var("x", 0), engine.var("y", 0)];
    for var in &vars {
        let both = both.clone();
        push(&engine, Op::task("meet", (), var, move || i32::from(both.wait().is_leader())));
    }
    assert_eq!(vars.iter().map(|var| *block_on(var.read()).unwrap()).sum::<i32>(), 1);
}

#[test]
fn a_variable_may_be_named_many_times() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 3);
        push(&engine, Op::task("square", (&x, &x, &x), &x, |a: &i32, b: &i32, c: &i32| a * b + c));
        assert_eq!((*block_on(x.read()).unwrap(), x.version()), (12, 1));
    }
}

#[test]
fn several_variables_are_written_at_once() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", "one".to_owned()));
        let list = [engine.var("a", 0), engine.var("b", 0)];
        push(&engine, Op::task("both", (&x, &y), (&x, &y), |x: &i32, y: &String| (x + 1, format!("{y} two"))));
        push(&engine, Op::task("all", &x, &list[..], |x: &i32| vec![*x, x * 10]));
        assert_eq!((*block_on(x.read()).unwrap(), block_on(y.read()).unwrap().as_str()), (2, "one two"));
        assert_eq!(list.each_ref().map(|var| *block_on(var.read()).unwrap()), [2, 20]);
    }
}

#[test]
fn what_is_taken_is_not_copied() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", vec![1, 2, 3]);
        let address = pushed_address(&engine, &x);
        for _ in 0..10 {
            push(
                &engine,
                Op::task("grow", take(&x), &x, |mut x: Vec<i32>| {
                    x[0] += 1;
                    x
                }),
            );
        }
        assert_eq!(pushed_address(&engine, &x), address);
        assert_eq!(block_on(x.read()).unwrap()[..], [11, 2, 3]);
    }
}

fn pushed_address(engine: &anabranch::Engine, x: &anabranch::Var<Vec<i32>>) -> usize {
    let found = Arc::new(Mutex::new(0));
    let found_there = found.clone();
    let look = Op::task("look", x, (), move |x: &Vec<i32>| *found_there.lock().unwrap() = x.as_ptr().addr());
    block_on(pushed(engine, look)).unwrap();
    *found.lock().unwrap()
}

#[test]
fn what_was_read_stays_as_it_was() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", vec![1]);
        let before = block_on(x.read()).unwrap();
        push(&engine, Op::task("write", (), &x, || vec![2]));
        let after = block_on(x.read()).unwrap();
        assert_eq!((&before[..], &after[..]), (&[1][..], &[2][..]));
    }
}

#[test]
fn what_an_operation_pushes_comes_after_what_was_pushed_before() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", Vec::new());
        let (inner, var) = (engine.clone(), x.clone());
        let add = |number: i32| {
            Op::task("add", take(&x), &x, move |mut x: Vec<i32>| {
                x.push(number);
                x
            })
        };
        push(&engine, add(1));
        let outer = Op::task("outer", take(&x), &x, move |mut x: Vec<i32>| {
            for number in [3, 4] {
                let late = Op::task("late", take(&var), &var, move |mut x: Vec<i32>| {
                    x.push(number);
                    x
                });
                inner.try_push(late).unwrap();
            }
            x.push(2);
            x
        });
        push(&engine, outer);
        block_on(x.wait_writable()).unwrap();
        push(&engine, add(5));
        idle(&engine).unwrap();
        assert_eq!(block_on(x.read()).unwrap()[..], [1, 2, 3, 4, 5]);
    }
}

#[test]
fn higher_priorities_go_first_and_equal_ones_in_order() {
    let (_exec, engine) = engine(1);
    let (order, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
    let held = gate.clone();
    push(&engine, Op::task("hold", (), (), move || _ = held.wait()));
    for (number, priority) in [0, 0, 5, -1, 5, 0].into_iter().enumerate() {
        let order = order.clone();
        push(&engine, Op::task("note", (), (), move || order.lock().unwrap().push(number)).priority(priority));
    }
    gate.wait();
    idle(&engine).unwrap();
    assert_eq!(order.lock().unwrap()[..], [2, 4, 0, 1, 5, 3]);
}

#[test]
fn what_becomes_ready_stands_behind_what_is() {
    // Seen to fail with a worker that goes on with the operations that it made ready itself.
    let (_exec, engine) = engine(1);
    let (order, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
    let (held, x) = (gate.clone(), engine.var("x", ()));
    push(&engine, Op::task("hold", (), (), move || _ = held.wait()));
    for name in ["x 1", "other 1", "x 2", "other 2", "x 3"] {
        let order = order.clone();
        let note = move || order.lock().unwrap().push(name);
        push(&engine, if name.starts_with('x') { Op::task(name, (), &x, note) } else { Op::task(name, (), (), note) });
    }
    gate.wait();
    idle(&engine).unwrap();
    assert_eq!(order.lock().unwrap()[..], ["x 1", "other 1", "other 2", "x 2", "x 3"]);
}

#[test]
fn a_variable_is_freed_behind_everything_that_was_pushed_before() {
    struct Noted(Arc<AtomicU32>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    for (exec, engine) in engines() {
        let drops = Arc::new(AtomicU32::new(0));
        let x = engine.var("x", Noted(drops.clone()));
        for _ in 0..10 {
            let drops = drops.clone();
            push(&engine, Op::task("read", &x, (), move |_: &Noted| assert_eq!(drops.load(SeqCst), 0)));
        }
        drop(x);
        idle(&engine).unwrap();
        until(|| engine.pending() == 0);
        assert_eq!(drops.load(SeqCst), 1, "{exec:?}");
    }
}

/// Seen to fail with frees of priority 0, and with others that go as far ahead as frees.
#[test]
fn what_frees_goes_ahead_of_all_that_is_ready() {
    struct Noted(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("free");
        }
    }
    for seed in 0..20 {
        let (exec, engine) = if seed == 0 { engine(1) } else { on(Executor::sim(seed)) };
        let (log, gate) = (Arc::new(Mutex::new(vec![])), Arc::new(Barrier::new(2)));
        let x = engine.var("x", Noted(log.clone()));
        if seed == 0 {
            let held = gate.clone();
            push(&engine, Op::task("hold", (), (), move || _ = (held.wait(), held.wait())));
            gate.wait();
        }
        for _ in 0..3 {
            let log = log.clone();
            push(&engine, Op::task("note", (), (), move || log.lock().unwrap().push("note")).priority(i32::MAX));
        }
        drop(x);
        if seed == 0 {
            gate.wait();
        }
        idle(&engine).unwrap();
        assert_eq!(*log.lock().unwrap(), ["free", "note", "note", "note"], "{exec:?}");
    }
}

#[test]
fn what_is_pending_runs_though_everything_was_dropped() {
    for workers in [0, 1, 2] {
        let exec = crate::support::executor(workers);
        let engine = anabranch::Engine::new(&exec).unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let x = engine.var("x", 0);
        for _ in 0..100 {
            let ran = ran.clone();
            push(
                &engine,
                Op::task("run", &x, &x, move |x: &i32| {
                    ran.fetch_add(1, SeqCst);
                    x + 1
                }),
            );
        }
        drop((x, engine));
        until(|| ran.load(SeqCst) == 100);
    }
}

#[test]
fn handles_may_be_awaited_late_or_never() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 0);
        let mut handles: Vec<_> = (0..100).map(|_| pushed(&engine, Op::task("add", &x, &x, |x: &i32| x + 1))).collect();
        idle(&engine).unwrap();
        drop(handles.split_off(50));
        handles.iter_mut().for_each(|handle| assert!(poll_once(handle).is_ready()));
        assert!(handles.iter_mut().all(|handle| matches!(poll_once(handle), std::task::Poll::Ready(Err(_)))));
    }
}

/// Seen to fail (b before c) when the polling thread goes on with the operations that it made ready itself.
#[test]
fn without_workers_too_what_becomes_ready_stands_behind_what_is() {
    let (_exec, engine) = engine(0);
    let (order, x) = (Arc::new(Mutex::new(Vec::new())), engine.var("x", ()));
    let (first, first_comes) = oneshot::channel::<()>();
    let (second, second_comes) = oneshot::channel::<()>();
    let note = |name: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(name)
    };
    let (a, b, c) = (note("a"), note("b"), note("c"));
    let waiting = |comes: oneshot::Receiver<()>, note: Box<dyn Fn() + Send>| async move {
        comes.await?;
        note();
        Ok(())
    };
    push(&engine, Op::future("a", (), &x, move || waiting(first_comes, Box::new(a))));
    push(&engine, Op::task("b", &x, (), move |(): &()| b()).priority(-5));
    push(&engine, Op::future("c", (), (), move || waiting(second_comes, Box::new(c))).priority(-1));
    first.send(()).unwrap();
    second.send(()).unwrap();
    idle(&engine).unwrap();
    assert_eq!(order.lock().unwrap()[..], ["a", "c", "b"]);
}

/// Seen to fail with a filter that takes a known variable for a new one.
#[test]
fn slices_of_references_read_what_slices_do() {
    for (_exec, engine) in engines() {
        let vars: Vec<Var<u64>> = (0..60).map(|n| engine.var("v", n)).collect();
        let (out, bytes) = (engine.var("out", 0), engine.var("bytes", vec![1_u8]));
        let sum = |values: Each<u64>| values.iter().sum::<u64>();
        for count in [0, 1, 2, 3, 16, 17, 32, 33, 60] {
            // Each variable twice, in another order.
            let few = &vars[..count];
            let chosen: Vec<&Var<u64>> = few.iter().chain(few.iter().rev()).collect();
            block_on(pushed(&engine, Op::task("sum", &chosen[..], &out, sum))).unwrap();
            assert_eq!(*block_on(out.read()).unwrap(), 2 * (0..count as u64).sum::<u64>());
            // The operation writes a variable that it reads.
            if let Some(last) = few.last() {
                let before = *block_on(last.read()).unwrap();
                block_on(pushed(&engine, Op::task("sum", &chosen[..], last, sum))).unwrap();
                assert_eq!(*block_on(last.read()).unwrap(), 2 * (0..count as u64).sum::<u64>());
                block_on(pushed(&engine, Op::task("back", (), last, move || before))).unwrap();
            }
        }
        let reads = [&bytes, &bytes];
        let taken = Op::task("taken", (&reads[..], take(&bytes)), (), |_: Each<Vec<u8>>, _: Vec<u8>| ());
        let refused = block_on(engine.push(taken)).unwrap_err();
        assert!(refused.to_string().contains("takes 'bytes'"), "{refused}");
        idle(&engine).unwrap();
    }
}
