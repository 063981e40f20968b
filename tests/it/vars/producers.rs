//! Several threads that push on the same variables: one order for all of them, and no deadlock.

use std::time::{Duration, Instant};

use anabranch::{Op, Var, take};

use super::{engine, idle, push};
use crate::support::{Dice, block_on};

/// How long threads push before their results are checked.
const TIME: Duration = Duration::from_secs(1);

/// The number of rounds. For ten seconds: `HAMMER_S=10 cargo test --release --test it producers`.
fn rounds() -> usize {
    std::env::var("HAMMER_S").map_or(1, |seconds| seconds.parse().expect("a number of seconds"))
}

/// Each operation adds its number to lists of two to four variables. Returns the lists.
fn hammer(workers: usize, producers: u64, time: Duration) -> Vec<Vec<u32>> {
    let (_exec, engine) = engine(workers);
    let vars: Vec<Var<Vec<u32>>> = (0..8).map(|number| engine.var(format!("v{number}"), Vec::new())).collect();
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for producer in 0..producers {
            let (engine, vars) = (&engine, &vars);
            scope.spawn(move || {
                let mut dice = Dice::new(producer);
                for number in 0.. {
                    if number >= 1_000_000 || Instant::now() >= end {
                        break;
                    }
                    let id = (number * producers + producer) as u32;
                    let first = dice.below(8);
                    let (a, b) = (&vars[first], &vars[(first + 1 + dice.below(7)) % 8]);
                    let add = move |mut a: Vec<u32>, mut b: Vec<u32>| {
                        a.push(id);
                        b.push(id);
                        (a, b)
                    };
                    push(engine, Op::task("add", (take(a), take(b)), (a, b), add));
                }
            });
        }
    });
    idle(&engine).unwrap();
    vars.iter().map(|var| block_on(var.read()).unwrap().to_vec()).collect()
}

/// Returns whether every two lists have their common elements in the same order.
fn have_one_order(lists: &[Vec<u32>]) -> bool {
    lists.iter().enumerate().all(|(place, left)| {
        lists[place + 1..].iter().all(|right| {
            let (in_left, in_right): (std::collections::HashSet<_>, std::collections::HashSet<_>) =
                (left.iter().collect(), right.iter().collect());
            left.iter().filter(|id| in_right.contains(id)).eq(right.iter().filter(|id| in_left.contains(id)))
        })
    })
}

#[test]
fn producers_of_operations_on_two_variables_have_one_order() {
    // Seen to fail without the lock around the requests of one operation.
    for (workers, producers) in [(1, 2), (2, 2), (2, 8), (0, 2)] {
        for _ in 0..rounds() {
            let lists = hammer(workers, producers, TIME);
            let total: usize = lists.iter().map(Vec::len).sum();
            assert!(total > 1000 && have_one_order(&lists), "{workers} workers, {producers} producers, {total} entries");
        }
    }
}
