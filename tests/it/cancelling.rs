//! Runs that are cancelled, dropped or forgotten at any moment: their values are freed once and not too
//! early, and later runs find the plan and the executor unchanged.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use anabranch::{BoxError, Error, Executor, Graph, HostStream, Inputs, Plan, Run, Value, inputs, take};
use tokio_test::{assert_pending, task};

use crate::support::{Counted, Dice, Tally, block_on, executor, executors, panic_quietly, plan, poll_once, until, value_of};

/// Twenty nodes, every fourth of them async, every fourth a taker. Each adds up the values that it reads.
fn twenty(tally: &Tally) -> Plan {
    let mut g = Graph::new();
    let mut values: Vec<Value<Counted>> = vec![g.input("x"); 3];
    for n in 0..20 {
        let (last, third) = (values[n + 2], values[n]);
        let tally = tally.clone();
        let add = move |a: &Counted, b: &Counted| tally.value(a.get() + b.get());
        let name = format!("{n}");
        values.push(match n % 4 {
            1 => g.kernel(name, (&last, &third), move |s: &mut HostStream, a: &Counted, b: &Counted| s.launch(|| add(a, b))),
            2 => g.future(name, (&last, &third), move |a: Arc<Counted>, b: Arc<Counted>| {
                let add = add.clone();
                async move {
                    for _ in 0..n {
                        smol::future::yield_now().await;
                    }
                    Ok(add(&a, &b))
                }
            }),
            3 => g.task(name, (&last, take(&third)), move |a: &Counted, b: Counted| add(a, &b)),
            _ => g.task(name, (&last, &third), add),
        });
    }
    g.output("out", &values[22]);
    plan(&g)
}

/// The result of the twenty nodes.
const SUM: u64 = 2745;

fn start(exec: &Executor, plan: &Plan, tally: &Tally) -> Run {
    exec.run(plan, inputs! { "x" => tally.value(1) })
}

/// Checks that the executor holds no values of any run, and that the plan still runs.
fn is_as_before(exec: &Executor, plan: &Plan, tally: &Tally) {
    until(|| tally.alive() == 0 && exec.in_limbo() == 0 && exec.in_flight() == 0);
    let out = value_of::<Counted>(block_on(start(exec, plan, tally)), "out");
    assert_eq!(out.get(), SUM);
    drop(out);
    until(|| tally.alive() == 0);
}

#[test]
fn a_run_may_be_dropped_after_any_poll() {
    // Seen to fail when limbo freed a run at once, and when `drive_cancelled` left async nodes alone.
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        for polls in 0.. {
            let mut run = start(&exec, &plan, &tally);
            let is_over = (0..polls).any(|_| poll_once(&mut run).is_ready());
            drop(run);
            is_as_before(&exec, &plan, &tally);
            if is_over || polls > 300 {
                break;
            }
        }
    }
}

#[test]
fn a_run_may_be_cancelled_after_any_poll() {
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        for polls in 0.. {
            let mut run = start(&exec, &plan, &tally);
            let is_over = (0..polls).any(|_| poll_once(&mut run).is_ready());
            if is_over || polls > 300 {
                break;
            }
            run.cancel();
            run.cancel();
            match block_on(run) {
                Ok(mut outputs) => assert_eq!(outputs.take::<Counted>("out").unwrap().get(), SUM),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
            is_as_before(&exec, &plan, &tally);
        }
    }
}

#[test]
fn a_run_may_be_dropped_while_unwinding() {
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        for polls in 0..20 {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let mut run = start(&exec, &plan, &tally);
                (0..polls).for_each(|_| assert!(poll_once(&mut run).is_pending() || polls > 5));
                panic_quietly("with a run in hand");
            }));
            assert!(unwound.is_err());
            is_as_before(&exec, &plan, &tally);
        }
    }
}

