//! Waiting inside of an operation: allowed in one that is a future, unless it is for what comes behind it.
//! What must be refused was seen to hang without the look before a wait, or without the notes.

use std::future::Future;
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::{hint, thread};

use anabranch::{Engine, Executor, Graph, Op, PerOperator, Pushed, Result, Run, Var, inputs, take};
use futures::channel::oneshot;
use futures::{join, poll};

use super::futures::yields;
use super::{engine, engines, idle, push, pushed};
use crate::support::{Dice, block_on};

/// Awaits what `wait` makes inside of an operation that reads `x` and writes `y`, and returns what is said of
/// that.
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

/// What is said of who waits for itself, by way of what, and by the use of which variable.
fn itself(awaited: &str, var: &str) -> String {
    format!(
        "operation 'selfish' failed: operation 'selfish' waits for itself: it awaits '{awaited}', which comes behind its use of '{var}'; await that outside of the operation"
    )
}

fn add<'v>(name: &'static str, from: &'v Var<i32>, to: &'v Var<i32>) -> Op<'v> {
    Op::task(name, from, to, |x: &i32| x + 1)
}

fn try_push(engine: &Engine, op: Op<'_>) -> Result<Pushed> {
    engine.try_push(op).map_err(|(error, _)| error)
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
        // It reads what the operation reads, too; but a third that writes stands between.
        let said = waiting_inside(&engine, &x, &y, |there, x, _| async move {
            drop(try_push(&there, add("add", &x, &x))?);
            x.read().await.map(drop)
        });
        assert_eq!(said, itself("read of x", "x"));
        idle(&engine).unwrap();
    }
}

#[test]
fn waiting_for_itself_by_way_of_others_is_the_same_error() {
    for (_exec, engine) in engines() {
        let (x, y, z) = (engine.var("x", 1), engine.var("y", 1), engine.var("z", 1));
        let (from, to) = (z.clone(), engine.var("w", 1));
        let said = waiting_inside(&engine, &x, &y, move |there, _, y| async move {
            drop(try_push(&there, add("first", &y, &from))?);
            drop(try_push(&there, add("second", &from, &to))?);
            to.read().await.map(drop)
        });
        assert_eq!(said, itself("read of w", "y"));
        // Who writes stands behind who only reads, and the operation is one of these.
        let (read, written) = (x.clone(), z.clone());
        let said = waiting_inside(&engine, &x, &y, move |there, _, _| async move {
            drop(try_push(&there, Op::task("reads", &read, (), |_: &i32| ()))?);
            drop(try_push(&there, Op::task("writes both", (), (&read, &written), || (5, 6)))?);
            written.wait_writable().await
        });
        assert_eq!(said, itself("wait for z", "x"));
        idle(&engine).unwrap();
        assert_eq!((*block_on(x.read()).unwrap(), *block_on(z.read()).unwrap()), (5, 6));
    }
}

/// Pushes an operation that has `x`, and awaits what it is sent.
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
        // What was pushed before it is not behind it, whatever it waits for itself.
        let (opens, gate) = oneshot::channel::<i32>();
        push(&engine, Op::future("gate", (), &y, move || async move { Ok(gate.await?) }));
        let before = pushed(&engine, add("before", &y, &y));
        let (patient, sender) = awaits_what_it_is_sent(&engine, &x);
        sender.send(before).unwrap();
        opens.send(1).unwrap();
        block_on(patient).unwrap();

        let (selfish, sender) = awaits_what_it_is_sent(&engine, &x);
        // So many that what is over is forgotten meanwhile.
        for _ in 0..1000 {
            push(&engine, add("beside", &y, &y));
            drop(engine.var("short-lived", 1));
        }
        push(&engine, add("first", &x, &y));
        for _ in 0..1000 {
            push(&engine, add("behind", &y, &y));
        }
        sender.send(pushed(&engine, add("last", &y, &y))).unwrap();
        assert_eq!(format!("{:#}", block_on(selfish).unwrap_err()), itself("last", "x"));
        idle(&engine).unwrap();
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

/// Seen to fail (it hangs) with a bulk that is not closed first, or whose operation is not known.
#[test]
fn waiting_for_one_of_a_bulk_is_waiting_for_all_of_it() {
    // Without workers nothing is joined.
    for (_exec, engine) in engines().into_iter().skip(1) {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let (selfish, sender) = awaits_what_it_is_sent(&engine, &x);
        let mut bulk = engine.bulk(10);
        let part = block_on(bulk.push(add("beside", &y, &y))).unwrap();
        drop(block_on(bulk.push(add("behind", &x, &x))).unwrap());
        // Still open: who waits closes it.
        sender.send(part).unwrap();
        let outcome = block_on(selfish);
        drop(bulk);
        assert_eq!(format!("{:#}", outcome.unwrap_err()), itself("bulk", "x"));
        idle(&engine).unwrap();
    }
}

/// Who is told so inside has the handle still, and may await it outside.
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

/// What operations use: what each reads, and what it writes, if anything.
struct Program(Vec<(usize, Option<usize>)>);

