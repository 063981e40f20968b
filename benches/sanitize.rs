//! Question: what does the stream sanitizer cost, and what does it cost when it is off?
//!
//! Method: a graph of kernels in layers of four. Each reads two buffers of the layer before and makes a new
//! one. The graph runs on a CUDA device without the sanitizer and with it, with every call made and as CUDA
//! graphs. It also runs on an inline executor, and on a simulated one, which always checks. A node's cost is
//! the time of a run divided by its nodes. The ways take turns. A figure is the median of the runs of a
//! round, then of the rounds; a ratio is the median of the rounds' ratios. Without a GPU, the software driver
//! is used, whose streams are threads.
//!
//! With `--only`, a single way is run, to count instructions:
//!
//! ```text
//! cargo bench --features cuda --bench sanitize
//! valgrind --tool=callgrind --toggle-collect='*Recording*Queue*launch*' sanitize-… --only calls --runs 20
//! ```

use std::time::Instant;

use anabranch::device::{In, Kernel, Launch, Out};
use anabranch::policy::PerOperator;
use anabranch::{Buffer, DeviceStream, Executor, Graph, Inputs, Plan, Value};
use anabranch_soft_cuda::{Client, Param};
use clap::Parser;
use futures::executor::block_on;

const ROUNDS: usize = 9;
const WIDTH: usize = 4;
const LEN: usize = 16;

/// Measures the cost of the stream sanitizer.
#[derive(Parser)]
struct Args {
    /// Layers of the graph, of four nodes each.
    #[arg(long, default_value_t = 25)]
    layers: usize,
    /// Runs of a round.
    #[arg(long, default_value_t = 51)]
    runs: usize,
    /// Runs one way only, and prints nothing: calls, checked-calls, graphs, checked-graphs, inline or
    /// simulated.
    #[arg(long)]
    only: Option<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

const ADD: &str =
    ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry sum(.param .u64 a, .param .u64 b, .param .u64 y) { ret; }\n";

fn main() {
    let args = Args::parse();
    // SAFETY: the call searches for a library with a well-known name.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        let client = match Client::beside_this_test() {
            Ok(client) => client,
            Err(no_driver) => return println!("skipped: no CUDA driver, and {no_driver}"),
        };
        client.register_kernel("sum", &[Param::READ, Param::READ, Param::WRITE], |_| ());
        client.device(0).track_races(false);
    }
    let plan = graph(args.layers).compile_with(&PerOperator).expect("it is a valid graph");
    if let Some(only) = &args.only {
        let exec = executor(only);
        (0..args.runs).for_each(|_| run(&exec, &plan));
        return;
    }
    println!("{} kernels, {} runs a round, {ROUNDS} rounds; ns a node", args.layers * WIDTH, args.runs);
    for (off, on) in [("calls", "checked-calls"), ("graphs", "checked-graphs"), ("inline", "simulated")] {
        let execs = [executor(off), executor(on)];
        let round = |exec: &Executor| median((0..args.runs).map(|_| timed(exec, &plan, args.layers * WIDTH)).collect());
        execs.iter().for_each(|exec| _ = round(exec));
        let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [round(&execs[0]), round(&execs[1])]).collect();
        let of = |figure: fn(&[f64; 2]) -> f64| median(rounds.iter().map(figure).collect());
        let (without, with, ratio) = (of(|round| round[0]), of(|round| round[1]), of(|round| round[1] / round[0]));
        println!("{off} {without:.0}, {on} {with:.0}, ratio {ratio:.2}");
    }
}

fn executor(way: &str) -> Executor {
    let cuda = |has_graphs, is_checked| {
        Executor::builder().workers(1).cuda(&[0]).cuda_graphs(has_graphs).sanitize(is_checked).build().expect("a device opens")
    };
    match way {
        "calls" => cuda(false, false),
        "checked-calls" => cuda(false, true),
        "graphs" => cuda(true, false),
        "checked-graphs" => cuda(true, true),
        "inline" => Executor::inline(),
        _ => Executor::sim(7),
    }
}

/// Layers of sums, each of two of the layer before.
fn graph(layers: usize) -> Graph {
    // SAFETY: the kernel has these parameters, and accesses no memory.
    let kernel = unsafe { Kernel::<(In<f32>, In<f32>, Out<f32>)>::ptx("sum", ADD) }.twin(|_, _| ());
    let mut graph = Graph::new();
    let alloc = |s: &mut DeviceStream| Ok(s.alloc::<f32>(LEN)?);
    let mut layer: Vec<Value<Buffer<f32>>> = (0..WIDTH).map(|node| graph.try_kernel(format!("0.{node}"), (), alloc)).collect();
    for number in 1..layers {
        let next = |node: usize| {
            let (kernel, pair) = (kernel.clone(), (&layer[node], &layer[(node + 1) % WIDTH]));
            let sum = move |s: &mut DeviceStream, a: &Buffer<f32>, b: &Buffer<f32>| {
                let mut y = s.alloc::<f32>(LEN)?;
                s.launch(&kernel, Launch::for_len(LEN), (a, b, &mut y))?;
                Ok(y)
            };
            graph.try_kernel(format!("{number}.{node}"), pair, sum)
        };
        layer = (0..WIDTH).map(next).collect();
    }
    let last = graph.try_kernel("last", &layer[..], |_: &mut DeviceStream, _: anabranch::graph::Each<'_, Buffer<f32>>| Ok(()));
    graph.output("last", &last);
    graph
}

fn run(exec: &Executor, plan: &Plan) {
    block_on(exec.run(plan, Inputs::new())).expect("no node fails");
}

fn timed(exec: &Executor, plan: &Plan, nodes: usize) -> f64 {
    let start = Instant::now();
    run(exec, plan);
    start.elapsed().as_nanos() as f64 / nodes as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
