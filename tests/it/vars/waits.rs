//! Waiting inside an operation: an operation that is a future may wait, except for operations behind it. The
//! refused waits were seen to hang without the check before a wait.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anabranch::engine::{Each, Pushed};
use anabranch::{Engine, Error, Op, Result, Var};
use futures::channel::oneshot;

use super::{engine, engines, idle, push, pushed};
use crate::support::block_on;

/// Awaits the future of `wait` inside an operation that reads `x` and writes `y`. Returns the error.
fn waiting_inside<F>(
    engine: &Engine,
    x: &Var<i32>,
    y: &Var<i32>,
    wait: impl FnOnce(Engine, Var<i32>, Var<i32>) -> F + Send + 'static,
) -> String
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (there, inner_x, inner_y) = (engine.clone(), x.clone(), y.clone());
    let selfish = Op::future("selfish", x, y, move |_: Arc<i32>| {
        let waits = wait(there, inner_x, inner_y);
        async move {
            waits.await?;
            Ok(1)
        }
    });
    format!("{:#}", block_on(pushed(engine, selfish)).unwrap_err())
}

/// Returns the error of an operation that waits for itself, with the awaited operation and the variable.
fn itself(awaited: &str, var: &str) -> String {
    format!(
        "operation 'selfish' failed: operation 'selfish' waits for itself: it awaits '{awaited}', which comes behind its use of '{var}'; await that outside of the operation"
    )
}

fn add<'v>(name: &'static str, from: &'v Var<i32>, to: &'v Var<i32>) -> Op<'v> {
    Op::task(name, from, to, |x: &i32| x + 1)
}

fn try_push(engine: &Engine, op: Op<'_>) -> Result<Pushed> {
    engine.try_push(op).map_err(Error::from)
}

#[test]
fn waiting_for_itself_is_an_error_that_names_the_operation_and_the_variable() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let said = waiting_inside(&engine, &x, &y, |_, _, y| async move { y.read().await.map(drop) });
        assert_eq!(said, itself("read of y", "y"));
        let said = waiting_inside(&engine, &x, &y, |_, x, _| async move { x.wait_writable().await });
        assert_eq!(said, itself("wait for x", "x"));
        let said = waiting_inside(&engine, &x, &y, |there, x, _| async move { try_push(&there, add("add", &x, &x))?.await });
        assert_eq!(said, itself("add", "x"));
        // The read and the operation read the same variable, but a third operation between them writes it.
        let said = waiting_inside(&engine, &x, &y, |there, x, _| async move {
            try_push(&there, add("add", &x, &x))?;
            x.read().await.map(drop)
        });
        assert_eq!(said, itself("read of x", "x"));
        idle(&engine).unwrap();
    }
}

/// Pushes an operation that holds `x`, and awaits the operation that it receives.
fn awaits_what_it_is_sent(engine: &Engine, x: &Var<i32>) -> (Pushed, oneshot::Sender<Pushed>) {
    let (sender, receiver) = oneshot::channel::<Pushed>();
    let selfish = Op::future("selfish", x, x, move |x: Arc<i32>| async move {
        receiver.await?.await?;
        Ok(*x)
    });
    (pushed(engine, selfish), sender)
}

#[test]
fn waiting_for_what_was_pushed_elsewhere_is_seen_as_well() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        // An operation that was pushed before it is not behind it, regardless of its own waits.
        let (opens, gate) = oneshot::channel::<i32>();
        push(&engine, Op::future("gate", (), &y, move || async move { Ok(gate.await?) }));
        let before = pushed(&engine, add("before", &y, &y));
        let (patient, sender) = awaits_what_it_is_sent(&engine, &x);
        sender.send(before).unwrap();
        opens.send(1).unwrap();
        block_on(patient).unwrap();

        let (selfish, sender) = awaits_what_it_is_sent(&engine, &x);
        (0..40).for_each(|_| push(&engine, add("between", &x, &x)));
        sender.send(pushed(&engine, add("last", &x, &y))).unwrap();
        assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("last", "x"));
        idle(&engine).unwrap();
    }
}

