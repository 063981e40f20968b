//! A deadline around part of a flow: when it passes, the search is dropped where it stands, and the best that
//! it has found so far is there.
//!
//! ```sh
//! cargo run --example deadline                # deadlines of 1, 10, 100 and 1000 ms
//! cargo run --example deadline -- 5 50        # your own
//! ```
//!
//! The search looks for a short round trip through cities: it turns pieces of the trip round wherever that
//! makes it shorter. It would never end.

use std::sync::Arc;
use std::time::Duration;

use anabranch::{BoxError, Executor, Flow, Op, Result, take};
use tokio::time::timeout;

const CITIES: usize = 1000;
/// Turns that are tried in a step.
const TRIES: usize = 500;

/// A round trip, and the dice that pick what to try next.
#[derive(Clone)]
struct Trip {
    cities: Vec<(f64, f64)>,
    dice: fastrand::Rng,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let deadlines: Vec<u64> = std::env::args()
        .skip(1)
        .map(|ms| ms.parse())
        .collect::<Result<_, _>>()
        .map_err(|_| "give deadlines in milliseconds, such as 1 10 100")?;
    let exec = Executor::host()?;
    let start = Trip::random(7);
    println!("a random trip through {CITIES} cities: {:.2}", start.length());
    for ms in if deadlines.is_empty() { vec![1, 10, 100, 1000] } else { deadlines } {
        let (best, steps) = search(&exec, start.clone(), Duration::from_millis(ms)).await?;
        println!("the best after {ms:>4} ms and {steps:>6} steps: {:>6.2}", best.length());
    }
    Ok(())
}

/// Returns the best trip that it finds in time, and in how many steps.
async fn search(exec: &Executor, start: Trip, deadline: Duration) -> Result<(Arc<Trip>, u64)> {
    let flow = exec.flow(async |f: &Flow| {
        let best = f.value("best", start);
        // A flow within the flow: what it has pushed is dropped with it.
        let steps = f.flow(async |f: &Flow| -> Result<()> {
            loop {
                // Changes the trip where it lies.
                f.node(Op::task("improve", take(&best), &best, Trip::improve)).await?;
            }
        });
        if let Ok(failed) = timeout(deadline, steps).await {
            failed?;
        }
        // A step that is under way ends in peace, and this comes after it.
        Ok((f.get(&best).await?, best.version()))
    });
    flow.await
}

impl Trip {
    fn random(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        Self { cities: (0..CITIES).map(|_| (dice.f64(), dice.f64())).collect(), dice }
    }

    /// Turns pieces of the trip round, each if that makes it shorter.
    fn improve(mut self) -> Self {
        for _ in 0..TRIES {
            let (a, b) = (self.dice.usize(1..CITIES), self.dice.usize(1..CITIES));
            let (first, last) = (a.min(b), a.max(b));
            let (before, after) = (self.cities[first - 1], self.cities[(last + 1) % CITIES]);
            let (from, to) = (self.cities[first], self.cities[last]);
            if distance(before, to) + distance(from, after) < distance(before, from) + distance(to, after) {
                self.cities[first..=last].reverse();
            }
        }
        self
    }

    fn length(&self) -> f64 {
        (0..CITIES).map(|at| distance(self.cities[at], self.cities[(at + 1) % CITIES])).sum()
    }
}

fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_best_is_what_so_many_steps_give() -> Result<()> {
        let hosts = [0, 1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..3).map(|seed| Ok(Executor::sim(seed)))) {
            let (best, steps) = search(&exec?, Trip::random(7), Duration::from_millis(100)).await?;
            let plain = (0..steps).fold(Trip::random(7), |trip, _| trip.improve());
            assert!(steps > 0 && best.length() < Trip::random(7).length());
            assert_eq!(best.cities, plain.cities);
        }
        Ok(())
    }
}