impl Program {
    fn random(dice: &mut Dice) -> Self {
        let uses = |dice: &mut Dice| (dice.below(6), Some(dice.below(6)).filter(|_| dice.below(3) > 0));
        Self((0..40).map(|_| uses(dice)).collect())
    }

    fn conflict(&self, one: usize, other: usize) -> bool {
        let ((read, write), (its_read, its_write)) = (self.0[one], self.0[other]);
        let is_written = |var| Some(var) == its_write;
        is_written(read) || write.is_some_and(|write| is_written(write) || write == its_read)
    }

    /// Those that come behind one, directly or by way of others.
    fn behind(&self, one: usize) -> Vec<usize> {
        let mut behind = vec![one];
        for number in one + 1..self.0.len() {
            if behind.iter().any(|&other| self.conflict(number, other)) {
                behind.push(number);
            }
        }
        behind.split_off(1)
    }

    /// Runs it. One of them awaits all others, and returns those of which it is told that it must not.
    fn refused(&self, engine: &Engine, selfish: usize) -> Vec<usize> {
        let vars: Vec<Var<i32>> = (0..6).map(|number| engine.var(format!("v{number}"), 0)).collect();
        let (sender, receiver) = oneshot::channel::<Vec<Pushed>>();
        let (tells, told) = oneshot::channel();
        let mut ends = Some((receiver, tells));
        let mut handles = Vec::new();
        for (number, &(read, write)) in self.0.iter().enumerate() {
            let writes = write.map_or(&[][..], |write| &vars[write..=write]);
            let values = vec![0; writes.len()];
            if let Some((receiver, tells)) = ends.take_if(|_| number == selfish) {
                let awaits = Op::future("selfish", &vars[read], writes, move |_: Arc<i32>| async move {
                    let mut refused = Vec::new();
                    for (number, handle) in receiver.await?.into_iter().enumerate() {
                        refused.extend(handle.await.is_err().then_some(number + usize::from(number >= selfish)));
                    }
                    let _ = tells.send(refused);
                    Ok(values)
                });
                push(engine, awaits);
            } else {
                handles.push(pushed(engine, Op::task("other", &vars[read], writes, move |_: &i32| values)));
            }
        }
        assert!(sender.send(handles).is_ok());
        idle(engine).unwrap();
        block_on(told).unwrap()
    }
}

/// Seen to fail with readers that are taken for writers.
#[test]
fn who_comes_behind_is_found_among_random_operations() {
    for seed in 0..50 {
        let mut dice = Dice::new(seed);
        let (program, selfish) = (Program::random(&mut dice), dice.below(20));
        for (_exec, engine) in engines() {
            assert_eq!(program.refused(&engine, selfish), program.behind(selfish), "seed {seed}");
        }
    }
}

/// Pushes some of all that there is, and returns its handles.
fn push_some(engine: &Engine, vars: &[Var<i32>], dice: &mut Dice) -> Vec<Pushed> {
    let (one, other) = (&vars[dice.below(6)], &vars[dice.below(6)]);
    match dice.below(8) {
        0 => {
            let briefly = Op::future("future", one, other, |x: Arc<i32>| async move {
                yields(3).await;
                Ok(*x)
            });
            vec![pushed(engine, briefly)]
        }
        1 => {
            let short_lived = engine.var("short-lived", 1);
            vec![pushed(engine, add("into", one, &short_lived)), pushed(engine, add("out of", &short_lived, other))]
        }
        2 => {
            let mut bulk = engine.bulk(4);
            [add("there", one, other), add("back", other, one)].map(|op| block_on(bulk.push(op)).unwrap()).into()
        }
        3 | 4 => vec![pushed(engine, Op::task("read", one, (), |_: &i32| ()))],
        _ => vec![pushed(engine, add("add", one, other))],
    }
}

fn has_ended(handle: &Pushed) -> bool {
    match &*format!("{handle:?}") {
        "Pushed { has_ended: true }" => true,
        "Pushed { has_ended: false }" => false,
        said => panic!("{said}"),
    }
}

/// Awaits what it is sent, and says whether any of those that it is refused has ended when all else has.
fn refused_and_over<'v>(x: &'v Var<i32>, y: &'v Var<i32>) -> (Op<'v>, oneshot::Sender<Vec<Pushed>>, oneshot::Receiver<bool>) {
    let (sender, receiver) = oneshot::channel::<Vec<Pushed>>();
    let (tells, told) = oneshot::channel();
    let selfish = Op::future("selfish", x, y, move |_: Arc<i32>| async move {
        let mut refused = Vec::new();
        for mut handle in receiver.await? {
            refused.extend((&mut handle).await.is_err().then_some(handle));
        }
        let _ = tells.send(refused.iter().any(has_ended));
        Ok(1)
    });
    (selfish, sender, told)
}

