//! Communication of flows over MPI.

use anabranch::scope::Sum;
use anabranch::{Executor, Flow};
use futures::executor::block_on;

use crate::launch::each_rank;

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
