//! What each operation gives, on one to four ranks.

use anabranch::graph::Peer;
use anabranch::scope::{Max, Min, Product, Sum, operator};
use anabranch::{Executor, Graph, inputs};

use super::{all, each_rank, run_ranks};

#[test]
fn an_all_reduce_combines_the_elements_of_all_ranks_in_order() {
    // Seen to fail when the operator got its arguments in the other order.
    for ranks in 1..=4 {
        let sums = all(run_ranks(ranks, |rank| vec![1, 10 * u64::from(rank)], |g, x, _| g.all_reduce("sum", &x, Sum)));
        let expected = vec![u64::from(ranks), (0..u64::from(ranks)).map(|rank| 10 * rank).sum()];
        assert_eq!(sums, vec![expected; ranks as usize]);
        let in_order = all(run_ranks(
            ranks,
            |rank| u64::from(rank) + 1,
            |g, x, _| g.all_reduce("digits", &x, operator("digits", || 0, |before, behind| 10 * before + behind)),
        ));
        assert_eq!(in_order, vec![[1, 12, 123, 1234][ranks as usize - 1]; ranks as usize]);
    }
}

#[test]
fn the_operators_combine_numbers() {
    let given = |rank: u32| f64::from(rank) + 2.0;
    assert_eq!(all(run_ranks(3, given, |g, x, _| g.all_reduce("max", &x, Max))), [4.0; 3]);
    assert_eq!(all(run_ranks(3, given, |g, x, _| g.all_reduce("min", &x, Min))), [2.0; 3]);
    assert_eq!(all(run_ranks(3, given, |g, x, _| g.all_reduce("product", &x, Product))), [24.0; 3]);
}

#[test]
fn an_all_gather_puts_values_of_any_length_one_behind_the_other() {
    // Seen to fail with the ranks in the other order.
    let gathered = all(run_ranks(3, |rank| vec![rank; rank as usize], |g, x, _| g.all_gather("all", &x)));
    assert_eq!(gathered, vec![vec![1, 2, 2]; 3]);
}

#[test]
fn a_reduce_scatter_gives_each_rank_its_part() {
    // Seen to fail with the ranks in the other order.
    let parts = all(run_ranks(2, |rank| vec![rank, 1, 2, 3], |g, x, _| g.reduce_scatter("parts", &x, Sum)));
    assert_eq!(parts, [[1, 2], [4, 6]]);
}

#[test]
fn a_broadcast_gives_the_value_of_one_rank() {
    // Seen to fail with the value of the next rank.
    let names = all(run_ranks(3, |rank| format!("rank {rank}"), |g, x, _| g.broadcast("name", &x, 1)));
    assert_eq!(names, ["rank 1"; 3]);
}

#[test]
fn an_all_to_all_transposes() {
    // Seen to fail with the first part for all ranks.
    let rows = all(run_ranks(3, |rank| (0..3).map(|to| 10 * rank + to).collect(), |g, x, _| g.all_to_all("swap", &x)));
    assert_eq!(rows, [[0, 10, 20], [1, 11, 21], [2, 12, 22]]);
}

#[test]
fn a_barrier_ends_on_all_ranks() {
    let ended = run_ranks(
        4,
        |rank| rank,
        |g, x, _| {
            let before = g.task("before", &x, |_: &u32| ());
            let barrier = g.barrier("barrier", &before);
            let behind = g.task("behind", &x, |x: &u32| *x);
            g.node(&behind).after(&barrier);
            behind
        },
    );
    assert_eq!(all(ended), [0, 1, 2, 3]);
}

#[test]
fn messages_go_to_the_peer_of_each_rank() {
    let from_left = all(run_ranks(
        3,
        |rank| vec![rank],
        |g, x, _| {
            let _ = g.send_to("send", &x, Peer::next());
            g.recv_from::<Vec<u32>>("receive", Peer::previous())
        },
    ));
    assert_eq!(from_left, [None, Some(vec![0]), Some(vec![1])]);
    let around = all(run_ranks(
        1,
        |rank| rank + 7,
        |g, x, _| {
            let _ = g.send_to("send", &x, Peer::ring(1));
            g.recv_from::<u32>("receive", Peer::ring(-1))
        },
    ));
    assert_eq!(around, [Some(7)]);
}

