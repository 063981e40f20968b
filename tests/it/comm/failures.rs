//! Ranks that leave, fail, or are dropped: every pending future of the others ends with an error that names
//! the rank and the node.

use std::sync::Arc;

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{BoxError, Executor, Flow, Graph, Inputs, Plan};
use futures::executor::block_on;
use futures::future::{join, poll_immediate};

fn plan(world: &World) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u32>("x");
    let y = g.future("prepare", &x, |x: Arc<u32>| async move {
        match *x {
            13 => Err(BoxError::from("an unlucky number")),
            99 => std::future::pending().await,
            x => Ok(x),
        }
    });
    let sum = g.all_reduce("sum", &y, Sum);
    g.output("sum", &sum);
    g.compile_for(world).unwrap()
}

fn two() -> [World; 2] {
    World::local(2).unwrap().try_into().unwrap()
}

#[test]
fn a_rank_that_leaves_ends_what_others_wait_for() {
    let [first, second] = two();
    let (exec, plan) = (Executor::inline(), plan(&first));
    let mut run = exec.run(&plan, Inputs::new().with("x", 1_u32));
    assert!(block_on(poll_immediate(&mut run)).is_none());
    drop(second);
    let error = block_on(run).unwrap_err();
    assert!(error.is_world_broken());
    assert_eq!((error.rank(), error.node()), (Some(1), Some("sum")));
    insta::assert_snapshot!(format!("{error:#}"), @"node 'sum' failed on host 0 of the host device: rank 1 has left the world: it has ended, or has dropped its last handle: see whether it has an error of its own");
    insta::assert_snapshot!(first.error().unwrap(), @"rank 1 has left the world: it has ended, or has dropped its last handle: see whether it has an error of its own");
    // The world stays broken.
    let again = block_on(exec.run(&plan, Inputs::new().with("x", 1_u32))).unwrap_err();
    assert_eq!(again.rank(), Some(1));
}

#[test]
fn a_rank_that_has_left_already_ends_a_run_at_once() {
    let [first, second] = two();
    drop(second);
    let error = block_on(Executor::inline().run(&plan(&first), Inputs::new().with("x", 1_u32))).unwrap_err();
    assert_eq!(error.rank(), Some(1));
}

#[test]
fn a_rank_that_leaves_when_all_is_done_breaks_nothing() {
    // Seen to fail when each rank that leaves broke the world.
    let [first, second] = two();
    let rank = |world: World| async move {
        let mut outputs = Executor::inline().run(&plan(&world), Inputs::new().with("x", 1_u32)).await.unwrap();
        assert_eq!(*outputs.take::<u32>("sum").unwrap(), 2);
        world
    };
    let (first, second) = block_on(join(rank(first), rank(second)));
    drop(first);
    assert!(second.error().is_none());
}

#[test]
fn a_rank_whose_node_fails_tells_the_others_why() {
    let [first, second] = two();
    let (exec, plans) = (Executor::inline(), [plan(&first), plan(&second)]);
    let run = |at: usize, x: u32| exec.run(&plans[at], Inputs::new().with("x", x));
    let (waits, fails) = block_on(join(run(0, 1), run(1, 13)));
    assert_eq!(fails.unwrap_err().node(), Some("prepare"));
    insta::assert_snapshot!(format!("{:#}", waits.unwrap_err()), @"node 'sum' failed on host 0 of the host device: rank 1 has abandoned the run: node 'prepare' failed on host 0 of the host device: an unlucky number");
}

#[test]
fn a_run_that_is_dropped_ends_that_of_other_ranks() {
    let [first, second] = two();
    let (exec, plans) = (Executor::inline(), [plan(&first), plan(&second)]);
    let run = |at: usize, x: u32| exec.run(&plans[at], Inputs::new().with("x", x));
    let mut waits = run(0, 1);
    assert!(block_on(poll_immediate(&mut waits)).is_none());
    // A run that was never polled has begun nothing.
    drop(run(1, 1));
    assert!(first.error().is_none());
    let mut dropped = run(1, 99);
    assert!(block_on(poll_immediate(&mut dropped)).is_none());
    drop(dropped);
    let error = block_on(waits).unwrap_err();
    assert_eq!((error.rank(), error.node()), (Some(1), Some("sum")));
    assert!(format!("{error:#}").contains("rank 1 has abandoned the run: "), "{error:#}");
}

#[test]
fn work_without_communication_goes_on_and_a_new_world_can_be_made() {
    let [first, second] = two();
    drop(second);
    let exec = Executor::inline();
    assert!(block_on(exec.run(&plan(&first), Inputs::new().with("x", 1_u32))).is_err());
    let mut g = Graph::new();
    let x = g.task("x", (), || 7);
    g.output("x", &x);
    assert_eq!(*block_on(exec.run(&g.compile().unwrap(), Inputs::new())).unwrap().take::<i32>("x").unwrap(), 7);
    let [world] = <[World; 1]>::try_from(World::local(1).unwrap()).unwrap();
    let mut outputs = block_on(exec.run(&plan(&world), Inputs::new().with("x", 5_u32))).unwrap();
    assert_eq!(*outputs.take::<u32>("sum").unwrap(), 5);
}

