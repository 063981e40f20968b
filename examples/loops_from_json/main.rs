//! A graph that comes as data, with its loop and its branch: a file says what there is and who reads what,
//! the program what each kind of node does.
//!
//! ```sh
//! cargo run --features json --example loops_from_json             # or -- FILE.json
//! ```
//!
//! Change the file, and run it again: `half` may stand wherever a number becomes a number, `max_iterations`
//! may be 3, and a node of a kind that there is not is named.

use anabranch::graph::{Bodies, Shape, above};
use anabranch::{BoxError, Executor, Graph, Name, Plan, Result, Value, inputs};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/loops_from_json/graph.json");

type One = Value<f64>;
type Two = (Value<f64>, Value<f64>);

/// What the nodes do, by their commands. A body adds its node, as any program would that builds the graph
/// itself.
fn bodies() -> Bodies {
    Bodies::new()
        .node("input", |g: &mut Graph, name: &Name, ()| g.input::<f64>(name))
        .node("half", |g, name, x: One| g.task(name, &x, |x: &f64| 0.5 * x))
        .node("step", |g, name, (x, a): Two| g.task(name, (&x, &a), |x: &f64, a: &f64| 0.5 * (x + a / x)))
        .condition("residual", |g, name, (x, a): Two| {
            g.task(name, (&x, &a), |x: &f64, a: &f64| above((x * x - a).abs(), 1e-12 * a))
        })
        // A first step too far: begin again nearer to the root.
        .selector("is far", |g, name, (x, a): Two| {
            g.task(name, (&x, &a), |x: &f64, a: &f64| (*x > a.max(1.0)).then_some(0_usize))
        })
        .node("text", |g, name, (a, root): Two| g.task(name, (&a, &root), |a: &f64, root: &f64| format!("√{a:<8} = {root}")))
}

fn plan(json: &str) -> Result<Plan> {
    Graph::from_shape(&Shape::from_json(json)?, &bodies())?.compile()
}

async fn root(exec: &Executor, plan: &Plan, a: f64) -> Result<String> {
    let mut outputs = exec.run(plan, inputs! { "a" => a }).await?;
    Ok(outputs.take::<String>("text")?.to_string())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = std::env::args().nth(1).unwrap_or_else(|| FILE.to_owned());
    let json = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let plan = plan(&json).map_err(|error| format!("{path}: {error}"))?;
    println!("{plan}");

    let host = Executor::host()?;
    for a in [2.0, 144.0, 1e6, 0.25] {
        println!("{}", root(&host, &plan, a).await?);
    }
    // One node at a time, in an order that the seed draws: the same from the same file.
    for seed in 0..3 {
        println!("{}, in the order of seed {seed}", root(&Executor::sim(seed), &plan, 2.0).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_roots_are_the_same_on_every_executor() -> Result<(), BoxError> {
        let plan = plan(&std::fs::read_to_string(FILE)?)?;
        let hosts = [0, 1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..20).map(|seed| Ok(Executor::sim(seed)))) {
            assert_eq!(block_on(root(&exec?, &plan, 144.0))?, "√144      = 12");
        }
        Ok(())
    }

    #[test]
    fn a_kind_of_node_that_there_is_not_is_named() -> Result<(), BoxError> {
        let json = std::fs::read_to_string(FILE)?.replace("\"half\", \"backend\"", "\"third\", \"backend\"");
        let error = plan(&json).map(|_| ()).expect_err("nobody knows what a third is");
        let expected = "node 'root/body/hold back/arm 0/third' has no body: give one for its command 'third'";
        assert_eq!(error.to_string(), expected);
        Ok(())
    }
}
