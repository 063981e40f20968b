//! What a rank of the bench does. Rank 0 prints `name ns`.

use std::time::{Duration, Instant};

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Graph, Inputs, Result, Var, take};
use futures::executor::block_on;

use crate::at_pages;
use crate::graph;
use crate::grid::Part;
use crate::table::median;

/// Measures what the program's arguments say: `BYTES ROUNDS`, `overlap` or `solver`.
pub(crate) fn run(words: &[String]) {
    if words.len() == 2 {
        at_pages::begin();
    }
    let world = World::mpi().unwrap();
    let print = |name: &str, seconds: f64| {
        if world.rank() == 0 {
            println!("{name} {:.1}", 1e9 * seconds);
        }
    };
    match words {
        [bytes, rounds] => {
            let (ping_pong, all_reduce) = exchanges(&world, bytes.parse().unwrap(), rounds.parse().unwrap());
            print("ping-pong", ping_pong);
            print("all-reduce", all_reduce);
        }
        [what] if what == "overlap" => {
            let [alone, waited, both] = overlap(&world);
            print("compute", alone);
            print("wait", waited);
            print("both", both);
        }
        _ => print(&format!("solver-{}", world.size()), solver(&world)),
    }
}

/// Returns the seconds for a message, and for an all-reduce.
fn exchanges(world: &World, bytes: usize, rounds: usize) -> (f64, f64) {
    let (exec, rank) = (Executor::inline(), world.rank());
    let flow = exec.flow(async |f: &Flow| {
        let other = 1 - rank;
        let mut x = f.value("x", vec![1.0_f64; bytes / 8]);
        let (mut ping_pong, mut all_reduce) = (Parts::new(rounds), Parts::new(rounds));
        while !ping_pong.are_all() {
            if rank == 0 {
                f.get(&f.send_to(world, "ping", take(&x), other)).await?;
                x = received(f, f.recv_from(world, "pong", other)).await?;
            } else {
                x = received(f, f.recv_from(world, "ping", other)).await?;
                f.get(&f.send_to(world, "pong", take(&x), other)).await?;
            }
            ping_pong.note_round();
        }
        x = f.value("x", vec![1.0; bytes / 8]);
        while !all_reduce.are_all() {
            x = received(f, f.all_reduce(world, "sum", take(&x), Sum)).await?;
            all_reduce.note_round();
        }
        Ok((ping_pong.round_s() / 2.0, all_reduce.round_s()))
    });
    block_on(flow).unwrap()
}

/// The times of many rounds, in parts. The first one is not counted.
struct Parts {
    rounds_of_part: usize,
    rounds: usize,
    begin: Instant,
    seconds: Vec<f64>,
}

/// The parts of a figure, in `raw.c` too. A figure is their median.
const PARTS: usize = 10;

impl Parts {
    fn new(rounds: usize) -> Self {
        Self { rounds_of_part: (rounds / PARTS).max(1), rounds: 0, begin: Instant::now(), seconds: Vec::new() }
    }

    fn note_round(&mut self) {
        self.rounds += 1;
        if self.rounds == self.rounds_of_part {
            self.seconds.push(self.begin.elapsed().as_secs_f64() / self.rounds as f64);
            (self.rounds, self.begin) = (0, Instant::now());
        }
    }

    fn are_all(&self) -> bool {
        self.seconds.len() > PARTS
    }

    fn round_s(&self) -> f64 {
        median(&self.seconds[1..])
    }
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
