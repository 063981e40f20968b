//! Bounds and fairness: how many runs are in flight, how much they hold, and that no run waits for ever, or
//! for itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::graph::{Each, Shape, times};
use anabranch::policy::{Assignment, Policy};
use anabranch::{Executor, Flow, Graph, HostStream, Inputs, Plan, Result, Value, inputs};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, join, join_all, join3};

use crate::support::{
    Alarm, Counted, Tally, block_on, chain, executor, executors, plan, poll_once, poll_with, thread_time, until, value_of,
};

/// Returns an executor that lets in no more than `runs` runs.
fn bounded(workers: usize, runs: usize) -> Executor {
    Executor::builder().workers(workers).max_in_flight(runs).build().unwrap()
}

/// A plan whose node records its input when it starts, and ends when the sender of that number is used.
fn gates(count: usize) -> (Plan, Vec<oneshot::Sender<()>>, Arc<Mutex<Vec<usize>>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| oneshot::channel::<()>()).unzip();
    let receivers = Mutex::new(receivers.into_iter().map(Some).collect::<Vec<_>>());
    let started = Arc::new(Mutex::new(Vec::new()));
    let notes = started.clone();
    let mut g = Graph::new();
    let x = g.input::<usize>("x");
    g.future("gate", &x, move |x: Arc<usize>| {
        let receiver = receivers.lock().unwrap()[*x].take().unwrap();
        notes.lock().unwrap().push(*x);
        async move { Ok(receiver.await?) }
    });
    (plan(&g), senders, started)
}

#[test]
fn runs_beyond_the_bound_start_in_their_order() {
    for workers in [0, 1, 2, 8] {
        let exec = bounded(workers, 2);
        let (plan, senders, started) = gates(12);
        let mut runs: Vec<_> = (0..12usize).map(|x| exec.run(&plan, inputs! { "x" => x })).collect();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        for (x, sender) in senders.into_iter().enumerate() {
            let last = (x + 2).min(12);
            until(|| {
                runs.iter_mut().skip(x).for_each(|run| assert!(poll_once(run).is_pending()));
                started.lock().unwrap().len() == last
            });
            let mut first = started.lock().unwrap().clone();
            first.sort_unstable();
            assert_eq!((exec.in_flight(), first), (last - x, (0..last).collect()));
            sender.send(()).unwrap();
            block_on(&mut runs[x]).unwrap();
        }
    }
}

#[test]
fn a_run_that_leaves_the_queue_lets_the_next_one_in() {
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 1);
        let (plan, senders, _) = gates(4);
        let mut runs: Vec<_> = (0..4usize).map(|x| exec.run(&plan, inputs! { "x" => x })).collect();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        let (last, mut rest) = (runs.pop().unwrap(), runs);
        rest[1].cancel();
        drop(rest.remove(2));
        senders.into_iter().rev().take(1).for_each(|sender| sender.send(()).unwrap());
        drop(rest.remove(0));
        block_on(last).unwrap();
    }
}

#[test]
fn nobody_overtakes_in_the_queue() {
    // Seen to fail when `has_room` did not count the runs ahead in the queue.
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 1);
        let (plan, senders, started) = gates(4);
        let mut runs: Vec<_> = (0..4usize).map(|x| exec.run(&plan, inputs! { "x" => x })).collect();
        runs[..3].iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        senders.into_iter().for_each(|sender| sender.send(()).unwrap());
        block_on(&mut runs[0]).unwrap();
        assert!(poll_once(&mut runs[3]).is_pending() && poll_once(&mut runs[2]).is_pending());
        assert_eq!(exec.in_flight(), 0, "it is the turn of a run that was not polled since");
        let [_, second, third, fourth] = runs.try_into().unwrap();
        let (second, third, fourth) = block_on(join3(second, third, fourth));
        assert!(second.is_ok() && third.is_ok() && fourth.is_ok());
        assert_eq!(*started.lock().unwrap(), [0, 1, 2, 3]);
    }
}

#[test]
fn a_run_that_gives_its_turn_up_passes_it_on() {
    // Seen to fail when `leave_queue` woke no task.
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 1);
        let (plan, senders, _) = gates(3);
        let mut runs: Vec<_> = (0..3usize).map(|x| exec.run(&plan, inputs! { "x" => x })).collect();
        let (alarm, waker) = Alarm::new();
        assert!(poll_once(&mut runs[0]).is_pending() && poll_once(&mut runs[1]).is_pending());
        assert!(poll_with(&mut runs[2], &waker).is_pending());
        senders.into_iter().for_each(|sender| sender.send(()).unwrap());
        block_on(&mut runs[0]).unwrap();
        assert_eq!(alarm.rings(), 0, "it is another's turn");
        drop(runs.remove(1));
        assert_eq!(alarm.rings(), 1);
        block_on(runs.pop().unwrap()).unwrap();
    }
}

