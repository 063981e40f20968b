//! Errors of flows that ask for something impossible.

use std::sync::Arc;

use anabranch::{Engine, Executor, Flow, Function, Graph, Op, Value, take};

use crate::support::{block_on, executors};

#[test]
fn a_flow_that_pushes_more_than_may_be_pending_is_told_so() {
    let exec = Executor::builder().workers(1).build().unwrap();
    let (_sender, receiver) = futures::channel::oneshot::channel::<()>();
    let flood = exec.flow(async move |f: &Flow| {
        let mut x = f.future("gate", (), move || async move { Ok(receiver.await.map_or(1, |()| 0)) });
        for _ in 0..100_000 {
            x = f.task("add", &x, |x: &u64| x + 1);
        }
        f.get(&x).await.map(|x| *x)
    });
    let error = block_on(flood).unwrap_err();
    assert!(error.is_busy(), "{error:#}");
    // The failed flow does not hinder others.
    assert_eq!(*block_on(exec.flow(async |f: &Flow| f.get(&f.task("one", (), || 1)).await)).unwrap(), 1);
}

#[test]
fn a_variable_of_another_engine_is_refused() {
    for exec in executors() {
        let other = Engine::new(&exec).unwrap();
        let x = other.var("x", 1);
        let error = block_on(exec.flow(async |f: &Flow| {
            drop(f.node(Op::task("add", &x, &x, |x: &i32| x + 1)));
            Ok(())
        }));
        let said = "operation 'add' uses 'x', a variable of another engine: push it to that engine (from a flow that `Engine::flow` made), or read the value and pass that";
        assert_eq!(format!("{:#}", error.unwrap_err()), said);
    }
}

#[test]
fn a_shared_argument_cannot_be_taken() {
    let sort = Function::new("sort", |g: &mut Graph, x: Value<Vec<u32>>| {
        g.task("sort", take(&x), |mut x: Vec<u32>| {
            x.sort_unstable();
            x
        })
    });
    let sort = sort.unwrap();
    for exec in executors() {
        let sorted = |is_taken: bool| {
            block_on(exec.flow(async |f: &Flow| {
                let x = f.value("x", vec![3, 1, 2]);
                let sorted = if is_taken { f.call(&sort, take(&x)) } else { f.call(&sort, &x) };
                f.get(&sorted).await
            }))
        };
        assert_eq!(sorted(true).unwrap(), Arc::new(vec![1, 2, 3]));
        let said = format!("{:#}", sorted(false).unwrap_err());
        assert!(said.starts_with("operation 'sort' failed: ") && said.contains("'sort'"), "{said}");
    }
}

#[test]
fn a_function_that_cannot_be_compiled_says_why() {
    let unused = Function::new("unused", |_: &mut Graph, x: (Value<u32>, Value<u32>)| x.0);
    let said = unused.unwrap_err().to_string();
    assert_eq!(said, "in 'function unused': nothing reads the input '1': read it in a node, or remove it");
}
