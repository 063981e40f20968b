//! Operations that are futures: they hold their variables until they are ready, and wait without a thread.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use anabranch::{BoxError, Engine, Executor, Op, Result, Var, take};
use futures::channel::oneshot;

use super::{engines, idle, on, push, pushed};
use crate::support::{Alarm, block_on, executor, poll_once, poll_with, until};

/// Writes the number from the returned sender to `x`.
fn receives(x: &Var<i32>) -> (Op<'_>, oneshot::Sender<i32>) {
    let (sender, receiver) = oneshot::channel();
    (Op::future("receives", (), x, move || async move { Ok(receiver.await?) }), sender)
}

#[test]
fn a_future_has_its_variables_until_it_is_ready() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        let (op, sender) = receives(&x);
        push(&engine, op);
        let mut add = pushed(&engine, Op::task("add", &x, &x, |x: &i32| x + 1));
        assert!(poll_once(&mut add).is_pending());
        sender.send(41).unwrap();
        block_on(add).unwrap();
        assert_eq!((*block_on(x.read()).unwrap(), x.version()), (42, 2));
    }
}

#[test]
fn a_future_gets_what_it_reads_and_what_it_takes() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", vec![1, 2]), engine.var("y", 3));
        let many = [engine.var("a", 4), engine.var("b", 5)];
        let sum =
            Op::future("sum", (take(&x), &y, &many[..]), (&x, &y), |x: Vec<i32>, y: Arc<i32>, many: Vec<Arc<i32>>| async move {
                let sum = x.iter().sum::<i32>() + *y + many.iter().map(|one| **one).sum::<i32>();
                Ok((vec![sum], -sum))
            });
        block_on(pushed(&engine, sum)).unwrap();
        assert_eq!((block_on(x.read()).unwrap()[..].to_vec(), *block_on(y.read()).unwrap()), (vec![15], -15));
    }
}

#[test]
fn a_thousand_futures_wait_at_once() {
    for (_exec, engine) in engines() {
        let vars: Vec<_> = (0..1000).map(|_| engine.var("x", 0)).collect();
        let senders: Vec<_> = vars
            .iter()
            .map(|x| {
                let (op, sender) = receives(x);
                push(&engine, op);
                sender
            })
            .collect();
        assert!(poll_once(&mut engine.idle()).is_pending());
        senders.into_iter().enumerate().for_each(|(number, sender)| sender.send(number as i32).unwrap());
        idle(&engine).unwrap();
        let sum: i32 = vars.iter().map(|x| *block_on(x.read()).unwrap()).sum();
        assert_eq!(sum, 499_500);
    }
}

#[test]
fn what_goes_wrong_with_a_future_is_told_as_of_any_operation() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        let fails = |how: u32| {
            Op::future("fails", (), &x, move || async move {
                match how {
                    0 => Err("no luck".into()),
                    1 => panic!("no luck"),
                    _ => Ok(1),
                }
            })
        };
        let never = || -> std::future::Ready<Result<i32, BoxError>> { panic!("no luck") };
        let said = |op| format!("{:#}", block_on(pushed(&engine, op)).unwrap_err());
        assert_eq!(said(fails(0)), "operation 'fails' failed: no luck");
        assert_eq!(format!("{:#}", block_on(x.read()).unwrap_err()), "operation 'fails' failed: no luck");
        assert_eq!(said(fails(1)), "operation 'fails' panicked: no luck");
        assert_eq!(said(Op::future("never", (), &x, never)), "operation 'never' panicked: no luck");
        block_on(pushed(&engine, fails(2))).unwrap();
        assert_eq!(*block_on(x.read()).unwrap(), 1);
    }
}

/// Panics when it is dropped.
struct Rude;

impl Drop for Rude {
    fn drop(&mut self) {
        panic!("rude");
    }
}

#[test]
fn a_future_that_panics_when_it_is_dropped_harms_nobody() {
    for (exec, engine) in engines() {
        let x = engine.var("x", 1);
        let rude = |panics: bool, waits: bool| {
            let rude = Rude;
            Op::future("rude", (), &x, move || {
                poll_fn(move |_| {
                    let _ = &rude;
                    assert!(!panics, "no luck");
                    if waits { Poll::Pending } else { Poll::Ready(Ok(1)) }
                })
            })
        };
        let said = |op| format!("{:#}", block_on(pushed(&engine, op)).unwrap_err());
        assert_eq!(said(rude(true, false)), "operation 'rude' panicked: no luck");
        assert_eq!(said(rude(false, false)), "operation 'rude' panicked: dropping its future: rude");
        let mut left = pushed(&engine, rude(false, true));
        assert!(poll_once(&mut left).is_pending());
        drop(exec.shutdown());
        assert!(block_on(left).unwrap_err().is_shut_down());
    }
}

