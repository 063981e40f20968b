//! Logs with context: each line that a node logs has its node, its run and the request that asked for it.
//!
//! ```sh
//! cargo run --example tracing
//! RUST_LOG=info,anabranch=info cargo run --example tracing     # without spans of nodes
//! ```

use std::sync::Arc;

use anabranch::exec::Tracing;
use anabranch::{BoxError, Executor, Graph, Plan, inputs};
use tracing::{Instrument, info, info_span, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("debug"));
    // A line at the end of each span says how long it took.
    tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_span_events(FmtSpan::CLOSE).init();

    let exec = Executor::builder().workers(2).observer(Arc::new(Tracing::new())).build()?;
    let plan = greetings()?;
    let (one, other) = (info_span!("request", id = 1), info_span!("request", id = 2));
    tokio::try_join!(answer(&exec, &plan, "river").instrument(one), answer(&exec, &plan, "").instrument(other))?;
    Ok(())
}

async fn answer(exec: &Executor, plan: &Plan, name: &str) -> Result<(), BoxError> {
    let mut outputs = exec.run(plan, inputs! { "name" => name.to_owned() }).await?;
    info!(greeting = *outputs.take::<String>("greeting")?, "answered");
    Ok(())
}

fn greetings() -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    g.set_name("greet");
    let name = g.input::<String>("name");
    let looked_up = g.future("look up", &name, async |name: Arc<String>| {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        info!("found it");
        Ok(name.to_string())
    });
    let greeting = g.task("greet", &looked_up, |name: &String| {
        if name.is_empty() {
            warn!("no name");
        }
        format!("hello {name}")
    });
    g.output("greeting", &greeting);
    g.compile()
}
