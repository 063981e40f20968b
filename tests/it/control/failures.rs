//! Failures in loops and branches: which node is named, which nodes go on, and which are skipped.

use std::sync::Arc;

use anabranch::graph::{Above, above, times};
use anabranch::{Error, Executor, Graph, Inputs, Plan, Timeline, Value, inputs, take};

use super::{many_executors, suspended};
use crate::support::{block_on, executors, panic_quietly, plan, poll_once, until, value_of};

fn error_of(exec: &Executor, plan: &Plan, inputs: Inputs) -> Error {
    block_on(exec.run(plan, inputs)).unwrap_err()
}

/// Nested loops, whose inner body fails in the second iteration of the outer loop's second; a node that reads
/// the result, and an independent node.
fn failing(how: fn(u64) -> u64) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.repeat("outer", &x, times(3), |b, x| {
        b.repeat("inner", &x, times(2), |b, x| b.task("add", &x, move |x: &u64| if *x == 3 { how(*x) } else { x + 1 }))
    });
    let after = g.task("after", &y, |y: &u64| *y);
    let beside = g.task("beside", &x, |x: &u64| x + 1);
    g.output("after", &after);
    g.output("beside", &beside);
    plan(&g)
}

#[test]
fn a_node_that_fails_in_a_loop_is_named_by_its_path() {
    // Seen to fail with a loop that does not check for faults of its inner nodes: it went on.
    let plan = failing(|_| panic_quietly("no threes"));
    for exec in many_executors() {
        let run = exec.run(&plan, inputs! { "x" => 0u64 });
        let nodes = ["outer/body/inner/body/add", "outer/body/inner", "outer", "after", "beside"].map(|name| run.node(name));
        let error = block_on(run).unwrap_err();
        assert!(error.is_panic() && error.others().is_empty(), "{error}");
        let path = "outer/body/inner/body/add";
        assert_eq!(error.to_string(), format!("node '{path}' panicked on host 0 of the host device: no threes"));
        let [add, inner, outer, after, beside] = nodes.map(block_on);
        for failed in [add, inner, outer] {
            assert_eq!(failed.unwrap_err().node(), Some(path));
        }
        let after = after.unwrap_err();
        assert_eq!(
            (after.is_skipped(), after.to_string()),
            (true, "node 'after' did not run, because 'outer', which comes before it, failed".into())
        );
        beside.unwrap();
    }
}

#[test]
fn a_condition_an_arm_and_a_selector_may_panic() {
    let fails = |_: &u64| -> usize { panic_quietly("on purpose") };
    let build: [(&str, Box<dyn Fn(&mut Graph, &Value<u64>) -> Value<u64>>); 3] = [
        (
            "loop/condition/more",
            Box::new(move |g, x| g.repeat("loop", x, |c, x| c.task("more", &x, move |x: &u64| fails(x) == 0), |_, x| x)),
        ),
        (
            "which",
            Box::new(move |g, x| {
                let which = g.task("which", x, fails);
                g.branch("branch", &which, x).arm(|_, x| x).join()
            }),
        ),
        (
            "branch/arm 1/bad",
            Box::new(move |g, x| {
                let which = g.task("which", x, |x: &u64| *x as usize);
                let bad = move |a: &mut Graph, x: Value<u64>| a.task("bad", &x, move |x: &u64| fails(x) as u64);
                g.branch("branch", &which, x).arm(|_, x| x).arm(bad).join()
            }),
        ),
    ];
    for (path, build) in build {
        let mut g = Graph::new();
        let x = g.input::<u64>("x");
        let y = build(&mut g, &x);
        g.output("y", &y);
        let plan = plan(&g);
        for exec in executors() {
            let error = error_of(&exec, &plan, inputs! { "x" => 1u64 });
            assert_eq!((error.node(), error.is_panic()), (Some(path), true), "{error}");
        }
    }
}

#[test]
fn a_limit_on_iterations_is_kept() {
    // Seen to fail with a count that begins at one.
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.repeat("loop", &x, |c, x| c.task("more", &x, |x: &u64| *x > 0), |b, x| b.task("less", &x, |x: &u64| x - 1));
    g.node(&y).max_iterations(10);
    g.output("y", &y);
    let plan = plan(&g);
    for exec in executors() {
        assert_eq!(*value_of::<u64>(block_on(exec.run(&plan, inputs! { "x" => 10u64 })), "y"), 0);
        let error = error_of(&exec, &plan, inputs! { "x" => 11u64 });
        let text = "loop 'loop' would go on after 10 iterations: raise its max_iterations, or find out why it does not end";
        assert_eq!((error.to_string(), error.node()), (text.to_owned(), Some("loop")));
    }
}

