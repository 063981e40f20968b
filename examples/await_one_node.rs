//! Any node of a run can be awaited by its name, in another task too: here a customer gets an answer before
//! the run is over.
//!
//! ```sh
//! cargo run --example await_one_node
//! ```

use std::time::Duration;

use anabranch::{BoxError, Executor, Graph, inputs};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut g = Graph::new();
    let order = g.input::<String>("order");
    let reserved = g.task("reserve", &order, |order: &String| println!("  shop: {order} is reserved"));
    let paid = g.future("pay", &order, async |_| {
        tokio::time::sleep(Duration::from_millis(30)).await;
        println!("  bank: paid");
        Ok(())
    });
    // What carries no value is ordered by hand.
    let shipped = g.future("ship", (), async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        println!("  post: delivered");
        Ok("Tuesday")
    });
    g.node(&shipped).after(&reserved).after(&paid);
    g.output("delivered on", &shipped);
    let plan = g.compile()?;

    let exec = Executor::host()?;
    let run = exec.run(&plan, inputs! { "order" => "a kettle".to_owned() });
    let paid = run.node("pay");
    let customer = tokio::spawn(async move {
        match paid.await {
            Ok(()) => println!("customer: my order is paid, I can go"),
            Err(error) => println!("customer: {error}?"),
        }
    });

    let mut outputs = run.await?;
    println!("run: over, delivered on {}", outputs.take::<&str>("delivered on")?);
    customer.await?;

    // A wrong name is an error that helps, not a future that never ends.
    let run = exec.run(&plan, inputs! { "order" => "a pan".to_owned() });
    if let Err(error) = run.node("Pay").await {
        println!("by the way: {error}");
    }
    Ok(())
}
