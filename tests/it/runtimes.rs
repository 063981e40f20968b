//! Runs under every runtime, and without one: the results do not depend on the polling thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch::{BoxError, Engine, Executor, Flow, Function, Graph, HostStream, Inputs, Op, Plan, Value, inputs, take};
use futures::future::{join, join_all};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::support::{block_on, chain, executors, plan, poll_once, value_of};

/// Runs the suite with a function that blocks on a future.
macro_rules! under {
    ($($name:ident: $block_on:expr),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                for exec in executors() {
                    let suite = every_kind_of_use(exec);
                    $block_on(suite);
                }
            }
        )*
    };
}

under! {
    everything_works_without_a_runtime: block_on,
    everything_works_under_smol: |suite| smol::block_on(suite),
    everything_works_in_a_task_of_smol: |suite| smol::block_on(smol::spawn(suite)),
    everything_works_under_one_thread_of_tokio: |suite| one_thread().block_on(suite),
    everything_works_under_tokio: |suite| Runtime::new().unwrap().block_on(suite),
    everything_works_in_a_task_of_tokio: |suite| {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(runtime.spawn(suite)).unwrap();
    },
    everything_works_in_a_local_task_of_tokio: |suite| {
        tokio::task::LocalSet::new().block_on(&one_thread(), async { tokio::task::spawn_local(suite).await.unwrap() });
    },
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A plan with every kind of node; gives x * 8 + 12.
fn mixture() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let a = chain(&mut g, &x, 3);
    let b = g.future("b", &a, async |a: Arc<u64>| {
        for _ in 0..3 {
            smol::future::yield_now().await;
        }
        Ok(*a * 2)
    });
    let c = g.kernel("c", (&a, &b), |s: &mut HostStream, a: &u64, b: &u64| s.launch(|| a * 2 + b));
    let d = g.try_task("d", take(&c), |c: u64| Ok(c * 2));
    g.output("out", &d);
    let fails = g.try_task("fails", &x, |x: &u64| if *x == 13 { Err("thirteen".into()) } else { Ok(()) });
    g.node(&fails).after(&a);
    plan(&g)
}

async fn every_kind_of_use(exec: Executor) {
    let plan = mixture();
    let start = |x: u64| exec.run(&plan, inputs! { "x" => x });
    assert_eq!(*value_of::<u64>(start(1).await, "out"), 8 + 24);

    let many = join_all((20..70u64).map(&start)).await;
    assert!(many.into_iter().zip(20..70u64).all(|(given, x)| *value_of::<u64>(given, "out") == x * 8 + 24));

    let run = start(2);
    let node = run.node("b");
    let (given, node) = join(run, node).await;
    assert!(node.is_ok() && *value_of::<u64>(given, "out") == 40);

    let error = start(13).await.unwrap_err();
    assert_eq!(error.node(), Some("fails"));

    let run = start(3);
    run.cancel();
    assert!(run.await.unwrap_err().is_cancelled());

    let mut run = start(4);
    let _ = poll_once(&mut run);
    drop(run);

    exec.idle().await.unwrap();
    exec.shutdown().await.unwrap();
    assert!(start(5).await.unwrap_err().is_shut_down());
}

/// Sends a number to `address`, and returns the answer.
async fn ask(address: SocketAddr, number: u8) -> Result<u8, BoxError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_u8(number).await?;
    Ok(stream.read_u8().await?)
}

/// A plan whose async nodes sleep, and connect to `address` over TCP.
fn asks(address: SocketAddr) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u8>("x");
    let waited = g.future("waits", &x, async |x: Arc<u8>| {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(*x)
    });
    let asked = g.future("asks", &waited, move |waited: Arc<u8>| ask(address, *waited));
    let out = g.task("out", &asked, |asked: &u8| *asked + 1);
    g.output("out", &out);
    plan(&g)
}

/// Answers with ten times the number.
async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let asked = stream.read_u8().await.unwrap();
            stream.write_u8(asked * 10).await.unwrap();
        });
    }
}

