//! Programs that break a published scheduler of coroutines: here every operation really suspends.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use anabranch::graph::times;
use anabranch::{Executor, Graph, Inputs, Plan, Value, explore, inputs, take};

use super::{counted, many_executors};
use crate::support::{block_on, executor, plan, poll_once, until, value_of};

/// Adds a loop whose body suspends.
fn counting_loop(g: &mut Graph, name: &'static str, x: &Value<u64>, iterations: u64) -> Value<u64> {
    g.repeat(name, take(x), times(iterations), |b, x| counted(b, "count", &x))
}

fn output(mut g: Graph, out: &Value<u64>) -> Plan {
    g.output("out", out);
    plan(&g)
}

fn result(exec: &Executor, plan: &Plan, inputs: Inputs) -> u64 {
    *value_of(block_on(exec.run(plan, inputs)), "out")
}

fn two_loops(left: u64, right: u64) -> Plan {
    let mut g = Graph::new();
    let (a, b) = (g.task("a", (), || 0u64), g.task("b", (), || 0u64));
    let (a, b) = (counting_loop(&mut g, "left", &a, left), counting_loop(&mut g, "right", &b, right));
    let join = g.task("join", (&a, &b), |a: &u64, b: &u64| a * 1000 + b);
    output(g, &join)
}

#[test]
fn two_loops_of_different_lengths_join() {
    for (left, right) in [(3, 17), (17, 3), (0, 5)] {
        let plan = two_loops(left, right);
        for exec in many_executors() {
            assert_eq!(result(&exec, &plan, Inputs::new()), left * 1000 + right, "{exec:?}");
        }
    }
}

#[test]
fn a_waker_of_an_earlier_iteration_does_not_begin_the_next_one() {
    // Seen to fail with futures that are made at the first wake after the one before was done.
    for exec in super::executors() {
        let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let (keeps, wakes) = (wakers.clone(), wakers.clone());
        let mut g = Graph::new();
        let x = g.task("x", (), || 0u64);
        let x = g.repeat("loop", take(&x), times(50), move |b, x| {
            let first = b.task("wake all", take(&x), move |x: u64| {
                wakes.lock().unwrap().iter().for_each(Waker::wake_by_ref);
                x
            });
            b.future("keep a waker", take(&first), move |x: u64| {
                let keeps = keeps.clone();
                async move {
                    let keep = |cx: &mut Context<'_>| keeps.lock().unwrap().push(cx.waker().clone());
                    std::future::poll_fn(|cx| Poll::Ready(keep(cx))).await;
                    Ok(suspended_count(x).await)
                }
            })
        });
        let plan = output(g, &x);
        assert_eq!(result(&exec, &plan, Inputs::new()), 50, "{exec:?}");
        wakers.lock().unwrap().clear();
    }
}

#[test]
fn two_loops_join_in_every_order() {
    let plan = two_loops(1, 2);
    let explored = explore(50_000, |exec| {
        assert_eq!(result(exec, &plan, Inputs::new()), 1002);
        Ok(())
    });
    assert!(explored.unwrap().is_complete);
}

#[test]
fn a_loop_and_a_branch_go_side_by_side() {
    let mut g = Graph::new();
    let (a, b, which) = (g.task("a", (), || 0u64), g.task("b", (), || 5u64), g.input::<i64>("which"));
    let a = counting_loop(&mut g, "loop", &a, 9);
    let b = g
        .branch("branch", &which, take(&b))
        .arm(|a, x| counted(a, "once", &x))
        .arm(|a, x| counting_loop(a, "often", &x, 30))
        .join();
    let join = g.task("join", (&a, &b), |a: &u64, b: &u64| a * 1000 + b);
    let plan = output(g, &join);
    for exec in many_executors() {
        for (which, expected) in [(-1i64, 9005), (0, 9006), (1, 9035)] {
            assert_eq!(result(&exec, &plan, inputs! { "which" => which }), expected, "{exec:?}");
        }
    }
}

#[test]
fn a_graph_whose_last_node_is_a_loop_runs_twice() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let last = counting_loop(&mut g, "last", &x, 5);
    let plan = output(g, &last);
    for exec in many_executors() {
        assert_eq!([1u64, 100].map(|x| result(&exec, &plan, inputs! { "x" => x })), [6u64, 105], "{exec:?}");
    }
}

#[test]
fn the_body_of_a_loop_may_end_in_a_loop() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let last = g.repeat("outer", take(&x), times(4), |b, x| {
        let x = counted(b, "first", &x);
        counting_loop(b, "inner", &x, 3)
    });
    let plan = output(g, &last);
    for exec in many_executors() {
        assert_eq!(result(&exec, &plan, inputs! { "x" => 1u64 }), 17, "{exec:?}");
    }
}

