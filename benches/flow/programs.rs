//! The loops, as flows and as tokio tasks.

use anabranch::policy::Single;
use anabranch::{Executor, Flow, Function, Graph, Op, Plan, Result, Value, Var, inputs};
use futures::executor::block_on;
use futures::future::join_all;
use tokio::runtime::Runtime;

/// Loops that run side by side.
const LOOPS: u64 = 1000;
/// Steps that are pushed before one is awaited.
const AHEAD: u64 = 100;

#[derive(Clone, Copy)]
pub(crate) enum Program {
    Unrolled,
    Repeat,
    InPlace,
    NewVariable,
    Branch,
    Call,
    Ahead,
    SideBySide,
    Get,
}

impl Program {
    pub(crate) const ALL: [Self; 9] = [
        Self::Unrolled,
        Self::Repeat,
        Self::InPlace,
        Self::NewVariable,
        Self::Branch,
        Self::Call,
        Self::Ahead,
        Self::SideBySide,
        Self::Get,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unrolled => "a graph, unrolled 100 times",
            Self::Repeat => "a graph with a loop",
            Self::InPlace => "a step on one variable",
            Self::NewVariable => "a step to a new variable",
            Self::Branch => "a branch, and a step in either arm",
            Self::Call => "a call of a graph with one node",
            Self::Ahead => "steps pushed 100 ahead",
            Self::SideBySide => "1,000 loops side by side",
            Self::Get => "get of a value that is there",
        }
    }

    pub(crate) fn budget_ns(self, workers: usize) -> Option<u64> {
        matches!((self, workers), (Self::InPlace, 0)).then_some(100)
    }

    pub(crate) fn run(self, exec: &Executor, iterations: u64) {
        match self {
            Self::Unrolled => return run_graph(exec, &unrolled(), iterations, AHEAD),
            Self::Repeat => return run_graph(exec, &repeat(iterations), iterations, iterations),
            _ => {}
        }
        let step = Function::new("step", |g: &mut Graph, x: Value<u64>| g.task("add", &x, add)).expect("it is right");
        let sum = exec.flow(async |f: &Flow| {
            let x = f.value("x", 0_u64);
            match self {
                Self::InPlace => in_place(f, x, iterations).await,
                Self::NewVariable => new_variable(f, x, iterations).await,
                Self::Branch => branch(f, x, iterations).await,
                Self::Call => call(f, &step, x, iterations).await,
                Self::Ahead => ahead(f, x, iterations).await,
                Self::SideBySide => {
                    let loops = (0..LOOPS).map(|_| in_place(f, f.value("x", 0), iterations / LOOPS));
                    join_all(loops).await.into_iter().try_fold(0, |sum, x| Ok(sum + x?))
                }
                Self::Get => get(f, x, iterations).await,
                Self::Unrolled | Self::Repeat => unreachable!("they are no flows"),
            }
        });
        assert_eq!(block_on(sum).expect("nothing fails"), iterations);
    }

    /// Returns false if there is nothing to compare with.
    pub(crate) fn run_peer(self, runtime: &Runtime, iterations: u64) -> bool {
        let sum = match self {
            Self::InPlace | Self::NewVariable | Self::Branch => runtime.block_on(tasks(iterations)),
            Self::SideBySide => runtime.block_on(join_all((0..LOOPS).map(|_| tasks(iterations / LOOPS)))).into_iter().sum(),
            _ => return false,
        };
        assert_eq!(sum, iterations);
        true
    }
}

/// Runs a plan of the given number of steps until all iterations are done.
fn run_graph(exec: &Executor, plan: &Plan, iterations: u64, steps: u64) {
    let mut x = 0;
    while x < iterations {
        x = *block_on(exec.run(plan, inputs! { "x" => x })).and_then(|mut outputs| outputs.take("x")).expect("nothing fails");
    }
    assert_eq!(x, iterations.next_multiple_of(steps));
}

fn unrolled() -> Plan {
    let mut g = Graph::new();
    let mut x = g.input::<u64>("x");
    for number in 0..AHEAD {
        x = g.task(format!("add {number}"), &x, add);
    }
    g.output("x", &x);
    g.compile_with(&Single).expect("it is right")
}

/// The condition is made of nodes, like a condition that reads the state.
fn repeat(iterations: u64) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let x = g.repeat("loop", &x, |c, x| c.task("more", &x, move |x: &u64| *x < iterations), |b, x| b.task("add", &x, add));
    g.output("x", &x);
    g.compile_with(&Single).expect("it is right")
}

fn add(x: &u64) -> u64 {
    x + 1
}

async fn in_place(f: &Flow, x: Var<u64>, iterations: u64) -> Result<u64> {
    while *f.get(&x).await? < iterations {
        drop(f.node(Op::task("add", &x, &x, add)));
    }
    Ok(*f.get(&x).await?)
}

async fn new_variable(f: &Flow, mut x: Var<u64>, iterations: u64) -> Result<u64> {
    while *f.get(&x).await? < iterations {
        x = f.task("add", &x, add);
    }
    Ok(*f.get(&x).await?)
}

async fn branch(f: &Flow, mut x: Var<u64>, iterations: u64) -> Result<u64> {
    loop {
        x = match *f.get(&x).await? {
            done if done == iterations => return Ok(done),
            even if even % 2 == 0 => f.task("even", &x, |x: &u64| x | 1),
            _ => f.task("odd", &x, add),
        };
    }
}

async fn call(f: &Flow, step: &Function<Value<u64>, Value<u64>>, mut x: Var<u64>, iterations: u64) -> Result<u64> {
    while *f.get(&x).await? < iterations {
        x = f.call(step, &x);
    }
    Ok(*f.get(&x).await?)
}

async fn ahead(f: &Flow, x: Var<u64>, iterations: u64) -> Result<u64> {
    while *f.get(&x).await? < iterations {
        (0..AHEAD).for_each(|_| drop(f.node(Op::task("add", &x, &x, add))));
    }
    Ok(*f.get(&x).await?)
}

async fn get(f: &Flow, x: Var<u64>, iterations: u64) -> Result<u64> {
    let mut sum = 0;
    for _ in 0..iterations {
        sum += 1 + *f.get(&x).await?;
    }
    Ok(sum)
}

/// A task for each step.
async fn tasks(iterations: u64) -> u64 {
    let mut x = 0;
    while x < iterations {
        x = tokio::spawn(async move { add(&x) }).await.expect("it does not panic");
    }
    x
}
