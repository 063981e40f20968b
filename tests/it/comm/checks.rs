//! Graphs that would deadlock with raw MPI or NCCL: errors when they are compiled, or at their first run.

use anabranch::comm::World;
use anabranch::graph::{Peer, above, times};
use anabranch::scope::Sum;
use anabranch::{Executor, Graph, Inputs, Value};

use super::plus::Plus;
use super::{all, each_rank, run_ranks};

/// Returns the error of `compile_for`, which must be the same on all ranks.
fn mistake(ranks: u32, build: impl Fn(&mut Graph, Value<f64>)) -> String {
    let mistakes: Vec<String> = World::local(ranks).unwrap().iter().map(|world| mistake_on(world, &build)).collect();
    assert!(mistakes.iter().all(|other| *other == mistakes[0]), "{mistakes:#?}");
    mistakes[0].clone()
}

fn mistake_on(world: &World, build: impl Fn(&mut Graph, Value<f64>)) -> String {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    build(&mut g, x);
    g.compile_for(world).unwrap_err().to_string()
}

#[test]
fn a_graph_with_communication_needs_a_world() {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let sum = g.repeat("loop", &x, times(2), |b, x| b.all_reduce("sum", &x, Sum));
    g.output("sum", &sum);
    let error = g.compile().unwrap_err();
    assert_eq!(error.node(), Some("loop/body/sum"));
    insta::assert_snapshot!(error, @"'loop/body/sum' communicates between ranks: compile the graph with `Graph::compile_for`, for a world");
}

#[test]
fn a_receive_without_a_send_is_an_error() {
    // Seen to fail without `check_pairs`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let _ = g.send_to("send", &x, Peer::next());
        let received = g.recv_from::<f64>("receive", Peer::ring(-1));
        g.output("out", &received);
    }), @"node 'receive' receives from rank 1 on rank 0, and no node of the same graph sends it there: 1 receive from rank 1 to rank 0 against 0 sends. Every rank builds all nodes: `node(&x).rank(0)` or `Peer::table` say which ranks send, and which receive");
}

#[test]
fn a_send_without_a_receive_is_an_error() {
    // Seen to fail without `check_pairs`.
    insta::assert_snapshot!(mistake(3, |g, x| {
        let sent = g.send_to("send", &x, 2);
        g.output("out", &sent);
    }), @"node 'send' sends to rank 2 on rank 0, and no node of the same graph receives it there: 1 send from rank 0 to rank 2 against 0 receives. Every rank builds all nodes: `node(&x).rank(0)` or `Peer::table` say which ranks send, and which receive");
}

#[test]
fn a_receive_of_another_type_is_an_error() {
    // Seen to fail without `check_pairs`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let _ = g.send_to("send", &x, Peer::next());
        let received = g.recv_from::<f32>("receive", Peer::previous());
        g.output("out", &received);
    }), @"node 'receive' receives a `f32` from rank 0 on rank 1, but 'send' sends it a `f64` there");
}

#[test]
fn a_peer_outside_of_the_world_is_an_error() {
    // Seen to fail without `check_pairs`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let sent = g.send_to("send", &x, 5);
        g.output("out", &sent);
    }), @"node 'send' has the peer 5 on rank 0, but there are 2 ranks, from 0 on");
}

#[test]
fn a_world_of_one_rank_has_one_rank_in_messages() {
    // Seen to fail with "there are 1 ranks".
    insta::assert_snapshot!(mistake(1, |g, x| {
        let sent = g.send_to("send", &x, 5);
        g.output("out", &sent);
    }), @"node 'send' has the peer 5 on rank 0, but there is 1 rank, number 0");
    insta::assert_snapshot!(mistake(1, |g, x| {
        let first = g.broadcast("first", &x, 7);
        g.output("first", &first);
    }), @"node 'first' has the root 7, but there is 1 rank, number 0");
}

