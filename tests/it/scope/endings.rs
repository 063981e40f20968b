//! How scopes end: an operation fails or panics, a transfer fails, the run is cancelled or dropped.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use anabranch::scope::{Streaming, Sum, Tile, TileMut, TilePlace};
use anabranch::{BoxError, Executor, Flow, Function, Graph, Plan, Value, inputs};
use futures::executor::block_on;

const ROWS: usize = 16 << 12;

/// The event in one batch of one operation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Fails,
    Panics,
    Hangs,
}

/// Operations of a scope, by number, and the event in batch 5 of one of them.
fn plan(at: usize, event: Event, alive: &Arc<()>) -> Plan {
    let happens = move |op: usize, place: TilePlace<1>| -> Result<(), BoxError> {
        match event {
            Event::Fails if op == at && place.batch == 5 => Err("no more".into()),
            Event::Panics if op == at && place.batch == 5 => panic!("no more"),
            _ => Ok(()),
        }
    };
    let hangs = move |op: usize, place: TilePlace<1>| event == Event::Hangs && op == at && place.batch == 5;
    let (load_alive, save_alive) = (alive.clone(), alive.clone());
    let mut g = Graph::new();
    let sum = g.scope("s", Streaming::strict().over_decompose_factor(8).workers(2).in_flight(3), |s| {
        let (a, b) = (s.store("a", [ROWS]), s.store("b", [ROWS]));
        s.load("op0", &a, move |place, buffer: Vec<u64>| {
            let alive = load_alive.clone();
            async move {
                if hangs(0, place) {
                    std::future::pending::<()>().await;
                }
                drop(alive);
                happens(0, place).map(|()| buffer)
            }
        });
        s.try_write("op1", a.halo([1], [1]), &b, move |_: Tile<u64, 1>, mut b: TileMut<u64, 1>| {
            b.fill(1);
            happens(1, b.place())
        });
        let c = s.try_update("op2", (), &b, move |b: TileMut<u64, 1>| happens(2, b.place()));
        s.save("op3", &c, move |place, tile: Vec<u64>| {
            let alive = save_alive.clone();
            async move {
                if hangs(3, place) {
                    std::future::pending::<()>().await;
                }
                drop(alive);
                happens(3, place).map(|()| tile)
            }
        });
        s.fold("op4", &c, Sum, |c: Tile<u64, 1>| c.as_slice().iter().sum::<u64>())
    });
    g.output("sum", &sum);
    g.compile().unwrap()
}

fn executors() -> [Executor; 3] {
    [Executor::inline(), Executor::builder().workers(1).build().unwrap(), Executor::builder().workers(2).build().unwrap()]
}

/// Waits until only the caller holds it: a worker may still be leaving a run that has ended.
fn freed(alive: &Arc<()>) {
    while Arc::strong_count(alive) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_failure_names_the_operation_and_its_batch() {
    for exec in executors() {
        for at in 0..4 {
            let alive = Arc::new(());
            let plan = plan(at, Event::Fails, &alive);
            let error = block_on(exec.run(&plan, inputs! {})).unwrap_err();
            let cause = error.source().unwrap().downcast_ref::<anabranch::Error>().unwrap();
            assert_eq!(cause.to_string(), format!("operation 's/op{at}' failed in batch 5 of 16, at [20480..24576]"));
            assert_eq!((cause.node(), cause.source().unwrap().to_string()), (Some(&*format!("s/op{at}")), "no more".into()));
            block_on(exec.idle()).unwrap();
            drop(plan);
            freed(&alive);
        }
    }
}

#[test]
fn a_panic_names_the_operation_and_its_batch() {
    for exec in executors() {
        for at in 0..4 {
            let alive = Arc::new(());
            let error = block_on(exec.run(&plan(at, Event::Panics, &alive), inputs! {})).unwrap_err();
            let cause = error.source().unwrap().downcast_ref::<anabranch::Error>().unwrap();
            assert!(cause.is_panic());
            assert_eq!(cause.to_string(), format!("operation 's/op{at}' panicked in batch 5 of 16, at [20480..24576]: no more"));
        }
    }
}

#[test]
fn a_cancel_and_a_drop_end_a_scope_that_waits() {
    for exec in executors() {
        for at in [0, 3] {
            let alive = Arc::new(());
            let plan = plan(at, Event::Hangs, &alive);
            let mut run = Box::pin(exec.run(&plan, inputs! {}));
            let polled = block_on(futures::future::poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))));
            assert!(polled.is_pending());
            run.cancel();
            assert!(block_on(run).unwrap_err().is_cancelled());
            let mut run = Box::pin(exec.run(&plan, inputs! {}));
            assert!(block_on(futures::future::poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx)))).is_pending());
            drop(run);
            block_on(exec.idle()).unwrap();
            drop(plan);
            freed(&alive);
        }
    }
}

