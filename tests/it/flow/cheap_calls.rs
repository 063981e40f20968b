//! Calls that are known to be cheap need no operation. In all other respects they are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anabranch::{Executor, Flow, Function, Graph, Inputs, Value, take};

use crate::support::{Counted, Tally, block_on, poll_once};

/// The number of calls in a test; most of them become cheap.
const CALLS: u64 = 300;

fn executors() -> impl Iterator<Item = Executor> {
    [0, 1, 2].into_iter().map(|workers| Executor::builder().workers(workers).build().unwrap())
}

// Seen to fail with a result that counts no write.
#[test]
fn they_are_in_order_with_the_operations_around_them() {
    let add = Function::new("add", |g: &mut Graph, (x, y): (Value<u64>, Value<u64>)| {
        let sum = g.task("sum", (&x, &y), |x: &u64, y: &u64| x + y);
        let next = g.task("next", &x, |x: &u64| x + 1);
        (sum, next)
    });
    let add = add.unwrap();
    for exec in executors() {
        let sum = exec.flow(async |f: &Flow| {
            let (mut sum, mut next) = (f.value("sum", 0), f.value("next", 0));
            for number in 0..CALLS {
                // Sometimes its argument is not available yet at the call.
                let before = if number % 3 == 0 { f.task("same", &next, |x: &u64| *x) } else { next.clone() };
                let called = f.call(&add, (&before, &sum));
                assert!(called.0.version() <= 1);
                // The same variable twice.
                sum = if number % 7 == 0 { f.call(&add, (&called.0, &called.0)).0 } else { called.0 };
                next = called.1;
                if number % 2 == 0 {
                    f.get(&sum).await?;
                    assert_eq!(sum.version(), 1);
                }
                sum = f.task("below", &sum, |sum: &u64| sum % 1_000_003);
            }
            Ok((*f.get(&sum).await?, *f.get(&next).await?))
        });
        let wanted = (0..CALLS).fold((0, 0), |(sum, next), number| {
            let sum = (next + sum) * if number % 7 == 0 { 2 } else { 1 };
            (sum % 1_000_003, next + 1)
        });
        assert_eq!(block_on(sum).unwrap(), wanted);
    }
}

// Seen to fail with a failure that is stored without the name of the call.
#[test]
fn they_fail_as_others_do() {
    for exec in executors() {
        let fails = Arc::new(AtomicBool::new(false));
        let may_fail = fails.clone();
        let halve = Function::new("halve", move |g: &mut Graph, x: Value<u64>| {
            let may_fail = may_fail.clone();
            g.try_task("half", &x, move |x: &u64| if may_fail.load(SeqCst) { Err("it is odd".into()) } else { Ok(x / 2) })
        });
        let halve = halve.unwrap();
        let call = |fails_now: bool| {
            fails.store(fails_now, SeqCst);
            let called = exec.flow(async |f: &Flow| {
                let half = f.call(&halve, &f.value("x", 84));
                let next = f.task("next", &half, |half: &u64| half + 1);
                f.get(&next).await.map(|next| *next)
            });
            block_on(called)
        };
        let first = call(true).unwrap_err();
        (0..CALLS).for_each(|_| assert_eq!(call(false).unwrap(), 43));
        let cheap = call(true).unwrap_err();
        assert_eq!((cheap.to_string(), cheap.node()), (first.to_string(), first.node()));
        let cause = |error: &anabranch::Error| std::error::Error::source(error).map(ToString::to_string);
        assert_eq!(cause(&cheap), cause(&first));
        assert_eq!(call(false).unwrap(), 43);
    }
}

// Seen to fail (a value is alive) with results that are shared and not moved.
#[test]
fn they_drop_what_they_were_given() {
    let tally = Tally::default();
    for exec in executors() {
        let of = tally.clone();
        let pass = Function::new("pass", move |g: &mut Graph, (x, y): (Value<Counted>, Value<Counted>)| {
            let of = of.clone();
            let made = g.task("make", (&x, take(&y)), move |_: &Counted, _: Counted| of.value(3));
            (x, made)
        });
        let pass = pass.unwrap();
        let flow = exec.flow(async |f: &Flow| {
            for _ in 0..CALLS {
                let (x, y) = (f.value("x", tally.value(1)), f.value("y", tally.value(1)));
                let (same, made) = f.call(&pass, (&x, take(&y)));
                f.get(&made).await?;
                assert!(f.get(&y).await.is_err());
                f.get(&same).await?;
            }
            Ok(())
        });
        block_on(flow).unwrap();
        block_on(exec.shutdown()).unwrap();
        assert_eq!(tally.alive(), 0);
    }
}

// Seen to fail with an operation that does not hold the arguments of a call that could not be made at once.
#[test]
fn they_keep_their_arguments_until_they_are_over() {
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).max_in_flight(1).build().unwrap();
        let length =
            Function::new("length", |g: &mut Graph, x: Value<Vec<u8>>| g.task("len", &x, |x: &Vec<u8>| x.len())).unwrap();
        let consume = |g: &mut Graph, x: Value<Vec<u8>>| g.task("eat", take(&x), |x: Vec<u8>| x.len());
        let consume = Function::new("consume", consume).unwrap();
        let lengths = exec.flow(async |f: &Flow| {
            for _ in 0..CALLS {
                let x = f.value("x", vec![1, 2, 3]);
                f.get(&f.call(&length, &x)).await?;
            }
            let (send, receive) = futures::channel::oneshot::channel::<()>();
            let mut g = Graph::new();
            let receive = std::sync::Mutex::new(Some(receive));
            g.future("wait", (), move || {
                let receive = receive.lock().unwrap().take();
                async move { Ok(receive.unwrap().await?) }
            });
            let mut waits = exec.run(&g.compile()?, Inputs::new());
            assert!(poll_once(&mut waits).is_pending());
            // This executor has no room for a run.
            let x = f.value("x", vec![1, 2, 3]);
            let (length, eaten) = (f.call(&length, &x), f.call(&consume, take(&x)));
            send.send(()).unwrap();
            waits.await?;
            Ok((*f.get(&length).await?, *f.get(&eaten).await?))
        });
        assert_eq!(block_on(lengths).unwrap(), (3, 3));
    }
}

// Seen to fail with results that are taken by their number among all outputs, and when the graph's own
// outputs are not dropped.
#[test]
fn outputs_beside_the_results_are_not_results() {
    let tally = Tally::default();
    for exec in executors() {
        let of = tally.clone();
        let pass = Function::new("pass", move |g: &mut Graph, x: Value<Counted>| {
            let (one, two) = (of.clone(), of.clone());
            let other = g.task("other", &x, move |_: &Counted| one.value(1));
            g.output("other", &other);
            g.output("word", &x);
            g.task("result", &other, move |_: &Counted| two.value(2))
        });
        let pass = pass.unwrap();
        for _ in 0..CALLS {
            assert_eq!(block_on(exec.call(&pass, tally.value(0))).unwrap().get(), 2);
            let called = exec.flow(async |f: &Flow| f.get(&f.call(&pass, &f.value("x", tally.value(0)))).await);
            assert_eq!(block_on(called).unwrap().get(), 2);
        }
        block_on(exec.shutdown()).unwrap();
        assert_eq!(tally.alive(), 0);
    }
}