#[test]
fn ranks_that_both_receive_before_they_send_are_an_error() {
    // Seen to fail without `Starts`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let other = || Peer::table([Some(1), Some(0)]);
        let received = g.recv_from::<f64>("receive", other());
        let next = g.task("next", (&received, &x), |received: &Option<f64>, x: &f64| received.unwrap_or(*x));
        let sent = g.send_to("send", &next, other());
        g.output("out", &sent);
    }), @"the nodes 'next (rank 0)' -> 'send (rank 0)' -> 'receive (rank 1)' -> 'next (rank 1)' -> 'send (rank 1)' -> 'receive (rank 0)' -> 'next (rank 0)' wait for each other in a cycle: remove one of these edges");
}

#[test]
fn a_wave_over_the_ranks_is_no_cycle() {
    // Seen to fail when a message stayed on its rank in the proof.
    let waves = all(run_ranks(
        4,
        |_| 1_u64,
        |g, x, _| {
            let received = g.recv_from::<u64>("receive", Peer::previous());
            let next = g.task("next", (&received, &x), |before: &Option<u64>, x: &u64| before.unwrap_or(0) + x);
            let _ = g.send_to("send", &next, Peer::next());
            next
        },
    ));
    assert_eq!(waves, [1, 2, 3, 4]);
}

#[test]
fn a_message_that_waits_for_a_later_collective_is_an_error() {
    // Seen to fail without `Starts`.
    // Rank 1 sends after the collective, and rank 0 starts the collective after it has received.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let received = g.recv_from::<f64>("receive", Peer::table([Some(1)]));
        let sum = g.all_reduce("sum", &x, Sum);
        g.node(&sum).after(&received);
        let sent = g.send_to("send", &sum, Peer::table([None, Some(0)]));
        g.output("out", &sent);
        g.output("received", &received);
    }), @"the nodes 'sum (rank 0)' -> 'sum (all ranks)' -> 'send (rank 1)' -> 'receive (rank 0)' -> 'sum (rank 0)' wait for each other in a cycle: remove one of these edges");
}

#[test]
fn a_loop_with_communication_needs_a_condition_that_is_the_same_on_all_ranks() {
    // Seen to fail without `check_same`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let end = g.repeat(
            "loop",
            &x,
            |c, x| c.task("residual", &x, |x: &f64| above(*x, 1.0)),
            |b, x| {
                let sum = b.all_reduce("sum", &x, Sum);
                b.task("next", (&x, &sum), |x: &f64, sum: &f64| x - sum / 10.0)
            },
        );
        g.output("end", &end);
    }), @"node 'loop' communicates inside ('loop/body/sum'), so all ranks must take the same way, but it decides by 'loop/condition/residual', which depends on the input 'x', of which each rank may have its own: let it decide by the value of an all-reduce, all-gather or broadcast, or mark the node with `replicated()`");
}

#[test]
fn a_branch_that_one_rank_takes_is_an_error() {
    // Seen to fail without `check_same`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let way = g.task("way", &x, |x: &f64| usize::from(*x > 0.0));
        let end = g.branch("branch", &way, &x).arm(|_, x| x).arm(|a, x| a.all_reduce("sum", &x, Sum)).join();
        g.output("end", &end);
    }), @"node 'branch' communicates inside ('branch/arm 1/sum'), so all ranks must take the same way, but it decides by 'way', which depends on the input 'x', of which each rank may have its own: let it decide by the value of an all-reduce, all-gather or broadcast, or mark the node with `replicated()`");
}

#[test]
fn a_value_that_a_loop_carries_back_may_differ() {
    // Seen to fail when the results of bodies did not count.
    // The first value is the same on all ranks. What the body makes of it is not.
    let found = mistake(2, |g, x| {
        let first = g.broadcast("first", &x, 0);
        let end = g.repeat(
            "loop",
            &first,
            |c, y| c.task("residual", &y, |y: &f64| above(*y, 1.0)),
            |b, y| {
                let sum = b.all_reduce("sum", &y, Sum);
                b.task("next", (&sum, &x), |sum: &f64, x: &f64| sum - x)
            },
        );
        g.output("end", &end);
    });
    assert!(found.contains("'loop/condition/residual', which depends on the input 'x'"), "{found}");
}

