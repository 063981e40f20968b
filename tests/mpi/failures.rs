//! Ranks that die, hang or leave: the others end within the deadline, with an error that names the rank.

use std::time::{Duration, Instant};

use anabranch::comm::{Mpi, World};
use anabranch::scope::Sum;
use anabranch::{Executor, Graph, Inputs, Plan};
use futures::executor::block_on;

use crate::launch::{self, Launcher};

const DEADLINE: Duration = Duration::from_secs(2);

fn plan(world: &World) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<Vec<f64>>("x");
    let sum = g.all_reduce("sum", &x, Sum);
    let sent = g.broadcast("first", &sum, 0);
    g.output("sum", &sent);
    g.compile_for(world).unwrap()
}

/// Runs rounds until rank 1 ends as `end` says; checks the error of the others.
fn others_end(
    name: &str,
    check: fn(&Launcher, u32, &str, Option<(&str, String)>),
    end: impl Fn(World),
    is_right: impl Fn(&str) -> bool,
) {
    if !launch::is_rank() {
        return launch::all(name, 3, |launcher, ranks, test| check(launcher, ranks, test, None));
    }
    launch::keep_panics();
    let world = Mpi::new().deadline(DEADLINE).world().unwrap();
    let (exec, plan) = (Executor::inline(), plan(&world));
    let run = || exec.run(&plan, Inputs::new().with("x", vec![1.0; 1000]));
    for _ in 0..10 {
        block_on(run()).unwrap();
    }
    if world.rank() == 1 {
        drop((exec, plan));
        end(world);
        return;
    }
    let begin = Instant::now();
    // A broadcast may still succeed without the rank.
    let error = (0..3).find_map(|_| block_on(run()).err()).expect("rank 1 takes no part any more");
    let waited = begin.elapsed();
    assert!(error.is_world_broken() && error.rank() == Some(1), "{error:#}");
    assert!(is_right(&format!("{error:#}")), "{error:#}");
    assert!(waited < DEADLINE, "{waited:?}");
    // Without the rank there is no further world.
    world.duplicate().unwrap_err();
    assert!(begin.elapsed() < 3 * DEADLINE, "{:?}", begin.elapsed());
    // Work without communication goes on.
    let mut g = Graph::new();
    let x = g.task("x", (), || 7);
    g.output("x", &x);
    assert_eq!(*block_on(exec.run(&g.compile().unwrap(), Inputs::new())).unwrap().take::<i32>("x").unwrap(), 7);
    launch::note_well(world.rank());
    launch::wait_for(2);
}

fn others_end_when_one_is_killed(name: &str, check: fn(&Launcher, u32, &str, Option<(&str, String)>)) {
    others_end(name, check, |_| launch::signal("-KILL"), |error| error.contains("rank 1 has died"));
}

#[test]
fn a_rank_is_killed() {
    others_end_when_one_is_killed("failures::a_rank_is_killed", Launcher::survives);
}

#[test]
fn a_rank_is_killed_and_the_launcher_lets_the_others_live() {
    let name = "failures::a_rank_is_killed_and_the_launcher_lets_the_others_live";
    others_end_when_one_is_killed(name, Launcher::survives_and_hears);
}

#[test]
fn a_rank_is_stopped() {
    others_end(
        "failures::a_rank_is_stopped",
        Launcher::survives,
        |_| launch::signal("-STOP"),
        |error| error.contains("rank 1 has not answered for"),
    );
}

#[test]
fn a_rank_leaves() {
    others_end("failures::a_rank_leaves", Launcher::survives, drop, |error| error.contains("rank 1 has left the world"));
}

#[test]
fn a_rank_exits_and_keeps_its_world() {
    // Seen to hang when only a drop of the world counted.
    let end = |world: World| {
        std::mem::forget(world);
        std::process::exit(0);
    };
    others_end("failures::a_rank_exits_and_keeps_its_world", Launcher::survives, end, |error| {
        error.contains("rank 1 has left the world")
    });
}