#[test]
fn a_condition_that_is_not_a_number_is_an_error() {
    // Seen to fail with a comparison that takes NaN for "not above".
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let residual = |c: &mut Graph, x: Value<f64>| -> Value<Above<f64>> { c.task("residual", &x, |x: &f64| above(x.ln(), 1.0)) };
    let y = g.repeat("solve", &x, residual, |b, x| b.task("step", &x, |x: &f64| x - 2.0));
    g.output("y", &y);
    let plan = plan(&g);
    for exec in executors() {
        assert_eq!(*value_of::<f64>(block_on(exec.run(&plan, inputs! { "x" => 4.5f64 })), "y"), 2.5);
        let error = error_of(&exec, &plan, inputs! { "x" => -1f64 });
        let text = "the condition of loop 'solve' is neither true nor false after 0 iterations: it compares NaN; find out why, or compare in a task of your own";
        assert_eq!((error.to_string(), error.node()), (text.to_owned(), Some("solve")));
    }
}

#[test]
fn a_selector_beyond_the_arms_is_an_error() {
    let mut g = Graph::new();
    let (x, which) = (g.input::<u64>("x"), g.input::<i64>("which"));
    let y = g.branch("two", &which, &x).arm(|_, x| x).arm(|_, x| x).join();
    g.output("y", &y);
    let plan = plan(&g);
    for exec in executors() {
        for which in [2, i64::MAX, -2, i64::MIN] {
            let error = error_of(&exec, &plan, inputs! { "x" => 1u64, "which" => which });
            let text = format!(
                "branch 'two' has 2 arms, counted from 0, but its selector is {which}: select one of them, or none by -1 or None"
            );
            assert_eq!((error.to_string(), error.node()), (text, Some("two")));
        }
    }
}

/// A loop that never ends by itself.
fn endless() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.repeat("loop", take(&x), times(u64::MAX), |b, x| {
        b.repeat("inner", take(&x), times(3), |b, x| {
            b.future("add", take(&x), async |x: u64| Ok(suspended(x).await.wrapping_add(1)))
        })
    });
    g.output("y", &y);
    plan(&g)
}

#[test]
fn a_shutdown_ends_loops() {
    let plan = endless();
    for exec in executors() {
        let mut run = exec.run(&plan, inputs! { "x" => 0u64 });
        (0..10).for_each(|_| assert!(poll_once(&mut run).is_pending()));
        let shutdown = exec.shutdown();
        assert!(block_on(run).unwrap_err().is_shut_down());
        block_on(shutdown).unwrap();
    }
}

