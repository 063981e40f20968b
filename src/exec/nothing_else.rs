//! Tests: when a future may wake itself and be polled again at once, because its thread has nothing else.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use futures::executor::block_on;

use super::Executor;
use crate::device::sim::Order;
use crate::policy::PerOperator;
use crate::runtime::has_nothing_else;
use crate::sim::Faults;
use crate::{Flow, Graph, Inputs};

/// Notes what futures find.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<bool>>>);

impl Notes {
    fn note(&self) {
        self.0.lock().unwrap().push(has_nothing_else());
    }

    fn taken(&self) -> Vec<bool> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Runs so many nodes that wait for nothing. Returns what each of them finds, in the order of their polls.
async fn of_nodes(exec: &Executor, nodes: usize) -> Vec<bool> {
    let (notes, mut g) = (Notes::default(), Graph::new());
    for node in 0..nodes {
        let notes = notes.clone();
        let future = move || {
            let notes = notes.clone();
            async move {
                notes.note();
                Ok::<(), crate::BoxError>(())
            }
        };
        let value = g.future(format!("node {node}"), (), future);
        g.output(format!("node {node}"), &value);
    }
    let plan = g.compile_with(&PerOperator).unwrap();
    exec.run(&plan, Inputs::new()).await.unwrap();
    notes.taken()
}

/// Does the same with operations of a flow, which are first polled when they are pushed.
async fn of_operations(exec: &Executor, operations: usize) -> Vec<bool> {
    let notes = Notes::default();
    let flow = exec.flow(async |f: &Flow| {
        let push = |_| {
            let notes = notes.clone();
            f.future("operation", (), move || async move {
                smol::future::yield_now().await;
                notes.note();
                Ok::<(), crate::BoxError>(())
            })
        };
        let pushed: Vec<_> = (0..operations).map(push).collect();
        for operation in &pushed {
            f.get(operation).await?;
        }
        Ok(())
    });
    flow.await.unwrap();
    notes.taken()
}

// Seen to fail when queues had no others, and when the engine had none.
#[test]
fn only_a_thread_that_runs_everything_alone_has_nothing_else() {
    let inline = Executor::inline();
    assert_eq!(block_on(of_nodes(&inline, 1)), [true]);
    assert_eq!(block_on(of_nodes(&inline, 3)), [false, false, true]);
    assert_eq!(block_on(of_operations(&inline, 1)), [true]);
    // Behind the last one, operations of the engine are ready.
    assert_eq!(block_on(of_operations(&inline, 3))[..2], [false, false]);
    assert!(!has_nothing_else());

    let workers = |workers| Executor::builder().workers(workers).build().unwrap();
    assert_eq!(block_on(of_nodes(&workers(1), 1)), [true]);
    assert_eq!(block_on(of_nodes(&workers(2), 1)), [false]);
    assert_eq!(block_on(of_operations(&workers(1), 1)), [false]);
    let simulated = Executor::builder().simulated(Order::Seeded(1), Faults::default()).build().unwrap();
    assert_eq!(block_on(of_nodes(&simulated, 1)), [false]);
    assert_eq!(block_on(of_operations(&simulated, 1)), [false]);
}

#[test]
fn a_run_within_a_future_that_has_others_has_others() {
    // Seen to fail when the inner poll forgot the outer one.
    let (notes, mut g) = (Notes::default(), Graph::new());
    for name in ["one", "other"] {
        let notes = notes.clone();
        let inner = move || {
            let notes = notes.clone();
            async move {
                let found = of_nodes(&Executor::inline(), 1).await;
                notes.0.lock().unwrap().extend(found);
                Ok::<(), crate::BoxError>(())
            }
        };
        let value = g.future(name, (), inner);
        g.output(name, &value);
    }
    let plan = g.compile_with(&PerOperator).unwrap();
    block_on(Executor::inline().run(&plan, Inputs::new())).unwrap();
    assert_eq!(notes.taken(), [false, true]);
}
