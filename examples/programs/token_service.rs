//! A token-sampling service: each request is a flow that draws one token after the other, and sends each as
//! soon as it is drawn. A client that goes away ends its flow, and so does a deadline.
//!
//! ```sh
//! cargo run --example token_service           # asks itself; or -- 127.0.0.1:8080, and then
//! curl -N 127.0.0.1:8080/complete/the/30/4
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch::{BoxError, Engine, Executor, Flow, Function, Graph, Result, Value, Var};
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::Request;
use axum::{Router, routing::get};
use fastrand::Rng;
use futures::channel::mpsc;
use futures::future::try_join_all;
use futures::{SinkExt, StreamExt};
use tokio::net::TcpListener;
use tower::ServiceExt;

const TEXT: &str = "the river ran to the sea and the sea ran to the sky . the mole sat by the river and the river sang . \
    by the sea the mole sang to the sky and the sky sat by the river . the sky ran and the mole ran to the sea .";

type Token = &'static str;
/// The words that follow each word, as often as they do.
type Model = HashMap<Token, Vec<Token>>;
type Next = Function<(Value<Model>, Value<String>, Value<f64>), Value<Token>>;

#[derive(Clone)]
struct Service {
    engine: Engine,
    next: Arc<Next>,
    /// All requests read it.
    model: Var<Model>,
}

impl Service {
    fn new(exec: &Executor) -> Result<Self> {
        let (mut model, words) = (Model::new(), TEXT.split_whitespace().collect::<Vec<_>>());
        words.windows(2).for_each(|pair| model.entry(pair[0]).or_default().push(pair[1]));
        let engine = Engine::new(exec)?;
        Ok(Self { model: engine.var("model", model), engine, next: Arc::new(next()?) })
    }

    /// Draws words until a full stop, sends each, and returns their number.
    async fn complete(self, prompt: String, tokens: usize, seed: u64, mut words: mpsc::Sender<Token>) -> Result<usize> {
        let Self { engine, next, model } = self;
        let flow = engine.flow(async move |f: &Flow| {
            let (mut word, mut dice) = (f.value("word", prompt), Rng::with_seed(seed));
            for drawn in 1..=tokens {
                let token = f.call(&next, (&model, &word, &f.value("dice", dice.f64())));
                word = f.task("word", &token, |token: &Token| token.to_string());
                let token = *f.get(&token).await?;
                // Waits while the client reads slowly. An error: it has gone.
                if words.send(token).await.is_err() || token == "." {
                    return Ok(drawn);
                }
            }
            Ok(tokens)
        });
        flow.deadline(Instant::now() + Duration::from_secs(10)).await
    }
}

/// The graph of a word: from the model, the word before and a random number in 0..1.
fn next() -> Result<Next> {
    Function::new("next", |g: &mut Graph, (model, word, dice)| {
        let candidates =
            g.task("candidates", (&model, &word), |model: &Model, word: &String| model.get(&**word).cloned().unwrap_or_default());
        g.task("draw", (&candidates, &dice), |candidates: &Vec<Token>, dice: &f64| {
            candidates.get((dice * candidates.len() as f64) as usize).copied().unwrap_or(".")
        })
    })
}

/// Answers with a body that grows by each word that is drawn.
async fn answer(State(service): State<Service>, Path((prompt, tokens, seed)): Path<(String, usize, u64)>) -> Body {
    let (sender, words) = mpsc::channel(1);
    tokio::spawn(async move {
        match service.complete(prompt.clone(), tokens, seed, sender).await {
            Ok(drawn) => eprintln!("{prompt}: {drawn} tokens"),
            Err(error) => eprintln!("{prompt}: {error}"),
        }
    });
    Body::from_stream(words.map(|word| Ok::<_, Infallible>(format!("{word} "))))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let exec = Executor::host()?;
    let app = Router::new().route("/complete/{prompt}/{tokens}/{seed}", get(answer)).with_state(Service::new(&exec)?);
    match std::env::args().nth(1) {
        Some(address) => {
            let asked_to_end = async { _ = tokio::signal::ctrl_c().await };
            let listener = TcpListener::bind(&address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
            axum::serve(listener, app).with_graceful_shutdown(asked_to_end).await?;
        }
        None => {
            let told = try_join_all(["the", "river", "sea", "mole"].map(|prompt| ask(&app, prompt))).await?;
            told.iter().for_each(|text| println!("{text}"));
        }
    }
    Ok(exec.drain().await?)
}

async fn ask(app: &Router, prompt: &str) -> Result<String, BoxError> {
    let request = Request::get(format!("/complete/{prompt}/30/4")).body(Body::empty())?;
    let words = to_bytes(app.clone().oneshot(request).await?.into_body(), usize::MAX).await?;
    Ok(format!("{prompt} {}", String::from_utf8_lossy(&words)))
}