#[test]
fn a_loop_without_anything_to_do_can_be_cancelled() {
    // Seen to fail with a control that goes on without a check of its fuel: the poll did not return.
    for exec in executors() {
        let mut g = Graph::new();
        let x = g.input::<u64>("x");
        let y = g.repeat("spin", &x, times(u64::MAX), |_, x| x);
        g.output("y", &y);
        let plan = plan(&g);
        let mut run = exec.run(&plan, inputs! { "x" => 0u64 });
        assert!(poll_once(&mut run).is_pending());
        run.cancel();
        assert!(block_on(run).unwrap_err().is_cancelled());
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn an_observer_sees_inner_nodes_and_their_loop() {
    let timeline = Arc::new(Timeline::new(1000));
    let exec = Executor::builder().workers(1).observer(timeline.clone()).build().unwrap();
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.repeat("loop", &x, times(2), |b, x| b.task("add", &x, |x: &u64| x + 1));
    let z = g.task("end", &y, |y: &u64| *y);
    g.output("z", &z);
    let plan = plan(&g);
    block_on(exec.run(&plan, inputs! { "x" => 0u64 })).unwrap();
    let spans = timeline.nodes();
    let names: Vec<&str> = spans.iter().map(|span| &*span.work.name).collect();
    assert_eq!(names, ["loop/body/add", "loop/body/add", "loop", "end"]);
    assert!(spans[2].start <= spans[0].start && spans[1].end <= spans[2].end);
    assert_eq!(timeline.runs(&plan)[0].len(), 2);
    assert_eq!(plan.recompile(&timeline).unwrap().schedule().inner().len(), 1);
}

/// Returns the error of a graph that a closure builds around a value.
fn mistake(build: impl FnOnce(&mut Graph, &Value<u64>)) -> String {
    let mut g = Graph::new();
    let x = g.task("x", (), || 1u64);
    g.output("x", &x);
    build(&mut g, &x);
    let error = g.compile_with(&anabranch::policy::Single).unwrap_err();
    assert!(error.is_invalid_graph());
    error.to_string()
}

/// Returns the error of a loop with this body.
fn looping(body: impl FnOnce(&mut Graph, Value<u64>) -> Value<u64>) -> String {
    mistake(|g, x| {
        let y = g.repeat("a", x, times(1), body);
        g.output("y", &y);
    })
}

#[test]
fn mistakes_in_inner_graphs_come_out_of_compile_with_their_path() {
    let same = |b: &mut Graph, x: Value<u64>| {
        let x = b.task("same", &x, |x: &u64| *x);
        b.task("same", &x, |x: &u64| *x)
    };
    assert_eq!(
        looping(|b, x| b.repeat("b", &x, times(1), same)),
        "in 'a/body/b/body': two nodes are named 'same': node names are unique in a graph, rename one"
    );
    let unused = |b: &mut Graph, x: Value<u64>| {
        b.task("unused", &x, |x: &u64| *x);
        x
    };
    assert_eq!(
        looping(unused),
        "in 'a/body': nothing reads the value of 'unused': make it an output (in a pipeline: return it from the closure), read it, or let the node return ()"
    );
    assert_eq!(
        mistake(|g, x| {
            let mut leaked = None;
            let y = g.repeat("a", x, times(1), |_, x| *leaked.insert(x));
            let z = g.repeat("b", &y, times(1), |b, y| b.task("read", (&y, &leaked.unwrap()), |y: &u64, z: &u64| y + z));
            g.output("z", &z);
        }),
        "'b/body/read' uses a value of another graph: read a value only in the graph that made it, or in its inner graphs; let the closure of a loop or branch return what is read outside"
    );
    assert_eq!(
        mistake(|g, x| {
            let mut leaked = None;
            let _ = g.repeat("first", x, times(1), |_, x| *leaked.insert(x));
            let _ = g.repeat("a", x, times(1), |_, _| leaked.unwrap());
        }),
        "'a/body' uses a value of another graph: read a value only in the graph that made it, or in its inner graphs; let the closure of a loop or branch return what is read outside"
    );
    assert_eq!(
        mistake(|g, x| _ = g.repeat("a", x, times(1), |b, _| b.task("far", take(x), |x: u64| x))),
        "'a/body/far' takes 'x', which belongs to a graph around it: read it by reference, or make it a state of the loop or branch"
    );
    assert_eq!(
        looping(|b, _| b.input::<u64>("more")),
        "input 'more' is declared in an inner graph, which has none: read the values of the graph around it, and return results from the closure"
    );
    assert_eq!(
        mistake(|g, x| {
            let which = g.task("which", x, |x: &u64| *x as usize);
            let _ = g.branch("a", &which, x).arm(|_, x| x);
        }),
        "branch 'a' is not joined: call join()"
    );
    assert_eq!(mistake(|g, x| _ = g.node(x).max_iterations(1)), "'x' is not a loop: only a loop has a number of iterations");
    let inner = looping(|b, x| {
        assert!(
            b.compile_with(&anabranch::policy::Single).unwrap_err().to_string().contains("cannot be compiled or cut by itself")
        );
        unused(b, x)
    });
    assert!(inner.starts_with("in 'a/body'"), "{inner}");
}

#[test]
fn a_state_is_taken_only_if_nobody_else_has_it() {
    // Each was seen to end in a panic of the node, or worse, without the check.
    let grow = |b: &mut Graph, x: Value<u64>| b.task("grow", take(&x), |x: u64| x + 1);
    let read = "only reads what the state begins with: give that to it as `take(&value)` (in JSON, \"take\": true)";
    let build = mistake_of_own;
    assert_eq!(
        build(|g, x| {
            let y = g.repeat("a", &x, times(1), |b, x| b.task("grow", take(&x), |x: u64| x + 1));
            g.output("y", &y);
        }),
        format!("'a/body/grow' takes state 0 of 'a' ('x') by value, but 'a' {read}")
    );
    assert_eq!(
        build(|g, x| {
            let two = g.task("two", (), || 2u64);
            let (y, z) = g.repeat("a", (take(&x), &two), times(1), |b, (x, _)| {
                let y = b.task("grow", take(&x), |x: u64| x + 1);
                (y, y)
            });
            g.output("y", &y);
            g.output("z", &z);
        }),
        "'a/body/grow' takes state 0 of 'a' ('x') by value, but 'a/body' gives one value as states 0 and 1: give each a value of its own"
    );
    assert_eq!(
        build(|g, x| {
            let y = g.repeat("a", take(&x), |c, x| c.task("grow", take(&x), |x: u64| x == 0), |_, x| x);
            g.output("y", &y);
        }),
        "'a/condition/grow' takes state 0 of 'a' ('x') by value, but 'a' needs it after its condition: read it by reference"
    );
    assert_eq!(
        build(|g, x| {
            let y = g.repeat("a", take(&x), times(1), |b, x| {
                b.task("grow", take(&x), |x: u64| assert!(x > 0));
                x
            });
            g.output("y", &y);
        }),
        "'a/body/grow' takes state 0 of 'a' ('x') by value, but 'a/body' gives it on as state 0: give what 'a/body/grow' makes of it"
    );
    assert_eq!(
        build(|g, x| {
            let y = g.repeat("a", &x, times(1), |_, x| x);
            let z = g.task("late", take(&y), |y: u64| y);
            g.output("z", &z);
        }),
        format!("'late' takes state 0 of 'a' ('x') by value, but 'a' {read}")
    );
    let mut g = Graph::new();
    let x = g.task("x", (), || 1u64);
    let y = g.repeat("a", take(&x), times(3), grow);
    let z = g.task("z", take(&y), |y: u64| y);
    g.output("z", &z);
    assert_eq!(*value_of::<u64>(block_on(Executor::inline().run(&plan(&g), Inputs::new())), "z"), 4);
}

/// Like `mistake`, with a value that is not an output.
fn mistake_of_own(build: fn(&mut Graph, Value<u64>)) -> String {
    let mut g = Graph::new();
    let x = g.task("x", (), || 1u64);
    build(&mut g, x);
    g.compile_with(&anabranch::policy::Single).unwrap_err().to_string()
}
