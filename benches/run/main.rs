//! Question: what does a node of a graph cost here, compared with other schedulers?
//!
//! Method: five shapes of graph, each built once and run many times by each peer. A figure is the time of a
//! whole run, from its start to the last node's end, divided by the number of nodes; a peer's figure of a
//! round is the median over its runs, after one to warm up. Rounds interleave the peers, so that the
//! machine's noise hits all of them alike; the tables give the median over the rounds and, in brackets, the
//! smallest and the largest. Figures that were taken while other processes kept the machine busy are measured
//! again.
//!
//! ```text
//! cargo bench --bench run -- --quick             10⁴ nodes only: the sizes that the budgets are about
//! cargo bench --bench run -- --write             everything, and the report into docs/performance/run.md
//! cargo bench --bench run -- --growth --write    growth alone, with workers kept busy
//! ```

#[path = "../peers/cpp.rs"]
mod cpp;
mod growth;
mod job;
mod once;
mod ours;
mod peers;
mod quiet;
mod report;
mod shapes;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use indicatif::ProgressBar;

use crate::peers::{Load, Payload, Peer, Workers};
use crate::quiet::Quiet;
use crate::report::markers::{self, Output};
use crate::report::{Case, Report, Row};
use crate::shapes::{Form, Shape};

/// The node count that the budgets are about: work is measured at no other.
const BUDGET_SIZE: usize = 10_000;
/// The duration of a node with work, and the number of workers for it.
const WORK_NS: u64 = 5_000;
const WORK_WORKERS: Workers = Workers::Threads(2);

/// The largest graph that a slow peer runs.
const SLOW_SIZE_MAX: usize = 100_000;
/// Nodes that a peer, and a slow peer, runs per round: as many runs as that takes.
const NODES_PER_ROUND: usize = 1_000_000;
const SLOW_NODES_PER_ROUND: usize = 200_000;
/// Time that the nodes' work may add to a round, which limits the runs with work.
const WORK_PER_ROUND_NS: u64 = 150_000_000;
const RUNS_MIN: usize = 3;
const RUNS_MAX: usize = 20_000;

/// Where `--write` puts the report, and that on growth.
const MARKERS: &str = "bench:run";
const GROWTH_MARKERS: &str = "bench:growth";

/// Measures the cost of a node, compared with other schedulers.
#[derive(Parser)]
struct Args {
    /// Only graphs of 10^4 nodes.
    #[arg(long, conflicts_with = "sizes")]
    quick: bool,
    /// Node counts.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_values_t = Form::ALL)]
    shapes: Vec<Form>,
    /// Threads that run nodes; `inline` is the thread that waits for the run.
    #[arg(long, value_delimiter = ',', default_values_t = [Workers::Inline, Workers::Threads(1), Workers::Threads(2)])]
    workers: Vec<Workers>,
    /// Peers by name; all unless given.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only how the cost of a node of ours grows with the graph, workers kept busy.
    #[arg(long, conflicts_with_all = ["quick", "peers"])]
    growth: bool,
    #[command(flatten)]
    output: Output,
}

fn main() {
    let mut args = Args::parse();
    if args.quick {
        args.sizes = vec![BUDGET_SIZE];
    }
    let markers = if args.growth { GROWTH_MARKERS } else { MARKERS };
    if let Some(path) = args.output.file(markers) {
        // Checked before minutes of measuring.
        markers::outside(&path, markers).map(drop).unwrap_or_else(|error| refuse(error));
    }
    let text = if args.growth { growth::report(&args) } else { report(&args) };
    args.output.publish(markers, &text);
}

/// Measures all peers.
fn report(args: &Args) -> String {
    let mut peers = peers::all();
    peers.retain(|peer| args.peers.is_empty() || args.peers.iter().any(|name| name == peer.name()));
    peers.iter().filter_map(|peer| peer.missing()).for_each(|hint| eprintln!("{hint}"));

    let mut report = Report::new(&peers, args.rounds);
    // The fixed cost of a run, shown by a chain of one node.
    let one_node = measure_size(args, 1, &[Form::Chain], &mut peers, &mut report.quiet);
    report.rows.extend(one_node);
    for &size in &args.sizes {
        let rows = measure_size(args, size, &args.shapes, &mut peers, &mut report.quiet);
        report.rows.extend(rows);
    }
    if peers.iter().any(|peer| peer.name() == ours::NAME) {
        report.once = Some((once::one_node_ns(), once::drop_in_flight_us(), once::drop_many(60_000)));
    }
    report.text()
}

fn refuse(error: String) -> ! {
    Args::command().error(ErrorKind::Io, error).exit()
}

/// Runs all rounds of one size. No other graphs are in memory meanwhile.
fn measure_size(args: &Args, size: usize, forms: &[Form], peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> Vec<Row> {
    let shapes: Vec<Shape> = forms.iter().map(|form| form.shape(size)).collect();
    let cases: Vec<(&Shape, Case)> = shapes.iter().flat_map(|shape| cases(args, size).map(move |case| (shape, case))).collect();
    let mut rows: Vec<Row> = cases.iter().map(|(shape, case)| Row::new(shape, *case, peers.len())).collect();
    let progress = ProgressBar::new((args.rounds * rows.len() * peers.len()) as u64);
    for round in 0..args.rounds {
        for (row, (shape, case)) in rows.iter_mut().zip(&cases) {
            // The order rotates: each peer comes first in some round.
            for turn in 0..peers.len() {
                let column = (round + turn) % peers.len();
                let figure = quiet.take(|| figure(peers[column].as_mut(), shape, case, round == 0));
                row.figures[column].extend(figure);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    rows
}

/// Returns the cases of one shape: every payload at all sizes, work at the size that has a budget for it.
fn cases(args: &Args, size: usize) -> impl Iterator<Item = Case> {
    let all = args.workers.iter().copied();
    let payloads: &[Payload] = if size == 1 { &[Payload::Empty] } else { &[Payload::Empty, Payload::Assorted, Payload::Values] };
    let without_work = payloads.iter().flat_map(move |&payload| {
        let case = move |workers| Case { size, workers, payload, work_ns: 0 };
        args.workers.iter().copied().map(case)
    });
    let working = all.filter(move |&workers| size == BUDGET_SIZE && workers == WORK_WORKERS);
    let with_work = working.map(move |workers| Case { size, workers, payload: Payload::Empty, work_ns: WORK_NS });
    without_work.chain(with_work)
}

fn figure(peer: &mut dyn Peer, shape: &Shape, case: &Case, is_first_round: bool) -> Option<f64> {
    let is_slow = peer.is_slow();
    let is_ours_alone = case.payload == Payload::Assorted;
    if is_slow && case.size > SLOW_SIZE_MAX || is_ours_alone && peer.name() != ours::NAME {
        return None;
    }
    let nodes = if is_slow { SLOW_NODES_PER_ROUND } else { NODES_PER_ROUND };
    let affordable = WORK_PER_ROUND_NS.checked_div(case.work_ns).map_or(nodes, |worked| nodes.min(worked as usize));
    let runs = (affordable / shape.len()).clamp(RUNS_MIN, RUNS_MAX);
    let Case { workers, payload, work_ns, .. } = *case;
    peer.run(shape, &Load { workers, payload, work_ns, runs, is_checked: is_first_round })
}
