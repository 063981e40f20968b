//! Wakes: spurious polls, replaced wakers, node futures in other tasks, futures that move between runtimes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anabranch::{BoxError, Executor, Graph, Inputs, Plan, Run};
use futures::channel::oneshot;
use tokio_test::{assert_pending, assert_ready_ok, task};

use crate::support::{Alarm, Deed, block_on, chain, executor, executors, hooked, plan, poll_once, poll_with, until, value_of};

/// A graph whose async node "late" waits for a number, and whose node "first" comes before it.
fn waits_for_a_number() -> (Plan, oneshot::Sender<u64>, Arc<AtomicUsize>) {
    let (sender, receiver) = oneshot::channel();
    let (receiver, polls) = (Mutex::new(Some(receiver)), Arc::new(AtomicUsize::new(0)));
    let mut g = Graph::new();
    let first = g.task("first", (), || 1u64);
    let count = polls.clone();
    let late = g.future("late", &first, move |first: Arc<u64>| {
        let (mut number, count) = (receiver.lock().unwrap().take().unwrap(), count.clone());
        std::future::poll_fn(move |cx| {
            count.fetch_add(1, SeqCst);
            std::pin::Pin::new(&mut number).poll(cx).map(|number| Ok::<u64, BoxError>(number? + *first))
        })
    });
    let out = chain(&mut g, &late, 5);
    g.output("out", &out);
    (plan(&g), sender, polls)
}

#[test]
fn a_thousand_spurious_polls_change_nothing() {
    for exec in executors() {
        let (plan, sender, polls) = waits_for_a_number();
        let mut run = exec.run(&plan, Inputs::new());
        let mut node = run.node("late");
        until(|| poll_once(&mut run).is_pending() && polls.load(SeqCst) == 1);
        for _ in 0..1000 {
            assert!(poll_once(&mut run).is_pending() && poll_once(&mut node).is_pending());
        }
        assert_eq!(polls.load(SeqCst), 1, "nothing woke the node");
        sender.send(10).unwrap();
        assert_eq!(*value_of::<u64>(block_on(&mut run), "out"), 16);
        assert!(block_on(node).is_ok() && polls.load(SeqCst) == 2);
    }
}

#[test]
fn only_the_last_waker_is_woken() {
    for exec in executors() {
        let (plan, sender, polls) = waits_for_a_number();
        let (mut first, mut last) = (task::spawn(()), task::spawn(exec.run(&plan, Inputs::new())));
        until(|| last.poll().is_pending() && polls.load(SeqCst) == 1);
        assert_pending!(first.enter(|cx, _| poll_with(&mut *last, cx.waker())));
        assert_pending!(last.poll());
        sender.send(10).unwrap();
        until(|| last.is_woken());
        until(|| last.poll().is_ready());
        assert!(!first.is_woken());
    }
}

#[test]
fn everyone_who_waits_is_woken() {
    for exec in executors() {
        let (plan, sender, polls) = waits_for_a_number();
        let mut run = exec.run(&plan, Inputs::new());
        let mut nodes: Vec<_> = (0..10).map(|n| task::spawn(run.node(["late", "link 3"][n % 2]))).collect();
        until(|| poll_once(&mut run).is_pending() && polls.load(SeqCst) == 1);
        nodes.iter_mut().for_each(|node| assert_pending!(node.poll()));
        sender.send(10).unwrap();
        block_on(run).unwrap();
        for node in &mut nodes {
            assert!(node.is_woken());
            assert_ready_ok!(node.poll());
        }
    }
}

#[test]
fn nodes_may_be_awaited_in_other_tasks_before_the_run_starts() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for exec in executors() {
        let mut g = Graph::new();
        let x = g.task("x", (), || 0u64);
        let out = chain(&mut g, &x, 50);
        g.output("out", &out);
        for _ in 0..20 {
            let run = exec.run(&plan(&g), Inputs::new());
            let nodes = (1..=50).map(|n| run.node(&format!("link {n}")));
            let waiting: Vec<_> = nodes.map(|node| runtime.spawn(node)).collect();
            assert_eq!(*value_of::<u64>(block_on(run), "out"), 50);
            assert!(waiting.into_iter().all(|task| block_on(task).unwrap().is_ok()));
        }
    }
}

