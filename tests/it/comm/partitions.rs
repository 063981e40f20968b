//! One graph whose nodes run on different ranks: the bits are those of one pass over the nodes, wherever they
//! run.

use anabranch::Executor;
use anabranch::comm::World;
use futures::executor::block_on;
use futures::future::join_all;

use super::drawn::{Drawn, live};

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
