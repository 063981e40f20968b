//! Failures and panics of nodes, of dropped values, of observers and wakers. Each fails only the runs and
//! nodes that depend on it.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anabranch::exec::{Observer, WorkSpan};
use anabranch::{BoxError, Error, Executor, Graph, HostStream, Inputs, Value, inputs, take};
use futures::future::join;

use crate::support::{block_on, executors, panic_quietly, plan, value_of};

fn refuse() -> BoxError {
    io::Error::other("out of paper").into()
}

/// Adds a node that fails in some way if its input is true.
type Faulty = fn(&mut Graph, &Value<bool>) -> Value<u64>;

const FAILING: [Faulty; 3] = [
    |g, x| g.try_task("faulty", x, |fails: &bool| if *fails { Err(refuse()) } else { Ok(1) }),
    |g, x| g.try_kernel("faulty", x, |_: &mut HostStream, fails: &bool| if *fails { Err(refuse()) } else { Ok(1) }),
    |g, x| g.future("faulty", x, async |fails: Arc<bool>| if *fails { Err(refuse()) } else { Ok(1) }),
];

const PANICKING: [Faulty; 5] = [
    |g, x| g.task("faulty", x, |fails: &bool| if *fails { panic_quietly("ouch") } else { 1 }),
    |g, x| g.try_task("faulty", x, |fails: &bool| if *fails { panic_quietly("ouch") } else { Ok(1) }),
    |g, x| g.kernel("faulty", x, |_: &mut HostStream, fails: &bool| if *fails { panic_quietly("ouch") } else { 1 }),
    |g, x| {
        g.future("faulty", x, async |fails: Arc<bool>| {
            smol::future::yield_now().await;
            if *fails { panic_quietly("ouch") } else { Ok(1) }
        })
    },
    |g, x| {
        // The closure panics before there is a future.
        g.future("faulty", x, |fails: Arc<bool>| {
            if *fails {
                panic_quietly("ouch");
            }
            std::future::ready(Ok(1))
        })
    },
];

/// Runs a graph of one faulty node on every executor, between two runs that do not fail.
fn faults(add: Faulty, check: impl Fn(Error)) {
    let mut g = Graph::new();
    let x = g.input::<bool>("x");
    let faulty = add(&mut g, &x);
    let out = g.task("out", &faulty, |one: &u64| one + 1);
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        for fails in [false, true, true, false] {
            match block_on(exec.run(&plan, inputs! { "x" => fails })) {
                Ok(outputs) => assert!(!fails && *value_of::<u64>(Ok(outputs), "out") == 2),
                Err(error) => check(error),
            }
            assert_eq!(exec.in_flight(), 0);
        }
    }
}

#[test]
fn a_failed_node_is_named_and_its_error_is_the_source() {
    for add in FAILING {
        faults(add, |error| {
            assert_eq!((error.node(), error.is_panic(), error.others().len()), (Some("faulty"), false, 0));
            let text = error.to_string();
            let streams = ["host 0", "stream 0"].map(|stream| format!("node 'faulty' failed on {stream} of the host device"));
            assert!(streams.contains(&text), "{text}");
            assert!(error.source().unwrap().downcast_ref::<io::Error>().is_some());
        });
    }
}

#[test]
fn a_panic_is_an_error_of_its_node() {
    for add in PANICKING {
        faults(add, |error| {
            assert_eq!((error.node(), error.is_panic()), (Some("faulty"), true));
            assert!(error.to_string().ends_with("of the host device: ouch"), "{error}");
        });
    }
}

#[test]
fn a_panic_may_carry_what_panics_when_it_is_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_quietly("again");
        }
    }
    fn explode() -> ! {
        std::panic::resume_unwind(Box::new(Bomb))
    }
    const EXPLODING: [Faulty; 3] = [
        |g, x| g.task("faulty", x, |fails: &bool| if *fails { explode() } else { 1 }),
        |g, x| g.kernel("faulty", x, |_: &mut HostStream, fails: &bool| if *fails { explode() } else { 1 }),
        |g, x| g.future("faulty", x, async |fails: Arc<bool>| if *fails { explode() } else { Ok(1) }),
    ];
    for add in EXPLODING {
        faults(add, |error| assert!(error.is_panic()));
    }
}

