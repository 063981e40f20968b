//! Deeply nested graphs: every operation on them works with a small stack.

use std::thread;

use anabranch::graph::times;
use anabranch::policy::Single;
use anabranch::{Executor, Graph, Inputs, Plan, Value, inputs};

use super::suspended;
use crate::support::{block_on, executors, poll_once, until, value_of};

/// Adds loops around loops, `depth` deep; the innermost body adds one, and suspends. A branch at every third
/// level.
fn nest(g: &mut Graph, x: Value<u64>, depth: usize) -> Value<u64> {
    match depth {
        0 => g.future("add", &x, async |x: std::sync::Arc<u64>| Ok(suspended(*x).await + 1)),
        _ if depth.is_multiple_of(3) => {
            let which = g.task("which", (), || 0usize);
            g.branch("level", &which, &x).arm(|a, x| nest(a, x, depth - 1)).join()
        }
        _ => g.repeat("level", &x, times(1), |b, x| nest(b, x, depth - 1)),
    }
}

/// Nested closures need a large stack to build a graph of this depth; no other code does.
fn nested(depth: usize) -> Graph {
    let build = move || {
        let mut g = Graph::new();
        let x = g.input::<u64>("x");
        let y = nest(&mut g, x, depth);
        g.output("y", &y);
        g
    };
    thread::Builder::new().stack_size(256 << 20).spawn(build).unwrap().join().unwrap()
}

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

fn result(exec: &Executor, plan: &Plan) -> u64 {
    *value_of(block_on(exec.run(plan, inputs! { "x" => 41u64 })), "y")
}

#[test]
fn sixty_four_levels_run_one_at_a_time() {
    // Inner graphs use no places among the runs in flight.
    let plan = nested(64).compile_with(&Single).unwrap();
    assert_eq!(plan.schedule().inner().len(), 64);
    for workers in [0, 1, 2, 8] {
        let exec = Executor::builder().workers(workers).max_in_flight(1).build().unwrap();
        let runs: Vec<_> = (0..8).map(|_| exec.run(&plan, inputs! { "x" => 41u64 })).collect();
        for outputs in block_on(futures::future::join_all(runs)) {
            assert_eq!(*value_of::<u64>(outputs, "y"), 42, "{exec:?}");
        }
    }
    assert_eq!(result(&Executor::sim(1), &plan), 42);
}

#[test]
fn ten_thousand_levels_compile_run_cancel_and_drop_on_a_small_stack() {
    // Seen to overflow with the drop that the compiler makes for shapes in shapes.
    let graph = nested(10_000);
    on_a_small_stack(move || {
        let plan = graph.compile_with(&Single).unwrap();
        plan.verify().unwrap();
        for exec in executors() {
            assert_eq!(result(&exec, &plan), 42, "{exec:?}");
            for polls in [1, 3] {
                let mut run = exec.run(&plan, inputs! { "x" => 41u64 });
                (0..polls).for_each(|_| _ = poll_once(&mut run));
                run.cancel();
                assert!(block_on(run).is_err_and(|error| error.is_cancelled()));
                let mut run = exec.run(&plan, inputs! { "x" => 41u64 });
                (0..polls).for_each(|_| _ = poll_once(&mut run));
                drop(run);
                until(|| exec.in_flight() == 0);
            }
        }
        let shape = anabranch::graph::Shape::clone(plan.schedule().shape());
        drop((plan, graph));
        drop(shape.schedule_with(&Single).unwrap());
        drop(shape);
    });
}

#[test]
fn a_failure_ten_thousand_levels_down_comes_up_on_a_small_stack() {
    let mut g = Graph::new();
    fn fail(g: &mut Graph, x: Value<u64>, depth: usize) -> Value<u64> {
        match depth {
            0 => g.try_task("fail", &x, |_: &u64| Err("on purpose".into())),
            _ => g.repeat("l", &x, times(2), |b, x| fail(b, x, depth - 1)),
        }
    }
    let build = move || {
        let x = g.task("x", (), || 1u64);
        let y = fail(&mut g, x, 10_000);
        let z = g.task("z", &y, |y: &u64| *y);
        g.output("z", &z);
        g
    };
    let graph = thread::Builder::new().stack_size(256 << 20).spawn(build).unwrap().join().unwrap();
    on_a_small_stack(move || {
        let plan = graph.compile_with(&Single).unwrap();
        let exec = Executor::inline();
        let run = exec.run(&plan, Inputs::new());
        let z = run.node("z");
        let error = block_on(run).unwrap_err();
        let is_named = error.node().is_some_and(|node| node.ends_with("/l/body/l/body/fail"));
        assert!(is_named && error.others().is_empty(), "{:.200}", error.to_string());
        assert!(block_on(z).unwrap_err().is_skipped());
    });
}