#[test]
fn a_full_executor_is_busy_and_gives_the_inputs_back() {
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 1);
        let (plan, mut senders, _) = gates(2);
        let mut first = exec.try_run(&plan, inputs! { "x" => 0usize }).unwrap();
        assert!(poll_once(&mut first).is_pending());
        let (error, inputs) = exec.try_run(&plan, inputs! { "x" => 1usize }).unwrap_err().into_parts();
        assert!(error.is_busy());
        let text = "the executor has no room for another run: at most 1 are in flight, and runs that wait come first; await some of them, or raise max_in_flight";
        assert_eq!(error.to_string(), text);
        senders.drain(..).for_each(|sender| sender.send(()).unwrap());
        block_on(first).unwrap();
        block_on(exec.try_run(&plan, inputs).unwrap()).unwrap();
    }
}

/// The number of runs that the tests of memory submit.
const MANY: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

#[test]
fn runs_that_are_dropped_do_not_pile_up() {
    // Seen to fail when a dropped run that never started went to limbo.
    let tally = Tally::default();
    let mut g = Graph::new();
    let x = g.input::<Counted>("x");
    let read = g.task("read", &x, |x: &Counted| x.get());
    g.future("read again", (&x, &read), async |x: Arc<Counted>, read: Arc<u64>| Ok(assert_eq!(x.get(), *read)));
    let plan = plan(&g);
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 16);
        for n in 0..MANY {
            let mut run = exec.run(&plan, inputs! { "x" => tally.value(1) });
            (0..n % 3).for_each(|_| {
                _ = poll_once(&mut run).is_pending() || {
                    run.cancel();
                    true
                }
            });
            drop(run);
            // A worker that leaves a run still holds it.
            assert!(exec.in_flight() <= 16 && exec.in_limbo() <= 20 && tally.alive() <= 20, "{exec:?}");
        }
        until(|| exec.in_limbo() == 0 && tally.alive() == 0);
    }
}

#[test]
fn runs_that_are_awaited_do_not_pile_up() {
    let tally = Tally::default();
    let mut g = Graph::new();
    let x = g.input::<Counted>("x");
    let out = g.kernel("out", &x, |_: &mut HostStream, x: &Counted| x.get());
    g.output("out", &out);
    let plan = plan(&g);
    for workers in [0, 1, 2] {
        let exec = bounded(workers, 16);
        for _ in 0..MANY / 64 {
            let runs = (0..64).map(|_| exec.run(&plan, inputs! { "x" => tally.value(1) }));
            assert!(block_on(join_all(runs)).into_iter().all(|run| run.is_ok()));
            assert!(tally.alive() <= 4, "at most what workers are on their way out of");
        }
    }
}

/// A plan whose node awaits a run whose node awaits a run, `depth` deep.
fn nested(exec: &Executor, depth: u64) -> Plan {
    let mut g = Graph::new();
    let exec = exec.clone();
    let out = g.future("nested", (), move || {
        let exec = exec.clone();
        async move {
            let inner = if depth == 0 { 0 } else { *exec.run(&nested(&exec, depth - 1), Inputs::new()).await?.take("out")? };
            Ok::<u64, anabranch::BoxError>(inner + 1)
        }
    });
    let out = g.task("out", &out, |out: &u64| *out);
    g.output("out", &out);
    plan(&g)
}

#[test]
fn a_node_may_await_runs_64_deep() {
    for exec in executors() {
        assert_eq!(*value_of::<u64>(block_on(exec.run(&nested(&exec, 64), Inputs::new())), "out"), 65);
    }
}

/// A plan of an async node and a task. Each polls a future once, and returns whether it was an error.
fn asks<F>(ask: impl Fn() -> F + Clone + Send + Sync + 'static) -> Plan
where
    F: Future<Output = Result<()>> + Unpin + 'static,
{
    let is_refused = move || matches!(poll_once(&mut ask()), std::task::Poll::Ready(Err(_)));
    let in_future = is_refused.clone();
    let mut g = Graph::new();
    let task = g.task("task", (), is_refused);
    let future = g.future("future", (), move || std::future::ready(Ok(in_future())));
    let both = g.task("both", (&task, &future), |task: &bool, future: &bool| *task && *future);
    g.output("out", &both);
    plan(&g)
}

#[test]
fn a_node_cannot_wait_for_its_own_executor() {
    for exec in executors() {
        let (idles, shuts) = (exec.clone(), exec.clone());
        for plan in [asks(move || idles.idle()), asks(move || shuts.shutdown())] {
            assert!(*value_of::<bool>(block_on(exec.run(&plan, Inputs::new())), "out"), "{exec:?}");
        }
        assert!(block_on(exec.idle()).is_ok(), "outside it can");
    }
}

#[test]
fn a_node_inside_of_a_node_cannot_wait_for_the_outer_executor() {
    // Seen to fail when only the innermost executor was remembered.
    let (outer, inner) = (Executor::inline(), Executor::inline());
    let idles = outer.clone();
    let asks = asks(move || idles.idle());
    let mut g = Graph::new();
    let out = g.future("out", (), move || {
        let run = inner.run(&asks, Inputs::new());
        async move { Ok(*run.await?.take::<bool>("out")?) }
    });
    g.output("out", &out);
    assert!(*value_of::<bool>(block_on(outer.run(&plan(&g), Inputs::new())), "out"));
}

/// Distributes the nodes over two streams.
struct TwoStreams;

impl Policy for TwoStreams {
    fn name(&self) -> &str {
        "two-streams"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let mut assignment = Assignment::none(shape);
        shape.ids().for_each(|node| assignment.set(node, node.index() as u32 % 2));
        Ok(assignment)
    }
}

/// Works for about a microsecond.
fn work() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
}