/// Three nodes that fail, "a" first; "b after a" and "after b" follow the first, "fine" follows none.
fn three_failures(finished: &Arc<AtomicUsize>) -> Graph {
    let mut g = Graph::new();
    let finish = || {
        let finished = finished.clone();
        move || _ = finished.fetch_add(1, SeqCst)
    };
    let a = g.try_task("a", (), || Err::<u64, _>(refuse()));
    let b = g.task("b after a", &a, |_: &u64| 1u64);
    g.task("after b", &b, {
        let finish = finish();
        move |_: &u64| finish()
    });
    let last = g.future("ordered after a", (), {
        let finish = finish();
        move || {
            finish();
            std::future::ready(Ok(()))
        }
    });
    g.order(&a, &last);
    let two = g.kernel("two", (), |_: &mut HostStream| -> u64 { panic_quietly("ouch") });
    let three = g.future("three", (), async || Err::<u64, _>(refuse()));
    let [fine, finer] = ["fine", "finer"].map(|name| g.task(name, (), finish()));
    g.order(&fine, &finer);
    g.output("two", &two);
    g.output("three", &three);
    g
}

#[test]
fn the_first_cause_lists_the_others() {
    let plan = plan(&three_failures(&Arc::default()));
    for exec in executors() {
        let error = block_on(exec.run(&plan, Inputs::new())).unwrap_err();
        let mut names: Vec<&str> = error.others().iter().chain([&error]).filter_map(Error::node).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "three", "two"]);
        assert!(error.to_string().ends_with(" (and 2 other nodes failed)"), "{error}");
    }
}

#[test]
fn the_first_cause_keeps_its_source_when_there_are_others() {
    let mut g = Graph::new();
    for name in ["a", "b"] {
        let failed = g.try_task(name, (), || Err::<u64, _>(refuse()));
        g.output(name, &failed);
    }
    for exec in executors() {
        let error = block_on(exec.run(&plan(&g), Inputs::new())).unwrap_err();
        assert_eq!(error.others().len(), 1);
        assert!(format!("{error:#}").ends_with(" (and 1 other node failed)"), "{error:#}");
        assert!(format!("{error:?}").contains(&format!("\n  also: {:#}", error.others()[0])), "{error:?}");
        for error in [&error, &error.others()[0]] {
            assert!(error.source().unwrap().downcast_ref::<io::Error>().is_some(), "{error:?}");
        }
    }
}

#[test]
fn independent_nodes_finish_and_dependants_do_not_start() {
    for exec in executors() {
        let finished = Arc::new(AtomicUsize::new(0));
        let plan = plan(&three_failures(&finished));
        assert!(block_on(exec.run(&plan, Inputs::new())).is_err());
        assert_eq!(finished.load(SeqCst), 2, "fine and finer");
    }
}

#[test]
fn a_skipped_node_says_because_of_whom() {
    let plan = plan(&three_failures(&Arc::default()));
    for exec in executors() {
        let run = exec.run(&plan, Inputs::new());
        let nodes = ["after b", "ordered after a", "two", "finer"].map(|name| run.node(name));
        let (_, nodes) = block_on(join(run, futures::future::join_all(nodes)));
        let texts: Vec<String> = nodes.iter().filter_map(|node| node.as_ref().err()).map(Error::to_string).collect();
        assert_eq!(texts[0], "node 'after b' did not run, because 'a', which comes before it, failed");
        assert_eq!(texts[1], "node 'ordered after a' did not run, because 'a', which comes before it, failed");
        assert!(texts[2].starts_with("node 'two' panicked"), "{}", texts[2]);
        assert!(nodes[0].as_ref().is_err_and(Error::is_skipped) && nodes[3].is_ok());
    }
}

/// A value that panics when it is dropped.
struct Grudge;

