//! A run stops when it is cancelled and when it is dropped, and a timeout is a drop. What it held is freed,
//! never too early.
//!
//! ```sh
//! cargo run --example cancel_and_timeout
//! ```

use std::sync::Arc;
use std::time::Duration;

use anabranch::{Executor, Graph, Result, inputs};
use tokio::time::{sleep, timeout};

const MOMENT: Duration = Duration::from_millis(50);

/// Memory that says when it is freed.
struct Block(&'static str);

impl Drop for Block {
    fn drop(&mut self) {
        println!("  {} is freed", self.0);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut g = Graph::new();
    let given = g.input::<Block>("given");
    let computed = g.task("compute", &given, |given: &Block| {
        println!("  computing from {}", given.0);
        Block("what was computed")
    });
    // Async nodes are dropped where they stand. A task is never torn off: it runs to its end.
    let waited = g.future("wait", &computed, async |_: Arc<Block>| {
        let _held = Block("what was held while waiting");
        sleep(Duration::from_secs(3600)).await;
        println!("  this is never printed");
        Ok(())
    });
    let never = g.task("never", &waited, |(): &()| println!("  nor is this"));
    g.output("done", &never);
    let plan = g.compile()?;

    println!("a timeout drops the run:");
    let exec = Executor::host()?;
    let run = exec.run(&plan, inputs! { "given" => Block("what was given") });
    let outcome = timeout(MOMENT, run).await;
    // Dropping waits for nothing: what a worker may still touch is freed a little later. This waits for the
    // workers.
    exec.shutdown().await?;
    println!("  timed out: {}", outcome.is_err());

    println!("a cancel ends the run with an error that says so:");
    let exec = Executor::host()?;
    let run = exec.run(&plan, inputs! { "given" => Block("what was given") });
    let canceller = run.canceller();
    let (outcome, ()) = tokio::join!(run, async {
        sleep(MOMENT).await;
        canceller.cancel();
    });
    exec.shutdown().await?;
    println!("  cancelled: {}", outcome.is_err_and(|error| error.is_cancelled()));
    Ok(())
}