/// Plans with much work: one chain, nodes that are all ready, and a chain that changes streams at every node.
fn long_plans(nodes: usize, work: impl Fn() + Clone + Send + Sync + 'static) -> [Plan; 3] {
    let (mut wide, mut deep) = (Graph::new(), Graph::new());
    let works: Vec<Value<u64>> = (0..nodes)
        .map(|n| {
            let work = work.clone();
            wide.task(n.to_string(), (), move || {
                work();
                1u64
            })
        })
        .collect();
    let all = wide.task("last", &works[..], |all: Each<u64>| all.len());
    wide.output("out", &all);
    let mut last = deep.task("first", (), || 0u64);
    for n in 0..nodes {
        let work = work.clone();
        last = deep.task(n.to_string(), &last, move |last: &u64| {
            work();
            last + 1
        });
    }
    let last = deep.task("last", &last, |last: &u64| *last as usize);
    deep.output("out", &last);
    [plan(&wide), plan(&deep), deep.compile_with(&TwoStreams).unwrap()]
}

#[test]
fn a_long_inline_run_lets_other_tasks_run() {
    // Seen to fail when only steps within one program used up the time slice.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (n, plan) in long_plans(20_000, work).into_iter().enumerate() {
        let (turns, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over) = (turns.clone(), is_over.clone());
        runtime.block_on(async move {
            let other = tokio::spawn(async move {
                while !over.load(SeqCst) {
                    counted.fetch_add(1, SeqCst);
                    tokio::task::yield_now().await;
                }
            });
            Executor::inline().run(&plan, Inputs::new()).await.unwrap();
            is_over.store(true, SeqCst);
            other.await.unwrap();
        });
        // 20 ms in slices of 100 microseconds: 200 turns if the clock is never late.
        assert!(turns.load(SeqCst) >= 10, "{} turns with plan {n}", turns.load(SeqCst));
    }
}

/// Spins for a millisecond, ten times as long as a poll may take, and records the number of the poll.
fn note_long(poll: &AtomicUsize, notes: &Mutex<Vec<usize>>) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    notes.lock().unwrap().push(poll.load(SeqCst));
}

/// Polls a run to its end, counting the polls. Returns the largest number of notes of one poll.
fn most_notes_of_a_poll(exec: &Executor, plan: &Plan, poll: &AtomicUsize, notes: &Mutex<Vec<usize>>) -> usize {
    let (mut run, (alarm, waker)) = (exec.run(plan, Inputs::new()), Alarm::new());
    let mut rings = 0;
    while poll_with(&mut run, &waker).is_pending() {
        until(|| alarm.rings() > rings);
        rings = alarm.rings();
        poll.fetch_add(1, SeqCst);
    }
    let notes = notes.lock().unwrap();
    notes.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap()
}

