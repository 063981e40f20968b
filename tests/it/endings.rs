//! The end of an executor: it is shut down or dropped anywhere, at any time. Runs end with it, threads end,
//! and nothing waits for itself.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use anabranch::graph::Each;
use anabranch::{Executor, Graph, HostStream, Inputs, Plan, inputs};
use futures::future::join_all;

use crate::support::{Alarm, Counted, Tally, block_on, executor, executors, panic_quietly, plan, poll_once, poll_with, until};

/// A plan with an async node that never ends, after a task.
fn endless() -> Plan {
    let mut g = Graph::new();
    let x = g.task("x", (), || 0u64);
    let never = g.future("never", &x, |_: Arc<u64>| std::future::pending::<Result<u64, _>>());
    let after = g.task("after", &never, |never: &u64| *never);
    g.output("out", &after);
    plan(&g)
}

fn one_task(work: impl Fn() + Send + Sync + 'static) -> Plan {
    let mut g = Graph::new();
    g.task("task", (), work);
    plan(&g)
}

/// Runs a node on each worker, and returns the directories in which the system describes their threads.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux describes threads as files"))]
fn threads_of(exec: &Executor) -> HashSet<String> {
    let (barrier, threads) = (Arc::new(Barrier::new(exec.workers())), Arc::new(Mutex::new(HashSet::new())));
    let mut g = Graph::new();
    for worker in 0..exec.workers() {
        let (barrier, threads) = (barrier.clone(), threads.clone());
        g.kernel(format!("{worker}"), (), move |_: &mut HostStream| {
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            threads.lock().unwrap().insert(format!("/proc/{}", thread.display()));
            barrier.wait();
        });
    }
    block_on(exec.run(&plan(&g), Inputs::new())).unwrap();
    std::mem::take(&mut *threads.lock().unwrap())
}

#[test]
#[cfg(target_os = "linux")]
fn the_threads_of_an_executor_end_with_it() {
    for workers in [1, 2, 8] {
        for end in [|exec: Executor| block_on(exec.shutdown()).unwrap(), |exec: Executor| drop(exec)] {
            let exec = executor(workers);
            let threads = threads_of(&exec);
            assert_eq!(threads.len(), workers);
            for thread in &threads {
                let name = std::fs::read_to_string(format!("{thread}/comm")).unwrap();
                assert!(name.starts_with("anabranch-"), "{name}");
            }
            end(exec);
            until(|| threads.iter().all(|thread| !std::path::Path::new(thread).exists()));
        }
    }
}

#[test]
fn what_is_in_flight_at_a_shutdown_ends_with_an_error() {
    for exec in executors() {
        let plan = endless();
        let mut runs: Vec<_> = (0..10).map(|_| exec.run(&plan, Inputs::new())).collect();
        runs[..5].iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        let nodes: Vec<_> = runs.iter().flat_map(|run| [run.node("never"), run.node("after")]).collect();
        block_on(exec.shutdown()).unwrap();
        assert!(block_on(join_all(runs)).into_iter().all(|ended| ended.unwrap_err().is_shut_down()));
        assert!(block_on(join_all(nodes)).into_iter().all(|ended| ended.unwrap_err().is_shut_down()));
    }
}

#[test]
fn nothing_starts_after_a_shutdown() {
    let started = Arc::new(AtomicBool::new(false));
    let starts = started.clone();
    let plan = one_task(move || starts.store(true, SeqCst));
    for exec in executors() {
        let early = exec.run(&plan, Inputs::new());
        block_on(exec.shutdown()).unwrap();
        assert!(block_on(early).unwrap_err().is_shut_down());
        assert!(block_on(exec.run(&plan, Inputs::new())).unwrap_err().is_shut_down());
        let (error, _) = exec.try_run(&plan, Inputs::new()).unwrap_err().into_parts();
        assert!(error.is_shut_down());
        block_on(exec.idle()).unwrap();
        block_on(exec.shutdown()).unwrap();
    }
    assert!(!started.load(SeqCst));
}

#[test]
fn a_run_that_waits_for_its_turn_ends_with_its_executor() {
    // Seen to fail when a close woke none of the waiting tasks.
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).max_in_flight(1).build().unwrap();
        let plan = endless();
        let mut runs: Vec<_> = (0..3).map(|_| exec.run(&plan, Inputs::new())).collect();
        let (alarm, waker) = Alarm::new();
        assert!(poll_once(&mut runs[0]).is_pending());
        runs[1..].iter_mut().for_each(|run| assert!(poll_with(run, &waker).is_pending()));
        drop(exec);
        assert_eq!(alarm.rings(), 2);
        assert!(block_on(join_all(runs)).into_iter().all(|ended| ended.unwrap_err().is_shut_down()));
    }
}