#[test]
fn conditions_that_are_reduced_or_replicated_are_right() {
    let ends = all(run_ranks(
        2,
        |rank| f64::from(rank) + 4.0,
        |g, x, _| {
            let limit = g.task("limit", (), || 1.0);
            g.node(&limit).replicated();
            g.repeat(
                "loop",
                &x,
                |c, x| {
                    let sum = c.all_reduce("sum", &x, Sum);
                    c.task("residual", (&sum, &limit), |sum: &f64, limit: &f64| above(*sum, *limit))
                },
                |b, x| b.task("halve", &x, |x: &f64| x / 2.0),
            )
        },
    ));
    assert_eq!(ends, [0.25, 0.3125]);
}

/// Runs another graph on each rank. Returns the errors of the runs.
fn errors(ranks: u32, build: impl Fn(&mut Graph, Value<f64>, u32)) -> Vec<anabranch::Error> {
    each_rank(ranks, |world| {
        let mut g = Graph::new();
        let x = g.input::<f64>("x");
        build(&mut g, x, world.rank());
        let plan = g.compile_for(&world).unwrap();
        async move { Executor::inline().run(&plan, Inputs::new().with("x", 1.0)).await.unwrap_err() }
    })
}

#[test]
fn collectives_in_different_orders_on_two_ranks_are_an_error_on_both() {
    // Seen to fail when neither graphs nor collectives were compared.
    let errors = errors(2, |g, x, rank| {
        let names = if rank == 0 { ["a", "b"] } else { ["b", "a"] };
        for name in names {
            let sum = g.all_reduce(name, &x, Sum);
            g.output(format!("{name} out"), &sum);
        }
    });
    for error in &errors {
        assert!(error.is_world_broken(), "{error:#}");
    }
    insta::assert_snapshot!(format!("{:#}", errors[0]), @"node 'a' failed on host 0 of the host device: the ranks disagree about node 0 of the graph, counted from 0: on rank 0 it is 'a', on rank 1 'b'. Every rank must build the same graph, and start the same work in the same order (and 1 other node failed)");
    insta::assert_snapshot!(format!("{:#}", errors[1]), @"node 'b' failed on host 0 of the host device: the ranks disagree about node 0 of the graph, counted from 0: on rank 0 it is 'a', on rank 1 'b'. Every rank must build the same graph, and start the same work in the same order (and 1 other node failed)");
}

#[test]
fn a_node_that_one_rank_lacks_is_named_on_all() {
    // Seen to fail when neither graphs nor collectives were compared.
    let errors = errors(3, |g, x, rank| {
        let sum = g.all_reduce("sum", &x, Sum);
        g.output("sum", &sum);
        if rank != 2 {
            let more = g.all_reduce("more", &sum, Sum);
            g.output("more", &more);
        }
    });
    for error in errors {
        let text = format!("{error:#}");
        assert!(text.contains("on rank 0 it is 'more', on rank 2 no further node"), "{text}");
    }
}

#[test]
fn a_node_of_one_name_and_another_kind_is_named() {
    // Seen to fail when neither graphs nor collectives were compared.
    let errors = errors(2, |g, x, rank| {
        let sum = if rank == 0 { g.all_reduce("sum", &x, Sum) } else { g.broadcast("sum", &x, 0) };
        g.output("sum", &sum);
    });
    let text = format!("{:#}", errors[1]);
    assert!(text.contains("'sum', on rank 1 a node of this name with another type"), "{text}");
}

#[test]
fn two_plans_in_different_orders_are_an_error() {
    // Seen to fail when collectives were not compared.
    let errors = each_rank(2, |world| {
        let plan_of = |name: &'static str| {
            let mut g = Graph::new();
            let x = g.input::<f64>("x");
            let sum = g.all_reduce(name, &x, Sum);
            g.output("sum", &sum);
            g.compile_for(&world).unwrap()
        };
        let mut plans = [plan_of("a"), plan_of("b")];
        let rank = world.rank();
        async move {
            let exec = Executor::inline();
            let run = |plan: &anabranch::Plan| exec.run(plan, Inputs::new().with("x", 1.0));
            // Both have been compared once.
            for plan in &plans {
                run(plan).await.unwrap();
            }
            if rank == 1 {
                plans.reverse();
            }
            futures::future::join(run(&plans[0]), run(&plans[1])).await.0.unwrap_err()
        }
    });
    for error in errors {
        assert!(format!("{error:#}").contains("the ranks disagree about collective 4"), "{error:#}");
    }
}

