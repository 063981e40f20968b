//! A pipeline is one run in flight: it waits for room, is refused after a shutdown, and may not be awaited
//! in a task of its own executor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use anabranch::{BoxError, Executor, Graph, Inputs, Plan};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::{chained, chained_and_held, each, poll_next};
use crate::support::{Alarm, block_on, executor, executors, plan, poll_once, until};

fn one() -> Plan {
    let mut g = Graph::new();
    let one = g.task("one", (), || 1);
    g.output("one", &one);
    plan(&g)
}

fn one_at_a_time(workers: usize) -> Executor {
    Executor::builder().workers(workers).max_in_flight(1).build().unwrap()
}

#[test]
fn a_pipeline_is_one_run_in_flight() {
    for (workers, pipeline) in [0, 1, 2].into_iter().flat_map(|workers| chained_and_held(3).map(|each| (workers, each))) {
        let exec = one_at_a_time(workers);
        let mut results = exec.pipe(&pipeline, stream::iter(0..20));
        assert_eq!(exec.in_flight(), 0);
        assert_eq!(block_on(results.next()).unwrap().unwrap(), 3);
        assert_eq!(exec.in_flight(), 1);
        assert!(exec.try_run(&one(), Inputs::new()).unwrap_err().error().is_busy());
        assert_eq!(block_on(results.by_ref().count()), 19);
        until(|| exec.in_flight() == 0);
        block_on(exec.run(&one(), Inputs::new())).unwrap();
    }
}

#[test]
fn a_pipeline_waits_for_room_and_is_woken() {
    // Seen to hang with a pipeline that does not register for its admission.
    for exec in [0, 1, 2].map(one_at_a_time) {
        let mut first = exec.pipe(&chained(2), stream::pending());
        assert!(poll_next(&mut first).is_pending());
        let mut second = exec.pipe(&chained(2), stream::iter(0..3));
        let (alarm, waker) = Alarm::new();
        let poll = Pin::new(&mut second).poll_next(&mut Context::from_waker(&waker));
        assert!(poll.is_pending() && exec.in_flight() == 1);
        let mut run = exec.run(&one(), Inputs::new());
        assert!(poll_once(&mut run).is_pending());
        drop(first);
        until(|| alarm.rings() > 0);
        assert_eq!(block_on(second.try_collect::<Vec<_>>()).unwrap(), [2, 3, 4]);
        block_on(run).unwrap();
    }
}

#[test]
fn a_pipeline_that_waits_for_room_may_be_dropped_or_cancelled() {
    for exec in [0, 1, 2].map(one_at_a_time) {
        let mut first = exec.pipe(&chained(2), stream::pending());
        assert!(poll_next(&mut first).is_pending());
        let mut others = [0, 1, 2].map(|_| exec.pipe(&chained(2), stream::iter(0..3)));
        others.iter_mut().for_each(|other| assert!(poll_next(other).is_pending()));
        let [dropped, mut cancelled, last] = others;
        drop(dropped);
        cancelled.cancel();
        assert!(block_on(cancelled.next()).unwrap().unwrap_err().is_cancelled());
        assert!(block_on(cancelled.next()).is_none());
        drop(first);
        assert_eq!(block_on(last.try_collect::<Vec<_>>()).unwrap(), [2, 3, 4], "{exec:?}");
    }
}

#[test]
fn a_pipeline_is_refused_after_a_shutdown() {
    for exec in executors() {
        let mut early = exec.pipe(&chained(2), stream::iter(0..3));
        block_on(exec.shutdown()).unwrap();
        let mut late = exec.pipe(&chained(2), stream::iter(0..3));
        for results in [&mut early, &mut late] {
            assert!(block_on(results.next()).unwrap().unwrap_err().is_shut_down(), "{exec:?}");
            assert!(block_on(results.next()).is_none());
        }
    }
}

#[test]
fn a_pipeline_awaited_in_a_task_of_its_executor_is_an_error() {
    // Seen to hang, with as many workers as nested waits.
    for workers in [1, 2, 8] {
        let exec = executor(workers);
        let own = exec.clone();
        let outer = each(move |g, item| {
            let own = own.clone();
            g.task("outer", &item, move |_: &u64| {
                // A source that never yields an item: this must wait, regardless of other workers.
                let mut inner = own.pipe(&chained(1), stream::pending());
                smol::block_on(inner.next()).unwrap().unwrap_err().to_string()
            })
        });
        let said = block_on(exec.pipe(&outer, stream::iter([1])).try_collect::<Vec<_>>()).unwrap();
        assert!(
            said[0].starts_with("a task or an observer waits for a run, a flow or an operation of its own executor"),
            "{said:?}"
        );
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn a_pipeline_awaited_in_an_async_node_comes() {
    for exec in executors() {
        let own = exec.clone();
        let outer = each(move |g, item| {
            let own = own.clone();
            g.future("outer", &item, move |x: Arc<u64>| {
                let inner = own.pipe(&chained(2), stream::iter(0..*x));
                async move { Ok::<_, BoxError>(inner.try_collect::<Vec<u64>>().await?.len()) }
            })
        });
        let found = block_on(exec.pipe(&outer, stream::iter(0..5)).try_collect::<Vec<_>>()).unwrap();
        assert_eq!(found, [0, 1, 2, 3, 4], "{exec:?}");
    }
}

#[test]
fn a_source_may_be_another_pipeline_of_the_same_executor() {
    for exec in executors() {
        let first = exec.pipe(&chained(2), stream::iter(0..50));
        let second = exec.try_pipe(&chained(3), first);
        let found = block_on(second.try_collect::<Vec<_>>()).unwrap();
        assert_eq!(found, (5..55).collect::<Vec<_>>(), "{exec:?}");
    }
}

#[test]
fn the_executor_is_idle_when_a_pipeline_has_ended() {
    for exec in executors() {
        let mut results = exec.pipe(&chained(2), stream::iter(0..5));
        assert!(matches!(block_on(results.next()), Some(Ok(2))));
        let mut idle = exec.idle();
        assert!(poll_once(&mut idle).is_pending());
        drop(results);
        block_on(idle).unwrap();
    }
}
