//! Exchanges of every kind, of values that they read or take. Used by the tests over MPI too.

use anabranch::comm::World;
use anabranch::graph::Peer;
use anabranch::scope::{Max, Sum, operator};
use anabranch::{Executor, Flow, Graph, Inputs, Outputs, Result, Value, take};

/// Calls an exchange with a value that it takes or reads.
macro_rules! give {
    ($takes:expr, $value:expr, |$x:ident| $call:expr) => {
        if $takes {
            let $x = take($value);
            $call
        } else {
            let $x = $value;
            $call
        }
    };
}

/// What ranks give: rank r has 1000 r, 1000 r + 1, ...
fn list(rank: u32, length: usize) -> Vec<u64> {
    (0..length as u64).map(|n| 1000 * u64::from(rank) + n).collect()
}

fn sums(ranks: u32, length: usize) -> Vec<u64> {
    let lists: Vec<Vec<u64>> = (0..ranks).map(|rank| list(rank, length)).collect();
    (0..length).map(|n| lists.iter().map(|list| list[n]).sum()).collect()
}

fn fetch<R: Clone + Send + Sync + 'static>(outputs: &mut Outputs, name: &str) -> R {
    R::clone(&*outputs.take::<R>(name).unwrap())
}

/// Exchanges lists of `length` elements, and of as many for each rank, as nodes of a graph that runs twice.
pub(crate) async fn in_a_graph(world: &World, length: usize, takes: bool) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let parts = length * size as usize;
    let mut g = Graph::new();
    let start = g.input::<()>("start");
    let one = |g: &mut Graph, name: &'static str| g.task(name, &start, move |(): &()| list(rank, length));
    let many = |g: &mut Graph, name: &'static str| g.task(name, &start, move |(): &()| list(rank, parts));
    let [summed, folded, gathered, spread, sent] =
        ["summed", "folded", "gathered", "spread", "sent"].map(|name| one(&mut g, name));
    let [scattered, divided, swapped] = ["scattered", "divided", "swapped"].map(|name| many(&mut g, name));
    let [number, other] = ["number", "other"].map(|name| g.task(name, &start, move |(): &()| 7 * rank));
    let seen = g.task("seen", &summed, |x: &Vec<u64>| x.len());
    let last = || operator("last", || 0, |_, last| last);
    let lists: [(&str, Value<Vec<u64>>); 8] = [
        ("sum", give!(takes, &summed, |x| g.all_reduce("sum", x, Sum))),
        ("last", give!(takes, &folded, |x| g.all_reduce("last", x, last()))),
        ("all", give!(takes, &gathered, |x| g.all_gather("all", x))),
        ("part", give!(takes, &scattered, |x| g.reduce_scatter("part", x, Sum))),
        ("last part", give!(takes, &divided, |x| g.reduce_scatter("last part", x, last()))),
        ("swap", give!(takes, &swapped, |x| g.all_to_all("swap", x))),
        ("of last", give!(takes, &spread, |x| g.broadcast("of last", x, size - 1))),
        ("left", {
            let _ = give!(takes, &sent, |x| g.send_to("send", x, Peer::ring(1)));
            let left = g.recv_from::<Vec<u64>>("receive", Peer::ring(-1));
            g.task("left", take(&left), |left: Option<Vec<u64>>| left.unwrap())
        }),
    ];
    let numbers = give!(takes, &number, |x| g.all_gather("numbers", x));
    let barrier = g.barrier("barrier", &numbers);
    g.output("barrier", &barrier);
    let first = give!(takes, &other, |x| g.broadcast("first", x, 0));
    lists.iter().for_each(|(name, list)| g.output(*name, list));
    g.output("numbers", &numbers);
    g.output("first", &first);
    g.output("seen", &seen);
    let (plan, exec) = (g.compile_for(world)?, Executor::inline());
    for _ in 0..2 {
        let mut outputs = exec.run(&plan, Inputs::new().with("start", ())).await?;
        let mut out = |name: &str| fetch::<Vec<u64>>(&mut outputs, name);
        let at = rank as usize * length;
        assert_eq!(out("sum"), sums(size, length));
        assert_eq!(out("last"), list(size - 1, length));
        assert_eq!(out("all"), (0..size).flat_map(|rank| list(rank, length)).collect::<Vec<_>>());
        assert_eq!(out("part"), sums(size, parts)[at..at + length]);
        assert_eq!(out("last part"), list(size - 1, parts)[at..at + length]);
        assert_eq!(out("swap"), (0..size).flat_map(|rank| list(rank, parts)[at..at + length].to_vec()).collect::<Vec<_>>());
        assert_eq!(out("of last"), list(size - 1, length));
        assert_eq!(out("left"), list((rank + size - 1) % size, length));
        assert_eq!(fetch::<Vec<u32>>(&mut outputs, "numbers"), (0..size).map(|rank| 7 * rank).collect::<Vec<_>>());
        assert_eq!((fetch::<u32>(&mut outputs, "first"), fetch::<usize>(&mut outputs, "seen")), (0, length));
    }
    Ok(())
}

/// Lets operations of a flow take lists, which something else may keep.
pub(crate) async fn in_a_flow(world: &World, length: usize) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let exec = Executor::inline();
    let flow = exec.flow(async |f: &Flow| {
        for round in 0..3 {
            let x = f.value("x", list(rank, length));
            let kept = f.get(&x).await?;
            let sum = f.all_reduce(world, "sum", take(&x), Sum);
            assert_eq!(*f.get(&sum).await?, sums(size, length));
            assert_eq!(*kept, list(rank, length), "a value that is kept changes in round {round}");
            let error = f.get(&x).await.unwrap_err();
            assert!(error.to_string().contains("'x'"), "{error}");
            // The transport may still send the value that is taken next.
            let sent = f.send_to(world, "send", &sum, (rank + 1) % size);
            let most = f.all_reduce(world, "most", take(&sum), Max);
            let left = f.recv_from::<Vec<u64>>(world, "receive", (rank + size - 1) % size);
            f.get(&sent).await?;
            let of_last = f.broadcast(world, "of last", take(&left), size - 1);
            assert_eq!(*f.get(&of_last).await?, sums(size, length));
            assert_eq!(*f.get(&most).await?, sums(size, length));
        }
        Ok(())
    });
    flow.await
}
