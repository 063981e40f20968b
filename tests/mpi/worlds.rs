//! Worlds that are made and left: their communicators are freed, and none is waited for without an end.

use std::time::{Duration, Instant};

use anabranch::comm::{Mpi, World};
use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Graph, Inputs, Result};
use futures::executor::block_on;

use crate::launch::{self, each_rank, each_rank_alone};

fn sum(world: &World, x: u32) -> Result<u32> {
    block_on(Executor::inline().flow(async |f: &Flow| {
        let x = f.value("x", x);
        Ok(*f.get(&f.all_reduce(world, "sum", &x, Sum)).await?)
    }))
}

#[test]
fn three_thousand_worlds_come_and_go() {
    // Seen to fail when no communicator was freed: MPICH has about 2,000.
    each_rank(2, "worlds::three_thousand_worlds_come_and_go", |first| {
        for round in 0..3000 {
            let world = World::mpi().unwrap_or_else(|error| panic!("world {round}: {error:#}"));
            if round % 100 == 0 {
                assert_eq!(sum(&world, round).unwrap(), 2 * round);
            }
        }
        assert_eq!(sum(&first, 1).unwrap(), 2);
    });
}

#[test]
fn a_world_that_one_rank_does_not_make_is_an_error() {
    // Seen to hang when the ranks made it by a call that blocks.
    each_rank_alone(2, "worlds::a_world_that_one_rank_does_not_make_is_an_error", |first| {
        if first.rank() == 0 {
            let error = Mpi::new().deadline(Duration::from_millis(200)).world().unwrap_err();
            assert!(error.to_string().contains("not all ranks have asked for this world within 200ms"), "{error:#}");
            launch::note("given-up");
        } else {
            launch::wait_for_note("given-up");
            // What rank 0 has said of it is not lost.
            let error = World::mpi().unwrap_err();
            assert!(error.is_world_broken() && error.rank() == Some(0), "{error:#}");
            assert!(format!("{error:#}").contains("its world was not made"), "{error:#}");
        }
        assert_eq!(sum(&first, 1).unwrap(), 2, "the first world is whole");
        // The next one has the same number on both ranks.
        assert_eq!(sum(&World::mpi().unwrap(), 3).unwrap(), 6);
    });
}

#[test]
fn a_deadline_between_two_communicators_of_a_world_spoils_no_later_world() {
    // Seen to fail when a rank left out the communicators that it had given up: with a pause of 3 ms before
    // each look at the deadline, later worlds were not made within 10 s.
    let name = "worlds::a_deadline_between_two_communicators_of_a_world_spoils_no_later_world";
    each_rank_alone(2, name, |first| {
        let deadline = Duration::from_millis(100);
        for round in 0..24 {
            sum(&first, 1).unwrap();
            // Rank 1 comes when the deadline of rank 0 ends: a little earlier in each round.
            let (begin, wait) = (Instant::now(), deadline - Duration::from_micros(500) * round);
            while first.rank() == 1 && begin.elapsed() < wait {
                std::thread::yield_now();
            }
            // The other rank may have given it up.
            let ended = Mpi::new().deadline(deadline).world().map(|world| sum(&world, 1));
            assert!(ended.is_err() || ended.is_ok_and(|sum| sum.map_or_else(|error| error.is_world_broken(), |sum| sum == 2)));
        }
        for x in 0..3 {
            assert_eq!(sum(&World::mpi().unwrap(), x).unwrap(), 2 * x);
        }
    });
}

#[test]
fn a_world_that_is_broken_is_duplicated_and_the_ranks_go_on() {
    // Seen to fail when the duplicate was the same world.
    each_rank_alone(3, "worlds::a_world_that_is_broken_is_duplicated_and_the_ranks_go_on", |first| {
        let (rank, mut world) = (first.rank(), first.duplicate().unwrap());
        for round in 0..5 {
            assert_eq!(sum(&world, round).unwrap(), 3 * round);
            sum(&first, 1).unwrap();
            // One rank abandons an operation for which the others wait.
            let ended = block_on(Executor::inline().flow(async |f: &Flow| {
                let fails = move || if rank == round % 3 { Err("no value".into()) } else { Ok(rank) };
                let x = f.try_task("x", (), fails);
                Ok(*f.get(&f.all_reduce(&world, "abandoned", &x, Sum)).await?)
            }));
            assert!(ended.is_err() && sum(&world, round).unwrap_err().is_world_broken());
            world = if round < 3 { world.duplicate().unwrap() } else { World::mpi().unwrap() };
        }
        assert_eq!(sum(&world, 7).unwrap(), 21);
    });
}

