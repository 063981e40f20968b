//! Random programs of nested loops and branches: as nodes they give the same results as a sequential
//! evaluation.

use std::sync::Arc;

use anabranch::graph::{Each, times};
use anabranch::{Executor, Graph, Plan, Value, inputs};

use super::suspended;
use crate::support::{Dice, block_on, executors, value_of};

/// A statement: it makes values from earlier values, which are numbered. Inner statements see the values
/// around them.
enum Statement {
    Combine { of: [usize; 2], is_async: bool },
    Repeat { states: [usize; 2], iterations: u64, has_condition: bool, body: Inner },
    Branch { selector: usize, states: [usize; 2], arms: Vec<Inner> },
}

/// Statements, and the two values that they give.
struct Inner {
    statements: Vec<Statement>,
    gives: [usize; 2],
}

fn combine(a: f64, b: f64) -> f64 {
    (a * 0.75 + b.sin()).mul_add(0.5, 0.125)
}

fn select(x: f64, arms: usize) -> i64 {
    (x.to_bits() >> 20) as i64 % (arms as i64 + 1) - 1
}

fn goes_on(count: f64, iterations: u64) -> bool {
    count < iterations as f64
}

/// Makes statements after `known` values. Loops and branches are drawn while `depth` is not used up.
fn statements(dice: &mut Dice, known: usize, depth: usize) -> (Vec<Statement>, usize) {
    let mut known = known;
    let count = 1 + dice.below(4);
    let mut made = Vec::new();
    for _ in 0..count {
        let two = [dice.below(known), dice.below(known)];
        let statement = match dice.below(if depth > 0 { 6 } else { 3 }) {
            0 => Statement::Combine { of: two, is_async: true },
            1 | 2 => Statement::Combine { of: two, is_async: false },
            3 | 4 => {
                let (iterations, has_condition) = (dice.below(4) as u64, dice.below(2) == 0);
                let body = inner(dice, known + 2 + usize::from(has_condition), depth - 1);
                Statement::Repeat { states: two, iterations, has_condition, body }
            }
            _ => {
                let arms = (0..dice.below(4)).map(|_| inner(dice, known + 2, depth - 1)).collect();
                Statement::Branch { selector: dice.below(known), states: two, arms }
            }
        };
        known += if let Statement::Combine { .. } = statement { 1 } else { 2 };
        made.push(statement);
    }
    (made, known)
}

fn inner(dice: &mut Dice, known: usize, depth: usize) -> Inner {
    let (statements, known) = statements(dice, known, depth);
    // There is one more value by then, which combines all values made.
    Inner { statements, gives: [dice.below(known + 1), dice.below(known + 1)] }
}

fn evaluate(statements: &[Statement], values: &mut Vec<f64>) {
    for statement in statements {
        match statement {
            Statement::Combine { of, .. } => values.push(combine(values[of[0]], values[of[1]])),
            Statement::Repeat { states, iterations, has_condition, body } => {
                let mut now = states.map(|state| values[state]);
                let mut count = 0.0;
                while goes_on(count, *iterations) {
                    let counted = has_condition.then_some(count);
                    now = evaluate_inner(body, values, now.into_iter().chain(counted));
                    count += 1.0;
                }
                values.extend(now);
            }
            Statement::Branch { selector, states, arms } => {
                let states = states.map(|state| values[state]);
                let arm = usize::try_from(select(values[*selector], arms.len())).ok().map(|arm| &arms[arm]);
                let given = arm.map_or(states, |arm| evaluate_inner(arm, values, states.into_iter()));
                values.extend(given);
            }
        }
    }
}

fn evaluate_inner(inner: &Inner, around: &[f64], states: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = around.iter().copied().chain(states).collect();
    let first = values.len();
    evaluate(&inner.statements, &mut values);
    values.push(values[first..].iter().sum());
    inner.gives.map(|given| values[given])
}