/// Three threads push, and this one a future, which awaits all of theirs: what it is refused is pending still
/// when all else has ended. Seen to fail (it hangs) where the inbox of an engine without workers has
/// operations in another order than the notes.
#[test]
fn threads_that_push_at_once_have_one_order() {
    for seed in 0..40 {
        for (_exec, engine) in engines() {
            let (mut dice, barrier) = (Dice::new(seed), Barrier::new(4));
            let vars: Vec<Var<i32>> = (0..6).map(|number| engine.var(format!("v{number}"), 0)).collect();
            let (selfish, sender, told) = refused_and_over(&vars[dice.below(6)], &vars[dice.below(6)]);
            let some = &|thread: u64| {
                let mut dice = Dice::new(1000 * seed + thread);
                barrier.wait();
                (0..30).flat_map(|_| push_some(&engine, &vars, &mut dice)).collect::<Vec<_>>()
            };
            let (selfish, handles) = thread::scope(|scope| {
                let threads: Vec<_> = (1..4).map(|thread| scope.spawn(move || some(thread))).collect();
                barrier.wait();
                (0..dice.below(300)).for_each(|_| hint::spin_loop());
                let selfish = pushed(&engine, selfish);
                (selfish, threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect())
            });
            assert!(sender.send(handles).is_ok());
            block_on(selfish).unwrap();
            assert_eq!(block_on(told), Ok(false), "seed {seed}");
            idle(&engine).unwrap();
        }
    }
}

/// A run of two nodes that wait side by side: `a` for what opens the gate, and `b` for an operation.
struct SideBySide {
    run: Run,
    opens: oneshot::Sender<i32>,
    sends: oneshot::Sender<Pushed>,
    /// Hears of it when `b` waits.
    told: oneshot::Receiver<()>,
}

impl SideBySide {
    fn new(exec: &Executor) -> Self {
        let mut g = Graph::new();
        let (gate, sent) = (g.input::<oneshot::Receiver<i32>>("gate"), g.input::<oneshot::Receiver<Pushed>>("sent"));
        let tells = g.input::<oneshot::Sender<()>>("tells");
        let a = g.future("a", take(&gate), |gate: oneshot::Receiver<i32>| async move { Ok(gate.await?) });
        let waits = |sent: oneshot::Receiver<Pushed>, tells: oneshot::Sender<()>| async move {
            let mut handle = sent.await?;
            let polled = poll!(&mut handle);
            let _ = tells.send(());
            Ok(if let Poll::Ready(outcome) = polled { outcome? } else { handle.await? })
        };
        let b = g.future("b", (take(&sent), take(&tells)), waits);
        g.output("a", &a);
        g.output("b", &b);
        let ((opens, gate), (sends, sent), (tells, told)) = (oneshot::channel(), oneshot::channel(), oneshot::channel());
        let inputs = inputs! { "gate" => gate, "sent" => sent, "tells" => tells };
        Self { run: exec.run(&g.compile(&PerOperator).unwrap(), inputs), opens, sends, told }
    }
}

/// Awaits something of a run whose node `b` awaits what comes behind that.
fn awaits_a_run<F: Future<Output = Result<()>> + Send + 'static>(wait: impl Fn(Run) -> F) {
    for (exec, engine) in engines() {
        let x = engine.var("x", 1);
        let SideBySide { run, opens, sends, told: _told } = SideBySide::new(&exec);
        opens.send(1).unwrap();
        let waits = wait(run);
        let selfish = Op::future("selfish", &x, &x, move |x: Arc<i32>| async move {
            waits.await?;
            Ok(*x)
        });
        let selfish = pushed(&engine, selfish);
        assert!(sends.send(pushed(&engine, add("behind", &x, &x))).is_ok());
        let said = format!("{:#}", block_on(selfish).unwrap_err());
        assert!(said.contains("node 'b' failed") && said.contains("'selfish' waits for itself: it awaits 'behind'"), "{said}");
        assert!(block_on(x.read()).is_err());
    }
}

#[test]
fn a_node_of_a_run_that_a_future_awaits_must_not_wait_for_what_comes_behind_that() {
    awaits_a_run(|run| async move { run.await.map(drop) });
    awaits_a_run(|run| async move { run.node("b").await });
    awaits_a_run(|run| async move {
        run.node("a").await?;
        run.await.map(drop)
    });
}

/// Whoever awaits one node of a run polls them all.
#[test]
fn nor_must_one_beside_the_node_that_a_future_awaits() {
    for (exec, engine) in engines() {
        let x = engine.var("x", 1);
        let SideBySide { run, opens, sends, told } = SideBySide::new(&exec);
        let a = run.node("a");
        let awaits_a = Op::future("awaits a", &x, &x, move |x: Arc<i32>| async move {
            a.await?;
            Ok(*x)
        });
        let awaits_a = pushed(&engine, awaits_a);
        assert!(sends.send(pushed(&engine, add("behind", &x, &x))).is_ok());
        let opened = async move {
            told.await.unwrap();
            opens.send(1).unwrap();
        };
        block_on(async { join!(awaits_a, opened).0 }).unwrap();
        let said = format!("{:#}", block_on(run).unwrap_err());
        assert!(said.contains("node 'b' failed") && said.contains("'awaits a' waits for itself"), "{said}");
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
        assert!(said.ends_with(
            "an operation waits until nothing is pending on its engine, where it is pending itself: wait outside of it"
        ));
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