#[test]
fn a_reason_of_any_length_is_told() {
    // Seen to fail, as the death of rank 0, when a message of more than 1 MiB was sent.
    each_rank_alone(2, "worlds::a_reason_of_any_length_is_told", |world| {
        let rank = world.rank();
        let mut g = Graph::new();
        let fails = move || if rank == 0 { Err("long ".repeat(1 << 19).into()) } else { Ok(rank) };
        let x = g.try_task("x", (), fails);
        let sum = g.all_reduce("sum", &x, Sum);
        g.output("sum", &sum);
        let plan = g.compile_for(&world).unwrap();
        let ended = block_on(Executor::inline().run(&plan, Inputs::new()));
        let text = format!("{:#}", ended.unwrap_err());
        let start = &text[..text.len().min(1000)];
        assert!(rank == 0 || start.contains("rank 0 has abandoned the run"), "{start}");
    });
}

#[test]
fn a_receive_that_was_dropped_does_not_keep_the_process() {
    // Seen to fail when one rank finalised MPI, and the other one did not.
    each_rank(2, "worlds::a_receive_that_was_dropped_does_not_keep_the_process", |world| {
        if world.rank() == 0 {
            let exec = Executor::inline();
            let mut flow = Box::pin(exec.flow(async |f: &Flow| Ok(*f.get(&f.recv_from::<u32>(&world, "never", 1)).await?)));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(flow.as_mut().poll(&mut context).is_pending());
        }
    });
}

#[test]
fn a_wait_for_another_rank_is_not_that_for_a_rank_that_has_left() {
    // Seen to fail when every old wait counted.
    each_rank(3, "worlds::a_wait_for_another_rank_is_not_that_for_a_rank_that_has_left", |first| {
        let world = Mpi::new().deadline(Duration::from_millis(400)).world().unwrap();
        let rank = world.rank();
        if rank == 2 {
            drop(world);
            launch::note("left");
            sum(&first, rank).unwrap();
            return;
        }
        launch::wait_for_note("left");
        block_on(Executor::inline().flow(async |f: &Flow| {
            if rank == 0 {
                // Longer than half of the deadline.
                assert_eq!(*f.get(&f.recv_from::<u32>(&world, "late", 1)).await?, 7);
            } else {
                std::thread::sleep(Duration::from_millis(500));
                let x = f.value("x", 7_u32);
                f.get(&f.send_to(&world, "late", &x, 0)).await?;
            }
            Ok(())
        }))
        .unwrap();
        sum(&first, rank).unwrap();
    });
}

#[test]
fn a_send_that_is_not_polled_does_not_wait_for_a_rank_that_has_received_and_left() {
    // Seen to fail when a send was noted as waiting until it had completed.
    let name = "worlds::a_send_that_is_not_polled_does_not_wait_for_a_rank_that_has_received_and_left";
    each_rank(3, name, |first| {
        let world = Mpi::new().deadline(Duration::from_millis(400)).world().unwrap();
        let rank = world.rank();
        block_on(Executor::inline().flow(async |f: &Flow| {
            if rank == 0 {
                let x = f.value("x", vec![7.0; 1 << 17]);
                let sent = f.send_to(&world, "large", &x, 1);
                launch::wait_for_note("left");
                // Longer than half of the deadline.
                std::thread::sleep(Duration::from_millis(300));
                f.get(&sent).await?;
            } else if rank == 1 {
                assert_eq!(f.get(&f.recv_from::<Vec<f64>>(&world, "large", 0)).await?.len(), 1 << 17);
            }
            Ok(())
        }))
        .unwrap();
        if rank == 1 {
            drop(world);
            launch::note("left");
        } else {
            launch::wait_for_note("left");
            assert!(world.error().is_none(), "{:?}", world.error());
        }
        sum(&first, rank).unwrap();
    });
}
