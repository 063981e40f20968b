//! One program three ways: the square root of `a` by Newton's method, as a graph, as a graph with a loop in
//! it, and as async code.
//!
//! ```sh
//! cargo run --example three_ways
//! ```
//!
//! docs/control-flow.md says what each costs, and when to choose it.

use anabranch::graph::above;
use anabranch::{Executor, Flow, Function, Graph, Plan, Result, Value, inputs};

const TOLERANCE: f64 = 1e-12;

fn step(g: &mut Graph, x: &Value<f64>, a: &Value<f64>) -> Value<f64> {
    g.task("step", (x, a), |x: &f64, a: &f64| 0.5 * (x + a / x))
}

fn residual(x: &f64, a: &f64) -> f64 {
    (x * x - a).abs()
}

/// Everything is known when the graph is built: how many steps there are, and that there is no way out.
fn unrolled(steps: u32) -> Result<Plan> {
    let mut g = Graph::new();
    let a = g.input::<f64>("a");
    let mut x = a;
    for number in 0..steps {
        x = g.task(format!("step {number}"), (&x, &a), |x: &f64, a: &f64| 0.5 * (x + a / x));
    }
    g.output("root", &x);
    g.compile()
}

/// The loop is a node. It is still data: it can be drawn, simulated, saved as JSON; and it runs without the
/// task that awaits it.
fn repeated() -> Result<Plan> {
    let mut g = Graph::new();
    let a = g.input::<f64>("a");
    let root = g.repeat(
        "newton",
        &a,
        |c, x| c.task("residual", (&x, &a), |x: &f64, a: &f64| above(residual(x, a), TOLERANCE)),
        |b, x| step(b, &x, &a),
    );
    g.output("root", &root);
    g.compile()
}

/// The loop is Rust's. It may look at anything, and wait for anything, before it goes on.
async fn flowing(f: &Flow, a: f64) -> Result<f64> {
    let newton = Function::new("newton", |g: &mut Graph, (x, a): (Value<f64>, Value<f64>)| step(g, &x, &a))?;
    let (mut x, a) = (f.value("x", a), f.value("a", a));
    loop {
        let (now, a_now) = (f.get(&x).await?, f.get(&a).await?);
        if residual(&now, &a_now) <= TOLERANCE {
            return Ok(*now);
        }
        x = f.call(&newton, (&x, &a));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let exec = Executor::host()?;
    for (way, plan) in [("unrolled", unrolled(6)?), ("repeated", repeated()?)] {
        let root = exec.run(&plan, inputs! { "a" => 2.0 }).await?.take::<f64>("root")?;
        println!("{way:>9}: {root}");
    }
    let root = exec.flow(async |f: &Flow| flowing(f, 2.0).await).await?;
    println!("{:>9}: {root}", "flowing");
    Ok(())
}
