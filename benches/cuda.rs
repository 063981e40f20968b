//! Question: what does a node of a graph on a CUDA device cost the host, compared with the same calls written
//! by hand with cudarc?
//!
//! Method: the five shapes of `benches/run`, every node an empty kernel, planned by two policies. Ours is a
//! run of the plan, once by default (as CUDA graphs from the second run on) and once with every call made. By
//! hand, the plan's own steps (launches, records, waits, in issue order, on as many streams) are calls of
//! `cudarc::driver::result`, or one graph of all nodes, built before. All record the time of their first
//! launch, and the time when the last of the work is submitted. Ours records the latter in a run of one host
//! node, which the only worker runs then; the run is repeated if it came too early. The difference, divided
//! by the nodes, is a node's cost. The ways take turns. A figure is the median of the runs of a round, then
//! of the rounds; a ratio is the median of the rounds' ratios.
//!
//! Without a GPU, the software driver is used, whose streams are threads. There the first operation of a run
//! is stalled until all is submitted. Otherwise the streams would take the host's cores, and their wakes
//! would cost more than the calls that are compared.
//!
//! ```text
//! cargo bench --features cuda --bench cuda                 prints the tables
//! cargo bench --features cuda --bench cuda -- --write      and writes them into docs/performance/cuda.md
//! ```

#[path = "cuda/by_hand.rs"]
mod by_hand;
#[path = "cuda/driver.rs"]
mod driver;
#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/shapes.rs"]
#[allow(dead_code)]
mod shapes;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use anabranch::device::{Kernel, Launch};
use anabranch::policy::{CriticalPath, Policy, Single};
use anabranch::{DeviceStream, Executor, Graph, Inputs, Plan, Value};
use anabranch_soft_cuda::{Device, Param, Which};
use clap::Parser;
use futures::executor::block_on;

use crate::by_hand::ByHand;
use crate::machine::Machine;
use crate::markers::Output;
use crate::shapes::{Form, Shape};
use crate::table::{Table, median};

/// Streams of a device, as the library has them.
const STREAMS: u32 = 8;
const ROUNDS: usize = 9;

/// Measures the host's cost of nodes on a CUDA device.
#[derive(Parser)]
struct Args {
    /// Nodes of a graph.
    #[arg(long, default_value_t = 400)]
    nodes: usize,
    /// Runs of a round.
    #[arg(long, default_value_t = 51)]
    runs: usize,
    /// The GPU's ordinal. Without a GPU it is one of the software driver's.
    #[arg(long, default_value_t = 0)]
    ordinal: u32,
    #[command(flatten)]
    output: Output,
}

/// When the submission of a run began and ended.
pub(crate) struct Stamps {
    origin: Instant,
    launches: AtomicUsize,
    nodes: AtomicUsize,
    first_ns: AtomicU64,
    end_ns: AtomicU64,
}

pub(crate) static STAMPS: LazyLock<Stamps> = LazyLock::new(|| Stamps {
    origin: Instant::now(),
    launches: AtomicUsize::new(0),
    nodes: AtomicUsize::new(0),
    first_ns: AtomicU64::new(0),
    end_ns: AtomicU64::new(0),
});

