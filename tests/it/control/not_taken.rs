//! The results of futures of nodes that never ran.

use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Wake, Waker};

use anabranch::graph::times;
use anabranch::policy::Single;
use anabranch::run::NodeFuture;
use anabranch::{Error, Executor, Graph, Inputs, Plan, Result, Run, inputs};

use super::many_executors;
use crate::support::{block_on, plan, poll_once, poll_with, until};

/// A branch over two arms, which takes the arm of the input `which`, or none. Beside it, a loop of `count`
/// iterations around another branch, and a loop without iterations.
fn branches(count: u64) -> Plan {
    let mut g = Graph::new();
    let (which, x) = (g.input::<Option<usize>>("which"), g.input::<u64>("x"));
    let case = g.branch("case", &which, &x);
    let case = case.arm(|a, x| a.task("x", &x, |x: &u64| x + 1)).arm(|a, x| {
        let y = a.task("y", &x, |x: &u64| x + 2);
        a.repeat("deep", &y, times(1), |b, y| b.task("z", &y, |y: &u64| y + 1))
    });
    let case = case.join();
    let outer = g.repeat("outer", &x, times(count), |b, x| {
        let arm = b.task("arm", &x, |x: &u64| if *x == 1 { Some(0) } else { None });
        b.branch("inner", &arm, &x)
            .arm(|a, x| a.task("first", &x, |x: &u64| x + 1))
            .arm(|a, x| a.task("never", &x, |x: &u64| x + 1))
            .join()
    });
    let none = g.repeat("none", &x, times(0), |b, x| b.task("body", &x, |x: &u64| x + 1));
    let sum = g.task("sum", (&case, &outer, &none), |a: &u64, b: &u64, c: &u64| a + b + c);
    g.output("sum", &sum);
    plan(&g)
}

fn run(exec: &Executor, plan: &Plan, which: Option<usize>) -> Run {
    exec.run(plan, inputs! { "which" => which, "x" => 1_u64 })
}

/// Asserts that `result` is the error for a node that was not taken.
fn assert_not_taken(result: Result<()>, node: &str, why: &str) {
    let error = result.expect_err(node);
    let hint = "if it need not run, check `Error::is_not_taken`, or await the loop or branch";
    assert_eq!(error.to_string(), format!("node '{node}' did not run, though nothing failed before it: {why}; {hint}"));
    assert!(error.is_not_taken() && !error.is_skipped() && error.node() == Some(node));
}

/// Checks the futures of nodes that are made before the run begins, and those that are made after its end.
fn ask(exec: &Executor, plan: &Plan, which: Option<usize>, check: impl Fn(&dyn Fn(&str) -> Result<()>)) {
    let mut run = run(exec, plan, which);
    let nodes = [
        "case/arm 0/x",
        "case/arm 1/y",
        "case/arm 1/deep/body/z",
        "case",
        "none",
        "none/body/body",
        "outer/body/inner/arm 0/first",
    ];
    let early: Vec<(&str, NodeFuture)> = nodes.map(|name| (name, run.node(name))).into();
    block_on(&mut run).unwrap();
    let early: Vec<(&str, Result<()>)> = early.into_iter().map(|(name, node)| (name, block_on(node))).collect();
    check(&|name| {
        early.iter().find(|known| known.0 == name).map(|known| known.1.clone()).unwrap_or_else(|| block_on(run.node(name)))
    });
    check(&|name| block_on(run.node(name)));
}

#[test]
fn nodes_that_were_not_taken_say_so() {
    // Seen to fail with the verdict of the run, `Ok`, for all of them.
    let (plan, deep) = (branches(3), "branch 'case' did not take arm 1");
    for exec in many_executors() {
        ask(&exec, &plan, Some(0), |node| {
            ["case/arm 0/x", "case", "none", "outer"].into_iter().for_each(|name| node(name).expect(name));
            assert_not_taken(node("case/arm 1/y"), "case/arm 1/y", deep);
            assert_not_taken(node("case/arm 1/deep"), "case/arm 1/deep", deep);
            assert_not_taken(node("case/arm 1/deep/body/z"), "case/arm 1/deep/body/z", deep);
            assert_not_taken(node("none/body/body"), "none/body/body", "loop 'none' ended before its first iteration");
        });
        ask(&exec, &plan, Some(1), |node| {
            ["case/arm 1/y", "case/arm 1/deep/body/z", "case"].into_iter().for_each(|name| node(name).expect(name));
            assert_not_taken(node("case/arm 0/x"), "case/arm 0/x", "branch 'case' did not take arm 0");
        });
        ask(&exec, &plan, None, |node| {
            node("case").expect("a branch without an arm is done");
            assert_not_taken(node("case/arm 0/x"), "case/arm 0/x", "branch 'case' did not take arm 0");
        });
    }
}

#[test]
fn one_iteration_is_enough() {
    // The inner branch takes its first arm in the first of three iterations only.
    for exec in many_executors() {
        ask(&exec, &branches(3), None, |node| {
            node("outer/body/inner/arm 0/first").expect("it ran once");
            let never = "outer/body/inner/arm 1/never";
            assert_not_taken(node(never), never, "branch 'outer/body/inner' did not take arm 1");
        });
        ask(&exec, &branches(0), None, |node| {
            let first = "outer/body/inner/arm 0/first";
            assert_not_taken(node(first), first, "loop 'outer' ended before its first iteration");
        });
    }
}

