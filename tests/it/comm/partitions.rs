//! One graph whose nodes run on different ranks: the bits are those of one pass over the nodes, wherever they
//! run.

use anabranch::comm::{Balanced, Blocks, Partition, World};
use anabranch::graph::{Ranks, times};
use anabranch::scope::Sum;
use anabranch::{BoxError, Executor, Graph, Result, inputs, take};
use futures::executor::block_on;
use futures::future::join_all;

use super::drawn::{Drawn, live};
use super::each_rank;

const SEEDS: u64 = if cfg!(debug_assertions) { 150 } else { 2000 };

/// Runs drawn graphs on 1 to 4 ranks.
fn check_all(draw: impl Fn(u64, u32) -> Drawn) {
    for seed in 0..SEEDS {
        for ranks in 1..=4 {
            let what = format!("seed {seed}, {ranks} ranks");
            let run = |world: World| {
                let (what, draw) = (&what, &draw);
                async move {
                    let drawn = draw(seed, ranks);
                    let exec = Executor::sim(seed * 10 + u64::from(world.rank()));
                    let ended = drawn.run(&world, &exec, seed).await;
                    let outputs = ended.unwrap_or_else(|error| panic!("{what}: {error:#}\n{}", drawn.text()));
                    drawn.check(world.rank(), outputs, what);
                }
            };
            block_on(join_all(World::local(ranks).unwrap().into_iter().map(run)));
        }
    }
    assert_eq!(live(), 0);
}

#[test]
fn random_graphs_on_drawn_ranks_and_on_those_of_a_policy_give_the_bits_of_one_rank() {
    // One test, because the values that live are counted. Seen to fail (values were left) when a value that
    // no node of its rank reads was not dropped, and (it never ended) when ranks without operations did not
    // take part in the agreement.
    check_all(Drawn::new);
    check_all(|seed, ranks| Drawn::divided(seed, ranks, &Balanced::default()));
}

/// Adds a chain of ten nodes with a cost.
fn chain(g: &mut Graph, name: &str) {
    let first = g.task(format!("{name} 0"), (), || 0_u64);
    let last = (1..10).fold(first, |last, n| g.task(format!("{name} {n}"), &last, |x: &u64| x + 1));
    g.output(name.to_owned(), &last);
}

fn rank_of(g: &Graph, name: &str) -> Option<Ranks> {
    g.shape().nodes().iter().find(|node| *node.name == *name).unwrap().ranks
}

#[test]
fn chains_are_not_cut() {
    let mut g = Graph::new();
    ["a", "b", "c", "d"].iter().for_each(|name| chain(&mut g, name));
    g.partition(&Balanced::default(), 2).unwrap();
    for name in ["a", "b", "c", "d"] {
        let ranks: Vec<_> = (0..10).map(|n| rank_of(&g, &format!("{name} {n}"))).collect();
        assert!(ranks.iter().all(|rank| rank == &ranks[0]), "{name}: {ranks:?}");
    }
    let count = |rank| g.shape().nodes().iter().filter(|node| node.ranks == Some(Ranks::One(rank))).count();
    assert_eq!([count(0), count(1)], [20, 20]);
}

#[test]
fn nodes_go_where_their_values_are_if_there_is_room() {
    let mut g = Graph::new();
    let [left, right] = [("left", 0), ("right", 1)].map(|(name, rank)| {
        let x = g.task(name, (), || vec![0_u8; 1000]);
        g.node(&x).rank(rank).bytes(1000);
        x
    });
    // They are added in an order in which runs of nodes would cut all edges.
    for (name, x) in [("of right", &right), ("of left", &left)] {
        let length = g.task(name, x, |x: &Vec<u8>| x.len());
        g.output(name, &length);
    }
    g.partition(&Balanced::default().slack(0.5), 2).unwrap();
    assert_eq!(rank_of(&g, "of left"), Some(Ranks::One(0)));
    assert_eq!(rank_of(&g, "of right"), Some(Ranks::One(1)));
}

#[test]
fn a_state_stays_with_its_owner() {
    let mut g = Graph::new();
    let x = g.task("x", (), || vec![0_u64; 8]);
    let end = (0..9).fold(x, |x, n| {
        g.task(format!("update {n}"), take(&x), |mut x: Vec<u64>| {
            x[0] += 1;
            x
        })
    });
    g.output("end", &end);
    let others: Vec<_> = (0..10).map(|n| g.task(format!("other {n}"), (), || 0_u64)).collect();
    others.iter().enumerate().for_each(|(n, other)| g.output(format!("other {n}"), other));
    g.partition(&Balanced::default(), 2).unwrap();
    let ranks: Vec<_> = (0..9).map(|n| rank_of(&g, &format!("update {n}"))).collect();
    assert!(ranks.iter().all(|rank| rank == &rank_of(&g, "x")), "{ranks:?}");
}

#[test]
fn a_policy_without_a_valid_answer_is_an_error() {
    struct Answers(Vec<u32>);
    impl Partition for Answers {
        fn name(&self) -> &str {
            "answers"
        }

        fn partition(&self, _: &Blocks, _: u32) -> Result<Vec<u32>> {
            Ok(self.0.clone())
        }
    }
    let fault = |policy: &dyn Partition, ranks| {
        let mut g = Graph::new();
        chain(&mut g, "chain");
        g.partition(policy, ranks).unwrap_err().to_string()
    };
    insta::assert_snapshot!(fault(&Answers(vec![0]), 2), @"policy 'answers' places 1 of 10 blocks: give a rank for each");
    insta::assert_snapshot!(fault(&Answers(vec![2; 10]), 2), @"policy 'answers' gives rank 2, but there are 2: give one below that");
    insta::assert_snapshot!(fault(&Balanced::default(), 0), @"policy 'balanced' has no ranks to choose from: give one or more");
    insta::assert_snapshot!(fault(&Balanced::default().slack(-1.0), 2), @"policy 'balanced' needs a slack of 0 or more");
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
    }), @"node 'x' gives a `core::time::Duration` from rank 0 to rank 1, and how such a value crosses is not known: say `g.wire::<core::time::Duration>()`, or `g.wire_serde::<core::time::Duration>()` with the feature `serde`, or let the ranks exchange numbers, a `String` or a `Vec` of numbers");
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
