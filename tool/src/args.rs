//! The arguments of the tool.

use std::path::{Path, PathBuf};

use anabranch::Ranked;
use anabranch::policy::{CriticalPath, MinStreams, PerBackend, PerOperator, Policy, ReadySet, Single};
use anabranch::sim::{Links, Slots};
use clap::{Args as Group, Parser, Subcommand, ValueEnum};

use crate::Failure;

/// Plans, simulates, verifies and compares graphs of GPU and CPU work.
///
/// A graph is a JSON file; '-' is the standard input. Of a node, `name` and `backend` (cpu, mixed, gpu) must
/// be given:
///
///   {"name": "example",
///    "nodes": [
///      {"name": "a", "backend": "gpu"},
///      {"name": "b", "backend": "cpu", "inputs": [{"node": "a", "output": 0, "memory": "gpu", "metadata": false}]},
///      {"name": "c", "backend": "gpu", "devices": [0, 1], "command": "allreduce", "cost_us": 12.5,
///       "inputs": [{"node": "b"}], "after": ["a"]}],
///    "edges": [["a", "b"]],
///    "outputs": [{"node": "c", "output": 0}]}
///
/// `after` and `edges` are order-only; `cost_us` is 1 if not given; docs/graph-json.md has every key.
#[derive(Parser)]
#[command(
    name = "anabranch",
    version,
    verbatim_doc_comment,
    after_help = "Exit codes: 0 done, 1 the graph, the plan or the description is not valid, 2 wrong usage, or a file that cannot be read or written.\n\nExamples:\n  \
    anabranch plan graph.json --policy ranked --max-streams 4\n  \
    anabranch plan graph.json --format svg -o plan.svg\n  \
    anabranch simulate graph.json --policy per-operator --seed 7 --format perfetto -o trace.json\n  \
    anabranch verify graph.json --plan plan.json\n  \
    anabranch compare graph.json --format svg -o policies.svg\n  \
    anabranch plan graph.json --ranks 4 --format svg -o ranks.svg\n  \
    anabranch pipeline camera.app.json --auto 3\n  \
    anabranch stream scope.json"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Gives every node its stream, and prints the programs.
    #[command(
        after_help = "Examples:\n  anabranch plan graph.json\n  anabranch plan graph.json --policy min-streams --format dot | dot -Tpng > plan.png"
    )]
    Plan {
        #[command(flatten)]
        graph: GraphArgs,
        #[command(flatten)]
        ranks: RankArgs,
        /// The format; without it, text, or the format of OUT's extension.
        #[arg(long, value_enum)]
        format: Option<PlanFormat>,
        /// Writes to a file.
        #[arg(short, long, value_name = "OUT")]
        out: Option<PathBuf>,
    },
    /// Carries the programs out in virtual time, and prints each event with its time.
    #[command(
        after_help = "Examples:\n  anabranch simulate graph.json --compute 4\n  anabranch simulate graph.json --seed 7 --format svg -o run.svg"
    )]
    Simulate {
        #[command(flatten)]
        graph: GraphArgs,
        #[command(flatten)]
        machine: MachineArgs,
        #[command(flatten)]
        ranks: RankArgs,
        /// Draws the next node from this seed, where several are possible. Without it they come in the plan's
        /// order.
        #[arg(long)]
        seed: Option<u64>,
        /// Makes the choices of an earlier simulation, as its last line printed them: 0,2,1.
        #[arg(long, value_delimiter = ',', value_name = "CHOICES", conflicts_with = "seed")]
        replay: Option<Vec<u32>>,
        /// Runs every order that the programs allow, at most this many, looks for races, and reports the
        /// number of orders.
        #[arg(long, value_name = "ORDERS", conflicts_with_all = ["seed", "replay", "format"], value_parser = clap::value_parser!(u64).range(1..))]
        explore: Option<u64>,
        /// The format; without it, text, or the format of OUT's extension.
        #[arg(long, value_enum)]
        format: Option<SimulateFormat>,
        /// Writes to a file.
        #[arg(short, long, value_name = "OUT")]
        out: Option<PathBuf>,
    },
    /// Checks that a plan keeps every edge and has no redundant wait: of a policy, of all, or from a file.
    #[command(
        after_help = "Examples:\n  anabranch verify graph.json\n  anabranch plan graph.json --format json -o plan.json && anabranch verify graph.json --plan plan.json"
    )]
    Verify {
        /// The graph, as JSON.
        file: PathBuf,
        /// Checks the plan of this policy only.
        #[arg(long, value_enum, conflicts_with = "plan")]
        policy: Option<PolicyName>,
        #[command(flatten)]
        ranks: RankArgs,
        /// Checks a plan that `anabranch plan --format json` has printed. Only its streams and programs are
        /// read.
        #[arg(long, value_name = "PLAN")]
        plan: Option<PathBuf>,
    },
    /// Plans the graph with every policy and simulates each: streams, waits, makespan, use of the streams.
    #[command(after_help = "Example:\n  anabranch compare graph.json --max-streams 4 --hand-off-us 2")]
    Compare {
        /// The graph, as JSON.
        file: PathBuf,
        /// The most streams of `ranked`, and of `critical-path` on each device.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        max_streams: Option<u32>,
        #[command(flatten)]
        machine: MachineArgs,
        /// The format; without it, text, or the format of OUT's extension.
        #[arg(long, value_enum)]
        format: Option<CompareFormat>,
        /// Writes to a file.
        #[arg(short, long, value_name = "OUT")]
        out: Option<PathBuf>,
    },
    /// Reports which operations on arrays stream together, batch by batch: the distance between them, the
    /// memory, and why a group ends; also by the rule of Legate's checker. docs/streams-json.md has the
    /// format.
    #[command(
        after_help = "Examples:\n  anabranch stream scope.json\n  anabranch stream scope.json --memory-max 27000000\n  anabranch stream cases.json --case blur --format svg -o blur.svg"
    )]
    Stream {
        #[command(flatten)]
        stream: StreamArgs,
        /// The format; without it, text, or the format of OUT's extension.
        #[arg(long, value_enum)]
        format: Option<StreamFormat>,
        /// Writes to a file.
        #[arg(short, long, value_name = "OUT")]
        out: Option<PathBuf>,
    },
    /// Plans the epochs of an application description of the Compute Graph Framework: phases, period,
    /// latency, loads. docs/app-json.md lists the keys that are read and those that are refused.
    #[command(
        after_help = "Examples:\n  anabranch pipeline camera.app.json\n  anabranch pipeline camera.app.json --auto 3 --format svg -o phases.svg"
    )]
    Pipeline {
        #[command(flatten)]
        pipeline: PipelineArgs,
        /// The format; without it, text, or the format of OUT's extension.
        #[arg(long, value_enum)]
        format: Option<PipelineFormat>,
        /// Writes to a file.
        #[arg(short, long, value_name = "OUT")]
        out: Option<PathBuf>,
    },
}