#[test]
fn a_world_that_is_broken_is_duplicated_and_the_ranks_go_on() {
    // Seen to fail when the duplicate was the same world.
    let [first, second] = two();
    let (exec, plans) = (Executor::inline(), [plan(&first), plan(&second)]);
    let run = |plan: &Plan, x: u32| exec.run(plan, Inputs::new().with("x", x));
    block_on(join(run(&plans[0], 1), run(&plans[1], 13))).0.unwrap_err();
    for round in 0..3 {
        let plans = [&first, &second].map(|world| plan(&world.duplicate().unwrap()));
        let (sum, other) = block_on(join(run(&plans[0], round), run(&plans[1], 5)));
        assert_eq!([sum, other].map(|outputs| *outputs.unwrap().take::<u32>("sum").unwrap()), [5 + round; 2]);
    }
    assert!(first.error().is_some());
}

#[test]
fn a_rank_that_leaves_before_it_duplicates_a_world_has_left_the_further_ones() {
    // Seen to hang when only the world itself heard of it, and when the further worlds of a further one did
    // not.
    let [first, second] = two();
    let before = first.duplicate().unwrap();
    drop(second);
    let behind = first.duplicate().unwrap();
    let further = behind.duplicate().unwrap();
    for world in [before, behind, further] {
        let error = block_on(Executor::inline().run(&plan(&world), Inputs::new().with("x", 1_u32))).unwrap_err();
        assert_eq!(error.rank(), Some(1), "{error:#}");
    }
}

#[test]
fn lengths_that_differ_fail_the_node_on_all_ranks() {
    // Seen to fail when lengths were not checked.
    let errors = super::run_ranks(2, |rank| vec![1.0; 3 + rank as usize], |g, x, _| g.all_reduce("sum", &x, Sum));
    for error in errors {
        insta::allow_duplicates! {
            insta::assert_snapshot!(format!("{:#}", error.unwrap_err()), @"node 'sum' failed on host 0 of the host device: rank 0 gives 3 elements, and rank 1 gives 4: let all ranks give equally many");
        }
    }
}

#[test]
fn elements_that_cannot_be_divided_fail_the_operation_on_all_ranks_and_the_world_goes_on() {
    // As over MPI. Seen to fail when the length of rank 0 was divided before the lengths were compared.
    let errors = super::each_rank(2, |world: World| async move {
        let (exec, rank) = (Executor::inline(), world.rank() as usize);
        let flow = |length: usize| {
            let world = world.clone();
            exec.flow(async move |f: &Flow| {
                let x = f.value("x", vec![1_u32; length]);
                let part = f.get(&f.reduce_scatter(&world, "part", &x, Sum)).await.map(|part| part.len());
                let swapped = f.get(&f.all_to_all(&world, "swap", &x)).await.map(|swapped| swapped.len());
                Ok([part, swapped].map(|ended| ended.map_or_else(|error| format!("{error:#}"), |length| length.to_string())))
            })
        };
        let [same, different] = [flow(3).await.unwrap(), flow(3 + rank).await.unwrap()];
        assert_eq!(flow(4).await.unwrap(), ["2", "4"]);
        assert!(world.error().is_none());
        (same, different)
    });
    for (same, different) in errors {
        assert!(same.iter().all(|text| text.contains("3 elements cannot be divided among 2 ranks")), "{same:?}");
        assert!(different.iter().all(|text| text.contains("rank 0 gives 3 elements, and rank 1 gives 4")), "{different:?}");
    }
}

#[test]
fn worlds_have_one_rank_and_more() {
    // Seen to fail without the check of the number.
    assert!(World::local(0).is_err() && World::local(1 << 17).is_err());
    let worlds = World::local(3).unwrap();
    assert_eq!(worlds.iter().map(World::rank).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(worlds.iter().all(|world| world.size() == 3));
}

#[test]
fn a_failure_before_one_collective_ends_those_that_wait_for_their_turn() {
    // Seen to hang when the world heard of a failure at the end of the run only: "second" waits for the turn
    // of "first", which is skipped on one rank.
    let errors = super::run_ranks(
        2,
        |rank| rank,
        |g, x, _| {
            let fails = g.try_task("fails", &x, |x: &u32| if *x == 1 { Err(BoxError::from("no value")) } else { Ok(*x) });
            let first = g.all_reduce("first", &fails, Sum);
            let second = g.all_reduce("second", &x, Sum);
            g.task("both", (&first, &second), |first: &u32, second: &u32| first + second)
        },
    );
    let errors: Vec<String> = errors.into_iter().map(|error| format!("{:#}", error.unwrap_err())).collect();
    assert!(errors[0].contains("rank 1 has abandoned the run") && errors[0].contains("no value"), "{errors:#?}");
    assert!(errors[1].contains("'fails' failed"), "{errors:#?}");
}

#[test]
fn a_failure_that_no_communication_needs_breaks_nothing() {
    let errors = super::run_ranks(
        2,
        |rank| rank,
        |g, x, _| {
            let sum = g.all_reduce("sum", &x, Sum);
            g.try_task("fails", &sum, |_: &u32| Err::<u32, _>(BoxError::from("no value")))
        },
    );
    assert!(errors.into_iter().all(|error| !error.unwrap_err().is_world_broken()));
}
