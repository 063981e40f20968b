//! The smallest graph: an input, two nodes, an output. Describe it, compile it, run it, await it.
//!
//! ```sh
//! cargo run --example hello
//! ```

use anabranch::{Executor, Graph, Result, inputs};

#[tokio::main]
async fn main() -> Result<()> {
    // Describe. A node reads values and gives one; reading it elsewhere makes an edge.
    let mut g = Graph::new();
    let name = g.input::<String>("name");
    let greeting = g.task("greet", &name, |name: &String| format!("Hello, {name}!"));
    let banner = g.task("frame", &greeting, |greeting: &String| {
        let line = "~".repeat(greeting.chars().count());
        format!("{line}\n{greeting}\n{line}")
    });
    g.output("banner", &banner);

    // Compile, once. The plan never changes, and any number of runs share it.
    let plan = g.compile()?;

    // Run. A run is a future, and awaiting it blocks no thread.
    let exec = Executor::host()?;
    for name in ["river", "anabranch"] {
        let mut outputs = exec.run(&plan, inputs! { "name" => name.to_owned() }).await?;
        println!("{}", outputs.take::<String>("banner")?);
    }
    Ok(())
}