#[derive(Group)]
pub(crate) struct StreamArgs {
    /// The stores and the operations, as JSON: one case, or a list. '-' is the standard input.
    pub(crate) file: PathBuf,
    /// The most bytes in memory; if they are too few, the error names the number that suffices.
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_max: Option<u64>,
    /// Reads only this case of a list.
    #[arg(long, value_name = "ID")]
    pub(crate) case: Option<String>,
}

#[derive(Group)]
pub(crate) struct PipelineArgs {
    /// The application description, NAME.app.json, with the files that it names beside it.
    pub(crate) file: PathBuf,
    /// Proposes a split into at most this many phases, beside the given one. A picture or a trace shows the
    /// proposal.
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) auto: Option<u32>,
    /// The state whose schedule is planned; the default state if not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) state: Option<String>,
    /// Plans only this epoch.
    #[arg(long, value_name = "NAME")]
    pub(crate) epoch: Option<String>,
}

#[derive(Group)]
pub(crate) struct GraphArgs {
    /// The graph, as JSON.
    pub(crate) file: PathBuf,
    /// The policy that assigns nodes to streams.
    #[arg(long, value_enum, default_value = "ranked")]
    policy: PolicyName,
    /// The most streams of `ranked`, and of `critical-path` on each device (there 4 if not given).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_streams: Option<u32>,
}

impl GraphArgs {
    /// Returns the policy. `hand_off_us` is the cost of a hand-off, if it is known.
    pub(crate) fn policy(&self, hand_off_us: Option<f64>) -> Result<Box<dyn Policy>, Failure> {
        if self.max_streams.is_some() && !matches!(self.policy, PolicyName::Ranked | PolicyName::CriticalPath) {
            return Err(Failure::Usage(
                "--max-streams is for --policy ranked and critical-path: the others take what they need".into(),
            ));
        }
        Ok(self.policy.policy(self.max_streams, hand_off_us))
    }
}

#[derive(Group)]
pub(crate) struct RankArgs {
    /// Plans for so many ranks: nodes run on the ranks of the file. If it has none, the nodes are divided into
    /// parts with equal work and few bytes between them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: Option<u32>,
    /// The latency of links between ranks, in microseconds, for times and pictures.
    #[arg(long, value_name = "US", default_value_t = 2.0, requires = "ranks")]
    latency_us: f64,
    /// The bandwidth of links between ranks, in 10^9 bytes per second.
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, requires = "ranks")]
    gigabytes_per_s: f64,
}

impl RankArgs {
    pub(crate) fn links(&self) -> Result<Links, Failure> {
        Links::new(self.latency_us, self.gigabytes_per_s).map_err(|error| Failure::Usage(error.to_string()))
    }
}

