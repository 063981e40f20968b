//! Question: how long does it take to plan a graph for many ranks, to prove the plan, and to simulate it?
//!
//! Method: two graphs. In *solver*, all ranks run the same 16 nodes: a step with messages to both neighbours
//! and two all-reduces. In *grid*, each rank has 10 nodes of its own, and reads values of both neighbours.
//! Each round is a process of its own, because a program plans once: a second plan would find memory that the
//! first one has left, and those of few ranks would find it in the caches. Times are medians of five rounds.
//!
//! ```text
//! cargo bench --bench ranks                 prints the table
//! cargo bench --bench ranks -- --write      and writes it into docs/performance/ranks.md
//! valgrind --tool=callgrind target/release/deps/ranks-... --once grid 1000
//! ```
#![allow(clippy::unwrap_used)]

#[path = "../run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "../run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anabranch::Ranked;
use anabranch::graph::{Backend, Communication, Exchange, NodeId, Peer, Ranks, Shape};
use anabranch::sim::{Links, Simulation};
use clap::Parser;

use crate::markers::Output;
use crate::table::{Table, median};

const ROUNDS: usize = 5;

/// Plans graphs for many ranks.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    output: Output,
    /// Does one round and prints its times. To count its instructions, too.
    #[arg(long, num_args = 2, value_names = ["GRAPH", "RANKS"])]
    once: Vec<String>,
}

/// Makes a graph for so many ranks.
type Make = fn(u32) -> Shape;

/// The graphs, by name.
const GRAPHS: [(&str, Make); 2] = [("solver", solver), ("grid", grid)];

fn main() {
    let args = Args::parse();
    if let [graph, ranks] = &args.once[..] {
        let (_, shape) = GRAPHS.iter().find(|(name, _)| name == graph).expect("the graphs are `solver` and `grid`");
        let ranks = ranks.parse().expect("a number of ranks");
        println!("{}", round(&shape(ranks), ranks).map(|ms| ms.to_string()).join(" "));
        return;
    }
    let mut table =
        Table::new(["graph", "ranks", "schedules, ms", "proof, ms", "simulation, ms", "schedules, µs a rank", "all, µs a rank"]);
    for (name, _) in GRAPHS {
        for ranks in [10, 100, 1_000, 10_000] {
            let rounds: Vec<[f64; 3]> = (0..ROUNDS).map(|_| in_own_process(name, ranks)).collect();
            let times = [0, 1, 2].map(|at| median(&rounds.iter().map(|round| round[at]).collect::<Vec<_>>()));
            let each = |ms: f64| format!("{:.1}", 1e3 * ms / f64::from(ranks));
            let [plan, proof, simulation] = times.map(|time| format!("{time:.2}"));
            table.push([name.to_owned(), ranks.to_string(), plan, proof, simulation, each(times[0]), each(times.iter().sum())]);
        }
    }
    args.output.publish("bench:ranks", &table.markdown());
}

/// Returns what [`round`] returns in a process of its own: a program plans once.
fn in_own_process(graph: &str, ranks: u32) -> [f64; 3] {
    let output = Command::new(std::env::current_exe().unwrap()).args(["--once", graph, &ranks.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let times: Vec<f64> = String::from_utf8_lossy(&output.stdout).split_whitespace().map(|ms| ms.parse().unwrap()).collect();
    times.try_into().unwrap()
}

/// Returns the times for the schedules, their proof, and the simulation, in milliseconds.
fn round(shape: &Shape, ranks: u32) -> [f64; 3] {
    let begin = Instant::now();
    let schedules = shape.schedule_ranks(ranks, &Ranked::default()).unwrap();
    let planned = Instant::now();
    schedules.verify().unwrap();
    let proved = Instant::now();
    let log = Simulation::of_ranks(&schedules, &Links::default()).unwrap().run().unwrap();
    assert!(log.makespan_us() > 0.0);
    [planned - begin, proved - planned, proved.elapsed()].map(|time| 1e3 * time.as_secs_f64())
}

fn node(shape: &mut Shape, name: String, bytes: u64, before: &[NodeId]) -> NodeId {
    let node = shape.node(name, Backend::Cpu);
    before.iter().for_each(|&before| shape.read(before, 0, node));
    shape.nodes_mut()[node.index()].bytes = Some(bytes);
    node
}

fn exchange(shape: &mut Shape, name: &str, bytes: u64, exchange: Exchange, before: &[NodeId]) -> NodeId {
    let node = node(shape, name.to_owned(), bytes, before);
    shape.nodes_mut()[node.index()].communication = Some(Arc::new(Communication::new(exchange)));
    node
}

fn solver(_: u32) -> Shape {
    let mut g = Shape::new();
    let rows = node(&mut g, "rows".into(), 1 << 20, &[]);
    let x = node(&mut g, "x".into(), 1 << 13, &[]);
    let sum = || Exchange::AllReduce { operator: "+".into() };
    exchange(&mut g, "up", 1 << 13, Exchange::SendTo { to: Peer::next() }, &[x]);
    exchange(&mut g, "down", 1 << 13, Exchange::SendTo { to: Peer::previous() }, &[x]);
    let below = exchange(&mut g, "below", 1 << 13, Exchange::RecvFrom { from: Peer::previous() }, &[]);
    let above = exchange(&mut g, "above", 1 << 13, Exchange::RecvFrom { from: Peer::next() }, &[]);
    let inner = node(&mut g, "inner".into(), 1 << 13, &[rows, x]);
    let edges = node(&mut g, "edges".into(), 1 << 13, &[rows, below, above]);
    let dot = node(&mut g, "dot".into(), 8, &[inner, edges, x]);
    let alpha = exchange(&mut g, "alpha", 8, sum(), &[dot]);
    let next = node(&mut g, "next".into(), 1 << 13, &[x, alpha]);
    let residual = node(&mut g, "residual".into(), 1 << 13, &[inner, edges, alpha]);
    let norm = node(&mut g, "norm".into(), 8, &[residual]);
    let beta = exchange(&mut g, "beta", 8, sum(), &[norm]);
    node(&mut g, "direction".into(), 1 << 13, &[residual, beta]);
    node(&mut g, "step".into(), 1 << 13, &[next, beta]);
    g
}

fn grid(ranks: u32) -> Shape {
    let mut g = Shape::new();
    let mut last: Vec<NodeId> = Vec::new();
    for step in 0..2_u32 {
        let mut next = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks {
            let near = rank.saturating_sub(1)..(rank + 2).min(ranks);
            let before: Vec<NodeId> = near.filter_map(|at| last.get(at as usize).copied()).collect();
            let mut at = node(&mut g, format!("{step}.{rank}"), 1 << 13, &before);
            g.nodes_mut()[at.index()].ranks = Some(Ranks::One(rank));
            for n in 0..4 {
                at = node(&mut g, format!("{step}.{rank}.{n}"), 1 << 13, &[at]);
                g.nodes_mut()[at.index()].ranks = Some(Ranks::One(rank));
            }
            next.push(at);
        }
        last = next;
    }
    g
}