impl Stamps {
    /// Records the launch of one node.
    pub(crate) fn launched(&self) {
        if self.launches.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_ns.store(self.origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Records that all nodes are launched at once.
    pub(crate) fn launched_all(&self) {
        self.first_ns.store(self.origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.launches.store(self.nodes.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records that all is submitted. Does nothing if a node is not launched yet, because the worker gave
    /// way; the caller then calls again.
    pub(crate) fn submitted(&self) {
        if self.launches.load(Ordering::Relaxed) < self.nodes.load(Ordering::Relaxed) {
            return;
        }
        self.end_ns.store(self.origin.elapsed().as_nanos() as u64, Ordering::Release);
    }

    fn reset(&self, nodes: usize) {
        self.nodes.store(nodes, Ordering::Relaxed);
        self.end_ns.store(0, Ordering::Relaxed);
        self.launches.store(0, Ordering::Release);
    }

    /// Returns the ns per node, once all is submitted.
    fn node_ns(&self) -> Option<f64> {
        let end = Some(self.end_ns.load(Ordering::Acquire)).filter(|&end| end > 0)?;
        Some((end - self.first_ns.load(Ordering::Relaxed)) as f64 / self.nodes.load(Ordering::Relaxed) as f64)
    }
}

/// A kernel that does nothing. It has a parameter so that a launch has one.
pub(crate) const NOTHING: &str =
    ".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry nothing(.param .u32 n) { ret; }\n";

fn main() {
    let args = Args::parse();
    let software = driver::software();
    let soft = software.map(|client| {
        client.register_kernel("nothing", &[Param::scalar::<u32>()], |_| ());
        client.device(args.ordinal).track_races(false);
        client.device(args.ordinal)
    });
    let columns = [
        "shape",
        "policy",
        "streams",
        "waits",
        "by hand, ns/node",
        "our calls",
        "ours",
        "one graph by hand",
        "our calls/by hand",
        "ours/by hand",
    ];
    let mut table = Table::new(columns);
    for form in Form::ALL {
        for policy in [&Single as &dyn Policy, &CriticalPath::default().streams(STREAMS)] {
            let plan = graph(&form.shape(args.nodes)).compile_with(policy).expect("shapes are valid graphs");
            let Figures { ns, calls_by_hand, ours_by_hand } = compare(&args, &plan, soft.as_ref());
            let schedule = plan.schedule();
            let counts = [schedule.streams().to_string(), schedule.waits().to_string()];
            let cells = [form.to_string(), schedule.policy().to_owned()].into_iter().chain(counts);
            let times = ns.map(|ns| format!("{ns:.0}"));
            let ratios = [calls_by_hand, ours_by_hand].map(|ratio| format!("{ratio:.3}"));
            table.push(cells.chain(times).chain(ratios));
        }
    }
    let text = format!(
        "{} Over {}.\n\nGraphs of {} empty kernels, {} runs a round, {ROUNDS} rounds.\n\n{}",
        Machine::now().text(),
        driver::name(software.as_ref()),
        args.nodes,
        args.runs,
        table.markdown()
    );
    args.output.publish("bench:cuda", &text);
}

/// A graph of empty kernels with the edges of `shape`.
fn graph(shape: &Shape) -> Graph {
    // SAFETY: the kernel has this parameter, and accesses no memory.
    let kernel = unsafe { Kernel::<(u32,)>::ptx("nothing", NOTHING) };
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<()>> = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let kernel = kernel.clone();
        let launch = move |s: &mut DeviceStream| {
            STAMPS.launched();
            Ok(s.launch(&kernel, Launch::for_len(1), (7,))?)
        };
        let value = graph.try_kernel(node.to_string(), (), launch);
        shape.preds(node).iter().for_each(|&pred| graph.order(&nodes[pred as usize], &value));
        nodes.push(value);
    }
    graph
}

struct Figures {
    /// Of a node: by hand, by our calls, ours, and by hand as one graph.
    ns: [f64; 4],
    calls_by_hand: f64,
    ours_by_hand: f64,
}

/// `soft` is the device if it is one of the software driver's.
fn compare(args: &Args, plan: &Plan, soft: Option<&Device>) -> Figures {
    let exec = |has_graphs| {
        Executor::builder().workers(1).cuda(&[args.ordinal]).cuda_graphs(has_graphs).build().expect("a device opens")
    };
    let (calls, ours) = (exec(false), exec(true));
    let hand = ByHand::new(args.ordinal, plan.schedule());
    let nodes = plan.schedule().order().len();
    let behind = host_node();
    let by_hand = |submit: &dyn Fn(&ByHand), streams| {
        submit(&hand);
        let node_ns = STAMPS.node_ns().expect("it is submitted");
        release(soft);
        hand.wait(streams);
        node_ns
    };
    let by = |exec: &Executor| {
        let mut run = exec.run(plan, Inputs::new());
        let polled = Pin::new(&mut run).poll(&mut Context::from_waker(Waker::noop()));
        let node_ns = loop {
            block_on(exec.run(&behind, Inputs::new())).expect("no node fails");
            if let Some(node_ns) = STAMPS.node_ns() {
                break node_ns;
            }
        };
        release(soft);
        if polled.is_pending() {
            block_on(run).expect("no node fails");
        }
        node_ns
    };
    let one = |run: &dyn Fn() -> f64| {
        STAMPS.reset(nodes);
        soft.into_iter().for_each(|device| device.stall_operation(Which::Any, 1));
        run()
    };
    let round = |run: &dyn Fn() -> f64| median(&(0..args.runs).map(|_| one(run)).collect::<Vec<_>>());
    let all = STREAMS as usize;
    let ways: [&dyn Fn() -> f64; 4] =
        [&|| by_hand(&ByHand::submit, all), &|| by(&calls), &|| by(&ours), &|| by_hand(&ByHand::submit_graph, 1)];
    ways.into_iter().for_each(|run| _ = round(run));
    let rounds: Vec<[f64; 4]> = (0..ROUNDS).map(|_| ways.map(round)).collect();
    let of = |figure: fn(&[f64; 4]) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    Figures {
        ns: [of(|round| round[0]), of(|round| round[1]), of(|round| round[2]), of(|round| round[3])],
        calls_by_hand: of(|round| round[1] / round[0]),
        ours_by_hand: of(|round| round[2] / round[0]),
    }
}

/// A graph whose only node records that the worker has reached it.
fn host_node() -> Plan {
    let mut graph = Graph::new();
    let node = graph.task("submitted", (), || STAMPS.submitted());
    graph.output("submitted", &node);
    graph.compile_with(&Single).expect("it is a valid graph")
}

fn release(soft: Option<&Device>) {
    soft.into_iter().for_each(|device| device.release_stall());
}