#[test]
fn several_messages_between_two_ranks_come_in_the_order_of_their_nodes() {
    // Seen to fail when receives were numbered backwards.
    let received = all(run_ranks(
        2,
        |rank| 100 * rank,
        |g, x, _| {
            let other = || Peer::table([Some(1), Some(0)]);
            let later = g.task("later", &x, |x: &u32| x + 1);
            let _ = (g.send_to("send later", &later, other()), g.send_to("send", &x, other()));
            let first = g.recv_from::<u32>("receive later", other());
            let second = g.recv_from::<u32>("receive", other());
            g.task("both", (&first, &second), |first: &Option<u32>, second: &Option<u32>| [*first, *second])
        },
    ));
    assert_eq!(received, [[Some(101), Some(100)], [Some(1), Some(0)]]);
}

#[test]
fn a_loop_communicates_in_each_iteration() {
    // Halves a value until its sum over all ranks is small: as many iterations on all ranks.
    let counts = all(run_ranks(
        3,
        |rank| 10.0 * f64::from(rank),
        |g, x, _| {
            let zero = g.task("zero", (), || 0_u32);
            let (_, count) = g.repeat(
                "loop",
                (&x, &zero),
                |c, (x, _)| {
                    let sum = c.all_reduce("sum", &x, Sum);
                    c.task("is large", &sum, |sum: &f64| *sum > 1.0)
                },
                |b, (x, n)| (b.task("halve", &x, |x: &f64| x / 2.0), b.task("count", &n, |n: &u32| n + 1)),
            );
            count
        },
    ));
    assert_eq!(counts, [5; 3]);
}

#[test]
fn collectives_before_in_and_behind_loops_keep_one_order() {
    let sums = all(run_ranks(
        2,
        |rank| u64::from(rank) + 1,
        |g, x, _| {
            let before = g.all_reduce("before", &x, Sum);
            let looped = g.repeat("loop", &x, anabranch::graph::times(3), |b, x| {
                let sum = b.all_reduce("sum", &x, Sum);
                b.task("next", (&x, &sum), |x: &u64, sum: &u64| x + sum)
            });
            // These do not depend on the loop.
            let behind = g.all_reduce("behind", &x, Sum);
            g.task("all", (&before, &looped, &behind), |a: &u64, b: &u64, c: &u64| vec![*a, *b, *c])
        },
    ));
    // x + s, with s = 3, 9, 27 in the three iterations.
    assert_eq!(sums, [[3, 40, 3], [3, 41, 3]]);
}

#[test]
fn ranks_on_threads_with_workers_get_the_same() {
    let worlds = anabranch::comm::World::local(4).unwrap();
    let threads = worlds.into_iter().map(|world| {
        std::thread::spawn(move || {
            let exec = Executor::host().unwrap();
            let mut g = Graph::new();
            let x = g.input::<Vec<u64>>("x");
            let sums: Vec<_> = (0..8).map(|n| g.all_reduce(format!("sum {n}"), &x, Sum)).collect();
            let total =
                g.task("total", &sums[..], |sums: anabranch::graph::Each<'_, Vec<u64>>| sums.iter().flatten().sum::<u64>());
            g.output("total", &total);
            let plan = g.compile_for(&world).unwrap();
            let run = |_| {
                let run = exec.run(&plan, inputs! { "x" => vec![u64::from(world.rank()); 10] });
                *futures::executor::block_on(run).unwrap().take::<u64>("total").unwrap()
            };
            (0..50).map(run).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [480; 50]);
    }
}

#[test]
fn a_plan_runs_again_and_several_runs_of_it_at_once() {
    let sums = each_rank(2, |world| async move {
        let mut g = Graph::new();
        let x = g.input::<u32>("x");
        let sum = g.all_reduce("sum", &x, Sum);
        g.output("sum", &sum);
        let (exec, plan) = (Executor::inline(), g.compile_for(&world).unwrap());
        let runs = (0..5).map(|n| exec.run(&plan, inputs! { "x" => 10 * n + world.rank() }));
        let outputs = futures::future::try_join_all(runs).await.unwrap();
        outputs.into_iter().map(|mut outputs| *outputs.take::<u32>("sum").unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(sums, [[1, 21, 41, 61, 81], [1, 21, 41, 61, 81]]);
}
