//! Communication of flows over MPI.

use std::sync::Arc;

use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Graph, Inputs, take};
use futures::executor::block_on;
use tokio_test::{assert_pending, task};

use crate::launch::{each_rank, note, wait_for_note};

#[test]
fn messages_of_any_length_go_back_and_forth() {
    each_rank(2, "flows::messages_of_any_length_go_back_and_forth", |world| {
        let exec = Executor::inline();
        let (world, rank) = (&world, world.rank());
        let flow = exec.flow(async |f: &Flow| {
            for round in 0..100 {
                let length = [1, 100, 10_000, 300_000][round % 4];
                let out = f.value("out", vec![f64::from(rank) + round as f64; length]);
                let (sent, received) = if rank == 0 {
                    let sent = f.send_to(world, "ping", &out, 1);
                    (sent, f.recv_from::<Vec<f64>>(world, "pong", 1))
                } else {
                    let received = f.recv_from::<Vec<f64>>(world, "ping", 0);
                    f.get(&received).await?;
                    (f.send_to(world, "pong", &out, 0), received)
                };
                f.get(&sent).await?;
                let received = f.get(&received).await?;
                assert_eq!((received.len(), received[0]), (length, f64::from(1 - rank) + round as f64));
            }
            let x = f.value("x", rank);
            Ok(*f.get(&f.all_reduce(world, "sum", &x, Sum)).await?)
        });
        assert_eq!(block_on(flow).unwrap(), 1);
    });
}

#[test]
fn an_exchange_that_is_not_polled_goes_on() {
    // Seen to fail when the thread slept while requests were in flight that their futures had not left, and
    // when it forgot the stall.
    each_rank(2, "flows::an_exchange_that_is_not_polled_goes_on", |world| {
        let (exec, rank) = (Executor::inline(), world.rank());
        let mut g = Graph::new();
        let x = g.task("x", (), || vec![1.0_f64; 1 << 17]);
        let sum = g.all_reduce("sum", take(&x), Sum);
        g.output("sum", &sum);
        let plan = g.compile_for(&world).unwrap();
        let run = || exec.run(&plan, Inputs::new());
        // Then the ranks know it, and begin it together with its comparison.
        (0..2).for_each(|_| drop(block_on(run()).unwrap()));
        // Polls an exchange once, before the other rank comes to it. Returns whether it woke itself.
        let woke_itself = |round: u32| {
            let (mut run, mut woke_itself) = (task::spawn(run()), false);
            if rank == 0 {
                assert_pending!(run.poll());
                woke_itself = run.is_woken();
                note(&format!("{round} polled"));
                wait_for_note(&format!("{round} ended"));
            } else {
                wait_for_note(&format!("{round} polled"));
            }
            let sum: Arc<Vec<f64>> = block_on(run).unwrap().take("sum").unwrap();
            assert_eq!(sum[0], 2.0);
            if rank == 1 {
                note(&format!("{round} ended"));
            }
            woke_itself
        };
        // This thread has nothing else, so exchanges wake themselves, until one was not polled for a while.
        // (Not the first one, if this process lost its core for as long.)
        let woke: Vec<bool> = (0..10).map(woke_itself).collect();
        assert!(!woke[9], "{woke:?}");
    });
}

#[test]
fn receives_that_wait_together_get_the_messages_in_order() {
    each_rank(2, "flows::receives_that_wait_together_get_the_messages_in_order", |world| {
        let exec = Executor::inline();
        let (world, rank) = (&world, world.rank());
        let flow = exec.flow(async |f: &Flow| {
            for round in 0..200_u32 {
                if rank == 0 {
                    let x = [10 * round, 10 * round + 1, 10 * round + 2].map(|x| f.value("x", x));
                    let sent = x.map(|x| f.send_to(world, "send", &x, 1));
                    for sent in &sent {
                        f.get(sent).await?;
                    }
                } else {
                    let received = [(); 3].map(|()| f.recv_from::<u32>(world, "receive", 0));
                    for (received, number) in received.iter().zip(0..) {
                        assert_eq!(*f.get(received).await?, 10 * round + number);
                    }
                }
            }
            Ok(())
        });
        block_on(flow).unwrap();
    });
}