#[test]
fn a_run_that_is_never_polled_submits_nothing() {
    let started = Arc::new(AtomicUsize::new(0));
    let mut g = Graph::new();
    let count = started.clone();
    g.task("count", (), move || _ = count.fetch_add(1, SeqCst));
    for exec in executors() {
        let runs: Vec<Run> = (0..100).map(|_| exec.run(&plan(&g), Inputs::new())).collect();
        runs[7].cancel();
        assert_eq!(exec.in_flight(), 0);
        drop(runs);
        assert_eq!((exec.in_flight(), exec.in_limbo()), (0, 0));
        block_on(exec.shutdown()).unwrap();
    }
    assert_eq!(started.load(SeqCst), 0);
}

#[test]
fn after_the_end_a_cancel_does_nothing() {
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        let run = start(&exec, &plan, &tally);
        block_on(run.node("19")).unwrap();
        block_on(exec.idle()).unwrap();
        run.cancel();
        assert!(block_on(run.node("3")).is_ok());
        assert_eq!(value_of::<Counted>(block_on(run), "out").get(), SUM);
    }
}

/// A graph whose first node waits for a message, and whose second, after it, counts that it started.
fn gated(started: &Arc<AtomicUsize>) -> (Plan, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel();
    let (gate, started, too_late) = (Mutex::new(gate), started.clone(), started.clone());
    let mut g = Graph::new();
    let x = g.input::<Counted>("x");
    let first = g.task("first", &x, move |x: &Counted| {
        started.fetch_add(1, SeqCst);
        gate.lock().unwrap().recv().unwrap();
        started.fetch_add(x.get() as usize * 10, SeqCst);
    });
    let second = g.task("second", &x, move |_: &Counted| too_late.fetch_add(100, SeqCst));
    g.order(&first, &second);
    g.output("second", &second);
    (plan(&g), open)
}

#[test]
fn no_node_starts_after_a_cancel() {
    let tally = Tally::default();
    for workers in [1, 2, 8] {
        let (exec, started) = (executor(workers), Arc::default());
        let (plan, open) = gated(&started);
        let mut run = start(&exec, &plan, &tally);
        assert!(poll_once(&mut run).is_pending());
        until(|| started.load(SeqCst) == 1);
        run.cancel();
        assert!(poll_once(&mut run).is_pending(), "it ends when its node does");
        open.send(()).unwrap();
        assert!(block_on(run).unwrap_err().is_cancelled());
        assert_eq!(started.load(SeqCst), 11);
    }
}

#[test]
fn a_canceller_cancels_a_run_that_is_being_awaited_and_keeps_nothing_of_it() {
    // Seen to fail with a canceller that holds the run itself.
    let tally = Tally::default();
    for exec in executors() {
        let mut g = Graph::new();
        let x = g.input::<Counted>("x");
        let never = g.future("never", &x, async |_: Arc<Counted>| {
            std::future::pending::<()>().await;
            Ok(())
        });
        g.output("never", &never);
        let plan = plan(&g);
        let run = start(&exec, &plan, &tally);
        let canceller = run.canceller();
        let (outcome, ()) = block_on(async { futures::join!(run, async { canceller.clone().cancel() }) });
        assert!(outcome.unwrap_err().is_cancelled(), "{exec:?}");
        until(|| tally.alive() == 0);
        canceller.cancel();
    }
}

#[test]
fn dropping_a_run_does_not_wait_for_its_nodes() {
    // Seen to fail when a drop freed its run at once: the node then reads a dead value.
    let tally = Tally::default();
    for workers in [1, 2, 8] {
        let (exec, started) = (executor(workers), Arc::default());
        let (plan, open) = gated(&started);
        let mut run = start(&exec, &plan, &tally);
        assert!(poll_once(&mut run).is_pending());
        until(|| started.load(SeqCst) == 1);
        drop(run);
        assert_eq!((exec.in_limbo(), exec.in_flight(), tally.alive()), (1, 1, 1));
        open.send(()).unwrap();
        until(|| exec.in_limbo() == 0 && tally.alive() == 0);
        assert_eq!((started.load(SeqCst), exec.in_flight()), (11, 0));
    }
}

