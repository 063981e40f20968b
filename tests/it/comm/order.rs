//! The order in which ranks start their work, on executors whose choices are drawn.

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Graph, Inputs};
use futures::executor::block_on;
use futures::future::join_all;

/// A graph whose collectives become ready in many orders.
fn graph() -> Graph {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let mut ends = Vec::new();
    for n in 0..4_u64 {
        let before = g.task(format!("before {n}"), &x, move |x: &u64| x * 10 + n);
        let sum = g.all_reduce(format!("sum {n}"), &before, Sum);
        ends.push(g.task(format!("behind {n}"), &sum, |sum: &u64| sum + 1));
    }
    let total =
        g.task("total", &ends[..], |ends: anabranch::graph::Each<'_, u64>| ends.iter().fold(0, |total, end| total * 1000 + end));
    g.output("total", &total);
    g
}

#[test]
fn ranks_whose_nodes_run_in_other_orders_start_collectives_in_one_order() {
    // Seen to fail without turns: two all-reduces of different names meet.
    for seed in 0..200 {
        let ranks = World::local(3).unwrap().into_iter().map(|world| async move {
            let exec = Executor::sim(seed * 10 + u64::from(world.rank()));
            let plan = graph().compile_for(&world).unwrap();
            let run = || exec.run(&plan, Inputs::new().with("x", u64::from(world.rank())));
            let both = futures::future::try_join(run(), run()).await;
            let (mut first, mut second) = both.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
            [*first.take::<u64>("total").unwrap(), *second.take::<u64>("total").unwrap()]
        });
        assert_eq!(block_on(join_all(ranks)), [[31_034_037_040; 2]; 3], "seed {seed}");
    }
}
