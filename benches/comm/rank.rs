//! What a rank of the bench does. Rank 0 prints `name bytes ns`.

use std::time::{Duration, Instant};

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Graph, Inputs, Result, Var, take};
use futures::executor::block_on;

use crate::grid::Part;
use crate::table::median;
use crate::{SIZES, graph};

pub(crate) fn run() {
    let world = World::mpi().unwrap();
    let print = |name: &str, bytes: usize, seconds: f64| {
        if world.rank() == 0 {
            println!("{name} {bytes} {:.1}", 1e9 * seconds);
        }
    };
    if world.size() == 1 {
        print("solver-1", 0, solver(&world));
        return;
    }
    for (bytes, rounds) in SIZES {
        let (ping_pong, all_reduce) = exchanges(&world, bytes, rounds);
        print("ping-pong", bytes, ping_pong);
        print("all-reduce", bytes, all_reduce);
    }
    let [alone, waited, both] = overlap(&world);
    print("compute", 0, alone);
    print("wait", 0, waited);
    print("both", 0, both);
    print("solver-2", 0, solver(&world));
}

/// Returns the seconds for a message, and for an all-reduce.
fn exchanges(world: &World, bytes: usize, rounds: usize) -> (f64, f64) {
    let (exec, rank) = (Executor::inline(), world.rank());
    let flow = exec.flow(async |f: &Flow| {
        let other = 1 - rank;
        let ones = || f.value("x", vec![1.0_f64; bytes / 8]);
        let (mut x, start) = (ones(), f.value("start", ()));
        let mut begin = Instant::now();
        for round in 0..rounds + rounds / 10 + 1 {
            if round == rounds / 10 + 1 {
                f.get(&f.barrier(world, "barrier", &start)).await?;
                begin = Instant::now();
            }
            if rank == 0 {
                f.get(&f.send_to(world, "ping", take(&x), other)).await?;
                x = received(f, f.recv_from(world, "pong", other)).await?;
            } else {
                x = received(f, f.recv_from(world, "ping", other)).await?;
                f.get(&f.send_to(world, "pong", take(&x), other)).await?;
            }
        }
        let ping_pong = begin.elapsed().as_secs_f64() / (2 * rounds) as f64;
        x = ones();
        for round in 0..rounds + rounds / 10 + 1 {
            if round == rounds / 10 + 1 {
                f.get(&f.barrier(world, "barrier", &start)).await?;
                begin = Instant::now();
            }
            x = received(f, f.all_reduce(world, "sum", take(&x), Sum)).await?;
        }
        Ok((ping_pong, begin.elapsed().as_secs_f64() / rounds as f64))
    });
    block_on(flow).unwrap()
}

/// Waits until a variable has its value.
async fn received(f: &Flow, x: Var<Vec<f64>>) -> Result<Var<Vec<f64>>> {
    f.get(&x).await?;
    Ok(x)
}

/// The time for which the other rank is late.
const LATE: Duration = Duration::from_millis(20);

/// Returns the seconds for the work alone, for an all-reduce to which the other rank comes late, and for both
/// in one graph. The work is on rank 0, which has one worker.
fn overlap(world: &World) -> [f64; 3] {
    let exec = Executor::builder().workers(1).build().unwrap();
    let is_first = world.rank() == 0;
    [(true, false), (false, true), (true, true)].map(|(works, waits)| {
        let mut g = Graph::new();
        let start = g.task("start", (), || 1.0_f64);
        if works {
            let work = g.task("work", &start, move |x: &f64| if is_first { work(*x) } else { *x });
            g.output("work", &work);
        }
        if waits {
            let late = g.future("late", &start, move |x: std::sync::Arc<f64>| async move {
                if !is_first {
                    after(LATE).await;
                }
                Ok(*x)
            });
            let sum = g.all_reduce("sum", &late, Sum);
            g.output("sum", &sum);
        }
        let plan = g.compile_for(world).unwrap();
        let time = |_| {
            let begin = Instant::now();
            block_on(exec.run(&plan, Inputs::new())).unwrap();
            begin.elapsed().as_secs_f64()
        };
        median(&(0..15).map(time).collect::<Vec<f64>>())
    })
}

/// Computes for about 20 ms.
fn work(x: f64) -> f64 {
    (0..4_000_000).fold(x, |x, _| (x * 1.000_000_1).sqrt())
}

/// Waits, as for a network.
async fn after(time: Duration) {
    let (sender, receiver) = futures::channel::oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        sender.send(())
    });
    receiver.await.unwrap();
}

/// Returns the seconds for the conjugate gradients of the example `ranks`, on this rank.
fn solver(world: &World) -> f64 {
    let exec = Executor::builder().workers(1).build().unwrap();
    let solve = || block_on(graph::solve(&exec, world, Part::new(512, world).unwrap())).unwrap();
    solve();
    let begin = Instant::now();
    solve();
    begin.elapsed().as_secs_f64()
}
