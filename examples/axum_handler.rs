//! A web server whose handler awaits a run for each request. It asks itself a few questions, then shuts down.
//!
//! ```sh
//! cargo run --example axum_handler
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch::{BoxError, Executor, Graph, Plan, inputs};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What all requests share: an executor, and one plan.
struct Service {
    exec: Executor,
    plan: Plan,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let service = Arc::new(Service { exec: Executor::host()?, plan: prime_plan()? });
    let app = Router::new().route("/primes/{limit}", get(primes)).with_state(service.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served?,
        asked = ask(address) => asked?,
    }
    Ok(service.exec.shutdown().await?)
}

/// The runtime's threads never compute: they await, while the executor's workers run the nodes.
async fn primes(State(service): State<Arc<Service>>, Path(limit): Path<u32>) -> (StatusCode, String) {
    // A client that goes away drops this future, and with it the run.
    let run = service.exec.run(&service.plan, inputs! { "limit" => limit });
    match run.await.and_then(|mut outputs| outputs.take::<String>("answer")) {
        Ok(answer) => (StatusCode::OK, answer.to_string()),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, error.source().unwrap_or(&error).to_string()),
    }
}

fn prime_plan() -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    let limit = g.input::<u32>("limit");
    let primes = g.try_task("find", &limit, |&limit: &u32| match limit {
        0..2 | 1_000_001.. => Err("ask for a number from 2 to 1000000".into()),
        _ => Ok((2..=limit).filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0)).collect::<Vec<u32>>()),
    });
    let answer = g.task("print", (&limit, &primes), |limit: &u32, primes: &Vec<u32>| {
        format!("{} primes up to {limit}, the last is {}", primes.len(), primes.last().unwrap_or(&0))
    });
    g.output("answer", &answer);
    g.compile()
}

async fn ask(address: SocketAddr) -> std::io::Result<()> {
    for path in ["/primes/100", "/primes/100000", "/primes/0"] {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        println!("GET {path}\n  {}\n  {body}", head.lines().next().unwrap_or(""));
    }
    Ok(())
}
