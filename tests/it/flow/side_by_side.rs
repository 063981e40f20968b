//! Concurrent parts of a flow, concurrent flows, and flows beside other tasks of a runtime.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use anabranch::policy::PerOperator;
use anabranch::{Executor, Flow, Function, Graph, Op, Result, Value, Var, inputs, take};
use futures::future::{Either, join_all, select};

use super::{Maths, everywhere, suspend};
use crate::support::{block_on, executors, value_of};

/// Halves a number until it is below `least`. Returns it with the number of steps.
async fn halve(f: &Flow, maths: &Maths, from: f64, least: f64) -> Result<(f64, u32)> {
    let (mut x, half, mut steps) = (f.value("x", from), f.value("half", 0.5), 0);
    while *f.get(&x).await? >= least {
        x = maths.mul(f, &x, &half);
        steps += 1;
    }
    Ok((*f.get(&x).await?, steps))
}

#[test]
fn two_loops_of_different_lengths_join() {
    everywhere(((0.5, 11), (0.75, 2)), async |f, maths| {
        futures::try_join!(halve(f, maths, 1024.0, 1.0), halve(f, maths, 3.0, 1.0))
    });
}

#[test]
fn a_loop_and_a_branch_side_by_side() {
    everywhere((0.5, 11, 6.0), async |f, maths| {
        let branch = async {
            let x = f.value("x", 2.0);
            let by = if *f.get(&x).await? > 1.0 { 3.0 } else { 4.0 };
            Ok(*f.get(&maths.mul(f, &x, &f.value("by", by))).await?)
        };
        let ((x, steps), y) = futures::try_join!(halve(f, maths, 1024.0, 1.0), branch)?;
        Ok((x, steps, y))
    });
}

#[test]
fn a_flow_that_ends_in_a_loop_runs_twice() {
    for exec in executors() {
        let maths = Maths::new(super::Way::Future);
        for _ in 0..2 {
            assert_eq!(block_on(exec.flow(async |f: &Flow| halve(f, &maths, 64.0, 1.0).await)).unwrap(), (0.5, 7));
        }
    }
}

#[test]
fn a_loop_whose_body_ends_in_a_loop() {
    everywhere(14, async |f, maths| {
        let mut steps = 0;
        for power in [1.0, 2.0, 4.0, 8.0] {
            steps += halve(f, maths, power, 0.25).await?.1;
        }
        Ok(steps - 4)
    });
}

#[test]
fn the_first_to_come_wins_and_the_other_is_dropped() {
    everywhere(4.0, async |f, maths| {
        let long = pin!(f.flow(async |f: &Flow| halve(f, maths, f64::MAX, 0.0).await));
        let short = pin!(async {
            let x = maths.mul(f, &f.value("x", 2.0), &f.value("y", 2.0));
            f.get(&x).await
        });
        match select(short, long).await {
            Either::Left((x, _)) => Ok(*x?),
            Either::Right((long, _)) => Ok(long?.0),
        }
    });
}

#[test]
fn a_thousand_loops_of_different_lengths_side_by_side() {
    for exec in executors() {
        let maths = Maths::new(super::Way::Future);
        let sum = exec.flow(async |f: &Flow| {
            let loops = (0..1000_u32).map(|number| halve(f, &maths, f64::from(1 << (number % 10)), 1.0));
            join_all(loops).await.into_iter().try_fold(0, |sum, halved| Ok(sum + halved?.1))
        });
        assert_eq!(block_on(sum).unwrap(), 100 * (1..=10).sum::<u32>());
    }
}

#[test]
fn flows_of_one_executor_share_variables() {
    for exec in executors() {
        let adds = block_on(exec.flow(async |f: &Flow| {
            let total = f.value("total", 0_u64);
            let add = async |f: &Flow| {
                for _ in 0..100 {
                    drop(f.node(Op::task("add", take(&total), &total, |x: u64| x + 1)));
                    suspend().await;
                }
                Ok(())
            };
            futures::try_join!(f.flow(add), f.flow(add), f.flow(add))?;
            Ok(*f.get(&total).await?)
        }));
        assert_eq!(adds.unwrap(), 300);
    }
}

#[test]
fn a_graph_has_nodes_that_are_flows() {
    for exec in executors() {
        let mut g = Graph::new();
        let start = g.input::<f64>("start");
        let inner = exec.clone();
        let halved = g.future("halve", &start, move |start: Arc<f64>| {
            let inner = inner.clone();
            async move {
                let maths = Maths::new(super::Way::Task);
                Ok(inner.flow(async |f: &Flow| halve(f, &maths, *start, 1.0).await).await?)
            }
        });
        let steps = g.task("steps", &halved, |halved: &(f64, u32)| halved.1);
        g.output("steps", &steps);
        let plan = g.compile_with(&PerOperator).unwrap();
        assert_eq!(*value_of::<u32>(block_on(exec.run(&plan, inputs! { "start" => 1024.0 })), "steps"), 11);
    }
}

