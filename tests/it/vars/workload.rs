//! Random workloads: the same bits as in a serial loop.

use anabranch::engine::Each;
use anabranch::{Engine, Op, Var};

use super::{engines, idle};
use crate::support::{Dice, block_on};

/// Each operation sets a variable to the sum of others, in this order, divided by one more than their number.
struct Workload {
    vars: usize,
    ops: Vec<(usize, Vec<usize>)>,
}

impl Workload {
    fn random(seed: u64, vars: usize, ops: usize) -> Self {
        let mut dice = Dice::new(seed);
        let op = |_| {
            let reads = 2 + dice.below(18);
            (dice.below(vars), (0..reads).map(|_| dice.below(vars)).collect())
        };
        Self { vars, ops: (0..ops).map(op).collect() }
    }

    fn serial(&self) -> Vec<f64> {
        let mut values = vec![1.0; self.vars];
        for (write, reads) in &self.ops {
            values[*write] = mean(reads.iter().map(|&read| &values[read]));
        }
        values
    }

    /// Runs the operations in bulks of `bulk`.
    fn run(&self, engine: &Engine, bulk: usize) -> Vec<f64> {
        let vars: Vec<Var<f64>> = (0..self.vars).map(|number| engine.var(format!("v{number}"), 1.0)).collect();
        let reads = |reads: &Vec<usize>| reads.iter().map(|&read| vars[read].clone()).collect();
        let reads: Vec<Vec<Var<f64>>> = self.ops.iter().map(|op| reads(&op.1)).collect();
        let mut bulk = engine.bulk(bulk);
        for ((write, _), reads) in self.ops.iter().zip(&reads) {
            let op = Op::task("mean", &reads[..], &vars[*write], |values: Each<f64>| mean(values.iter()));
            block_on(bulk.push(op)).unwrap();
        }
        block_on(bulk.end()).unwrap();
        let values = vars.iter().map(|var| *block_on(var.read()).unwrap()).collect();
        idle(engine).unwrap();
        values
    }
}

fn mean<'v>(values: impl ExactSizeIterator<Item = &'v f64>) -> f64 {
    let count = values.len() as f64 + 1.0;
    values.sum::<f64>() / count
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn the_published_workload_ends_in_the_published_bits() {
    let mut lines = include_str!("../cases/rand_sum.txt").lines().filter(|line| !line.starts_with('#'));
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<usize>>();
    let head = numbers(lines.next().unwrap());
    let ops: Vec<_> = lines.by_ref().take(head[1]).map(numbers).map(|op| (op[0], op[3..].to_vec())).collect();
    let wanted: Vec<u64> = lines.flat_map(str::split_whitespace).map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
    let workload = Workload { vars: head[0], ops };
    assert_eq!((wanted.len(), bits(&workload.serial())), (100, wanted.clone()));
    for bulk in [1, 100] {
        for (exec, engine) in engines() {
            assert_eq!(bits(&workload.run(&engine, bulk)), wanted, "bulks of {bulk}, {exec:?}");
        }
    }
}

#[test]
fn random_workloads_are_bit_equal_to_the_serial_loop() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let workload = Workload::random(seed, 1 + dice.below(40), 1000);
        let wanted = bits(&workload.serial());
        for (exec, engine) in engines() {
            let bulk = [1, 2, 7, 100][dice.below(4)];
            assert_eq!(bits(&workload.run(&engine, bulk)), wanted, "seed {seed}, bulks of {bulk}, {exec:?}");
        }
    }
}