#[derive(Group)]
pub(crate) struct MachineArgs {
    /// The number of kernels that run at once on each device.
    #[arg(long, value_name = "N", default_value_t = Slots::default().compute, value_parser = clap::value_parser!(u32).range(1..))]
    compute: u32,
    /// The number of copies at once on each device, in each direction; `mixed` nodes copy up.
    #[arg(long, value_name = "N", default_value_t = Slots::default().copy_up, value_parser = clap::value_parser!(u32).range(1..))]
    copies: u32,
    /// The number of tasks at once on the host.
    #[arg(long, value_name = "N", default_value_t = Slots::default().cores, value_parser = clap::value_parser!(u32).range(1..))]
    cores: u32,
    /// The time from the end of a wait until the stream continues, in microseconds; `critical-path` plans
    /// with it.
    #[arg(long, value_name = "US", default_value_t = 0.0)]
    pub(crate) hand_off_us: f64,
}

impl MachineArgs {
    pub(crate) fn slots(&self) -> Slots {
        Slots::default().compute(self.compute).copy_up(self.copies).copy_down(self.copies).cores(self.cores)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// One stream.
    Single,
    /// A stream for `mixed` nodes and one for all others.
    PerBackend,
    /// Each stream is passed on from producer to consumer (DALI's design).
    PerOperator,
    /// Free streams are passed on through any number of nodes (DALI's release).
    ReadySet,
    /// Streams along the longest path to the end, equal commands together (NNC).
    Ranked,
    /// The fewest streams such that no two independent nodes share one.
    MinStreams,
    /// Shortest makespan on a number of streams, by cost.
    CriticalPath,
}

impl PolicyName {
    pub(crate) fn policy(self, max_streams: Option<u32>, hand_off_us: Option<f64>) -> Box<dyn Policy> {
        match self {
            Self::Single => Box::new(Single),
            Self::PerBackend => Box::new(PerBackend),
            Self::PerOperator => Box::new(PerOperator),
            Self::ReadySet => Box::new(ReadySet),
            Self::Ranked => Box::new(max_streams.map_or(Ranked::default(), |max| Ranked::default().max_streams(max))),
            Self::MinStreams => Box::new(MinStreams),
            Self::CriticalPath => {
                let policy = CriticalPath::default().streams(max_streams.unwrap_or(4));
                Box::new(hand_off_us.map_or(policy, |us| policy.hand_off_us(us)))
            }
        }
    }
}

/// Returns the requested format: by name, else by the extension of the file. Text, if the file has no
/// extension or `.txt`.
pub(crate) fn format_of<F: ValueEnum + Clone>(format: Option<F>, out: Option<&Path>, text: F) -> Result<F, Failure> {
    let ending = out.and_then(Path::extension).map(|ending| ending.to_string_lossy().to_lowercase());
    let ending = match (format, ending) {
        (Some(format), _) => return Ok(format),
        (None, None) => return Ok(text),
        (None, Some(ending)) if ending == "txt" => return Ok(text),
        (None, Some(ending)) => ending,
    };
    F::from_str(&ending, true).map_err(|_| {
        let names = F::value_variants().iter().filter_map(|format| format.to_possible_value());
        let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
        let path = out.map(|out| out.display().to_string()).unwrap_or_default();
        let all = names.join(", ");
        Failure::Usage(format!(
            "{path}: no format ends in .{ending}: end it in .txt or one of {all}, or add --format with one of them"
        ))
    })
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StreamFormat {
    /// The groups with their operations and windows, and the reasons why they end.
    Text,
    /// The same by three rules, as JSON.
    Json,
    /// A picture: operations and tiles, step by step.
    Svg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PlanFormat {
    /// A table with a row for each stream.
    Text,
    /// The programs as JSON.
    Json,
    /// A graph for Graphviz.
    Dot,
    /// A picture: streams are lanes, and nodes are boxes as long as their costs.
    Svg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SimulateFormat {
    /// A line for each event.
    Text,
    /// Spans and races as JSON.
    Json,
    /// A picture: streams are lanes, and nodes are boxes as long as their times.
    Svg,
    /// A trace for ui.perfetto.dev or Chrome.
    Perfetto,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum CompareFormat {
    /// A table with a row for each policy.
    Text,
    /// The same as JSON.
    Json,
    /// One picture with a panel for each policy.
    Svg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PipelineFormat {
    /// Tables: phases and loads of each epoch, and a simulation of each hyperepoch.
    Text,
    /// The same as JSON.
    Json,
    /// A picture of one epoch: two periods, with a lane for each lane of a resource.
    Svg,
    /// A trace of a few items of one epoch for ui.perfetto.dev or Chrome.
    Perfetto,
}
