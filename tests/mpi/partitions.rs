//! Random graphs on random ranks, over MPI: the bits of one rank.

use anabranch::Executor;
use anabranch::comm::Balanced;
use futures::executor::block_on;

use crate::drawn::{Drawn, live};
use crate::launch::each_rank;

const SEEDS: u64 = 40;

fn random_graphs(ranks: u32, test: &str) {
    each_rank(ranks, test, |world| {
        let exec = Executor::inline();
        for seed in 0..SEEDS {
            let what = format!("seed {seed}, {ranks} ranks");
            let policy = Balanced::default();
            let drawn = if seed % 2 == 0 { Drawn::new(seed, ranks) } else { Drawn::divided(seed, ranks, &policy) };
            let outputs =
                block_on(drawn.run(&world, &exec, seed)).unwrap_or_else(|error| panic!("{what}: {error:#}\n{}", drawn.text()));
            drawn.check(world.rank(), outputs, &what);
        }
        // MPI keeps what was sent until it knows that it has been received.
        while live() > 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn random_graphs_on_one_rank() {
    random_graphs(1, "partitions::random_graphs_on_one_rank");
}

#[test]
fn random_graphs_on_two_ranks() {
    random_graphs(2, "partitions::random_graphs_on_two_ranks");
}

#[test]
fn random_graphs_on_four_ranks() {
    random_graphs(4, "partitions::random_graphs_on_four_ranks");
}
