//! Programs that deadlock with raw MPI: errors on all ranks.

use anabranch::comm::World;
use anabranch::scope::{Max, Sum};
use anabranch::{Executor, Flow, Result};
use futures::executor::block_on;
use futures::future::poll_immediate;

use crate::launch::{self, each_rank, each_rank_alone};
use crate::plus::Plus;

/// Runs a flow.
fn flow<R>(flow: impl AsyncFnOnce(&Flow) -> Result<R>) -> Result<R> {
    block_on(Executor::inline().flow(flow))
}

fn sum(f: &Flow, world: &World, name: &'static str, length: usize) -> anabranch::Var<Vec<f64>> {
    let x = f.value("x", vec![1.0; length]);
    f.all_reduce(world, name, &x, Sum)
}

#[test]
fn different_collectives_are_an_error_on_all_ranks() {
    // Seen to hang without the comparison.
    each_rank_alone(3, "order::different_collectives_are_an_error_on_all_ranks", |world| {
        let ended = flow(async |f: &Flow| {
            let x = f.value("x", vec![1.0, 2.0]);
            if world.rank() == 2 {
                f.get(&f.broadcast(&world, "first", &x, 0)).await?;
            } else {
                f.get(&f.all_reduce(&world, "sum", &x, Sum)).await?;
            }
            Ok(())
        });
        let error = ended.unwrap_err();
        let text = format!("{error:#}");
        assert!(error.is_world_broken(), "{text}");
        let said = "the ranks disagree about collective 0, counted from 0: on rank 0 it is 'sum', all-reduce (+) of alloc::vec::Vec<f64>, 16 bytes, on rank 2 'first', broadcast by rank 0 of alloc::vec::Vec<f64>.";
        assert!(text.contains(said), "{text}");
    });
}

#[test]
fn another_operator_of_the_same_name_is_an_error() {
    each_rank_alone(2, "order::another_operator_of_the_same_name_is_an_error", |world| {
        let ended = flow(async |f: &Flow| {
            let x = f.value("x", 1.0);
            let sum =
                if world.rank() == 0 { f.all_reduce(&world, "sum", &x, Sum) } else { f.all_reduce(&world, "sum", &x, Plus) };
            Ok(*f.get(&sum).await?)
        });
        let text = format!("{:#}", ended.unwrap_err());
        assert!(text.contains("on rank 1 the same by its name and types, with another operator"), "{text}");
    });
}

/// The largest lists of eight bytes that go with a comparison, of two ranks and of more.
const CARRIED: [usize; 2] = [255, 7];

/// Lets rank 1 give one element more than the others, of lists up to the largest that are carried, and of
/// longer ones.
fn give_more(ranks: u32, test: &str) {
    each_rank(ranks, test, |world| {
        let most = CARRIED[usize::from(ranks > 2)];
        for (round, length) in (0..20).flat_map(|round| [3, most, 1000].map(|length| (round, length))) {
            let own = length + usize::from(world.rank() == 1);
            let ended = flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", own)).await?.len()));
            let error = ended.unwrap_err();
            assert!(!error.is_world_broken(), "{error:#}");
            let text = format!("{error:#}");
            let other = length + 1;
            let said = format!("rank 0 gives {length} elements, and rank 1 gives {other}: let all ranks give equally many");
            assert!(text.contains(&said), "{text}");
            let ended = flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", 5 + round % 3)).await?[0]));
            assert_eq!(ended.unwrap(), f64::from(ranks));
        }
    });
}

#[test]
fn lengths_that_differ_fail_the_operation_on_two_ranks_and_the_world_goes_on() {
    give_more(2, "order::lengths_that_differ_fail_the_operation_on_two_ranks_and_the_world_goes_on");
}

#[test]
fn lengths_that_differ_fail_the_operation_on_three_ranks_and_the_world_goes_on() {
    give_more(3, "order::lengths_that_differ_fail_the_operation_on_three_ranks_and_the_world_goes_on");
}