#[test]
fn a_branch_may_be_read_on_another_stream() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let (left, right) = (g.task("left", &x, |x: &u64| *x as usize % 2), g.task("right", &x, |x: &u64| x + 1));
    let y = g.branch("branch", &left, take(&right)).arm(|a, x| counted(a, "even", &x)).arm(|_, x| x).join();
    // Three readers: at most one of them continues in the place of the branch.
    let readers = [10u64, 100, 1000].map(|by| g.task(format!("times {by}"), &y, move |y: &u64| y * by));
    let sum = g.task("sum", &readers[..], |all: anabranch::graph::Each<'_, u64>| all.iter().sum::<u64>());
    let plan = output(g, &sum);
    assert!(plan.schedule().streams() > 2, "{plan}");
    for exec in many_executors() {
        assert_eq!([4u64, 5].map(|x| result(&exec, &plan, inputs! { "x" => x })), [6 * 1110, 6 * 1110], "{exec:?}");
    }
}

#[test]
fn independent_nodes_go_on_while_a_loop_waits() {
    // Seen to fail with an order-only edge from the loop to the other node.
    for exec in [executor(1), executor(2), Executor::inline(), Executor::sim(3)] {
        let (told, tells) = futures::channel::oneshot::channel::<()>();
        let (told, tells) = (Arc::new(std::sync::Mutex::new(Some(told))), Arc::new(std::sync::Mutex::new(Some(tells))));
        let mut g = Graph::new();
        let x = g.task("x", (), || 0u64);
        let waits = g.repeat("waits", &x, times(1), |b, _| {
            b.future("wait", (), move || {
                let tells = tells.lock().unwrap().take();
                async move {
                    tells.unwrap().await?;
                    Ok(1u64)
                }
            })
        });
        let (a, b) = (g.task("a", (), || 1u64), g.task("b", (), || 2u64));
        let other = g.task("other", (&a, &b), move |a: &u64, b: &u64| {
            told.lock().unwrap().take().unwrap().send(()).unwrap();
            a + b
        });
        let join = g.task("join", (&waits, &other), |a: &u64, b: &u64| a + b);
        let plan = output(g, &join);
        assert_eq!(result(&exec, &plan, Inputs::new()), 4, "{exec:?}");
    }
}

#[test]
fn no_body_starts_after_a_cancel_in_the_third_iteration_of_twenty() {
    // Seen to fail with steps and controls that do not check whether the run was cancelled.
    for exec in super::executors() {
        let bodies = Arc::new(AtomicUsize::new(0));
        let mut g = Graph::new();
        let x = g.task("x", (), || 0u64);
        let count = bodies.clone();
        let last = g.repeat("loop", take(&x), times(20), |b, x| {
            // Without inputs, so that only the iteration lets it run.
            b.task("begin", (), move || _ = count.fetch_add(1, SeqCst));
            b.future("wait", take(&x), async |x: u64| {
                if x == 2 {
                    std::future::pending::<()>().await;
                }
                Ok(suspended_count(x).await)
            })
        });
        let plan = output(g, &last);
        let mut run = exec.run(&plan, Inputs::new());
        until(|| {
            assert!(poll_once(&mut run).is_pending());
            bodies.load(SeqCst) == 3
        });
        assert!(poll_once(&mut run).is_pending());
        run.cancel();
        assert!(block_on(&mut run).unwrap_err().is_cancelled());
        until(|| exec.in_flight() == 0);
        assert_eq!(bodies.load(SeqCst), 3, "{exec:?}");
    }
}

async fn suspended_count(x: u64) -> u64 {
    super::suspended(x).await + 1
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).map_or(0, |pages| pages.parse::<usize>().unwrap() * 4096)
}

#[test]
fn ten_thousand_suspended_loops_need_no_threads_and_little_memory() {
    const RUNS: usize = 10_000;
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).max_in_flight(RUNS).build().unwrap();
        let mut g = Graph::new();
        let x = g.input::<u64>("x");
        let last = g.repeat("loop", &x, times(2), |b, _| b.future("wait", (), async || Ok(std::future::pending::<u64>().await)));
        let plan = output(g, &last);
        let (threads_before, resident_before) = (threads(), resident());
        let mut runs: Vec<_> = (0..RUNS).map(|_| exec.run(&plan, inputs! { "x" => 0u64 })).collect();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        until(|| exec.in_flight() == RUNS);
        let (threads, resident) = (threads() as isize - threads_before as isize, resident().saturating_sub(resident_before));
        // Other tests start and end threads in the meantime.
        assert!(threads < 100, "{threads} more threads");
        assert!(resident < RUNS * 16_384, "{} bytes for each run", resident / RUNS);
        drop(runs);
        until(|| exec.in_flight() == 0);
    }
}
