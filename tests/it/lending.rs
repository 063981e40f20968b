//! Data that is lent to runs: it is read before the end of the loan, or not at all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use anabranch::graph::take;
use anabranch::run::{Lent, LentMut, lend};
use anabranch::{Buffer, DeviceStream, Executor, Flow, Graph, HostBuffer, Inputs, inputs};

use crate::support::block_on;

#[test]
fn nodes_read_what_the_caller_borrows_and_write_parts_of_it_side_by_side() {
    for exec in [Executor::inline(), Executor::builder().workers(2).build().unwrap()] {
        let x: Vec<u64> = (0..1000).collect();
        let mut y = vec![0; 1000];
        let mut g = Graph::new();
        let from = g.input::<Lent<[u64]>>("x");
        for part in 0..10 {
            let to = g.input::<LentMut<[u64]>>(format!("y{part}"));
            let square =
                g.try_task(format!("square {part}"), (&from, take(&to)), move |x: &Lent<[u64]>, mut y: LentMut<[u64]>| {
                    Ok(x.with(|x| y.with(|y| y.iter_mut().zip(&x[part * 100..]).for_each(|(y, x)| *y = x * x)))??)
                });
            g.output(format!("done {part}"), &square);
        }
        let plan = g.compile().unwrap();
        let ended = lend(|lender| {
            let parts = y.chunks_mut(100).enumerate();
            let inputs = parts.fold(Inputs::new(), |all, (part, y)| all.with(format!("y{part}"), lender.lend_mut(y)));
            block_on(exec.run(&plan, inputs.with("x", lender.lend(x.as_slice()))))
        });
        ended.unwrap();
        assert!(y.iter().zip(&x).all(|(y, x)| *y == x * x));
    }
}

#[test]
fn kernels_and_flows_read_it_too() {
    let exec = Executor::inline();
    let x = vec![1.0_f32, 2.0];
    let mut g = Graph::new();
    let from = g.input::<Lent<[f32]>>("x");
    let up = g.try_kernel("up", &from, |s: &mut DeviceStream, x: &Lent<[f32]>| Ok(x.with(|x| s.upload(x))??));
    let down = g.try_kernel("down", &up, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
    g.output("x", &down);
    let plan = g.compile().unwrap();
    lend(|lender| {
        let lent = lender.lend(x.as_slice());
        let run = exec.run(&plan, inputs! { "x" => lent.clone() });
        assert_eq!(block_on(run).unwrap().take::<HostBuffer<f32>>("x").unwrap()[..], [1.0, 2.0]);
        let flow = exec.flow(async move |_: &Flow| Ok(lent.with(|x| x[1])?));
        assert_eq!(block_on(flow).unwrap(), 2.0);
    });
}

// Seen to fail with an end that does nothing.
#[test]
fn a_read_after_the_call_is_an_error_that_says_what_to_do() {
    let (x, mut y) = (vec![1, 2, 3], [0; 2]);
    let (lent, mut lent_mut) = lend(|lender| (lender.lend(x.as_slice()), lender.lend_mut(&mut y)));
    let error = lent.clone().with(|x| x.len()).unwrap_err();
    assert!(error.to_string().contains("await the run inside of its closure"), "{error}");
    assert!(lent_mut.with(|y| y[0] = 1).is_err());
    assert_eq!((x, y), (vec![1, 2, 3], [0; 2]));
}

#[test]
fn a_run_that_goes_on_after_the_call_fails_at_the_node_that_reads() {
    let exec = Executor::inline();
    let mut g = Graph::new();
    let from = g.input::<Lent<[u8]>>("x");
    let read = g.try_task("read", &from, |x: &Lent<[u8]>| Ok(x.with(|x| x.len())?));
    g.output("len", &read);
    let plan = g.compile().unwrap();
    let x = vec![0_u8; 4];
    let run = lend(|lender| exec.run(&plan, inputs! { "x" => lender.lend(x.as_slice()) }));
    drop(x);
    let error = block_on(run).unwrap_err();
    assert_eq!(error.node(), Some("read"), "{error:#}");
    assert!(format!("{error:#}").contains("`lend` has returned"), "{error:#}");
}

// Seen to fail with an end that does not wait.
#[test]
fn the_call_returns_after_the_reads_in_progress() {
    for is_panic in [false, true] {
        let (has_read, x) = (AtomicBool::new(false), 7_u32);
        let (begun, told) = channel();
        std::thread::scope(|threads| {
            let (threads, has_read) = (threads, &has_read);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                lend(|lender| {
                    let lent = lender.lend(&x);
                    threads.spawn(move || {
                        let read = lent.with(|x| {
                            begun.send(()).unwrap();
                            // The call is about to return when no other read can begin.
                            while lent.with(|_| ()).is_ok() {
                                std::thread::yield_now();
                            }
                            has_read.store(true, Ordering::Relaxed);
                            *x
                        });
                        assert_eq!(read.unwrap(), 7);
                    });
                    told.recv().unwrap();
                    assert!(!is_panic, "the body may panic");
                })
            }));
            assert_eq!(ended.is_err(), is_panic);
            assert!(has_read.load(Ordering::Relaxed), "the read has ended");
        });
    }
}