fn build(g: &mut Graph, statements: &[Statement], values: &mut Vec<Value<f64>>) {
    for (number, statement) in statements.iter().enumerate() {
        let name = format!("n{number}");
        match statement {
            Statement::Combine { of, is_async: false } => {
                values.push(g.task(name, (&values[of[0]], &values[of[1]]), |a: &f64, b: &f64| combine(*a, *b)));
            }
            Statement::Combine { of, is_async: true } => {
                let body = async |a: Arc<f64>, b: Arc<f64>| Ok(suspended(combine(*a, *b)).await);
                values.push(g.future(name, (&values[of[0]], &values[of[1]]), body));
            }
            Statement::Repeat { states, iterations, has_condition: false, body } => {
                let states = states.map(|state| values[state]);
                let (a, b) = g.repeat(name, (&states[0], &states[1]), times(*iterations), |g, (a, b)| {
                    build_inner(g, body, values, &[a, b])
                });
                values.extend([a, b]);
            }
            Statement::Repeat { states, iterations, has_condition: true, body } => {
                let (states, iterations) = (states.map(|state| values[state]), *iterations);
                let count = g.task(format!("{name} count"), (), || 0.0);
                let (a, b, _) = g.repeat(
                    name,
                    (&states[0], &states[1], &count),
                    |c, (_, _, count)| c.task("more", &count, move |count: &f64| goes_on(*count, iterations)),
                    |g, (a, b, count)| {
                        let (a, b) = build_inner(g, body, values, &[a, b, count]);
                        (a, b, g.task("count", &count, |count: &f64| count + 1.0))
                    },
                );
                values.extend([a, b]);
            }
            Statement::Branch { selector, states, arms } => {
                let (states, count) = (states.map(|state| values[state]), arms.len());
                let selector = g.task(format!("{name} which"), &values[*selector], move |x: &f64| select(*x, count));
                let mut branch = g.branch(name, &selector, (&states[0], &states[1]));
                for arm in arms {
                    branch = branch.arm(|g, (a, b)| build_inner(g, arm, values, &[a, b]));
                }
                let (a, b) = branch.join();
                values.extend([a, b]);
            }
        }
    }
}

fn build_inner(g: &mut Graph, inner: &Inner, around: &[Value<f64>], states: &[Value<f64>]) -> (Value<f64>, Value<f64>) {
    let mut values = [around, states].concat();
    let first = values.len();
    build(g, &inner.statements, &mut values);
    let all = g.task("all", &values[first..], |all: Each<'_, f64>| all.iter().sum::<f64>());
    let unread = g.task("read", &all, |_: &f64| ());
    g.order(&all, &unread);
    values.push(all);
    (values[inner.gives[0]], values[inner.gives[1]])
}

/// Returns the program of a seed as a plan, and its result.
fn program(seed: u64) -> (Plan, f64) {
    let mut dice = Dice::new(seed);
    let (statements, _) = statements(&mut dice, 2, 3);
    let mut results = vec![0.3, -1.7];
    evaluate(&statements, &mut results);
    let mut g = Graph::new();
    let mut values = ["x", "y"].map(|name| g.input::<f64>(name)).to_vec();
    build(&mut g, &statements, &mut values);
    let all = g.task("all", &values[..], |all: Each<'_, f64>| all.iter().sum::<f64>());
    g.output("out", &all);
    let plan = g.compile().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    plan.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (plan, results.iter().sum())
}

#[test]
fn random_programs_give_what_they_give_by_hand() {
    // Seen to fail with states that are moved one after the other, and with an outer value that is moved out
    // of its place.
    let executors = executors();
    for seed in 0..300 {
        let (plan, expected) = program(seed);
        let simulated = (0..4).map(|other| Executor::sim(seed * 1000 + other));
        for exec in executors.iter().cloned().chain(simulated) {
            let given: f64 = *value_of(block_on(exec.run(&plan, inputs! { "x" => 0.3, "y" => -1.7 })), "out");
            assert_eq!(given.to_bits(), expected.to_bits(), "seed {seed}, {exec:?}: {given} instead of {expected}");
        }
    }
}

#[test]
fn many_runs_of_one_random_program_go_at_once() {
    for exec in executors() {
        for seed in 300..330 {
            let (plan, expected) = program(seed);
            let runs = (0..16).map(|_| exec.run(&plan, inputs! { "x" => 0.3, "y" => -1.7 }));
            for outputs in block_on(futures::future::join_all(runs)) {
                assert_eq!(value_of::<f64>(outputs, "out").to_bits(), expected.to_bits(), "seed {seed}, {exec:?}");
            }
        }
    }
}