#[test]
fn a_timer_of_tokio_goes_off_beside_endless_inline_work() {
    // Seen to fail (31 ms, which is 61 polls of half a millisecond) with the slice that there was. The time
    // is processor time of the thread, so other processes do not count.
    let mut g = Graph::new();
    let x = g.task("zero", (), || 0u64);
    let last = g.repeat("loop", &x, times(u64::MAX), |b, x| b.task("next", &x, |x: &u64| x.wrapping_add(1)));
    g.output("last", &last);
    let (exec, plan) = (Executor::inline(), plan(&g));
    let flow = exec.flow(async |f: &Flow| -> Result<()> {
        let x = f.value("x", 0);
        loop {
            f.get(&x).await?;
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let latest = |endless: BoxFuture<'static, ()>| {
        runtime.block_on(async {
            let endless = tokio::spawn(endless);
            let mut best = Duration::MAX;
            for _ in 0..20 {
                let began = thread_time();
                tokio::time::sleep(Duration::from_millis(1)).await;
                best = best.min(thread_time() - began);
            }
            endless.abort();
            best
        })
    };
    let run = exec.run(&plan, Inputs::new());
    assert!(latest(Box::pin(run.map(drop))) < Duration::from_millis(10));
    assert!(latest(Box::pin(flow.map(drop))) < Duration::from_millis(10));
}

#[test]
fn an_inline_poll_ends_soon_after_long_nodes_have_begun() {
    // Seen to fail when the number of steps between two readings of the clock was the one that the tiny steps
    // before had set, or the smaller of that number and 64: 20 in a poll.
    for tiny in [0, 7, 15, 31, 63, 127, 2_000] {
        let (poll, notes) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut g = Graph::new();
        let first = g.task("first", (), || 0u64);
        let mut last = chain(&mut g, &first, tiny);
        for n in 0..20 {
            let (poll, notes) = (poll.clone(), notes.clone());
            last = g.task(format!("long {n}"), &last, move |x: &u64| {
                note_long(&poll, &notes);
                x + 1
            });
        }
        g.output("out", &last);
        let most = most_notes_of_a_poll(&Executor::inline(), &plan(&g), &poll, &notes);
        // The first long node is of a new kind: a poll reads the clock at most eight nodes later.
        assert!(most <= 8, "{most} long nodes in one poll, behind {tiny} tiny ones");
    }
}

#[test]
fn a_poll_of_many_async_nodes_that_are_ready_ends() {
    // Seen to fail when a poll of a run polled all async nodes that were woken: 20 in a poll.
    let (poll, notes) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut g = Graph::new();
    for n in 0..20 {
        let (poll, notes) = (poll.clone(), notes.clone());
        g.future(n.to_string(), (), move || {
            note_long(&poll, &notes);
            std::future::ready(Ok(()))
        });
    }
    let most = most_notes_of_a_poll(&Executor::inline(), &plan(&g), &poll, &notes);
    assert!(most <= 3, "{most} async nodes in one poll");
}

#[test]
fn a_long_run_does_not_starve_short_ones() {
    // Seen to fail when a program that gave way on a single worker was resumed before the runs it gave way
    // to.
    let short = {
        let mut g = Graph::new();
        let x = g.task("x", (), || 0u64);
        let out = chain(&mut g, &x, 3);
        g.output("out", &out);
        plan(&g)
    };
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = is_enough.clone();
    let plans = long_plans(100_000, move || {
        let start = Instant::now();
        while !enough.load(SeqCst) && start.elapsed() < Duration::from_micros(50) {
            std::hint::spin_loop();
        }
    });
    for exec in [0, 1, 2].map(executor) {
        for (n, plan) in plans.iter().enumerate() {
            is_enough.store(false, SeqCst);
            let long = exec.run(plan, Inputs::new());
            let mut last = long.node("last");
            let shorts = async {
                let shorts = (0..1000).map(|_| exec.run(&short, Inputs::new()));
                assert!(join_all(shorts).await.into_iter().all(|run| run.is_ok()));
                let is_over = poll_once(&mut last).is_ready();
                is_enough.store(true, SeqCst);
                is_over
            };
            let (long, is_over) = block_on(join(long, shorts));
            assert!(long.is_ok() && !is_over, "the short runs came after plan {n}, on {exec:?}");
        }
    }
}

#[test]
fn idle_waits_for_every_run() {
    for exec in executors() {
        let (plan, senders, _) = gates(8);
        let runs = (0..8usize).map(|x| exec.run(&plan, inputs! { "x" => x }));
        let mut runs: Vec<_> = runs.collect();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        let mut idle = exec.idle();
        assert!(poll_once(&mut idle).is_pending());
        senders.into_iter().for_each(|sender| sender.send(()).unwrap());
        let (idle, ended) = block_on(join(idle, join_all(runs)));
        assert!(idle.is_ok() && ended.into_iter().all(|run| run.is_ok()));
    }
}

#[test]
fn blocked_workers_hold_up_no_timeout_and_no_other_executor() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for workers in [1, 2] {
        let (exec, is_open) = (executor(workers), Arc::new(AtomicBool::new(false)));
        let mut g = Graph::new();
        for n in 0..workers {
            let is_open = is_open.clone();
            g.task(n.to_string(), (), move || until(|| is_open.load(SeqCst)));
        }
        let (blocking, other) = (plan(&g), executor(1));
        runtime.block_on(async {
            let run = exec.run(&blocking, Inputs::new());
            assert!(tokio::time::timeout(Duration::from_millis(10), run).await.is_err());
            other.run(&asks(|| std::future::ready(Ok(()))), Inputs::new()).await.unwrap();
        });
        is_open.store(true, SeqCst);
        block_on(exec.idle()).unwrap();
    }
}
