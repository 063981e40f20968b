//! The order in which ranks start their work, on executors whose choices are drawn.

use anabranch::comm::World;
use anabranch::graph::{Backend, Peer};
use anabranch::policy::{CriticalPath, Policy, Single};
use anabranch::scope::Sum;
use anabranch::{Executor, Graph, Inputs, Value, take};
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

/// Runs a graph on two ranks, each with its policy, and returns the output `out` of each.
fn outputs_of(build: impl Fn(&mut Graph), policies: [&dyn Policy; 2]) -> Vec<u64> {
    let ranks = World::local(2).unwrap().into_iter().map(|world| {
        let mut g = Graph::new();
        build(&mut g);
        let plan = g.compile_for_with(&world, policies[world.rank() as usize]).unwrap();
        plan.verify().unwrap();
        async move {
            let mut outputs = Executor::sim(1).run(&plan, Inputs::new()).await.unwrap();
            *outputs.take::<u64>("out").unwrap()
        }
    });
    block_on(join_all(ranks))
}

/// Adds a node on a stream.
fn kernel(g: &mut Graph, name: &'static str, x: &Value<u64>, cost_us: f64) -> Value<u64> {
    let kernel = g.task(name, x, |x: &u64| x + 1);
    g.node(&kernel).backend(Backend::Gpu).cost_us(cost_us);
    kernel
}

fn add(g: &mut Graph, one: &Value<u64>, other: &Value<u64>) {
    let out = g.task("out", (one, other), |one: &u64, other: &u64| 100 * one + other);
    g.output("out", &out);
}

#[test]
fn what_leads_to_a_collective_is_not_behind_what_follows_a_later_one() {
    // Seen to fail (it never ended) with policies that do not see the order of the collectives: 'behind two'
    // has the longest path, so it came first on the only stream, and 'one' waited for it.
    let build = |g: &mut Graph| {
        let x = g.task("x", (), || 1_u64);
        let before = kernel(g, "before one", &x, 1.0);
        let one = g.all_reduce("one", &before, Sum);
        let two = g.all_reduce("two", &x, Sum);
        let behind = kernel(g, "behind two", &two, 100.0);
        add(g, &one, &behind);
    };
    let policy = CriticalPath::default().streams(1);
    assert_eq!(outputs_of(build, [&policy, &policy]), [403; 2]);
    assert_eq!(outputs_of(build, [&policy, &Single]), [403; 2]);
}

#[test]
fn what_leads_to_a_send_is_not_behind_what_follows_a_receive() {
    // Seen to fail (it never ended) with policies that do not see the order of the messages: on both ranks,
    // 'behind' came before 'before' on the only stream.
    let build = |g: &mut Graph| {
        let x = g.task("x", (), || 1_u64);
        let before = kernel(g, "before", &x, 1.0);
        _ = g.send_to("send", &before, Peer::ring(1));
        let received = g.recv_from::<u64>("receive", Peer::ring(-1));
        let received = g.task("received", &received, |x: &Option<u64>| x.unwrap());
        let behind = kernel(g, "behind", &received, 100.0);
        add(g, &before, &behind);
    };
    let policy = CriticalPath::default().streams(1);
    assert_eq!(outputs_of(build, [&policy, &policy]), [203; 2]);
}

#[test]
fn what_follows_a_collective_waits_for_messages_of_this_rank_to_others() {
    // Seen to fail (it never ended) when a collective had the place of its start on a rank: on rank 0,
    // 'behind' came before 'before' on the only stream, and rank 1 starts 'sum' after it has received.
    let build = |g: &mut Graph| {
        let received = g.recv_from::<u64>("receive", Peer::previous());
        let r = g.task("r", &received, |x: &Option<u64>| x.unwrap_or(1));
        let sum = g.all_reduce("sum", &r, Sum);
        let behind = kernel(g, "behind", &sum, 1.0);
        let x = g.task("x", (), || 1_u64);
        let before = kernel(g, "before", &x, 1.0);
        _ = g.send_to("send", &before, Peer::next());
        add(g, &before, &behind);
    };
    assert_eq!(outputs_of(build, [&Single, &Single]), [204; 2]);
}

#[test]
fn a_collective_behind_a_taker_comes_after_those_before_other_readers() {
    // Seen to fail (the plan was not correct) with an order of collectives by the edges alone: 'two' came
    // first, but 'taken' waits for all other readers of 'x'.
    let build = |g: &mut Graph| {
        let x = g.task("x", (), || 1_u64);
        let taken = g.task("taken", take(&x), |x: u64| x + 1);
        let two = g.all_reduce("two", &taken, Sum);
        let y = g.task("y", (), || 1_u64);
        let one = g.all_reduce("one", &y, Sum);
        let read = g.task("read", (&x, &one), |x: &u64, one: &u64| x + one);
        add(g, &read, &two);
    };
    assert_eq!(outputs_of(build, [&Single, &Single]), [304; 2]);
}

/// Runs a graph on all ranks of a world. Each rank is a node of another graph, so the executor also chooses
/// which rank goes on.
async fn run_all(exec: &Executor, ranks: u32, build: impl Fn(&mut Graph)) -> anabranch::Result<Vec<u64>> {
    let mut all = Graph::new();
    let names: Vec<String> = (0..ranks).map(|rank| format!("rank {rank}")).collect();
    for (name, world) in names.iter().zip(World::local(ranks)?) {
        let mut g = Graph::new();
        build(&mut g);
        let (plan, exec) = (g.compile_for(&world)?, exec.clone());
        let out = all.future(name, (), move || {
            let run = exec.run(&plan, Inputs::new());
            async move { Ok(run.await?.take::<u64>("out").map(|out| *out)?) }
        });
        all.output(name, &out);
    }
    let mut outputs = exec.run(&all.compile()?, Inputs::new()).await?;
    names.iter().map(|name| outputs.take::<u64>(name).map(|out| *out)).collect()
}

#[test]
fn all_orders_in_which_ranks_reach_their_communication_end_alike() {
    // Seen to fail without turns: in some order, all-reduces of different names met.
    let two_sums = |g: &mut Graph| {
        let sums = ["one", "two"].map(|name| {
            let x = g.task(format!("before {name}"), (), move || name.len() as u64);
            g.all_reduce(name, &x, Sum)
        });
        add(g, &sums[0], &sums[1]);
    };
    let ring = |g: &mut Graph| {
        let x = g.task("x", (), || 1_u64);
        let sent = g.send_to("send", &x, Peer::ring(1));
        let received = g.recv_from::<u64>("receive", Peer::ring(-1));
        let out = g.task("out", (&received, &sent), |received: &Option<u64>, (): &()| received.unwrap());
        g.output("out", &out);
    };
    let explored = |ranks, build: &dyn Fn(&mut Graph), expected: u64| {
        let explored = anabranch::explore(100_000, |exec| {
            assert_eq!(block_on(run_all(exec, ranks, build))?, vec![expected; ranks as usize]);
            Ok(())
        });
        let explored = explored.unwrap();
        assert!(explored.is_complete, "{explored:?}");
        explored.orders
    };
    let orders = [explored(2, &two_sums, 606), explored(2, &ring, 1), explored(3, &ring, 1)];
    println!("{orders:?}");
    assert!(orders.iter().all(|orders| *orders > 1), "{orders:?}");
}
