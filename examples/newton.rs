//! Control flow as nodes: a loop until a residual is small enough, in it a branch, and what stands beside it
//! goes on meanwhile.
//!
//! ```sh
//! cargo run --example newton
//! ```
//!
//! The graph is data, with its loop: it is compiled once, printed, and run for many numbers at once.

use anabranch::graph::above;
use anabranch::{Executor, Graph, Result, inputs};
use futures::future::try_join_all;

#[tokio::main]
async fn main() -> Result<()> {
    let mut g = Graph::new();
    let a = g.input::<f64>("a");
    let guess = g.task("guess", &a, |a: &f64| 0.5 * a);
    let root = g.repeat(
        "newton",
        &guess,
        // `a` lies around the loop: its graphs read it where it is.
        |c, x| c.task("residual", (&x, &a), |x: &f64, a: &f64| above((x * x - a).abs(), 1e-12 * a)),
        |b, x| {
            let next = b.task("step", (&x, &a), |x: &f64, a: &f64| 0.5 * (x + a / x));
            // A first step too far: begin again nearer to the root.
            let far = b.task("is far", (&next, &a), |x: &f64, a: &f64| (*x > a.max(1.0)).then_some(0usize));
            b.branch("hold back", &far, &next).arm(|arm, x| arm.task("half", &x, |x: &f64| 0.5 * x)).join()
        },
    );
    g.node(&root).max_iterations(60);
    let beside = g.task("exponent", &a, |a: &f64| a.log10());
    let text = g.task("text", (&a, &root, &beside), |a: &f64, root: &f64, exponent: &f64| {
        format!("√{a:<8} = {root:<18} (10^{exponent:.1})")
    });
    g.output("text", &text);

    let plan = g.compile()?;
    println!("{plan}");

    let exec = Executor::host()?;
    let runs = [2.0, 144.0, 1e6, 0.25].map(|a| exec.run(&plan, inputs! { "a" => a }));
    for mut outputs in try_join_all(runs).await? {
        println!("{}", outputs.take::<String>("text")?);
    }
    let error = exec.run(&plan, inputs! { "a" => f64::NAN }).await.map(|_| ()).expect_err("NaN has no root");
    println!("{error}");
    Ok(())
}
