//! A text page of metrics for Prometheus: what ran, how long it waited and took, what is in flight.
//!
//! ```sh
//! cargo run --example metrics
//! ```

use std::sync::Arc;

use anabranch::exec::Metrics;
use anabranch::{BoxError, Executor, Graph, Plan, inputs};
use futures::future::join_all;
use metrics_exporter_prometheus::PrometheusBuilder;

fn main() -> Result<(), BoxError> {
    let page = PrometheusBuilder::new().install_recorder()?;
    let exec = Executor::builder().workers(2).observer(Arc::new(Metrics::new())).build()?;
    let plan = square_roots()?;
    let runs = [4.0, 2.0, -1.0].map(|x| exec.run(&plan, inputs! { "x" => x }));
    for result in futures::executor::block_on(join_all(runs)) {
        match result.and_then(|mut outputs| outputs.take::<f64>("root")) {
            Ok(root) => eprintln!("{root}"),
            Err(error) => eprintln!("{error:#}"),
        }
    }
    // A server would do this for each request of its page.
    Metrics::set_gauges(&exec.stats());
    print!("{}", page.render());
    Ok(())
}

fn square_roots() -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    g.set_name("square roots");
    let x = g.input::<f64>("x");
    let root = g.try_task("root", &x, |&x: &f64| if x < 0.0 { Err(format!("{x} has no root").into()) } else { Ok(x.sqrt()) });
    g.output("root", &root);
    g.compile()
}
