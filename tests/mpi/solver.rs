//! A rank is killed or stopped at each step of communication of a small conjugate-gradient solver: everything
//! that is pending on the other ranks ends with an error that names the rank.
//!
//! Seen to hang when the end of a connection, or the silence of a rank, broke no world.
//!
//! `ANABRANCH_TEST_ROUNDS` is the number of rounds of each test; by default, each step has one.

use std::env::var;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use anabranch::comm::{Mpi, World};
use anabranch::scope::Sum;
use anabranch::{Executor, Flow, Result, Var};
use futures::executor::block_on;
use futures::future::join;

use crate::launch;

const DEADLINE: Duration = Duration::from_secs(2);
/// The number of rows of each rank, and of iterations.
const ROWS: usize = 4;
const ITERATIONS: u32 = 2;

/// Says to the ranks which of them ends, and at which step.
const END: &str = "ANABRANCH_TEST_END";

/// The steps of one rank.
struct Steps {
    next: AtomicU32,
    /// The step at which this rank ends, and the signal that ends it.
    end: Option<(u32, &'static str)>,
}

impl Steps {
    /// Waits for the communication of the next step, or ends this rank when that has been started.
    async fn pass<T: Send + Sync + 'static>(&self, f: &Flow, pushed: &Var<T>) -> Result<Arc<T>> {
        let step = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some((_, signal)) = self.end.filter(|(at, _)| *at == step) {
            give_way().await;
            launch::signal(signal);
        }
        f.get(pushed).await
    }

    /// Returns the number of steps of a rank: two sums and two messages for each neighbour in an iteration.
    fn of(rank: u32, ranks: u32) -> u32 {
        let neighbours = u32::from(rank > 0) + u32::from(rank + 1 < ranks);
        1 + ITERATIONS * (2 + 2 * neighbours)
    }
}

/// Lets the executor start what was pushed.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Solves A x = b, where A has 2 on its diagonal and -1 beside it. Returns r · r.
async fn solve(f: &Flow, world: &World, steps: &Steps) -> Result<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (mut x, mut r, mut p) = (vec![0.0; ROWS], vec![1.0; ROWS], vec![1.0; ROWS]);
    let mut rr = total(f, world, steps, dot(&r, &r)).await?;
    for _ in 0..ITERATIONS {
        let q = multiply(f, world, steps, &p).await?;
        let pq = f.value("p · Ap here", dot(&p, &q));
        let alpha = rr / *steps.pass(f, &f.all_reduce(world, "p · Ap", &pq, Sum)).await?;
        for row in 0..ROWS {
            x[row] += alpha * p[row];
            r[row] -= alpha * q[row];
        }
        let next = total(f, world, steps, dot(&r, &r)).await?;
        for row in 0..ROWS {
            p[row] = r[row] + next / rr * p[row];
        }
        rr = next;
    }
    Ok(rr)
}

/// A p, with the rows of the neighbours.
async fn multiply(f: &Flow, world: &World, steps: &Steps, p: &[f64]) -> Result<Vec<f64>> {
    let (rank, last) = (world.rank(), world.size() - 1);
    let mut padded = [0.0; ROWS + 2];
    padded[1..=ROWS].copy_from_slice(p);
    let neighbours = [(rank > 0, rank.wrapping_sub(1), p[0], 0), (rank < last, rank + 1, p[ROWS - 1], ROWS + 1)];
    let neighbours = neighbours.into_iter().filter(|(is_there, ..)| *is_there);
    for (_, to, row, _) in neighbours.clone() {
        steps.pass(f, &f.send_to(world, "send", &f.value("row", row), to)).await?;
    }
    for (_, from, _, place) in neighbours {
        padded[place] = *steps.pass(f, &f.recv_from::<f64>(world, "receive", from)).await?;
    }
    Ok(padded.windows(3).map(|rows| 2.0 * rows[1] - rows[0] - rows[2]).collect())
}

/// The sum over all ranks, by an operation of two steps.
async fn total(f: &Flow, world: &World, steps: &Steps, here: f64) -> Result<f64> {
    let here = f.value("here", vec![here]);
    Ok(steps.pass(f, &f.all_gather(world, "r · r", &here)).await?.iter().sum())
}

/// The part of each rank. One of them ends by the signal; the others say why.
fn rank(signal: &'static str, says: &str) {
    launch::keep_panics();
    let end = var(END).unwrap();
    let (ending, at) = end.split_once(' ').map(|(rank, step)| (rank.parse().unwrap(), step.parse().unwrap())).unwrap();
    let [world, other] = [(); 2].map(|()| Mpi::new().deadline(DEADLINE).world().unwrap());
    let exec = Executor::inline();
    let is_ending = world.rank() == ending;
    let steps = Steps { next: AtomicU32::new(0), end: is_ending.then_some((at, signal)) };
    let solve = async {
        // The last steps of the others may not need the rank any more.
        for _ in 0..3 {
            exec.flow(async |f: &Flow| solve(f, &world, &steps).await).await?;
        }
        Ok(())
    };
    if is_ending {
        let ended: Result<()> = block_on(solve);
        panic!("step {at} never came: {ended:?}");
    }
    let waiting = exec.flow(async |f: &Flow| Ok(*f.get(&f.recv_from::<u32>(&other, "never", ending)).await?));
    let (solved, received) = block_on(join(solve, waiting));
    for error in [solved.unwrap_err(), received.unwrap_err()] {
        assert!(error.is_world_broken() && error.rank() == Some(ending), "{error:#}");
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
    launch::note_well(world.rank());
    launch::wait_for(world.size() - 1);
}

/// Ends a rank by a signal, at each step.
fn each_step(name: &str, ranks: u32, signal: &'static str, says: &str) {
    if launch::is_rank() {
        return rank(signal, says);
    }
    // The rank in the middle comes first: it has the most steps.
    let all: Vec<(u32, u32)> =
        (1..=ranks).map(|rank| rank % ranks).flat_map(|rank| (0..Steps::of(rank, ranks)).map(move |step| (rank, step))).collect();
    let rounds = var("ANABRANCH_TEST_ROUNDS").map_or(Steps::of(1, ranks) as usize, |rounds| rounds.parse().unwrap());
    launch::all(name, ranks, |launcher, ranks, test| {
        for (rank, step) in all.iter().cycle().take(rounds) {
            launcher.survives(ranks, test, Some((END, format!("{rank} {step}"))));
        }
    });
    println!("{name}: {rounds} rounds with each MPI");
}

#[test]
fn one_of_two_is_killed() {
    each_step("solver::one_of_two_is_killed", 2, "-KILL", "has died");
}

#[test]
fn one_of_three_is_killed() {
    each_step("solver::one_of_three_is_killed", 3, "-KILL", "has died");
}

#[test]
fn one_of_two_is_stopped() {
    each_step("solver::one_of_two_is_stopped", 2, "-STOP", "has not answered for");
}

#[test]
fn one_of_three_is_stopped() {
    each_step("solver::one_of_three_is_stopped", 3, "-STOP", "has not answered for");
}