/// Lets rank 1 take another way than the others, with lists of so many numbers.
fn take_ways(ranks: u32, test: &str, length: usize) {
    // Both pairs, of a largest with a largest and of a largest with a sum, were equal on all ranks before.
    // With numbers, seen to give values of different operations when known pairs were not compared.
    each_rank_alone(ranks, test, |world| {
        let ended = flow(async |f: &Flow| {
            let x = f.value("x", vec![f64::from(world.rank()); length]);
            for round in 0..40 {
                let differs = round == 38 && world.rank() == 1;
                let is_sum = (round % 3 == 0) != differs;
                let y = if is_sum { f.all_reduce(&world, "sum", &x, Sum) } else { f.all_reduce(&world, "largest", &x, Max) };
                let y = f.get(&y).await?[0];
                assert!(round < 38, "{y} of different operations");
            }
            Ok(())
        });
        let text = format!("{:#}", ended.unwrap_err());
        let (of, bytes) = ("alloc::vec::Vec<f64>", 8 * length);
        let said = format!(
            "the ranks disagree about collective 38, counted from 0: on rank 0 it is 'largest', all-reduce (max) of {of}, {bytes} bytes, on rank 1 'sum', all-reduce (+) of {of}, {bytes} bytes"
        );
        assert!(text.contains(&said), "{text}");
    });
}

#[test]
fn a_way_that_one_rank_takes_is_an_error_though_all_ranks_know_both() {
    // They are started beside their comparison.
    take_ways(3, "order::a_way_that_one_rank_takes_is_an_error_though_all_ranks_know_both", 100);
}

#[test]
fn a_way_that_one_of_two_ranks_takes_is_an_error_though_both_know_both() {
    take_ways(2, "order::a_way_that_one_of_two_ranks_takes_is_an_error_though_both_know_both", 1000);
}

#[test]
fn a_way_that_one_rank_takes_is_an_error_for_small_values() {
    take_ways(3, "order::a_way_that_one_rank_takes_is_an_error_for_small_values", 1);
}

#[test]
fn a_way_that_one_of_two_ranks_takes_is_an_error_for_small_values() {
    take_ways(2, "order::a_way_that_one_of_two_ranks_takes_is_an_error_for_small_values", 1);
}

/// Lets a collective that goes with its comparison meet one that does not.
fn small_meets_large(ranks: u32, test: &str) {
    each_rank_alone(ranks, test, |world| {
        let small = CARRIED[usize::from(ranks > 2)];
        // All ranks know both lengths.
        let run = |length| flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", length)).await?[0]));
        [small, small + 1].repeat(2).into_iter().for_each(|length| assert_eq!(run(length).unwrap(), f64::from(ranks)));
        let error = run(if world.rank() == 0 { small } else { small + 1 }).unwrap_err();
        let text = format!("{error:#}");
        // Rank 1 may have started the large one.
        let is_named = text.contains(&format!("rank 0 gives {small} elements")) || text.contains("collective 4, counted from 0");
        assert!(is_named, "{text}");
    });
}

#[test]
fn a_small_collective_that_meets_a_large_one_is_an_error_on_all_ranks() {
    small_meets_large(3, "order::a_small_collective_that_meets_a_large_one_is_an_error_on_all_ranks");
}

#[test]
fn a_small_collective_that_meets_a_large_one_is_an_error_on_two_ranks() {
    small_meets_large(2, "order::a_small_collective_that_meets_a_large_one_is_an_error_on_two_ranks");
}

#[test]
fn a_small_collective_that_is_dropped_after_its_start_leaves_the_world_whole() {
    // Seen to fail when the comparison had begun, and the operation did not count as started.
    let test = "order::a_small_collective_that_is_dropped_after_its_start_leaves_the_world_whole";
    each_rank(2, test, |world| {
        if world.rank() == 1 {
            let exec = Executor::inline();
            {
                let mut flow = Box::pin(exec.flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", 3)).await?[0])));
                assert!(block_on(poll_immediate(&mut flow)).is_none());
            }
            launch::note("dropped");
        } else {
            launch::wait_for_note("dropped");
            assert_eq!(flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", 3)).await?[0])).unwrap(), 2.0);
        }
        assert_eq!(flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "next", 300)).await?[0])).unwrap(), 2.0);
        assert!(world.error().is_none());
    });
}

