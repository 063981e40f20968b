//! Order from use: operations say which variables they read and write, and run as parallel as that allows.
//!
//! ```sh
//! cargo run --example variables
//! ```
//!
//! Transfers between different accounts have no order; those that share one go in the order in which they
//! were pushed. The audit reads all accounts, so it stands behind every transfer that was pushed before it
//! and in front of every later one: whenever it runs, no money is on its way.

use anabranch::engine::Each;
use anabranch::{BoxError, Engine, Executor, Op, Result, Var, take};

#[tokio::main]
async fn main() -> Result<()> {
    let engine = Engine::new(&Executor::host()?)?;
    let accounts: Vec<Var<i64>> = ["Ada", "Grace", "Edith", "Mary"].map(|name| engine.var(name, 100)).into();

    for round in 0..1000 {
        let (from, to) = (&accounts[round % 4], &accounts[(3 * round + 1) % 4]);
        if from.name() != to.name() {
            let amount = (round % 7) as i64;
            let transfer =
                Op::task("transfer", (take(from), take(to)), (from, to), move |a: i64, b: i64| (a - amount, b + amount));
            engine.push(transfer).await?;
        }
        if round % 250 == 0 {
            engine.push(Op::try_task("audit", &accounts[..], (), audit)).await?.await?;
        }
    }

    for account in &accounts {
        println!("{:>5} has {:>4} after {} transfers", account.name(), *account.read().await?, account.version());
    }

    // What fails poisons what it should have written; who reads that hears of the origin, and an overwrite
    // clears it.
    engine.push(Op::try_task("burn", (), &accounts[0], || Err("the vault is on fire".into()))).await?;
    let bonus = engine.push(Op::task("bonus", &accounts[0], &accounts[1], |ada: &i64| ada * 2)).await?;
    if let Err(error) = bonus.await {
        println!("{error:#}");
    }
    engine.push(Op::task("insure", (), &accounts[0], || 500)).await?;
    println!("{:>5} has {:>4}", accounts[0].name(), *accounts[0].read().await?);
    engine.idle().await
}

fn audit(balances: Each<i64>) -> std::result::Result<(), BoxError> {
    match balances.iter().sum::<i64>() {
        400 => Ok(()),
        total => Err(format!("{total} is not what it was").into()),
    }
}