/// Seen to hang with a check that ends after 64 requests.
#[test]
fn waiting_for_itself_is_seen_behind_any_number_of_operations() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        let (selfish, sender) = awaits_what_it_is_sent(&engine, &x);
        (0..1_000).for_each(|_| push(&engine, Op::task("reads", &x, (), |_: &i32| ())));
        sender.send(pushed(&engine, Op::task("last", &x, (), |_: &i32| ()))).unwrap();
        assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("last", "x"));

        // Many variables, and as many readers, each of one.
        for reader in [0, 63, 64, 199] {
            let all: Vec<Var<i32>> = (0..200).map(|number| engine.var(format!("x{number}"), number)).collect();
            let (sender, receiver) = oneshot::channel::<Pushed>();
            let selfish = Op::future("selfish", (), &all[..], async move || {
                receiver.await?.await?;
                Ok(vec![0; 200])
            });
            let selfish = pushed(&engine, selfish);
            let readers: Vec<Pushed> = all.iter().map(|x| pushed(&engine, Op::task("reads", x, (), |_: &i32| ()))).collect();
            let awaited = readers.into_iter().nth(reader).unwrap();
            sender.send(awaited).unwrap();
            assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("reads", &format!("x{reader}")));
        }
        // A wait for another operation that is late is no error, even with many operations behind.
        let (opens, gate) = oneshot::channel::<i32>();
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        push(&engine, Op::future("gate", (), &y, move || async move { Ok(gate.await?) }));
        let before = pushed(&engine, add("before", &y, &y));
        let (patient, sender) = awaits_what_it_is_sent(&engine, &x);
        (0..1_000).for_each(|_| push(&engine, Op::task("reads", &x, (), |_: &i32| ())));
        sender.send(before).unwrap();
        opens.send(1).unwrap();
        block_on(patient).unwrap();
        let _ = idle(&engine);
    }
}

#[test]
fn an_operation_that_awaits_its_own_handle_waits_for_itself() {
    for (_exec, engine) in engines() {
        let (sender, receiver) = oneshot::channel::<Pushed>();
        let (tells, told) = oneshot::channel();
        let own = Op::future("own", (), (), move || async move {
            let _ = tells.send(receiver.await?.await);
            Ok(())
        });
        sender.send(pushed(&engine, own)).unwrap();
        idle(&engine).unwrap();
        let said = block_on(told).unwrap().unwrap_err().to_string();
        assert_eq!(said, "operation 'own' waits for itself: it awaits its own end; await that outside of the operation");
    }
}

#[test]
fn waiting_for_a_joined_operation_is_waiting_for_all_of_it() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let (selfish, sender) = awaits_what_it_is_sent(&engine, &x);
        let both = Op::join("both", [add("beside", &y, &y), add("behind", &x, &x)]);
        sender.send(pushed(&engine, both)).unwrap();
        assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("both", "x"));
        idle(&engine).unwrap();
    }
}

/// After the error inside, the operation still has the handle, and may await it outside.
#[test]
fn what_must_not_be_awaited_inside_may_be_outside() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        let (sender, receiver) = oneshot::channel::<Pushed>();
        let (gives, given) = oneshot::channel();
        let polite = Op::future("polite", &x, &x, move |_: Arc<i32>| async move {
            let mut behind = receiver.await?;
            let said = (&mut behind).await.unwrap_err();
            let _ = gives.send((behind, said));
            Ok(20)
        });
        let polite = pushed(&engine, polite);
        sender.send(pushed(&engine, add("behind", &x, &x))).unwrap();
        block_on(polite).unwrap();
        let (behind, said) = block_on(given).unwrap();
        assert_eq!(said.node(), Some("polite"));
        block_on(behind).unwrap();
        assert_eq!(*block_on(x.read()).unwrap(), 21);
    }
}