#[test]
fn a_root_outside_of_the_world_is_an_error() {
    // Seen to fail without `check_pairs`.
    insta::assert_snapshot!(mistake(2, |g, x| {
        let first = g.broadcast("first", &x, 7);
        g.output("first", &first);
    }), @"node 'first' has the root 7, but there are 2 ranks, from 0 on");
}

#[test]
fn an_order_that_one_rank_adds_is_named() {
    // Seen to fail when the comparison had the reads of nodes only: the all-reduces meet in another order.
    let errors = errors(2, |g, x, rank| {
        let sums = ["a", "b"].map(|name| g.all_reduce(name, &x, Sum));
        if rank == 0 {
            g.node(&sums[0]).after(&sums[1]);
        }
        sums.iter().zip(["a", "b"]).for_each(|(sum, name)| g.output(format!("{name} out"), sum));
    });
    for error in errors {
        let text = format!("{error:#}");
        assert!(text.contains("node 0 of the graph") && text.contains("a node of this name with another type"), "{text}");
    }
}

#[test]
fn branches_that_decide_by_other_values_are_named() {
    let errors = errors(2, |g, x, rank| {
        let first = g.broadcast("first", &x, 0);
        let ways = [0, 1].map(|n| g.task(format!("way {n}"), &first, move |_: &f64| n));
        let (way, other) = g
            .branch("branch", &ways[rank as usize], (&ways[0], &ways[1]))
            .arm(|_, ways| ways)
            .arm(|a, (way, other)| (a.broadcast("inner", &way, 0), other))
            .join();
        g.output("way", &way);
        g.output("other", &other);
    });
    for error in errors {
        let text = format!("{error:#}");
        assert!(text.contains("'branch', on rank 1 a node of this name with another type"), "{text}");
    }
}

#[test]
fn states_that_come_from_other_values_are_named() {
    // Seen to succeed without the origins of states in the comparison.
    let errors = errors(2, |g, x, rank| {
        let (first, second) = g.repeat("loop", (&x, &x), times(2), |b, (x, y)| {
            let sums = [b.all_reduce("sum x", &x, Sum), b.all_reduce("sum y", &y, Sum)];
            let [x, y] = sums;
            if rank == 0 { (x, y) } else { (y, x) }
        });
        g.output("first", &first);
        g.output("second", &second);
    });
    assert!(format!("{:#}", errors[1]).contains("it is 'loop', on rank 1 a node of this name"), "{:#}", errors[1]);
}

#[test]
fn another_operator_of_the_same_name_is_named() {
    // Seen to be found by the collective only, when the comparison had the names of operators.
    let errors = errors(2, |g, x, rank| {
        let sum = if rank == 0 { g.all_reduce("sum", &x, Sum) } else { g.all_reduce("sum", &x, Plus) };
        g.output("sum", &sum);
    });
    assert!(format!("{:#}", errors[0]).contains("'sum', on rank 1 a node of this name"), "{:#}", errors[0]);
}

#[test]
fn a_unit_beside_an_input_is_the_same_on_all_ranks() {
    // Seen to be an error when the unit counted as the value whose cell has its offset: the input.
    let ends = all(run_ranks(
        2,
        |rank| f64::from(rank),
        |g, x, _| {
            let sum = g.all_reduce("sum", &x, Sum);
            let done = g.barrier("done", &sum);
            let way = g.task("way", (&sum, &done), |sum: &f64, (): &()| usize::from(*sum > 0.0));
            g.branch("branch", &way, &x).arm(|_, x| x).arm(|a, x| a.all_reduce("inner", &x, Sum)).join()
        },
    ));
    assert_eq!(ends, [1.0, 1.0]);
}

#[test]
fn parts_of_other_lengths_are_an_error_on_all_ranks() {
    // Seen to give parts of different lengths without the check.
    let errors = run_ranks(2, |rank| vec![1.0; 2 + 2 * rank as usize], |g, x, _| g.all_to_all("swap", &x));
    for error in errors {
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("rank 0 gives 2 elements, and rank 1 gives 4: let all ranks give equally many"), "{text}");
    }
}