impl Drop for Grudge {
    fn drop(&mut self) {
        panic_quietly("never");
    }
}

#[test]
fn a_value_that_panics_when_it_is_released_fails_the_run() {
    let mut g = Graph::new();
    let grudge = g.task("grudge", (), || Grudge);
    let read = g.task("read", &grudge, |_: &Grudge| 1u64);
    let out = g.task("out", &read, |one: &u64| one + 1);
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        for _ in 0..10 {
            let run = exec.run(&plan, Inputs::new());
            let (node, out) = (run.node("grudge"), run.node("out"));
            let error = block_on(run).unwrap_err();
            assert_eq!((error.node(), error.is_panic()), (Some("grudge"), true));
            assert!(error.to_string().ends_with("dropping its value: never"), "{error}");
            assert!(block_on(node).is_ok() && block_on(out).is_ok(), "they did their part");
        }
    }
}

#[test]
fn a_value_that_panics_when_a_run_is_freed_harms_nobody() {
    let mut g = Graph::new();
    let x = g.input::<Grudge>("x");
    let y = g.input::<u64>("y");
    let kept = g.task("kept", &x, |_: &Grudge| Grudge);
    let failed = g.try_task("failed", (&kept, &y), |_: &Grudge, y: &u64| if *y == 0 { Err(refuse()) } else { Ok(*y) });
    let out = g.task("out", (&failed, take(&kept)), |y: &u64, kept: Grudge| {
        std::mem::forget(kept);
        *y
    });
    g.output("out", &out);
    let plan = plan(&g);
    for exec in executors() {
        for y in [0u64, 5, 0, 5] {
            let given = block_on(exec.run(&plan, inputs! { "x" => Grudge, "y" => y }));
            assert_eq!(given.is_ok(), y == 5);
            drop(exec.run(&plan, inputs! { "x" => Grudge, "y" => y }));
        }
    }
}

#[test]
fn a_future_that_panics_when_it_is_dropped_fails_its_node() {
    let mut g = Graph::new();
    let out = g.future("out", (), || {
        let grudge = Grudge;
        async move {
            let _grudge = &grudge;
            smol::future::yield_now().await;
            std::mem::forget(grudge);
            Ok(1u64)
        }
    });
    let late = g.future("late", &out, |_: Arc<u64>| LateGrudge(Grudge));
    g.output("late", &late);
    for exec in executors() {
        let error = block_on(exec.run(&plan(&g), Inputs::new())).unwrap_err();
        assert_eq!((error.node(), error.is_panic()), (Some("late"), true));
        let mut run = exec.run(&plan(&g), Inputs::new());
        let _ = crate::support::poll_once(&mut run);
        drop(run);
        block_on(exec.idle()).unwrap();
    }
}

/// A future that is ready at once, and panics when it is dropped.
struct LateGrudge(Grudge);

impl Future for LateGrudge {
    type Output = Result<u64, BoxError>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::task::Poll::Ready(Ok(1))
    }
}

struct Touchy;

impl Observer for Touchy {
    fn ended(&self, span: &WorkSpan) {
        if span.work.name.starts_with("touch") {
            panic_quietly("not this one");
        }
    }
}

#[test]
fn an_observer_that_panics_fails_the_run_and_names_the_node() {
    let mut g = Graph::new();
    let a = g.task("touch task", (), || 1u64);
    let b = g.future("touch future", &a, async |a: Arc<u64>| Ok(*a + 1));
    let out = g.kernel("out", &b, |_: &mut HostStream, b: &u64| *b);
    g.output("out", &out);
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).observer(Arc::new(Touchy)).build().unwrap();
        let run = exec.run(&plan(&g), Inputs::new());
        let out = run.node("out");
        let error = block_on(run).unwrap_err();
        assert_eq!(error.to_string(), "the observer panicked at 'touch task': not this one (and 1 other node failed)");
        assert_eq!(error.others()[0].node(), Some("touch future"));
        assert!(block_on(out).is_ok(), "the nodes did their part");
    }
}
