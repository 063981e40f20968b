//! Operations that are dropped, and ranks that do less than others.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use anabranch::comm::{Wire, World};
use anabranch::scope::Sum;
use anabranch::{BoxError, Executor, Flow, Graph, Inputs, Outputs, Result, Run};
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{join, join3, poll_immediate};

use super::each_rank;

fn two() -> [World; 2] {
    World::local(2).unwrap().try_into().unwrap()
}

/// Runs a flow to its end.
fn flow<R>(flow: impl AsyncFnOnce(&Flow) -> Result<R>) -> R {
    block_on(Executor::inline().flow(flow)).unwrap()
}

/// Polls a flow once, and drops it.
fn drop_flow<R>(flow: impl AsyncFnOnce(&Flow) -> Result<R>) {
    let exec = Executor::inline();
    let mut flow = Box::pin(exec.flow(flow));
    assert!(block_on(poll_immediate(&mut flow)).is_none());
}

async fn receive(f: &Flow, world: &World) -> Result<u32> {
    Ok(*f.get(&f.recv_from::<u32>(world, "receive", 0)).await?)
}

async fn send(f: &Flow, world: &World, letter: u32) -> Result<()> {
    f.get(&f.send_to(world, "send", &f.value("x", letter), 1)).await.map(drop)
}

#[test]
fn a_receive_that_is_dropped_discards_its_own_letter() {
    // Seen to hang when receives took letters in turn.
    let [first, second] = two();
    drop_flow(async |f: &Flow| receive(f, &second).await);
    for letter in 1..=3 {
        flow(async |f: &Flow| send(f, &first, letter).await);
    }
    assert_eq!(flow(async |f: &Flow| receive(f, &second).await), 2);
    assert_eq!(flow(async |f: &Flow| receive(f, &second).await), 3);
    assert!(first.error().is_none());
}

#[test]
fn letters_of_a_rank_that_has_left_are_received() {
    // Seen to fail when receives took letters in turn: the rank had left, and a letter lay there.
    let [first, second] = two();
    drop_flow(async |f: &Flow| receive(f, &second).await);
    for letter in 1..=2 {
        flow(async |f: &Flow| send(f, &first, letter).await);
    }
    drop(first);
    assert_eq!(flow(async |f: &Flow| receive(f, &second).await), 2);
    let none = block_on(Executor::inline().flow(async |f: &Flow| receive(f, &second).await)).unwrap_err();
    assert_eq!(none.rank(), Some(0));
}

/// A value that is counted.
struct Counted {
    _count: Arc<()>,
}

impl Wire for Counted {
    fn to_wire(&self) -> std::result::Result<Cow<'_, [u8]>, BoxError> {
        Ok(Cow::Borrowed(&[]))
    }

    fn from_wire(_: &[u8]) -> std::result::Result<Self, BoxError> {
        Ok(Self { _count: Arc::new(()) })
    }
}

#[test]
fn a_collective_that_is_dropped_on_one_rank_ends_on_the_other_and_is_freed() {
    // Seen to fail when a dropped collective stayed open.
    let ([first, second], value) = (two(), Arc::new(()));
    let root = async |f: &Flow, world: &World| {
        let x = f.value("x", Counted { _count: value.clone() });
        f.get(&f.broadcast(world, "first", &x, 0)).await.map(drop)
    };
    drop_flow(async |f: &Flow| root(f, &first).await);
    flow(async |f: &Flow| root(f, &second).await);
    assert!(second.error().is_none());
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn a_receive_of_another_type_is_an_error() {
    // Seen to panic without the check of types.
    let [first, second] = two();
    flow(async |f: &Flow| send(f, &first, 1).await);
    let error = block_on(Executor::inline().flow(async |f: &Flow| Ok(*f.get(&f.recv_from::<f32>(&second, "receive", 0)).await?)));
    let text = format!("{:#}", error.unwrap_err());
    assert!(text.contains("receives a `f32`, but 'send' sends a `u32`"), "{text}");
}

fn plan(world: &World, name: &'static str) -> anabranch::Plan {
    let mut g = Graph::new();
    let x = g.input::<u32>("x");
    let sum = g.all_reduce(name, &x, Sum);
    g.output("sum", &sum);
    g.compile_for(world).unwrap()
}

#[test]
fn a_mistake_in_the_inputs_of_one_rank_ends_the_run_on_all() {
    // Seen to say only that the rank had left, when a run with a mistake had no place in the order.
    let errors = each_rank(3, |world| async move {
        let inputs = if world.rank() == 1 { Inputs::new() } else { Inputs::new().with("x", 1_u32) };
        format!("{:#}", Executor::inline().run(&plan(&world, "sum"), inputs).await.unwrap_err())
    });
    let why = "rank 1 has abandoned the run: ";
    assert!(errors[0].contains(why) && errors[2].contains(why), "{errors:#?}");
    assert!(errors[1].contains("'x'") && !errors[1].contains(why), "{errors:#?}");
}

#[test]
fn a_rank_outside_of_the_world_on_one_rank_ends_the_operation_on_all() {
    // Seen to name another operation when the mistake broke nothing.
    let errors = each_rank(2, |world| async move {
        let root = if world.rank() == 1 { 5 } else { 0 };
        let exec = Executor::inline();
        let flow = exec.flow(async |f: &Flow| {
            let sum = f.all_reduce(&world, "sum", &f.value("x", 1_u32), Sum);
            let x = f.broadcast(&world, "first", &sum, root);
            Ok(*f.get(&f.all_reduce(&world, "last", &x, Sum)).await?)
        });
        format!("{:#}", flow.await.unwrap_err())
    });
    assert!(errors[0].contains("rank 1 has abandoned the run: 'first' names rank 5"), "{errors:#?}");
}

#[test]
fn a_run_of_a_high_priority_does_not_pass_one_whose_turn_it_waits_for() {
    // Seen to hang when priorities counted: the second run had the only place, and the first one the turn.
    let ([first, second], (go, gate)) = (two(), oneshot::channel::<()>());
    let (mut g, gate) = (Graph::new(), Mutex::new(Some(gate)));
    let opened = g.future("wait", (), move || {
        let gate = gate.lock().unwrap().take();
        async move { gate.expect("one run").await.map_err(BoxError::from) }
    });
    g.output("opened", &opened);
    let (waits, plans) = (g.compile().unwrap(), [plan(&first, "sum"), plan(&second, "sum")]);
    let exec = Executor::builder().workers(1).max_in_flight(1).build().unwrap();
    let run = |x: u32, priority| exec.run(&plans[0], Inputs::new().with("x", x)).priority(priority);
    let (mut before, mut low, mut high) = (exec.run(&waits, Inputs::new()), run(1, -1), run(10, 1));
    assert!(block_on(poll_immediate(&mut before)).is_none());
    assert!(block_on(poll_immediate(&mut low)).is_none());
    assert!(block_on(poll_immediate(&mut high)).is_none());
    go.send(()).unwrap();
    let other = Executor::inline();
    let run = |x: u32| other.run(&plans[1], Inputs::new().with("x", x));
    let (before, [low, high], others) = block_on(join3(before, join_both(low, high), join_both(run(1), run(10))));
    before.unwrap();
    let sum = |outputs: Result<Outputs>| *outputs.unwrap().take::<u32>("sum").unwrap();
    assert_eq!([low, high].map(sum), [2, 20]);
    assert_eq!(others.map(sum), [2, 20]);
}

async fn join_both(first: Run, second: Run) -> [Result<Outputs>; 2] {
    join(first, second).await.into()
}