#[test]
fn async_nodes_use_the_timers_and_sockets_of_the_runtime_that_polls_them() {
    for runtime in [one_thread(), Runtime::new().unwrap()] {
        for exec in executors() {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let plan = asks(listener.local_addr().unwrap());
                let server = tokio::spawn(answer(listener));
                let runs = join_all((0..20u8).map(|x| exec.run(&plan, inputs! { "x" => x }))).await;
                for (x, given) in (0..20u8).zip(runs) {
                    assert_eq!(*value_of::<u8>(given, "out"), x * 10 + 1);
                }
                server.abort();
            });
        }
    }
}

#[test]
fn operations_use_the_timers_and_sockets_of_the_runtime_that_made_them() {
    // Seen to fail (no reactor running) with futures that are polled outside of that runtime, and with
    // closures that are called outside of it.
    for runtime in [one_thread(), Runtime::new().unwrap()] {
        for exec in executors() {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let server = tokio::spawn(answer(listener));
                let engine = Engine::new(&exec).unwrap();
                let vars: Vec<_> = (0..20u8).map(|x| engine.var("x", x)).collect();
                let asked = join_all(vars.iter().map(async |x| {
                    let op = Op::future("asks", x, x, move |x: Arc<u8>| {
                        // The timer is made in the closure, before there is a future.
                        let timer = tokio::time::sleep(Duration::from_millis(1));
                        async move {
                            timer.await;
                            ask(address, *x).await
                        }
                    });
                    engine.push(op).await?.await
                }));
                let asked = asked.await;
                assert!(asked.into_iter().all(|asked| asked.is_ok()));
                for (number, x) in (0..20u8).zip(&vars) {
                    assert_eq!(*x.read().await.unwrap(), number * 10);
                }
                server.abort();
            });
        }
    }
}

#[test]
fn flows_and_the_graphs_that_they_call_use_the_timers_and_sockets_of_their_runtime() {
    for runtime in [one_thread(), Runtime::new().unwrap()] {
        for exec in executors() {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let server = tokio::spawn(answer(listener));
                let asks =
                    Function::new("asks", |g: &mut Graph, x: Value<u8>| g.future("asks", &x, move |x: Arc<u8>| ask(address, *x)));
                let asks = asks.unwrap();
                let asked = exec.flow(async |f: &Flow| {
                    let own = ask(address, 2).await.map_err(anabranch::Error::other)?;
                    let x = f.future("asks", (), move || ask(address, 1));
                    let x = f.call(&asks, &x);
                    Ok(*f.get(&x).await? + own)
                });
                assert_eq!(asked.await.unwrap(), 100 + 20);
                server.abort();
            });
        }
    }
}

#[test]
fn a_spawned_run_goes_on_by_itself() {
    for runtime in [one_thread(), Runtime::new().unwrap()] {
        for exec in executors() {
            let plan = mixture();
            runtime.block_on(async {
                let run = exec.run(&plan, inputs! { "x" => 1u64 });
                let node = run.node("d");
                let task = run.spawn();
                // Waits without polling the run.
                let (says, heard) = tokio::sync::oneshot::channel();
                tokio::spawn(async move { says.send(node.await) });
                assert!(heard.await.unwrap().is_ok());
                assert_eq!(*value_of::<u64>(task.await.unwrap(), "out"), 32);
            });
        }
    }
}

#[test]
fn an_aborted_task_drops_its_run() {
    let runtime = one_thread();
    for exec in executors() {
        let mut g = Graph::new();
        g.future("endless", (), async || std::future::pending::<Result<(), _>>().await);
        let run = exec.run(&plan(&g), Inputs::new());
        let node = run.node("endless");
        runtime.block_on(async {
            let task = run.spawn();
            tokio::task::yield_now().await;
            task.abort();
            assert!(node.await.unwrap_err().is_cancelled());
            exec.idle().await.unwrap();
        });
    }
}

#[test]
fn a_run_may_lose_against_a_timeout() {
    let runtime = one_thread();
    for exec in executors() {
        let mut g = Graph::new();
        g.future("endless", (), async || std::future::pending::<Result<(), _>>().await);
        let plan = plan(&g);
        runtime.block_on(async {
            assert!(tokio::time::timeout(Duration::from_millis(1), exec.run(&plan, Inputs::new())).await.is_err());
            exec.idle().await.unwrap();
        });
    }
}
