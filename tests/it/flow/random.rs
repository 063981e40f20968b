//! Random programs, as flows and evaluated directly: the same bits on every executor.

use std::future::Future;
use std::pin::Pin;

use anabranch::{Executor, Flow, Result, Var};
use futures::future::join_all;

use super::{Maths, Way};
use crate::support::{Dice, block_on, executor};

/// A program on a few numbers.
enum Program {
    /// x[to] ← x[a] · x[b], or x[a] + x[b].
    Set {
        to: usize,
        a: usize,
        b: usize,
        is_sum: bool,
    },
    Sequence(Vec<Program>),
    /// Runs x[by] times.
    Loop {
        by: usize,
        body: Box<Program>,
    },
    /// The arm is chosen by x[by].
    Branch {
        by: usize,
        arms: [Box<Program>; 2],
    },
    /// Each program starts from a copy of the same numbers. At the end, the numbers of all are added up.
    Join(Vec<Program>),
}

const NUMBERS: usize = 4;

fn random(dice: &mut Dice, depth: u32) -> Program {
    let mut number = || dice.below(NUMBERS);
    let (to, a, b) = (number(), number(), number());
    let sides = if depth == 0 { 1 } else { 6 };
    match dice.below(sides) {
        0 => Program::Set { to, a, b, is_sum: dice.below(2) == 0 },
        1 | 2 => Program::Sequence((0..2 + dice.below(3)).map(|_| random(dice, depth - 1)).collect()),
        3 => Program::Loop { by: a, body: Box::new(random(dice, depth - 1)) },
        4 => Program::Branch { by: a, arms: [(); 2].map(|()| Box::new(random(dice, depth - 1))) },
        _ => Program::Join((0..2 + dice.below(2)).map(|_| random(dice, depth - 1)).collect()),
    }
}

fn times(x: f64) -> u32 {
    (x.to_bits() % 4) as u32
}

fn arm(x: f64) -> usize {
    (x.to_bits() >> 3) as usize % 2
}

impl Program {
    fn evaluate(&self, x: &mut [f64; NUMBERS]) {
        match self {
            Program::Set { to, a, b, is_sum } => x[*to] = if *is_sum { x[*a] + x[*b] } else { x[*a] * x[*b] },
            Program::Sequence(all) => all.iter().for_each(|one| one.evaluate(x)),
            Program::Loop { by, body } => (0..times(x[*by])).for_each(|_| body.evaluate(x)),
            Program::Branch { by, arms } => arms[arm(x[*by])].evaluate(x),
            Program::Join(all) => {
                let sides: Vec<_> = all
                    .iter()
                    .map(|one| {
                        let mut side = *x;
                        one.evaluate(&mut side);
                        side
                    })
                    .collect();
                *x = std::array::from_fn(|place| sides.iter().skip(1).fold(sides[0][place], |sum, side| sum + side[place]));
            }
        }
    }

    fn run<'p>(
        &'p self,
        f: &'p Flow,
        maths: &'p Maths,
        mut x: [Var<f64>; NUMBERS],
    ) -> Pin<Box<dyn Future<Output = Result<[Var<f64>; NUMBERS]>> + 'p>> {
        Box::pin(async move {
            match self {
                Program::Set { to, a, b, is_sum: true } => x[*to] = maths.add(f, &x[*a], &x[*b]),
                Program::Set { to, a, b, is_sum: false } => x[*to] = maths.mul(f, &x[*a], &x[*b]),
                Program::Sequence(all) => {
                    for one in all {
                        x = one.run(f, maths, x).await?;
                    }
                }
                Program::Loop { by, body } => {
                    for _ in 0..times(*f.get(&x[*by]).await?) {
                        x = body.run(f, maths, x).await?;
                    }
                }
                Program::Branch { by, arms } => {
                    let taken = arm(*f.get(&x[*by]).await?);
                    x = arms[taken].run(f, maths, x).await?;
                }
                Program::Join(all) => {
                    let sides = join_all(all.iter().map(|one| one.run(f, maths, x.clone()))).await;
                    let sides: Vec<_> = sides.into_iter().collect::<Result<_>>()?;
                    x = std::array::from_fn(|place| {
                        sides.iter().skip(1).fold(sides[0][place].clone(), |sum, side| maths.add(f, &sum, &side[place]))
                    });
                }
            }
            Ok(x)
        })
    }
}

fn agrees(seed: u64, exec: &Executor, way: Way) {
    let program = random(&mut Dice::new(seed), 4);
    let start = [0.9, 1.1, 0.7, 1.3];
    let mut expected = start;
    program.evaluate(&mut expected);
    let maths = Maths::new(way);
    let got = block_on(exec.flow(async |f: &Flow| {
        let x = program.run(f, &maths, start.map(|x| f.value("x", x))).await?;
        let mut got = [0.0; NUMBERS];
        for (got, x) in got.iter_mut().zip(&x) {
            *got = *f.get(x).await?;
        }
        Ok(got)
    }));
    assert_eq!(got.unwrap().map(f64::to_bits), expected.map(f64::to_bits), "seed {seed}, {way:?}, {exec:?}");
}

#[test]
fn random_programs_equal_their_direct_evaluation() {
    // Seen to fail with a condition that is read before its writer.
    for workers in [0, 1, 2, 8] {
        let exec = executor(workers);
        for seed in 0..60 {
            agrees(seed, &exec, super::WAYS[seed as usize % 3]);
        }
    }
}

#[test]
fn random_programs_equal_their_direct_evaluation_in_a_hundred_orders() {
    for seed in 0..100 {
        agrees(seed % 20, &Executor::sim(seed), super::WAYS[seed as usize % 3]);
    }
}