#[test]
fn an_inline_run_may_be_dropped_while_another_thread_runs_its_node() {
    let (tally, exec, started) = (Tally::default(), Executor::inline(), Arc::default());
    let (plan, open) = gated(&started);
    let run = start(&exec, &plan, &tally);
    let node = run.node("second");
    let poller = thread::spawn(move || block_on(node));
    until(|| started.load(SeqCst) == 1);
    drop(run);
    assert_eq!((exec.in_limbo(), exec.in_flight(), tally.alive()), (1, 1, 1));
    open.send(()).unwrap();
    assert!(poller.join().unwrap().unwrap_err().is_cancelled());
    assert_eq!((exec.in_limbo(), exec.in_flight(), tally.alive(), started.load(SeqCst)), (0, 0, 0, 11));
}

/// A run for its own nodes to cancel.
type Own = Arc<Mutex<Option<Arc<Run>>>>;

fn cancel(own: &Own) {
    own.lock().unwrap().as_ref().unwrap().cancel();
}

#[test]
fn a_node_may_cancel_its_own_run() {
    for exec in executors() {
        let (shared, mut g) = (Own::default(), Graph::new());
        let own = shared.clone();
        let first = g.task("first", (), move || cancel(&own));
        let second = g.future("second", (), async || -> Result<(), _> { unreachable!("it was cancelled") });
        g.order(&first, &second);
        let run = Arc::new(exec.run(&plan(&g), Inputs::new()));
        *shared.lock().unwrap() = Some(run.clone());
        let (first, second) = (run.node("first"), run.node("second"));
        assert!(block_on(second).unwrap_err().is_cancelled());
        assert!(block_on(first).is_ok(), "it cancelled what came after it");
        *shared.lock().unwrap() = None;
    }
}

#[test]
fn no_async_node_is_polled_after_a_cancel() {
    // Seen to fail when `poll_node` did not check whether an earlier node had cancelled the run.
    for exec in executors() {
        let (shared, polled, mut g) = (Own::default(), Arc::new(AtomicUsize::new(0)), Graph::new());
        for name in iter::once("a".to_owned()).chain((0..60).map(|number| format!("n{number}"))) {
            let (own, polled) = (shared.clone(), polled.clone());
            g.future(name, (), move || {
                polled.fetch_add(1, SeqCst);
                cancel(&own);
                std::future::pending::<Result<(), _>>()
            });
        }
        let run = Arc::new(exec.run(&plan(&g), Inputs::new()));
        *shared.lock().unwrap() = Some(run.clone());
        assert!(block_on(run.node("a")).unwrap_err().is_cancelled());
        block_on(exec.idle()).unwrap();
        // Each worker may be inside a poll when the first node cancels. It polls no node afterwards.
        let most = exec.workers().max(1);
        assert!((1..=most).contains(&polled.load(SeqCst)), "{exec:?} polled {polled:?}");
        *shared.lock().unwrap() = None;
    }
}

#[test]
fn another_thread_may_cancel() {
    // Seen to fail when a cancel left the nodes of a run that no task was polling at that moment.
    for exec in executors() {
        let (is_polled, mut g) = (Arc::new(AtomicUsize::new(0)), Graph::new());
        let polled = is_polled.clone();
        g.future("endless", (), move || {
            polled.fetch_add(1, SeqCst);
            std::future::pending::<Result<(), _>>()
        });
        let run = Arc::new(exec.run(&plan(&g), Inputs::new()));
        let mut node = task::spawn(run.node("endless"));
        until(|| node.poll().is_pending() && is_polled.load(SeqCst) == 1);
        assert_pending!(node.poll());
        thread::spawn(move || run.cancel()).join().unwrap();
        until(|| node.is_woken());
        assert!(block_on(node).unwrap_err().is_cancelled());
        block_on(exec.idle()).unwrap();
    }
}