#[test]
fn a_function_gives_several_results_and_takes_what_it_is_given() {
    let split = Function::new("split", |g: &mut Graph, (list, at): (Value<Vec<u32>>, Value<usize>)| {
        let both = g.task("split", take(&list), |list: Vec<u32>| list);
        let left = g.task("left", (&both, &at), |list: &Vec<u32>, at: &usize| list[..*at].to_vec());
        let right = g.task("right", (&both, &at), |list: &Vec<u32>, at: &usize| list[*at..].to_vec());
        (left, right)
    });
    let split = split.unwrap();
    for exec in executors() {
        let sides = block_on(exec.flow(async |f: &Flow| {
            let (list, at) = (f.value("list", vec![1, 2, 3, 4, 5]), f.value("at", 2));
            let (left, right) = f.call(&split, (take(&list), &at));
            Ok((f.get(&left).await?, f.get(&right).await?))
        }));
        let (left, right) = sides.unwrap();
        assert_eq!((&left[..], &right[..]), (&[1, 2][..], &[3, 4, 5][..]));
    }
}

#[test]
fn what_a_call_has_read_can_be_taken_behind_it() {
    // Seen to fail when a run could keep its inputs after its end.
    let length =
        Function::new("length", |g: &mut Graph, list: Value<Vec<usize>>| g.task("length", &list, |list: &Vec<usize>| list.len()));
    let length = length.unwrap();
    for exec in executors() {
        let grown = block_on(exec.flow(async |f: &Flow| {
            let mut list = f.value("list", Vec::new());
            for _ in 0..2000 {
                let length = f.call(&length, &list);
                list = f.task("push", (take(&list), &length), |mut list: Vec<usize>, length: &usize| {
                    list.push(*length);
                    list
                });
                if f.get(&length).await?.is_multiple_of(7) {
                    f.get(&list).await?;
                }
            }
            f.get(&list).await
        }));
        assert_eq!(*grown.unwrap(), (0..2000).collect::<Vec<_>>());
    }
}

#[test]
fn whoever_gives_up_has_the_best_so_far() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for exec in executors() {
        let best: Var<u64> = runtime.block_on(async {
            exec.flow(async |f: &Flow| {
                let best = f.value("best", 0);
                let improve = f.flow(async |f: &Flow| -> Result<()> {
                    loop {
                        f.node(Op::task("improve", &best, &best, |x: &u64| x + 1)).await?;
                    }
                });
                let is_enough = async {
                    while best.version() < 10 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    _ = improve => unreachable!("it is endless"),
                    () = is_enough => {}
                }
                Ok(best)
            })
            .await
            .unwrap()
        });
        assert!(*block_on(best.read()).unwrap() >= 10);
    }
}

#[test]
fn an_endless_flow_lets_other_tasks_run() {
    // Seen to fail (the other task never ran) without the slices of a flow.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for exec in executors() {
        let turns = Arc::new(AtomicU64::new(0));
        let counted = turns.clone();
        runtime.block_on(async {
            let endless = exec.flow(async |f: &Flow| -> Result<()> {
                let mut x = f.value("x", 0_u64);
                loop {
                    x = f.task("add", &x, |x: &u64| x + 1);
                    f.get(&x).await?;
                }
            });
            let others = async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                    counted.fetch_add(1, SeqCst);
                }
            };
            tokio::select! {
                _ = endless => unreachable!("it is endless"),
                () = others => {}
            }
        });
        assert_eq!(turns.load(SeqCst), 100);
    }
}

#[test]
fn flows_work_under_every_runtime() {
    let exec = Executor::builder().workers(2).build().unwrap();
    let maths = Arc::new(Maths::new(super::Way::Graph));
    let flow = || {
        let maths = maths.clone();
        exec.flow(async move |f: &Flow| halve(f, &maths, 64.0, 1.0).await)
    };
    assert_eq!(smol::block_on(flow()).unwrap(), (0.5, 7));
    assert_eq!(futures::executor::block_on(flow()).unwrap(), (0.5, 7));
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        assert_eq!(runtime.block_on(async { tokio::spawn(flow()).await.unwrap() }).unwrap(), (0.5, 7));
    }
}
