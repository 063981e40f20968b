//! Runs that wait for room in flight: one after the other, regardless of the results of earlier ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anabranch::{Executor, Graph, Inputs, Plan, inputs};
use futures::channel::oneshot;
use futures::future::join_all;
use tokio_test::{assert_pending, task};

use crate::support::{Alarm, Dice, alone, block_on, plan, poll_once, poll_with, until};

/// Executors that have one run in flight at a time.
fn executors() -> [Executor; 3] {
    [0, 1, 2].map(one_at_a_time)
}

fn one_at_a_time(workers: usize) -> Executor {
    Executor::builder().workers(workers).max_in_flight(1).build().unwrap()
}

/// A plan that counts its runs in progress, and their maximum.
fn counting() -> (Plan, Arc<AtomicUsize>) {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut g = Graph::new();
    let (n, m) = (now.clone(), most.clone());
    let begin = g.task("begin", (), move || _ = m.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst));
    let pause = g.future("pause", &begin, async |_| {
        smol::future::yield_now().await;
        Ok(())
    });
    g.task("end", &pause, move |_: &()| _ = now.fetch_sub(1, Ordering::SeqCst));
    (plan(&g), most)
}

#[test]
fn runs_go_one_after_the_other() {
    // Seen to fail with two in flight.
    for exec in executors() {
        let (plan, most) = counting();
        let runs = block_on(join_all((0..50).map(|_| exec.run(&plan, Inputs::new()))));
        assert!(runs.into_iter().all(|run| run.is_ok()));
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}

/// The receiver that a run waits for.
pub(crate) type Receiver = Mutex<Option<oneshot::Receiver<u32>>>;

/// Returns a plan whose run receives a word and returns it.
pub(crate) fn waiting() -> Plan {
    let mut g = Graph::new();
    let receiver = g.input::<Receiver>("receiver");
    let word = g.future("wait", &receiver, |receiver: Arc<Receiver>| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        async move { Ok(receiver.await?) }
    });
    g.output("word", &word);
    plan(&g)
}

pub(crate) fn letter() -> (oneshot::Sender<u32>, Inputs) {
    let (sender, receiver) = oneshot::channel();
    (sender, inputs! { "receiver" => Mutex::new(Some(receiver)) })
}

#[test]
fn a_run_is_woken_when_its_turn_comes() {
    // Seen to fail without the wake by the previous run.
    for exec in executors() {
        let plan = waiting();
        let ((first_sender, first), (second_sender, second)) = (letter(), letter());
        let (mut first, mut second) = (exec.run(&plan, first), exec.run(&plan, second));
        let (alarm, waker) = Alarm::new();
        second_sender.send(2).unwrap();
        assert!(poll_once(&mut first).is_pending() && poll_with(&mut second, &waker).is_pending());
        assert_eq!(exec.in_flight(), 1);
        // A spurious wake may have come before; then it checks again.
        assert!(poll_with(&mut second, &waker).is_pending());
        let before = alarm.rings();
        first_sender.send(1).unwrap();
        assert_eq!(*block_on(&mut first).unwrap().take::<u32>("word").unwrap(), 1);
        // The end of the first run wakes its own task too, perhaps a moment earlier.
        until(|| alarm.rings() > before);
        assert_eq!(*block_on(second).unwrap().take::<u32>("word").unwrap(), 2);
    }
}

#[test]
fn runs_that_fail_or_are_cancelled_let_the_next_in() {
    let mut g = Graph::new();
    g.try_task("fail", (), || Err::<(), _>("no".into()));
    let failing = plan(&g);
    for exec in executors() {
        let plan = waiting();
        let ((_sender, first), (sender, third)) = (letter(), letter());
        let (first, second, third) = (exec.run(&plan, first), exec.run(&failing, Inputs::new()), exec.run(&plan, third));
        first.cancel();
        sender.send(3).unwrap();
        let (first, second, third) = block_on(async { futures::join!(first, second, third) });
        assert!(first.unwrap_err().is_cancelled());
        assert_eq!(second.unwrap_err().node(), Some("fail"));
        assert!(third.is_ok());
    }
}

#[test]
fn the_end_of_a_run_wakes_the_next_one_only() {
    // Seen to fail when each woken run woke the next one.
    for exec in executors() {
        let plan = waiting();
        let ((sender, first), (_sender, second), (_, third)) = (letter(), letter(), letter());
        let mut runs = [first, second, third].map(|inputs| task::spawn(exec.run(&plan, inputs)));
        runs.iter_mut().for_each(|run| assert_pending!(run.poll()));
        sender.send(1).unwrap();
        block_on(&mut runs[0]).unwrap();
        until(|| runs[1].is_woken());
        assert_pending!(runs[1].poll());
        assert!(!runs[2].is_woken());
    }
}