#[test]
fn a_node_future_alone_makes_its_run_go() {
    for exec in executors() {
        let (plan, sender, _) = waits_for_a_number();
        sender.send(1).unwrap();
        let run = exec.run(&plan, Inputs::new());
        block_on(run.node("link 6")).unwrap();
        assert_eq!(*value_of::<u64>(block_on(run), "out"), 7);
    }
}

/// A graph of two programs: "other"; and "early", "waits", which waits for a message, and "after". Returns
/// the plan, the receiver of the start of "waits", and the sender that lets it go on.
fn stops_in_between() -> (Plan, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((says, heard), (go, gate)) = (mpsc::channel(), mpsc::channel());
    let ends = Mutex::new((says, gate));
    let mut g = Graph::new();
    let early = g.task("early", (), || 1u64);
    let waits = g.task("waits", &early, move |early: &u64| {
        let (says, gate) = &*ends.lock().unwrap();
        says.send(()).unwrap();
        gate.recv().unwrap();
        early + 1
    });
    let after = g.task("after", &waits, |waits: &u64| waits + 1);
    g.output("after", &after);
    g.task("other", (), || ());
    (plan(&g), heard, go)
}

#[test]
fn a_late_node_future_sees_what_is_done_while_its_program_runs() {
    // Seen to fail with a `catch_up` that does not check workers. No task awaits a node of that program
    // before.
    for exec in executors() {
        let (plan, begun, go) = stops_in_between();
        let run = exec.run(&plan, Inputs::new());
        let other = run.node("other");
        let poller = thread::spawn(move || block_on(other));
        begun.recv().unwrap();
        let (mut early, mut waits) = (run.node("early"), run.node("waits"));
        assert!(poll_once(&mut early).is_ready());
        assert!(poll_once(&mut waits).is_pending());
        go.send(()).unwrap();
        assert!(poller.join().unwrap().is_ok() && block_on(waits).is_ok());
    }
}

#[test]
fn a_late_node_future_sees_what_is_done_while_an_async_node_waits() {
    for exec in executors() {
        let (plan, sender, polls) = waits_for_a_number();
        let mut run = task::spawn(exec.run(&plan, Inputs::new()));
        until(|| run.poll().is_pending() && polls.load(SeqCst) == 1);
        assert_ready_ok!(task::spawn(run.node("first")).poll());
        assert_pending!(task::spawn(run.node("late")).poll());
        sender.send(1).unwrap();
        until(|| run.is_woken());
        block_on(run).unwrap();
    }
}