/// Seen to hang with a check that follows no link from a read to a read.
#[test]
fn waiting_for_a_write_behind_other_reads_is_seen() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let (sender, receiver) = oneshot::channel::<Pushed>();
        let selfish = Op::future("selfish", &x, &y, move |_: Arc<i32>| async move {
            receiver.await?.await?;
            Ok(1)
        });
        let selfish = pushed(&engine, selfish);
        let (open, gate) = oneshot::channel::<()>();
        push(&engine, Op::future("reads", &x, (), move |_: Arc<i32>| async move { Ok(gate.await?) }));
        sender.send(pushed(&engine, add("writes", &x, &x))).unwrap();
        assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("writes", "x"));
        open.send(()).unwrap();
        idle(&engine).unwrap();
    }
}

/// Seen to hang with a search for the variable that assumes sorted accesses.
#[test]
fn waiting_for_an_operation_with_many_variables_and_streams_is_seen() {
    for (_exec, engine) in engines() {
        let mut all: Vec<Var<i32>> = (0..16).map(|number| engine.var(format!("x{number}"), number)).collect();
        all.reverse();
        for own in [0, 7, 15] {
            let (selfish, sender) = awaits_what_it_is_sent(&engine, &all[own]);
            (0..100).for_each(|_| push(&engine, Op::task("reads", &all[own], (), |_: &i32| ())));
            let (one, other) = (engine.stream(), engine.stream());
            let last = Op::task("last", &all[..], (), |_: Each<i32>| ()).on(&one).on(&other);
            sender.send(pushed(&engine, last)).unwrap();
            assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("last", all[own].name()));
        }
        assert!(idle(&engine).is_err(), "the reads were not run");
    }
}

/// An operation with many variables ends while one behind it begins and awaits it. Seen to fail (it "waits
/// for itself") with an inspection that does not check whether the awaited operation has left.
#[test]
fn awaiting_an_operation_ahead_that_is_about_to_end_is_no_wait_for_itself() {
    let (_exec, engine) = engine(2);
    let (x, z) = (engine.var("x", 0), engine.var("z", 0));
    let others: Vec<Var<i32>> = (0..4000).map(|number| engine.var(format!("{number}"), number)).collect();
    for round in 0..300 {
        let both = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let meet = |spins: usize| {
            let both = both.clone();
            move || {
                both[0].fetch_add(1, SeqCst);
                while both[0].load(SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                (0..spins).for_each(|_| std::hint::spin_loop());
            }
        };
        let (first, second) = (meet(0), meet(50 * (round % 100)));
        let many = pushed(
            &engine,
            Op::task("many", &others[..], &x, move |_: Each<i32>| {
                first();
                1
            }),
        );
        push(
            &engine,
            Op::task("one", (), &z, move || {
                second();
                1
            }),
        );
        let awaits = Op::future("awaits", (&x, &z), (), move |_: Arc<i32>, _: Arc<i32>| async move { Ok(many.await?) });
        let awaits = pushed(&engine, awaits);
        (0..2).for_each(|_| push(&engine, Op::task("reads too", &x, (), |_: &i32| ())));
        block_on(awaits).unwrap();
        idle(&engine).unwrap();
    }
}

#[test]
fn a_future_may_await_who_reads_what_it_reads() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 7), engine.var("y", 1));
        let inner = x.clone();
        let reads = Op::future("reads", &x, &y, move |_: Arc<i32>| async move { Ok(*inner.read().await?) });
        block_on(pushed(&engine, reads)).unwrap();
        assert_eq!(*block_on(y.read()).unwrap(), 7);
    }
}

#[test]
fn waiting_inside_of_a_future_until_nothing_is_pending_is_an_error() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let said = waiting_inside(&engine, &x, &y, |there, _, _| async move { there.idle().await });
        assert!(said.ends_with("an operation waits until its engine is idle, but is itself pending there: wait outside of it"));
    }
    for workers in [0, 1] {
        let (exec, _) = engine(workers);
        let engine = Engine::builder(&exec).max_pending(1).build().unwrap();
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let said = waiting_inside(&engine, &x, &y, |there, x, _| async move {
            there.push(Op::task("look", &x, (), |_: &i32| ())).await.map(drop)
        });
        let full = "the engine already has 1 operations pending, and inside of one of them there may never be room for more: use `try_push`, push outside, or raise max_pending";
        assert!(said.ends_with(full), "{said}");
    }
}