#[test]
fn cheap_runs_take_no_room_that_is_kept() {
    // Seen to fail (the cheap run was ready first) with runs at once that check only the number of runs.
    for exec in executors() {
        let (waits, cheap) = (waiting(), quick());
        // Two at a time, so that there are two spare blocks.
        let two = || block_on(join_all([0; 2].map(|_| exec.run(&cheap, Inputs::new()))));
        (0..100).for_each(|_| assert!(two().into_iter().all(|run| run.is_ok())));
        let (first_sender, first) = letter();
        let (mut first, mut second) = (exec.run(&waits, first), exec.run(&cheap, Inputs::new()));
        // If earlier runs have used up this thread's budget, a poll only lets other tasks run. So there are
        // two polls.
        assert!(poll_once(&mut first).is_pending() && poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        first_sender.send(1).unwrap();
        block_on(first).unwrap();
        let mut third = exec.run(&cheap, Inputs::new());
        assert!(poll_once(&mut third).is_pending());
        block_on(second).unwrap();
        block_on(third).unwrap();
    }
}

/// A plan that soon becomes known as cheap.
fn quick() -> Plan {
    let mut g = Graph::new();
    g.task("nothing", (), || ());
    plan(&g)
}

#[test]
fn each_end_makes_room_for_one() {
    // Seen to fail with an end that calls as many runs as may be in flight.
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).max_in_flight(2).build().unwrap();
        let plan = waiting();
        let (senders, mut runs): (Vec<_>, Vec<_>) =
            (0..4).map(|_| letter()).map(|(sender, word)| (sender, exec.run(&plan, word))).unzip();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        let mut senders = senders.into_iter();
        senders.next().unwrap().send(0).unwrap();
        block_on(runs.remove(0)).unwrap();
        // The last run was not called: it does not begin before the one ahead of it.
        assert!(poll_once(&mut runs[2]).is_pending() && poll_once(&mut runs[1]).is_pending());
        assert_eq!(exec.in_flight(), 2);
        senders.for_each(|sender| sender.send(0).unwrap());
        assert!(block_on(join_all(runs)).into_iter().all(|run| run.is_ok()));
    }
}

/// Runs `body` on a thread with a small stack.
fn on_a_small_stack(body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap().join().unwrap();
}

#[test]
fn a_hundred_thousand_runs_need_no_stack() {
    // Seen to fail (the stack overflowed, and the process died) when the end of a run woke all runs behind
    // it.
    alone("waiting_runs::a_hundred_thousand_runs_need_no_stack", || {
        for workers in [0, 1, 2] {
            on_a_small_stack(move || {
                let mut g = Graph::new();
                g.task("nothing", (), || ());
                let (exec, plan) = (one_at_a_time(workers), plan(&g));
                let ended = block_on(join_all((0..100_000).map(|_| exec.run(&plan, Inputs::new()))));
                assert!(ended.into_iter().all(|run| run.is_ok()));
            });
        }
    });
}

#[test]
fn a_hundred_thousand_runs_are_dropped_in_any_order() {
    // Seen to fail (the stack overflowed, and the process died) when the end of a run woke all runs behind
    // it.
    alone("waiting_runs::a_hundred_thousand_runs_are_dropped_in_any_order", || {
        on_a_small_stack(|| {
            let (exec, plan) = (one_at_a_time(1), waiting());
            let letters: (Vec<_>, Vec<_>) = (0..100_000).map(|_| letter()).unzip();
            let (mut senders, mut runs): (_, Vec<_>) =
                (letters.0, letters.1.into_iter().map(|inputs| exec.run(&plan, inputs)).collect());
            runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
            let (last, first, mut dice) = (runs.pop().unwrap(), runs.swap_remove(0), Dice::new(7));
            while !runs.is_empty() {
                drop(runs.swap_remove(dice.below(runs.len())));
            }
            assert_eq!(exec.in_flight(), 1);
            senders.pop().unwrap().send(2).unwrap();
            senders.swap_remove(0).send(1).unwrap();
            let (first, last) = block_on(async { futures::join!(first, last) });
            assert!(first.is_ok() && last.is_ok());
        });
    });
}