#[test]
fn a_run_in_the_place_of_another_has_done_nothing_yet() {
    // Seen to fail without `leave` in `store_place`: the worker seemed to be at the end of the run that
    // reused the place.
    let exec = executor(1);
    let (open, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let mut g = Graph::new();
    let x = g.task("x", (), move || gate.lock().unwrap().recv().unwrap());
    let out = chain(&mut g, &x, 50);
    g.output("out", &out);
    let plan = plan(&g);
    let (second, is_early) = (Arc::new(Mutex::new(exec.run(&plan, Inputs::new()))), Arc::new(Mutex::new(None)));
    let (polled, result) = (second.clone(), is_early.clone());
    let waker = hooked(move |deed| {
        if deed == Deed::Wake {
            // The only worker is inside this waker.
            let mut run = polled.lock().unwrap();
            assert!(poll_once(&mut *run).is_pending());
            *result.lock().unwrap() = Some(poll_once(&mut run.node("link 25")).is_ready());
        }
    });
    let mut first = exec.run(&plan, Inputs::new());
    assert!(poll_with(&mut first, &waker).is_pending());
    open.send(0u64).unwrap();
    until(|| is_early.lock().unwrap().is_some());
    assert_eq!(*is_early.lock().unwrap(), Some(false));
    open.send(0u64).unwrap();
    block_on(std::future::poll_fn(|cx| poll_with(&mut *second.lock().unwrap(), cx.waker()))).unwrap();
}

#[test]
fn a_future_may_move_between_runtimes() {
    for exec in executors() {
        let (plan, sender, polls) = waits_for_a_number();
        let mut run = exec.run(&plan, Inputs::new());
        let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
        until(|| one.block_on(async { poll_once(&mut run).is_pending() }) && polls.load(SeqCst) == 1);
        one.block_on(async { assert!(futures::poll!(&mut run).is_pending()) });
        drop(one);
        let many = tokio::runtime::Runtime::new().unwrap();
        let mut run = many.block_on(async move {
            let task = tokio::spawn(async move {
                assert!(futures::poll!(&mut run).is_pending());
                run
            });
            task.await.unwrap()
        });
        drop(many);
        smol::block_on(async { assert!(futures::poll!(&mut run).is_pending()) });
        sender.send(10).unwrap();
        assert_eq!(*value_of::<u64>(block_on(run), "out"), 16);
    }
}

#[test]
fn a_wake_after_the_run_is_gone_does_nothing() {
    for exec in executors() {
        let kept = Arc::new(Mutex::new(None));
        let mut g = Graph::new();
        let keep = kept.clone();
        g.future("endless", (), move || {
            let keep = keep.clone();
            std::future::poll_fn(move |cx| {
                *keep.lock().unwrap() = Some(cx.waker().clone());
                Poll::<Result<(), BoxError>>::Pending
            })
        });
        let mut run = exec.run(&plan(&g), Inputs::new());
        until(|| poll_once(&mut run).is_pending() && kept.lock().unwrap().is_some());
        drop(run);
        kept.lock().unwrap().as_ref().unwrap().wake_by_ref();
        block_on(exec.shutdown()).unwrap();
        drop(exec);
        kept.lock().unwrap().take().unwrap().wake();
    }
}

#[test]
fn a_dropped_future_leaves_no_waker_behind() {
    // Seen to fail without `forget` in the drop of node futures.
    for exec in executors() {
        let (plan, _sender, polls) = waits_for_a_number();
        let (alarm, waker) = Alarm::new();
        let mut run = exec.run(&plan, Inputs::new());
        let (mut node, mut idle) = (run.node("late"), exec.idle());
        until(|| poll_with(&mut run, &waker).is_pending() && polls.load(SeqCst) == 1);
        assert!(poll_with(&mut node, &waker).is_pending() && poll_with(&mut idle, &waker).is_pending());
        drop((node, idle));
        assert_eq!(Arc::strong_count(&alarm), 3, "the run has one");
        drop(run);
        let mut shutdown = exec.shutdown();
        let _ = poll_with(&mut shutdown, &waker);
        drop(shutdown);
        until(|| Arc::strong_count(&alarm) == 2);
    }
}

/// An inline run one of whose first nodes takes longer than a poll's time slice, so that nodes are left when
/// the poll ends.
fn longer_than_a_slice() -> (Run, Executor, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((says, heard), (go, gate)) = (mpsc::channel(), mpsc::channel());
    let ends = Mutex::new((says, gate));
    let mut g = Graph::new();
    let x = g.task("x", (), || 0u64);
    let first = chain(&mut g, &x, 5);
    let slow = g.task("slow", &first, move |first: &u64| {
        let (says, gate) = &*ends.lock().unwrap();
        says.send(()).unwrap();
        gate.recv().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        *first
    });
    let out = chain(&mut g, &slow, 5000);
    g.output("out", &out);
    let exec = Executor::inline();
    (exec.run(&plan(&g), Inputs::new()), exec, heard, go)
}

#[test]
fn who_finds_an_inline_run_in_use_goes_on_when_its_user_is_gone() {
    // Seen to fail without the second check of the driver: another thread's poll ended, and its future was
    // dropped, between this thread's search for work and its wait for a wake.
    let (mut run, _exec, begun, go) = longer_than_a_slice();
    let mut node = run.node("link 5006");
    // A slice may be over before the slow node begins. The slow node ends the slice in which it runs.
    let is_in_slow = Arc::new(AtomicBool::new(false));
    let may_end = is_in_slow.clone();
    let poll = move || {
        while {
            assert!(poll_once(&mut node).is_pending());
            !may_end.load(SeqCst)
        } {}
    };
    let poller = Mutex::new(Some(thread::spawn(poll)));
    begun.recv().unwrap();
    is_in_slow.store(true, SeqCst);
    let (rings, is_told) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let count = rings.clone();
    let go = Mutex::new(go);
    let waker = hooked(move |deed| match deed {
        Deed::Clone if !is_told.swap(true, SeqCst) => {
            go.lock().unwrap().send(()).unwrap();
            poller.lock().unwrap().take().unwrap().join().unwrap();
        }
        Deed::Wake => _ = count.fetch_add(1, SeqCst),
        _ => {}
    });
    assert!(poll_with(&mut run, &waker).is_pending());
    assert!(rings.load(SeqCst) > 0, "the run has nodes left, and nobody polls it");
    assert_eq!(*value_of::<u64>(block_on(run), "out"), 5005);
}

#[test]
fn who_finds_an_inline_run_in_use_does_not_poll_it_over_and_over() {
    // Seen to fail when a poll that found the driver taken woke itself because some node had been woken.
    let ((says, heard), (go, gate)) = (mpsc::channel(), mpsc::channel());
    let (kept, ends) = (Arc::new(Mutex::new(None::<Waker>)), Mutex::new((says, gate)));
    let mut g = Graph::new();
    let keep = kept.clone();
    g.future("woken", (), move || {
        let keep = keep.clone();
        std::future::poll_fn(move |cx| match keep.lock().unwrap().replace(cx.waker().clone()) {
            Some(_) => Poll::Ready(Ok::<(), BoxError>(())),
            None => Poll::Pending,
        })
    });
    let blocks = g.future("blocks", (), async || Ok(smol::future::yield_now().await));
    g.task("blocked", &blocks, move |(): &()| {
        kept.lock().unwrap().as_ref().unwrap().wake_by_ref();
        let (says, gate) = &*ends.lock().unwrap();
        says.send(()).unwrap();
        gate.recv().unwrap();
    });
    let exec = Executor::inline();
    let mut run = exec.run(&plan(&g), Inputs::new());
    let node = run.node("blocked");
    let poller = thread::spawn(move || block_on(node));
    heard.recv().unwrap();
    let (alarm, waker) = Alarm::new();
    (0..100).for_each(|_| assert!(poll_with(&mut run, &waker).is_pending()));
    assert!(alarm.rings() <= 1, "{} wakes without anything new", alarm.rings());
    go.send(()).unwrap();
    poller.join().unwrap().unwrap();
    block_on(run).unwrap();
}

#[test]
fn futures_that_wake_themselves_do_not_keep_the_poll_of_an_inline_run() {
    // Seen to hang when a program that parked took no time of the poll.
    let is_over = Arc::new(AtomicBool::new(false));
    let mut g = Graph::new();
    for name in ["one", "other"] {
        let is_over = is_over.clone();
        g.future(name, (), move || {
            let is_over = is_over.clone();
            async move {
                while !is_over.load(SeqCst) {
                    smol::future::yield_now().await;
                }
                Ok::<(), BoxError>(())
            }
        });
    }
    let exec = Executor::inline();
    let run = exec.run(&plan(&g), Inputs::new());
    let (ended, ()) = block_on(async { futures::join!(run, async { is_over.store(true, SeqCst) }) });
    ended.unwrap();
}
