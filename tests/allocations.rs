//! A warm run allocates as often for ten thousand nodes as for a hundred. In a binary of its own, because it
//! counts the allocations of the whole process.

#![allow(missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use anabranch::graph::{Each, times};
use anabranch::pipe::Phases;
use anabranch::policy::PerOperator;
use anabranch::{Executor, Flow, Graph, HostStream, Name, Pipeline, Plan, Ranked, Result, Value, inputs, take};
use futures::executor::block_on;
use futures::{StreamExt, poll, stream};

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The bytes that are allocated and not freed.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Held by each test, because the count is of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The bytes that this thread allocated.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        LIVE.fetch_add(layout.size() as i64, SeqCst);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, SeqCst);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Adds a node that reads the value.
type Add = fn(&mut Graph, String, &Value<u64>) -> Value<u64>;

const TASK: Add = |g, name, x| g.task(name, x, |x: &u64| x + 1);
const KERNEL: Add = |g, name, x| g.kernel(name, x, |_: &mut HostStream, x: &u64| x + 1);
const TAKER: Add = |g, name, x| g.try_task(name, take(x), |x: u64| Ok(x + 1));
const FUTURE: Add = |g, name, x| {
    g.future(name, x, async |x: Arc<u64>| {
        tokio::task::yield_now().await;
        Ok(*x + 1)
    })
};

/// Nodes that follow each other.
fn chain(nodes: usize, add: Add) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let last = (0..nodes).fold(x, |last, n| add(&mut g, n.to_string(), &last));
    let out = g.task("out", &last, |last: &u64| *last);
    g.output("out", &out);
    g.compile_with(&PerOperator).unwrap()
}

/// Nodes that read one input, and one node that reads them all.
fn star(nodes: usize, add: Add) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let all: Vec<_> = (0..nodes).map(|n| add(&mut g, n.to_string(), &x)).collect();
    let out = g.task("out", &all[..], |all: Each<u64>| all.iter().sum::<u64>());
    g.output("out", &out);
    g.compile_with(&PerOperator).unwrap()
}

/// Returns the allocations of a warm run, besides one for each poll: the least of some runs.
fn allocations(exec: &Executor, plan: &Plan) -> usize {
    let run = |_| {
        let (before, mut polls) = (ALLOCATIONS.load(SeqCst), 0);
        let mut run = exec.run(plan, inputs! { "x" => 1u64 });
        let counted = std::future::poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut run).poll(cx)
        });
        block_on(counted).unwrap();
        // The number of polls depends on the machine's speed.
        (ALLOCATIONS.load(SeqCst) - before).saturating_sub(polls)
    };
    (0..10).map(run).min().unwrap()
}

#[test]
fn a_warm_run_allocates_the_same_for_any_number_of_nodes() {
    let _alone = ALONE.lock();
    // Seen to fail with a chain of async nodes: each value that one of them reads is an Arc of its own.
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        for (plan_of, add) in [
            (chain as fn(usize, Add) -> Plan, TASK),
            (star, TASK),
            (chain, KERNEL),
            (star, KERNEL),
            (chain, TAKER),
            (star, FUTURE),
        ] {
            let (few, many) = (allocations(&exec, &plan_of(100, add)), allocations(&exec, &plan_of(10_000, add)));
            assert!(few <= 24 && many <= few + 8, "{few} for 100 nodes, {many} for 10,000, on {exec:?}");
        }
    }
}

/// A plan of nested loops and a branch, some of whose states are shared permanently.
fn looped(iterations: u64) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let (first, kept) = (g.task("first", &x, |x: &u64| *x), g.task("kept", &x, |x: &u64| *x));
    let (last, _) = g.repeat("outer", (take(&first), &kept), times(iterations), |b, (x, kept)| {
        let x = b.repeat("inner", take(&x), times(3), |b, x| TASK(b, "add".into(), &x));
        let which = b.task("which", &x, |x: &u64| i64::from(x.is_multiple_of(3)) - 1);
        let x = b.branch("branch", &which, take(&x)).arm(|a, x| TAKER(a, "add".into(), &x)).join();
        (b.task("sum", (&x, &kept), |x: &u64, kept: &u64| x + kept), kept)
    });
    g.output("x", &last);
    g.compile_with(&PerOperator).unwrap()
}

#[test]
fn iterations_allocate_nothing() {
    let _alone = ALONE.lock();
    // Seen to fail with a loop that shares its state: the output of a graph is an `Arc`, but only after the
    // end of the loop.
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        let (few, many) = (allocations(&exec, &looped(10)), allocations(&exec, &looped(1_000)));
        assert!(few <= 24 && many <= few + 8, "{few} for 10 iterations, {many} for 1,000, on {exec:?}");
    }
}

