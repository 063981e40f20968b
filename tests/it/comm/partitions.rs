//! One graph whose nodes run on different ranks: the bits are those of one pass over the nodes, wherever they
//! run.

use anabranch::comm::World;
use anabranch::graph::times;
use anabranch::scope::Sum;
use anabranch::{BoxError, Executor, Graph, inputs, take};
use futures::executor::block_on;
use futures::future::join_all;

use super::drawn::{Drawn, live};
use super::each_rank;

const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 2000 };

#[test]
fn random_graphs_on_random_ranks_give_the_bits_of_one_rank() {
    for seed in 0..SEEDS {
        for ranks in 1..=4 {
            let what = format!("seed {seed}, {ranks} ranks");
            let run = |world: World| {
                let what = &what;
                async move {
                    let drawn = Drawn::new(seed, ranks);
                    let exec = Executor::sim(seed * 10 + u64::from(world.rank()));
                    let outputs =
                        drawn.run(&world, &exec).await.unwrap_or_else(|error| panic!("{what}: {error:#}\n{}", drawn.text()));
                    drawn.check(world.rank(), outputs, what);
                }
            };
            block_on(join_all(World::local(ranks).unwrap().into_iter().map(run)));
            assert_eq!(live(), 0, "{what}");
        }
    }
}

/// Returns the error with which a graph of two ranks does not compile. All ranks have the same.
fn mistake(build: impl Fn(&mut Graph)) -> String {
    let errors: Vec<String> = World::local(2)
        .unwrap()
        .iter()
        .map(|world| {
            let mut g = Graph::new();
            build(&mut g);
            g.compile_for(world).unwrap_err().to_string()
        })
        .collect();
    assert_eq!(errors[0], errors[1]);
    errors[0].clone()
}

#[test]
fn a_rank_that_does_not_exist_is_an_error() {
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || 1);
        g.node(&x).rank(2);
        g.output("x", &x);
    }), @"node 'x' is to run on rank 2, but there are 2 ranks, from 0 on");
}

#[test]
fn a_node_inside_of_a_loop_has_the_rank_of_the_loop() {
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || 1_u64);
        let end = g.repeat("loop", &x, times(2), |b, x| {
            let next = b.task("next", &x, |x: &u64| x + 1);
            b.node(&next).rank(1);
            next
        });
        g.output("end", &end);
    }), @"node 'loop/body/next' is to run on one rank, but is inside a loop or a branch: give that a rank instead");
}

#[test]
fn a_collective_of_one_rank_is_an_error() {
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || 1_u64);
        let sum = g.all_reduce("sum", &x, Sum);
        g.node(&sum).rank(1);
        g.output("sum", &sum);
    }), @"node 'sum' is to run on rank 1 only, but all ranks take part in it");
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || 1_u64);
        let end = g.repeat("loop", &x, times(2), |b, x| b.all_reduce("sum", &x, Sum));
        g.node(&end).rank(1);
        g.output("end", &end);
    }), @"node 'loop' is to run on rank 1 only, but communicates inside ('loop/body/sum')");
}

#[test]
fn a_value_that_is_not_known_to_cross_is_an_error() {
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || std::time::Duration::ZERO);
        let y = g.task("y", &x, |x: &std::time::Duration| x.as_secs());
        g.node(&x).rank(0);
        g.node(&y).rank(1);
        g.output("y", &y);
    }), @"node 'x' gives a `core::time::Duration` from rank 0 to rank 1, and how such a value crosses is not known: say `g.wire::<core::time::Duration>()`, or let the ranks exchange numbers, a `String` or a `Vec` of numbers");
}

#[test]
fn a_value_that_crosses_cannot_be_taken_where_it_is_made() {
    insta::assert_snapshot!(mistake(|g| {
        let x = g.task("x", (), || vec![1_u64]);
        let y = g.task("y", &x, |x: &Vec<u64>| x.len());
        let z = g.task("z", take(&x), |x: Vec<u64>| x);
        g.node(&x).rank(0);
        g.node(&y).rank(1);
        g.node(&z).rank(0);
        g.output("y", &y);
        g.output("z", &z);
    }), @"'z' takes 'x' by value, but the async node 'x to rank 1' shares it as an Arc: read it by reference instead");
}

#[test]
fn an_output_is_on_the_rank_of_its_node_and_an_input_where_it_is_read() {
    let ends = each_rank(2, |world| async move {
        let mut g = Graph::new();
        let x = g.input::<u64>("x");
        let y = g.task("y", &x, |x: &u64| x + 1);
        g.node(&y).rank(1);
        g.output("y", &y);
        let plan = g.compile_for(&world).unwrap();
        let given = if world.rank() == 0 {
            inputs! {}
        } else {
            inputs! { "x" => 1_u64 }
        };
        Executor::inline().run(&plan, given).await.unwrap().take::<u64>("y").map(|y| *y)
    });
    assert_eq!(ends[1].as_ref().unwrap(), &2);
    insta::assert_snapshot!(ends[0].as_ref().unwrap_err(), @"output 'y' is made on rank 1, where the run returns it: take it there, or let a node without a rank make it");
}

#[test]
fn a_node_that_fails_on_its_rank_ends_those_of_other_ranks() {
    let errors = each_rank(2, |world| async move {
        let mut g = Graph::new();
        let x = g.try_task("x", (), || -> std::result::Result<u64, BoxError> { Err("no value".into()) });
        let y = g.task("y", &x, |x: &u64| x + 1);
        g.node(&x).rank(0);
        g.node(&y).rank(1);
        g.output("y", &y);
        let plan = g.compile_for(&world).unwrap();
        Executor::inline().run(&plan, inputs! {}).await.unwrap_err()
    });
    assert_eq!(errors[0].node(), Some("x"));
    assert!(errors[1].is_world_broken() && errors[1].rank() == Some(0), "{:#}", errors[1]);
    assert!(format!("{:#}", errors[1]).contains("no value"), "{:#}", errors[1]);
}