#[test]
fn a_future_awaits_variables_and_operations_that_it_pushes() {
    for (_exec, engine) in engines() {
        let (x, y, out) = (engine.var("x", 1), engine.var("y", 10), engine.var("out", 0));
        let (there, var) = (engine.clone(), y.clone());
        let outer = Op::future("outer", &x, &out, move |x: Arc<i32>| async move {
            for _ in 0..3 {
                there.push(Op::task("add", &var, &var, |y: &i32| y + 1)).await?.await?;
            }
            Ok(*x + *var.read().await?)
        });
        block_on(pushed(&engine, outer)).unwrap();
        assert_eq!(*block_on(out.read()).unwrap(), 14);
    }
}

#[test]
fn a_future_is_dropped_when_the_executor_is_shut_down() {
    for (exec, engine) in engines() {
        let (x, alive) = (engine.var("x", 1), Arc::new(()));
        let held = alive.clone();
        let waits = Op::future("waits", (), &x, move || async move {
            pending::<()>().await;
            drop(held);
            Ok(1)
        });
        let mut waits = pushed(&engine, waits);
        assert!(poll_once(&mut waits).is_pending());
        drop(exec.shutdown());
        assert!(block_on(waits).unwrap_err().is_shut_down());
        assert_eq!(Arc::strong_count(&alive), 1);
        idle(&engine).unwrap();
        drop((x, engine, exec));
    }
}

/// Wakes itself `times` before it is ready.
pub(super) async fn yields(times: u32) {
    let mut left = times;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn one_that_wakes_itself_again_and_again_holds_up_nobody() {
    for (_exec, engine) in engines() {
        let (x, y) = (engine.var("x", 1), engine.var("y", 1));
        let polls = Arc::new(AtomicU32::new(0));
        let restless = || {
            let polls = polls.clone();
            Op::future("restless", (), &x, move || async move {
                loop {
                    polls.fetch_add(1, SeqCst);
                    yields(1).await;
                    if polls.load(SeqCst) > 5_000_000 {
                        return Ok(1);
                    }
                }
            })
        };
        push(&engine, restless());
        for _ in 0..10 {
            block_on(pushed(&engine, Op::task("add", &y, &y, |y: &i32| y + 1))).unwrap();
        }
        assert!(polls.load(SeqCst) < 5_000_000);
        polls.store(5_000_001, SeqCst);
        idle(&engine).unwrap();
    }
}

#[test]
fn timers_of_the_runtime_work_on_every_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        runtime.block_on(async {
            let sleeps = Op::future("sleeps", (), &x, || async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(2)
            });
            engine.push(sleeps).await.unwrap().await.unwrap();
            assert_eq!(*x.read().await.unwrap(), 2);
        });
    }
}

#[test]
fn all_orders_of_futures_are_explored() {
    let exec = Executor::sim(3);
    let (_exec, engine) = on(exec);
    let x = engine.var("x", 0);
    for number in 1..=3 {
        let add = Op::future("add", take(&x), &x, move |x: i32| async move {
            yields(number).await;
            Ok(x * 10 + number as i32)
        });
        push(&engine, add);
    }
    let read = pin!(x.read());
    assert_eq!(*block_on(read).unwrap(), 123);
}

/// A read that finds its value at once, and one that waits for its turn. Seen to fail (the value twice) with
/// a `VarRead` that keeps the value that it returns.
#[test]
fn a_read_that_is_polled_again_says_so() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1);
        let at_once = x.read();
        let (receives, sender) = receives(&x);
        push(&engine, receives);
        let later = x.read();
        sender.send(2).unwrap();
        for (mut read, value) in [(at_once, 1), (later, 2)] {
            assert_eq!(*block_on(&mut read).unwrap(), value);
            let again = block_on(read).unwrap_err().to_string();
            assert_eq!(again, "a future was polled again after it was ready: keep what the first await returned");
        }
    }
}

/// There is one slot. Seen to fail (the second is never woken) with a handle that takes any waker that it
/// finds in the place of its own.
#[test]
fn a_handle_that_is_dropped_late_leaves_the_waker_of_the_next_operation() {
    let exec = executor(1);
    let engine = Engine::builder(&exec).max_pending(1).build().unwrap();
    let x = engine.var("x", 1);
    let (op, sender) = receives(&x);
    let mut first = pushed(&engine, op);
    assert!(poll_once(&mut first).is_pending());
    sender.send(2).unwrap();
    idle(&engine).unwrap();
    let (op, sender) = receives(&x);
    let mut second = pushed(&engine, op);
    let (alarm, waker) = Alarm::new();
    assert!(poll_with(&mut second, &waker).is_pending());
    drop(first);
    sender.send(3).unwrap();
    until(|| alarm.rings() > 0);
    block_on(second).unwrap();
}
