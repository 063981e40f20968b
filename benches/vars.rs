//! Question: what does an operation on variables cost, compared with the same on a `tokio::sync::RwLock` for
//! each variable?
//!
//! Method: streams of small operations on numbers, pushed by one thread as fast as the engine takes them; a
//! figure is the time from the first push to the last end, divided by the operations. Inline, and on one and
//! two workers. The peer is a task for each operation on a runtime of as many threads, which holds an owned
//! guard of each variable; the guards are requested in the order of pushing, so its order is the same. At
//! most as many of its tasks are alive as operations may be pending. The two take turns, each with an untimed
//! pass before the timed one; a figure is the median of the rounds. A disturbed figure is measured again
//! (`run/quiet.rs`). How long a cache line takes from core to core is measured in each round, too: a virtual
//! machine's cores may move. Memory is that of 60,000 operations that cannot begin.
//!
//! ```text
//! cargo bench --bench vars                 prints the table
//! cargo bench --bench vars -- --write      and writes it into docs/performance/vars.md
//! ```

#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "vars/ours.rs"]
mod ours;
#[path = "vars/peer.rs"]
mod peer;
#[path = "run/quiet.rs"]
#[allow(dead_code)]
mod quiet;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;
#[path = "vars/workload.rs"]
mod workload;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;

use anabranch::{Engine, Error, Executor, Op};
use clap::Parser;
use futures::executor::block_on;

use crate::machine::{Machine, core_to_core_ns};
use crate::markers::Output;
use crate::ours::PENDING_MAX;
use crate::quiet::Quiet;
use crate::table::{Table, median};
use crate::workload::Workload;

const ROUNDS: usize = 9;

/// Measures the cost of operations on variables.
#[derive(Parser)]
struct Args {
    /// Operations of a round.
    #[arg(long, default_value_t = 200_000)]
    operations: usize,
    #[command(flatten)]
    output: Output,
}

/// Counts the bytes that are allocated.
struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::Relaxed) != 0 {
            BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if COUNTS.load(Ordering::Relaxed) != 0 {
            BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Whether bytes are counted: not while time is measured.
static COUNTS: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    let head =
        ["operations", "workers", "bulk", "ours, ns", "tokio's RwLock, ns", "ours/tokio's", "core to core, ns", "budget, ns"];
    let mut table = Table::new(head);
    let mut quiet = Quiet::default();
    for workload in Workload::all(args.operations) {
        // Operations that are awaited one by one are not joined.
        let joined = if workload.awaited.is_none() { &[(2, 10), (2, 100)][..] } else { &[] };
        for &(workers, bulk) in [(0, 1), (1, 1), (2, 1)].iter().chain(joined) {
            table.push(row(&workload, workers, bulk, &mut quiet));
        }
    }
    let text = format!(
        "{}\n\n{} operations a round, {ROUNDS} rounds, at most {PENDING_MAX} pending. In brackets the fastest round. {}\n\n{}\nA pending operation takes {:.0} bytes (budget ≤ 200).",
        machine.text(),
        args.operations,
        quiet.text(),
        table.markdown(),
        bytes_of_an_operation()
    );
    args.output.publish("bench:vars", &text);
}

/// Measures one line of the table.
fn row(workload: &Workload, workers: usize, bulk: usize, quiet: &mut Quiet) -> [String; 8] {
    let mut round = |_| {
        let mut take = |figure: &dyn Fn() -> f64| quiet.take(|| Some(figure())).unwrap_or(f64::NAN);
        [take(&|| ours::run(workload, workers, bulk)), take(&|| peer::run(workload, workers)), core_to_core_ns()]
    };
    let rounds: Vec<[f64; 3]> = (0..ROUNDS).map(&mut round).collect();
    let of = |which: usize| rounds.iter().map(|round| round[which]).collect::<Vec<f64>>();
    let (ours, fastest) = (median(&of(0)), of(0).into_iter().fold(f64::INFINITY, f64::min));
    let ratio = median(&rounds.iter().map(|round| round[0] / round[1]).collect::<Vec<_>>());
    let verdict = |budget: u64| format!("≤ {budget} {}", if ours <= budget as f64 { "met" } else { "missed" });
    let budget = if bulk == 1 { workload.budget_ns(workers) } else { None };
    [
        workload.name.to_owned(),
        if workers == 0 { "inline".to_owned() } else { workers.to_string() },
        bulk.to_string(),
        format!("{ours:.0} ({fastest:.0})"),
        format!("{:.0}", median(&of(1))),
        format!("{ratio:.3}"),
        format!("{:.0}", median(&of(2))),
        budget.map_or(String::new(), verdict),
    ]
}

fn bytes_of_an_operation() -> f64 {
    const OPERATIONS: usize = 60_000;
    let exec = Executor::builder().workers(1).build().expect("a thread starts");
    let engine = Engine::builder(&exec).max_pending(PENDING_MAX).build().expect("it has room");
    let (open, opened) = mpsc::channel::<()>();
    let x = engine.var("x", 0_u64);
    let hold = Op::task("hold", (), &x, move || opened.recv().map_or(0, |()| 1));
    engine.try_push(hold).map_err(Error::from).expect("it has room");
    COUNTS.store(1, Ordering::Relaxed);
    for _ in 0..OPERATIONS {
        let op = Op::task("op", &x, &x, |x: &u64| x + 1);
        engine.try_push(op).map_err(Error::from).expect("it has room");
    }
    let bytes = BYTES.load(Ordering::Relaxed) as f64 / OPERATIONS as f64;
    COUNTS.store(0, Ordering::Relaxed);
    drop(open);
    block_on(engine.idle()).expect("nothing fails");
    bytes
}