#[test]
fn a_plan_beside_an_operation_of_a_flow_is_an_error() {
    each_rank_alone(2, "order::a_plan_beside_an_operation_of_a_flow_is_an_error", |world| {
        let mut g = anabranch::Graph::new();
        let x = g.input::<f64>("x");
        let total = g.all_reduce("total", &x, Sum);
        g.output("total", &total);
        let (exec, plan) = (Executor::inline(), g.compile_for(&world).unwrap());
        let error = if world.rank() == 0 {
            block_on(exec.run(&plan, anabranch::inputs! { "x" => 1.0 })).unwrap_err()
        } else {
            flow(async |f: &Flow| Ok(f.get(&sum(f, &world, "sum", 1)).await?[0])).unwrap_err()
        };
        let text = format!("{error:#}");
        let said = "on rank 0 it is the comparison of the graphs before the first run of a plan, with the first node 'total', on rank 1 'sum', all-reduce";
        assert!(text.contains(said), "{text}");
    });
}

#[test]
fn a_message_behind_a_collective_does_not_wait_for_all_ranks() {
    // Seen to hang when the turn was kept until the ranks had agreed.
    each_rank(2, "order::a_message_behind_a_collective_does_not_wait_for_all_ranks", |world| {
        let run = |length| {
            flow(async |f: &Flow| {
                if world.rank() == 0 {
                    let sum = sum(f, &world, "sum", length);
                    let sent = f.send_to(&world, "send", &f.value("y", 7_u32), 1);
                    f.get(&sent).await?;
                    return Ok(f.get(&sum).await?[0]);
                }
                let received = f.recv_from::<u32>(&world, "receive", 0);
                assert_eq!(*f.get(&received).await?, 7);
                Ok(f.get(&sum(f, &world, "sum", length)).await?[0])
            })
        };
        // The second time, the ranks know it.
        [4, 4, 400, 400].into_iter().for_each(|length| assert_eq!(run(length).unwrap(), 2.0));
    });
}

#[test]
fn ranks_that_await_large_sends_before_they_receive_go_on() {
    // Seen to hang when a send ended with its receive.
    each_rank(2, "order::ranks_that_await_large_sends_before_they_receive_go_on", |world| {
        let other = 1 - world.rank();
        let ended = flow(async |f: &Flow| {
            let x = f.value("x", vec![f64::from(world.rank()); 1 << 20]);
            f.get(&f.send_to(&world, "send", &x, other)).await?;
            let received = f.get(&f.recv_from::<Vec<f64>>(&world, "receive", other)).await?;
            Ok((received.len(), received[0], received[received.len() - 1]))
        });
        assert_eq!(ended.unwrap(), (1 << 20, f64::from(other), f64::from(other)));
    });
}

#[test]
fn a_collective_that_is_dropped_before_it_is_started_breaks_the_world() {
    each_rank_alone(2, "order::a_collective_that_is_dropped_before_it_is_started_breaks_the_world", |world| {
        if world.rank() == 1 {
            let exec = Executor::inline();
            let mut flow = Box::pin(exec.flow(async |f: &Flow| {
                let x = f.value("x", vec![1.0; 3]);
                f.get(&f.broadcast(&world, "first", &x, 0)).await.map(drop)
            }));
            assert!(block_on(poll_immediate(&mut flow)).is_none());
        }
        while world.error().is_none() {
            std::thread::yield_now();
        }
        let text = world.error().unwrap().to_string();
        assert!(
            text.contains("rank 1 has abandoned the run: 'first' was dropped before all of its parts were started"),
            "{text}"
        );
    });
}