/// Returns how many bytes this thread allocates in the poll that starts a run.
fn bytes_of_first_poll(exec: &Executor, plan: &Plan) -> usize {
    block_on(async {
        let mut run = exec.run(plan, inputs! { "x" => 1u64 });
        let before = BYTES.get();
        let _ = poll!(&mut run);
        let bytes = BYTES.get() - before;
        let _ = run.await;
        bytes
    })
}

#[test]
fn a_poll_leaves_the_memory_of_a_run_to_the_workers() {
    let _alone = ALONE.lock();
    // Seen to fail with a frame that is made where the run is started.
    let exec = Executor::builder().workers(1).build().unwrap();
    for add in [TASK, FUTURE] {
        let (few, many) = (bytes_of_first_poll(&exec, &chain(100, add)), bytes_of_first_poll(&exec, &chain(10_000, add)));
        assert!(many <= few + 1024, "{few} bytes for 100 nodes, {many} for 10,000");
    }
}

/// A loop of three steps, and a future.
async fn steps(f: &Flow) -> Result<u64> {
    let mut x = f.value("x", 0_u64);
    while *f.get(&x).await? < 3 {
        x = f.task("add", &x, |x: &u64| x + 1);
    }
    let last = f.future("last", &x, |x: Arc<u64>| async move {
        tokio::task::yield_now().await;
        Ok(*x + 1)
    });
    Ok(*f.get(&last).await?)
}

#[test]
fn flows_grow_nothing_though_some_are_given_up() {
    let _alone = ALONE.lock();
    // Seen to fail (9 MB more) with variables that are never freed.
    for exec in [Executor::inline(), Executor::builder().workers(2).build().unwrap(), Executor::sim(1)] {
        let live_after = |flows: usize| {
            for number in 0..flows {
                let mut flow = Box::pin(exec.flow(steps));
                if number % 3 == 0 {
                    let _polled = block_on(async { poll!(&mut flow) });
                } else {
                    assert_eq!(block_on(flow).unwrap(), 4);
                }
            }
            // An abandoned operation may run a moment longer.
            block_on(exec.flow(async |f: &Flow| steps(f).await)).unwrap();
            LIVE.load(SeqCst)
        };
        let before = live_after(2000);
        let more = live_after(10_000) - before;
        assert!(more < 32_768, "{exec:?}: {more} bytes more");
    }
}

/// Seen to fail with `Name::from(&'static str)` that made a `String`.
#[test]
fn a_static_name_allocates_nothing() {
    let _alone = ALONE.lock();
    let before = BYTES.get();
    let name = std::hint::black_box(Name::from("a name"));
    let again = std::hint::black_box(name.clone());
    assert_eq!((&*again, BYTES.get() - before), ("a name", 0));
}

/// Returns the allocations of a pipeline for the given number of items, including its start: the least of
/// some runs.
fn of_items<T: Clone + Send + Sync + 'static>(exec: &Executor, pipeline: &Pipeline<T, T>, item: &T, items: usize) -> usize {
    let run = |_| {
        let mut results = exec.pipe(pipeline, stream::repeat(item.clone()).take(items));
        let before = ALLOCATIONS.load(SeqCst);
        (0..items).for_each(|_| assert!(block_on(results.next()).unwrap().is_ok()));
        ALLOCATIONS.load(SeqCst) - before
    };
    (0..10).map(run).min().unwrap()
}

/// Three tasks, the second of which has a state.
fn three<T: Clone + Send + Sync + 'static>() -> Pipeline<T, T> {
    let built = Pipeline::new("three", &Ranked::default(), |g: &mut Graph, item: Value<T>| {
        let mut count = g.state("count", || 0u64);
        let first = g.task("first", &item, |x: &T| x.clone());
        let second = g.task("second", (&mut count, &first), |count: &mut u64, x: &T| {
            *count += 1;
            x.clone()
        });
        g.task("third", take(&second), |x: T| x)
    });
    built.and_then(|built| built.phases(Phases::Each)).unwrap()
}

#[test]
fn an_item_of_a_warm_pipeline_allocates_nothing() {
    let _alone = ALONE.lock();
    // Seen to fail with a first task that allocates.
    let (small, large) = (three::<u64>(), three::<[u64; 128]>());
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        let [few, many] =
            [100, 10_000].map(|items| (of_items(&exec, &small, &1, items), of_items(&exec, &large, &[1; 128], items)));
        assert!(many.0 <= few.0 + 8 && many.1 <= few.1 + 8, "{few:?} for 100 items, {many:?} for 10,000, on {exec:?}");
    }
}