/// Two branches: one depends on a node that fails, the other does not.
fn failing() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let bad = g.try_task("bad", &x, |_: &u64| Err::<Option<usize>, _>("bad".into()));
    let good = g.task("good", &x, |_: &u64| Some(0));
    let mut branch = |name: &'static str, which| {
        let branch = g.branch(name, which, &x);
        branch.arm(|a, x| a.task("x", &x, |x: &u64| x + 1)).arm(|a, x| a.task("y", &x, |x: &u64| x + 2)).join()
    };
    let (behind, beside) = (branch("behind", &bad), branch("beside", &good));
    g.output("behind", &behind);
    g.output("beside", &beside);
    plan(&g)
}

#[test]
fn in_a_failed_run_the_branch_around_says_why() {
    // Seen to fail with the first cause of the run, for all of them.
    let plan = failing();
    for exec in many_executors() {
        let mut run = exec.run(&plan, inputs! { "x" => 1_u64 });
        let error: Error = block_on(&mut run).map(drop).unwrap_err();
        assert_eq!((error.node(), error.is_not_taken()), (Some("bad"), false));
        block_on(run.node("beside/arm 0/x")).unwrap();
        assert_not_taken(block_on(run.node("beside/arm 1/y")), "beside/arm 1/y", "branch 'beside' did not take arm 1");
        let error = block_on(run.node("behind/arm 0/x")).unwrap_err();
        assert!(error.is_skipped() && error.node() == Some("behind"), "{error}");
    }
}

#[test]
fn in_a_cancelled_run_it_is_cancelled() {
    let plan = branches(3);
    for exec in many_executors() {
        let run = run(&exec, &plan, Some(0));
        run.cancel();
        until(|| exec.in_flight() == 0);
        for name in ["case/arm 0/x", "case/arm 1/y", "none/body/body"] {
            assert!(block_on(run.node(name)).unwrap_err().is_cancelled(), "{name}");
        }
    }
    assert!(block_on(Executor::inline().run(&plan, Inputs::new()).node("sum")).is_err());
}

/// A waker that runs a closure when it is woken.
struct Then(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Then {
    fn wake(self: Arc<Self>) {
        let then = self.0.lock().unwrap().take();
        then.into_iter().for_each(|then| then());
    }
}

/// A branch of two arms, each in one program. One has a task that waits for `may_end`. The other has "early",
/// and then a task that signals its start and waits for `may_end`.
fn two_arms(begin: mpsc::Sender<()>, may_end: [mpsc::Receiver<()>; 2]) -> Plan {
    let [first, second] = may_end.map(Mutex::new);
    let mut g = Graph::new();
    let (which, x) = (g.input::<Option<usize>>("which"), g.input::<u64>("x"));
    let waits = move |x: &u64| (first.lock().unwrap().recv().unwrap(), *x).1;
    let case = g.branch("case", &which, &x).arm(|a, x| a.task("waits", &x, waits)).arm(|a, x| {
        let early = a.task("early", &x, |x: &u64| *x);
        a.task("late", &early, move |x: &u64| {
            begin.send(()).unwrap();
            second.lock().unwrap().recv().unwrap();
            *x
        })
    });
    let case = case.join();
    g.output("case", &case);
    g.compile_with(&Single).unwrap()
}

// Seen to fail: the first run has left its slot and is about to signal its end, when a step of the second run
// in that slot was taken for one of the first.
#[test]
fn the_next_run_in_a_slot_does_not_end_the_wait_for_a_node_that_is_not_taken() {
    let exec = Executor::builder().workers(2).max_in_flight(1).build().unwrap();
    let (begin, has_begun) = mpsc::channel();
    let ([end_first, end_second], may_end) = {
        let [a, b] = [mpsc::channel(), mpsc::channel()];
        ([a.0, b.0], [a.1, b.1])
    };
    let plan = two_arms(begin, may_end);
    let (mut first, mut second) = (run(&exec, &plan, Some(0)), run(&exec, &plan, Some(1)));
    let mut early = first.node("case/arm 1/early");
    assert!(poll_once(&mut first).is_pending());
    let then = Arc::new(Then(Mutex::default()));
    assert!(poll_with(&mut second, &Waker::from(then.clone())).is_pending());
    let (sender, polled) = mpsc::channel();
    *then.0.lock().unwrap() = Some(Box::new(move || {
        // The worker that ends the first run gives its slot to the second one, and signals the end after
        // that.
        assert!(poll_once(&mut second).is_pending());
        has_begun.recv().unwrap();
        let polled = poll_once(&mut early);
        sender.send((polled, early, second)).unwrap();
    }));
    end_first.send(()).unwrap();
    let (polled, early, second) = polled.recv().unwrap();
    end_second.send(()).unwrap();
    block_on(first).unwrap();
    block_on(second).unwrap();
    assert!(matches!(polled, Poll::Pending), "{polled:?}");
    assert!(block_on(early).unwrap_err().is_not_taken());
}

#[test]
fn nodes_of_simple_inner_graphs_that_have_run_say_so_afterwards() {
    // Seen to fail with a loop that calls the nodes of an inner graph and stores no place for them.
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let more = |x: &u64| *x < 3;
    let y = g.repeat("loop", &x, move |c, x| c.task("more", &x, more), |b, x| b.task("add", &x, |x: &u64| x + 1));
    let which = g.task("which", &y, |y: &u64| (*y == 3).then_some(0));
    let z = g.branch("case", &which, &y).arm(|a, y| a.task("double", &y, |y: &u64| y * 2)).join();
    g.output("z", &z);
    let plan = g.compile_with(&Single).unwrap();
    for exec in many_executors() {
        let mut run = exec.run(&plan, inputs! { "x" => 0_u64 });
        block_on(&mut run).unwrap();
        for node in ["loop/condition/more", "loop/body/add", "loop", "case/arm 0/double", "case"] {
            block_on(run.node(node)).unwrap();
        }
    }
}
