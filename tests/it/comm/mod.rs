//! Ranks: what they exchange, in which order, and what happens when one of them fails.

#[cfg(feature = "serde")]
mod by_serde;
mod checks;
mod collectives;
mod drawn;
mod drops;
mod exchanges;
mod failures;
mod flows;
mod order;
#[cfg(feature = "serde")]
mod parcels;
mod partitions;
mod plus;
mod schedules;
mod takes;

use std::future::Future;

use anabranch::comm::World;
use anabranch::{Executor, Graph, Inputs, Outputs, Result, Value};
use futures::executor::block_on;
use futures::future::join_all;

/// Runs each rank of a local world in turn, as futures of one thread.
pub(crate) fn each_rank<F, R>(ranks: u32, rank: impl Fn(World) -> F) -> Vec<R>
where
    F: Future<Output = R>,
{
    block_on(join_all(World::local(ranks).unwrap().into_iter().map(rank)))
}

/// Builds and runs a graph on each rank. `build` gets the graph, the value of the rank and the world.
pub(crate) fn run_ranks<T, R>(
    ranks: u32,
    given: impl Fn(u32) -> T,
    build: impl Fn(&mut Graph, Value<T>, &World) -> Value<R>,
) -> Vec<Result<R>>
where
    T: Send + Sync + 'static,
    R: Clone + Send + Sync + 'static,
{
    each_rank(ranks, |world| {
        let (given, build) = (given(world.rank()), &build);
        async move {
            let mut outputs = run_graph(&world, given, build).await?;
            Ok((*outputs.take::<R>("out")?).clone())
        }
    })
}

async fn run_graph<T, R>(world: &World, given: T, build: &impl Fn(&mut Graph, Value<T>, &World) -> Value<R>) -> Result<Outputs>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    let mut g = Graph::new();
    let x = g.input::<T>("x");
    let out = build(&mut g, x, world);
    g.output("out", &out);
    let plan = g.compile_for(world)?;
    Executor::inline().run(&plan, Inputs::new().with("x", given)).await
}

/// Returns the results, none of which is an error.
pub(crate) fn all<R>(results: Vec<Result<R>>) -> Vec<R> {
    results.into_iter().map(Result::unwrap).collect()
}