#[test]
fn an_executor_lives_as_long_as_its_last_clone() {
    for exec in executors() {
        let clone = exec.clone();
        let run = clone.run(&one_task(|| ()), Inputs::new());
        drop(exec);
        block_on(run).unwrap();
        let run = clone.run(&endless(), Inputs::new());
        drop(clone);
        assert!(block_on(run).unwrap_err().is_shut_down());
    }
}

#[test]
fn an_executor_may_be_dropped_while_its_worker_is_in_a_node() {
    let tally = Tally::default();
    for workers in [1, 2] {
        let ((says, heard), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let ends = Mutex::new((says, gate));
        let mut g = Graph::new();
        let x = g.input::<Counted>("x");
        g.task("blocked", &x, move |x: &Counted| {
            let (says, gate) = &*ends.lock().unwrap();
            says.send(()).unwrap();
            gate.recv().unwrap();
            assert_eq!(x.get(), 1);
        });
        let exec = executor(workers);
        let mut run = exec.run(&plan(&g), inputs! { "x" => tally.value(1) });
        assert!(poll_once(&mut run).is_pending());
        heard.recv().unwrap();
        drop(exec);
        assert!(poll_once(&mut run).is_pending());
        go.send(()).unwrap();
        assert!(block_on(run).unwrap_err().is_shut_down());
        until(|| tally.alive() == 0);
    }
}

#[test]
fn an_executor_may_be_dropped_inside_of_its_own_node() {
    // The last handle is dropped by a task, on its own worker or in a poll, or by an async node.
    for is_async in [false, true] {
        for exec in executors() {
            let last = Arc::new(Mutex::new(None));
            let dropped = last.clone();
            let mut g = Graph::new();
            let drops = move || drop::<Option<Executor>>(dropped.lock().unwrap().take());
            let first = match is_async {
                false => g.task("first", (), drops),
                true => g.future("first", (), move || {
                    drops();
                    std::future::ready(Ok(()))
                }),
            };
            let second = g.future("second", (), async || std::future::pending::<Result<(), _>>().await);
            g.order(&first, &second);
            let run = exec.run(&plan(&g), Inputs::new());
            *last.lock().unwrap() = Some(exec);
            assert!(block_on(run).unwrap_err().is_shut_down());
        }
    }
}

#[test]
fn an_executor_may_be_dropped_in_async_code() {
    for exec in executors() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let run = tokio::spawn(exec.run(&endless(), Inputs::new()));
            tokio::task::yield_now().await;
            drop(exec);
            assert!(run.await.unwrap().unwrap_err().is_shut_down());
        });
    }
}

#[test]
fn an_executor_may_be_dropped_while_unwinding() {
    for exec in executors() {
        let mut run = exec.run(&endless(), Inputs::new());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let exec = exec;
            assert!(poll_once(&mut run).is_pending());
            let _second = exec.run(&endless(), Inputs::new());
            panic_quietly("with an executor in hand");
        }));
        assert!(unwound.is_err());
        assert!(block_on(run).unwrap_err().is_shut_down());
    }
}

#[test]
fn a_shutdown_may_come_just_after_a_run_was_let_in() {
    // Seen to hang when a run was admitted before it was entered in the pool: the workers were gone by then.
    // The run has many inputs because storing them takes a while.
    let mut g = Graph::new();
    let names: Vec<String> = (0..1000).map(|n| format!("input {n}")).collect();
    let all: Vec<_> = names.iter().map(|name| g.input::<u64>(name)).collect();
    let out = g.task("out", &all[..], |all: Each<u64>| all.len());
    g.output("out", &out);
    let plan = plan(&g);
    for workers in [0, 1, 2, 1, 2] {
        let exec = executor(workers);
        let run = exec.run(&plan, names.iter().cloned().fold(Inputs::new(), |inputs, name| inputs.with(name, 1u64)));
        let poller = thread::spawn(move || block_on(run));
        until(|| exec.in_flight() == 1 || poller.is_finished());
        drop(exec);
        let ended = poller.join().unwrap();
        assert!(ended.is_ok() || ended.unwrap_err().is_shut_down());
    }
}

#[test]
fn a_shutdown_that_was_made_inside_of_a_node_may_be_awaited_outside() {
    for exec in executors() {
        let (says, heard) = mpsc::channel();
        let (inside, says) = (exec.clone(), Mutex::new(says));
        let mut g = Graph::new();
        g.task("task", (), move || says.lock().unwrap().send(inside.shutdown()).unwrap());
        block_on(exec.run(&plan(&g), Inputs::new())).unwrap();
        block_on(heard.recv().unwrap()).unwrap();
        assert!(block_on(exec.run(&endless(), Inputs::new())).unwrap_err().is_shut_down());
    }
}