#[test]
fn a_node_that_was_done_before_the_cancel_says_so() {
    for exec in executors() {
        let mut g = Graph::new();
        let first = g.task("first", (), || ());
        let second = g.future("second", (), async || std::future::pending::<Result<(), _>>().await);
        g.order(&first, &second);
        let run = exec.run(&plan(&g), Inputs::new());
        block_on(run.node("first")).unwrap();
        let asked_before = run.node("first");
        run.cancel();
        assert!(block_on(run.node("first")).is_ok() && block_on(asked_before).is_ok(), "{exec:?}");
        assert!(block_on(run.node("second")).unwrap_err().is_cancelled());
        assert!(block_on(run).unwrap_err().is_cancelled());
    }
}

#[test]
fn a_node_future_may_be_dropped_and_outlive_its_run() {
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        let mut run = start(&exec, &plan, &tally);
        let nodes: Vec<_> = (0..20).map(|n| run.node(&n.to_string())).collect();
        for (n, mut node) in nodes.into_iter().enumerate() {
            let _ = poll_once(&mut node);
            if n == 13 {
                assert_eq!(value_of::<Counted>(block_on(&mut run), "out").get(), SUM);
            }
        }
        let (run, later) = (start(&exec, &plan, &tally), start(&exec, &plan, &tally));
        let nodes = [run.node("5"), later.node("5")];
        drop((run, later));
        assert!(nodes.into_iter().all(|node| block_on(node).is_err_and(|error: Error| error.is_cancelled())));
    }
}

#[test]
fn a_forgotten_future_leaks_and_harms_nobody() {
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        for polls in 0..5 {
            let mut run = start(&exec, &plan, &tally);
            let mut node = run.node("7");
            let (mut idle, other) = (exec.idle(), executor(1));
            let mut shutdown = other.shutdown();
            for _ in 0..polls {
                let _ = (poll_once(&mut run), poll_once(&mut node), poll_once(&mut idle), poll_once(&mut shutdown));
            }
            std::mem::forget((run, node, idle, shutdown));
            let out = value_of::<Counted>(block_on(start(&exec, &plan, &tally)), "out");
            assert_eq!(out.get(), SUM);
        }
        drop(exec);
        let _ = tally.alive();
    }
}

#[test]
fn polls_cancels_and_drops_in_any_order_free_everything() {
    // Seen to fail when a cancel freed the futures of nodes that were being polled.
    let tally = Tally::default();
    let plan = twenty(&tally);
    for exec in executors() {
        for seed in 0..150 {
            println!("{exec:?}, seed {seed}");
            let mut dice = Dice::new(seed);
            let mut runs: Vec<Run> = (0..3).map(|_| start(&exec, &plan, &tally)).collect();
            let mut nodes = Vec::new();
            while !runs.is_empty() {
                let (at, node) = (dice.below(runs.len()), dice.below(nodes.len().max(1)));
                match dice.below(24) {
                    0 => runs[at].cancel(),
                    1 => drop(runs.swap_remove(at)),
                    2..6 => nodes.push(runs[at].node(&dice.below(20).to_string())),
                    6..16 if !nodes.is_empty() => _ = poll_once(&mut nodes[node]),
                    16..18 if !nodes.is_empty() => drop(nodes.swap_remove(node)),
                    _ if poll_once(&mut runs[at]).is_ready() => drop(runs.swap_remove(at)),
                    _ => {}
                }
            }
            drop(nodes);
            is_as_before(&exec, &plan, &tally);
        }
    }
}

#[test]
fn sixty_thousand_runs_that_are_dropped_at_work_end_soon() {
    // Seen to fail (after a minute) when the end of each run examined all dropped runs.
    let exec = Executor::builder().workers(2).max_in_flight(60_000).build().unwrap();
    let mut g = Graph::new();
    g.future("never", (), || std::future::pending::<Result<(), BoxError>>());
    let plan = plan(&g);
    let mut runs: Vec<_> = (0..60_000).map(|_| exec.run(&plan, Inputs::new())).collect();
    runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
    drop(runs);
    block_on(exec.idle()).unwrap();
    until(|| exec.in_limbo() == 0);
}
