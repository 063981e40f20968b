//! Priorities of runs that wait for room.

use std::sync::{Arc, Mutex};

use anabranch::{Executor, Graph, Inputs, Plan, Run};
use futures::channel::oneshot;
use futures::future::join_all;

use super::{Receiver, letter, one_at_a_time, waiting};
use crate::support::{Dice, block_on, plan, poll_once};

/// Returns a plan whose run records its number.
fn noting(number: usize, order: &Arc<Mutex<Vec<usize>>>) -> Plan {
    let mut g = Graph::new();
    let order = order.clone();
    g.task("note", (), move || order.lock().unwrap().push(number));
    plan(&g)
}

#[test]
fn runs_of_a_higher_priority_are_admitted_first() {
    // Seen to fail with an order of arrival alone.
    for exec in one_at_a_time() {
        let order = Arc::default();
        let (sender, inputs) = letter();
        let mut first = exec.run(&waiting(), inputs);
        assert!(poll_once(&mut first).is_pending());
        let priorities = [0, 5, -128, 5, 127, 0];
        let mut runs: Vec<Run> = priorities
            .into_iter()
            .enumerate()
            .map(|(number, priority)| exec.run(&noting(number, &order), Inputs::new()).priority(priority))
            .collect();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        sender.send(0).unwrap();
        block_on(first).unwrap();
        assert!(block_on(join_all(runs)).iter().all(Result::is_ok));
        assert_eq!(*order.lock().unwrap(), [4, 1, 3, 0, 5, 2]);
    }
}

#[test]
fn a_call_has_a_priority() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let function = |number: usize| {
        let notes = notes.clone();
        anabranch::Function::new("note", move |g: &mut Graph, x: anabranch::Value<u32>| {
            g.task("note", &x, move |_: &u32| notes.lock().unwrap().push(number))
        })
    };
    let (low, high) = (function(0).unwrap(), function(1).unwrap());
    for exec in one_at_a_time() {
        let (sender, inputs) = letter();
        let mut first = exec.run(&waiting(), inputs);
        assert!(poll_once(&mut first).is_pending());
        let (mut low, mut high) = (exec.call(&low, 1).priority(-1), exec.call(&high, 1).priority(1));
        assert!(poll_once(&mut low).is_pending() && poll_once(&mut high).is_pending());
        sender.send(0).unwrap();
        block_on(first).unwrap();
        let (low, high) = block_on(async { futures::join!(low, high) });
        assert!(low.is_ok() && high.is_ok());
        assert_eq!(std::mem::take(&mut *notes.lock().unwrap()), [1, 0]);
    }
}

#[test]
fn room_that_is_kept_for_a_run_is_not_given_to_one_of_a_higher_priority() {
    // Seen to fail with a `room_before` that is always 0.
    for exec in one_at_a_time() {
        let plan = waiting();
        let ((first_sender, first), (low_sender, low), (high_sender, high)) = (letter(), letter(), letter());
        let (mut first, mut low) = (exec.run(&plan, first), exec.run(&plan, low).priority(-1));
        assert!(poll_once(&mut first).is_pending() && poll_once(&mut low).is_pending());
        first_sender.send(0).unwrap();
        block_on(first).unwrap();
        // The run with the low priority is called now.
        let mut high = exec.run(&plan, high).priority(1);
        assert!(poll_once(&mut high).is_pending());
        assert_eq!((exec.in_flight(), exec.stats().runs_waiting), (0, 2));
        low_sender.send(0).unwrap();
        block_on(low).unwrap();
        high_sender.send(0).unwrap();
        block_on(high).unwrap();
    }
}

/// A run that is in flight or waits, and the sender that ends it.
struct Known {
    run: Run,
    sender: oneshot::Sender<u32>,
    receiver: Arc<Receiver>,
    priority: i8,
    arrival: usize,
}

impl Known {
    fn new(exec: &Executor, plan: &Plan, priority: i8, arrival: usize) -> Self {
        let (sender, receiver) = oneshot::channel();
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let run = exec.run(plan, Inputs::new().with_arc("receiver", receiver.clone())).priority(priority);
        Self { run, sender, receiver, priority, arrival }
    }

    fn has_begun(&self) -> bool {
        self.receiver.lock().unwrap().is_none()
    }
}

#[test]
fn the_order_of_admission_is_that_of_a_model() {
    // Seen to fail with an order of arrival alone, with a `call_next` that takes the last, and with a
    // `leave_queue` that calls no other.
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let max = 1 + dice.below(3);
        let exec = Executor::builder().workers(0).max_in_flight(max).build().unwrap();
        let plan = waiting();
        let (mut flying, mut waiters): (Vec<Known>, Vec<Known>) = Default::default();
        for arrival in 0..200 {
            match dice.below(4) {
                0 if !flying.is_empty() => {
                    let ended = flying.swap_remove(dice.below(flying.len()));
                    ended.sender.send(0).unwrap();
                    block_on(ended.run).unwrap();
                    // A called run may leave before it is polled.
                    if dice.below(3) == 0 && !waiters.is_empty() {
                        drop(waiters.remove(0));
                    }
                }
                1 if !waiters.is_empty() => drop(waiters.swap_remove(dice.below(waiters.len()))),
                _ => {
                    let mut known = Known::new(&exec, &plan, dice.below(5) as i8 - 2, arrival);
                    assert!(poll_once(&mut known.run).is_pending());
                    waiters.push(known);
                }
            }
            // The runs for which there is room are those of the model.
            waiters.sort_by_key(|known| (-known.priority, known.arrival));
            let room = (max - flying.len()).min(waiters.len());
            let mut admitted: Vec<Known> = waiters.drain(..room).collect();
            for known in admitted.iter_mut().rev().chain(&mut waiters) {
                assert!(poll_once(&mut known.run).is_pending());
            }
            flying.append(&mut admitted);
            assert_eq!((exec.in_flight(), exec.stats().runs_waiting), (flying.len(), waiters.len()), "seed {seed}");
            assert!(flying.iter().all(Known::has_begun) && !waiters.iter().any(Known::has_begun), "seed {seed}");
        }
    }
}
