//! How long one poll of a task occupies its thread while the task awaits small work, and when a node suddenly
//! takes a thousand times as long.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anabranch::policy::Single;
use anabranch::{Engine, Executor, Graph, Inputs, Op, Plan, Value};
use futures::executor::block_on;

use crate::table::Table;
use crate::work::Work;

const CHAINS: usize = 1000;
const TIMES: u32 = 20_000;
/// In units of work: 50 ns, and a thousand times as long.
const CHEAP: u64 = 1;
const DEAR: u64 = 1000;

/// Returns the table of polls.
pub(crate) fn table(work: Work) -> Table {
    let mut table = Table::new(["a task that awaits", "workers", "polls", "median, µs", "99.9 %", "second longest", "longest"]);
    for workers in [0, 2] {
        let exec = Executor::builder().workers(workers).build().expect("threads start");
        let name = if workers == 0 { "inline".to_owned() } else { workers.to_string() };
        let mut push = |what: &str, polls: Vec<u64>| {
            let at = |place: usize| format!("{:.1}", polls[place.min(polls.len() - 1)] as f64 / 1e3);
            let last = polls.len() - 1;
            let cells = [at(last / 2), at(polls.len() * 999 / 1000), at(last.saturating_sub(1)), at(last)];
            let [median, most, second, longest] = cells;
            table.push([what.to_owned(), name.clone(), polls.len().to_string(), median, most, second, longest]);
        };
        let large = mixed(work);
        push("a run of 10⁶ nodes of 50 ns, one in a thousand of 20 µs", polls(exec.run(&large, Inputs::new())));
        push("20,000 runs of ten nodes of 50 ns; in the second half one takes 50 µs", polls(runs(&exec, work)));
        push("20,000 operations of 50 ns; in the second half they take 50 µs", polls(operations(&exec, work)));
    }
    table
}

/// Returns the ns of every poll of a task, the longest last.
fn polls(task: impl Future) -> Vec<u64> {
    let (mut task, mut polls) = (pin!(task), Vec::new());
    block_on(std::future::poll_fn(|cx| {
        let start = Instant::now();
        let polled = task.as_mut().poll(cx);
        polls.push(start.elapsed().as_nanos() as u64);
        polled.map(drop)
    }));
    polls.sort_unstable();
    polls
}

fn chain(g: &mut Graph, nodes: usize, name: usize, work: impl Fn(usize) + Clone + Send + Sync + 'static) {
    let mut before: Option<Value<()>> = None;
    for number in 0..nodes {
        let (work, name) = (work.clone(), format!("{name}.{number}"));
        before = Some(match &before {
            Some(before) => g.task(name, before, move |_: &()| work(number)),
            None => g.task(name, (), move || work(number)),
        });
    }
}

fn mixed(work: Work) -> Plan {
    let mut g = Graph::new();
    (0..CHAINS).for_each(|name| chain(&mut g, 1_000_000 / CHAINS, name, move |at| work.run(if at == 500 { 400 } else { 1 })));
    g.compile().expect("it is right")
}

async fn runs(exec: &Executor, work: Work) {
    let units = Arc::new(AtomicU64::new(CHEAP));
    let plan = {
        let (mut g, units) = (Graph::new(), units.clone());
        chain(&mut g, 10, 0, move |at| work.run(if at == 5 { units.load(Relaxed) } else { CHEAP }));
        g.compile_with(&Single).expect("it is right")
    };
    for number in 0..TIMES {
        units.store(if number < TIMES / 2 { CHEAP } else { DEAR }, Relaxed);
        exec.run(&plan, Inputs::new()).await.expect("no node fails");
    }
}

async fn operations(exec: &Executor, work: Work) {
    let engine = Engine::new(exec).expect("there is room");
    let x = engine.var("x", 0_u64);
    for number in 0..TIMES {
        let units = if number < TIMES / 2 { CHEAP } else { DEAR };
        let op = Op::task("op", &x, &x, move |x: &u64| {
            work.run(units);
            x + 1
        });
        engine.push(op).await.expect("it is right").await.expect("it does not fail");
    }
}