#[test]
fn a_buffer_of_another_length_is_an_error_of_its_tile() {
    let mut g = Graph::new();
    let done = g.scope("s", Streaming::strict().over_decompose_factor(4).workers(1), |s| {
        let a = s.store("a", [ROWS]);
        s.load("read", &a, |place, mut buffer: Vec<u64>| async move {
            buffer.truncate(if place.batch == 2 { 3 } else { buffer.len() });
            Ok(buffer)
        });
    });
    g.output("done", &done);
    let error = block_on(Executor::inline().run(&g.compile().unwrap(), inputs! {})).unwrap_err();
    let told = format!("{error:#}");
    assert!(
        told.ends_with("operation 's/read' failed in batch 2 of 4, at [32768..49152]: it gave 3 elements for a tile of 16384"),
        "{told}"
    );
}

#[test]
fn scopes_run_side_by_side_also_where_one_run_is_in_flight() {
    let exec = Executor::builder().workers(2).max_in_flight(1).build().unwrap();
    let mut g = Graph::new();
    let sums: Vec<_> = (0..4_u64)
        .map(|number| {
            g.scope(format!("s{number}"), Streaming::strict().over_decompose_factor(8), move |s| {
                let a = s.store("a", [1 << 16]);
                s.write("fill", (), &a, move |mut a: TileMut<u64, 1>| a.fill(number));
                s.fold("sum", &a, Sum, |a: Tile<u64, 1>| a.as_slice().iter().sum::<u64>())
            })
        })
        .collect();
    let total = g.task("total", &sums[..], |sums: anabranch::graph::Each<u64>| sums.iter().sum::<u64>());
    g.output("total", &total);
    let plan = g.compile().unwrap();
    let runs = (0..3).map(|_| exec.run(&plan, inputs! {}));
    for outputs in block_on(futures::future::join_all(runs)) {
        assert_eq!(*outputs.unwrap().take::<u64>("total").unwrap(), 6 << 16);
    }
}

/// Scopes read values of the outer graph, in a loop too, and each run has values of its own.
#[test]
fn a_scope_in_a_loop_reads_the_values_around_it() {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let last = g.repeat("loop", &x, anabranch::graph::times(3), |b, x| {
        b.scope("s", Streaming::strict(), |s| {
            let a = s.store("a", [10]);
            s.write("fill", &x, &a, move |x: &u64, mut a: TileMut<u64, 1>| {
                counted.fetch_add(1, Ordering::Relaxed);
                a.fill(*x);
            });
            s.fold("sum", &a, Sum, |a: Tile<u64, 1>| a.as_slice().iter().sum::<u64>())
        })
    });
    g.output("last", &last);
    let plan = g.compile().unwrap();
    assert!(plan.scope("loop/body/s").is_some());
    let exec = Executor::host().unwrap();
    for x in [1_u64, 2] {
        let mut outputs = block_on(exec.run(&plan, inputs! { "x" => x })).unwrap();
        assert_eq!(*outputs.take::<u64>("last").unwrap(), 1000 * x);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 6);
}

/// A flow calls a graph with a scope, and branches on its result.
#[test]
fn a_flow_calls_a_scope() {
    let sums = Function::new("sums", |g: &mut Graph, x: Value<u64>| {
        g.scope("s", Streaming::strict(), |s| {
            let a = s.store("a", [1 << 16]);
            s.write("fill", &x, &a, |x: &u64, mut a: TileMut<u64, 1>| a.fill(*x));
            s.fold("sum", &a, Sum, |a: Tile<u64, 1>| a.as_slice().iter().sum::<u64>())
        })
    })
    .unwrap();
    for exec in executors() {
        let sums = sums.clone();
        let flow = exec.flow(async move |f: &Flow| {
            let mut x = f.value("x", 1_u64);
            while *f.get(&x).await? < 1 << 40 {
                x = f.call(&sums, &x);
            }
            Ok(*f.get(&x).await?)
        });
        assert_eq!(block_on(flow).unwrap(), 1 << 48);
    }
}
