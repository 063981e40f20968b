//! A web server whose requests are runs: each has a deadline, and those that find no room are refused. It
//! asks itself a few questions, and ends when those that it has accepted are answered.
//!
//! ```sh
//! cargo run --example axum_handler
//! ```

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch::exec::Service;
use anabranch::{BoxError, Error, Executor, Function, Graph, Result, Value};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// The number of primes up to a limit, in words.
type Primes = Function<Value<u32>, Value<String>>;

fn primes() -> Result<Primes> {
    Function::new("primes", |g: &mut Graph, limit: Value<u32>| {
        let found = g.try_task("find", &limit, |&limit: &u32| match limit {
            0..2 | 1_000_001.. => Err("ask for a number from 2 to 1000000".into()),
            _ => Ok((2..=limit).filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0)).collect::<Vec<u32>>()),
        });
        g.task("print", (&limit, &found), |limit: &u32, found: &Vec<u32>| {
            format!("{} primes up to {limit}, the last is {}", found.len(), found.last().unwrap_or(&0))
        })
    })
}

/// The runtime's threads never compute: they await, while the executor's workers run the nodes. A client that
/// goes away drops this future, and with it the run.
async fn answer(State(primes): State<Service<Primes>>, Path(limit): Path<u32>) -> Result<String, (StatusCode, String)> {
    let answer = primes.oneshot(limit).await.map_err(|error| (status(&error), error.source().unwrap_or(&error).to_string()))?;
    Ok(Arc::unwrap_or_clone(answer))
}

fn status(error: &Error) -> StatusCode {
    match error {
        _ if error.is_busy() || error.is_shut_down() => StatusCode::SERVICE_UNAVAILABLE,
        _ if error.is_past_deadline() => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let exec = Executor::builder().max_in_flight(64).build()?;
    let service = exec.service(&primes()?).timeout(Duration::from_secs(5)).shedding();
    let app = Router::new().route("/primes/{limit}", get(answer)).with_state(service);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let asking = tokio::spawn(ask(listener.local_addr()?));
    axum::serve(listener, app).with_graceful_shutdown(async { _ = asking.await }).await?;
    Ok(exec.drain().await?)
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
