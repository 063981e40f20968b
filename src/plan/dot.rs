//! A schedule as a DOT graph: a lane for each stream with its nodes, the edges of the graph, the waits of the
//! programs. An inner graph is drawn in the box of its loop or branch.

use std::collections::HashMap;
use std::fmt::Write;

use super::runs::Runs;
use super::{Schedule, StreamKind};
use crate::graph::{Backend, NodeId};

impl Schedule {
    /// Writes the schedule as a DOT graph, for Graphviz: a cluster for each stream with its nodes in order,
    /// and the waits in red. A loop or a branch is a cluster that contains its inner graphs. Edges of the
    /// graph that the order of streams or a wait keeps are not drawn.
    pub fn to_dot(&self) -> String {
        let mut out = String::new();
        let title = quoted(self.shape().name().unwrap_or(self.policy()));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "digraph {title} {{");
        let _ = writeln!(out, "  rankdir=LR;\n  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\"];");
        Writer::new(self).write(&mut out);
        out.push_str("}\n");
        out
    }
}

/// A part that is still to be written. The parts are on an explicit stack, because graphs may be nested
/// deeper than a thread's stack allows.
enum Part {
    /// A graph: its streams, and then its edges.
    Graph(usize),
    /// The box of an inner graph.
    Open(usize),
    Stream {
        graph: usize,
        stream: u32,
        runs: Vec<usize>,
    },
    Run {
        graph: usize,
        run: usize,
    },
    Edges(usize),
    Close,
}

struct Writer<'a> {
    /// The outermost graph, followed by the inner ones.
    graphs: Vec<(&'a Schedule, Runs<'a>)>,
    /// The role of each graph in the graph around it.
    roles: Vec<String>,
    /// The inner graphs of each loop and branch.
    inner: HashMap<(usize, NodeId), Vec<usize>>,
    open: Vec<Part>,
    /// The number of clusters so far that are not streams of the outermost graph.
    clusters: usize,
}

impl<'a> Writer<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let graphs = std::iter::once(schedule).chain(schedule.inner().iter().map(|inner| inner.schedule()));
        let mut inner: HashMap<(usize, NodeId), Vec<usize>> = HashMap::new();
        for (number, each) in schedule.inner().iter().enumerate() {
            inner.entry((each.around().map_or(0, |around| around + 1), each.node())).or_default().push(number + 1);
        }
        let graphs = graphs.map(|graph| (graph, Runs::new(graph))).collect();
        let roles = std::iter::once(String::new()).chain(schedule.inner().iter().map(|inner| inner.role().to_string()));
        Self { graphs, roles: roles.collect(), inner, open: Vec::new(), clusters: 0 }
    }

    fn write(&mut self, out: &mut String) {
        self.open.push(Part::Graph(0));
        while let Some(part) = self.open.pop() {
            match part {
                Part::Graph(graph) => {
                    let (schedule, all) = &self.graphs[graph];
                    let mut runs = vec![Vec::new(); schedule.streams() as usize];
                    all.all.iter().enumerate().for_each(|(run, at)| runs[at.stream as usize].push(run));
                    self.open.push(Part::Edges(graph));
                    let streams = (0..).zip(runs).map(|(stream, runs)| Part::Stream { graph, stream, runs });
                    self.open.extend(streams.collect::<Vec<_>>().into_iter().rev());
                }
                Part::Open(graph) => {
                    let _ = writeln!(out, "  subgraph cluster_{} {{", prefix(graph));
                    let _ = writeln!(out, "    label=\"{}\"; style=dashed; color=\"#607d8b\";", self.roles[graph]);
                }
                Part::Stream { graph, stream, runs } => self.open_stream(graph, stream, runs, out),
                Part::Run { graph, run } => self.write_run(graph, run, out),
                Part::Edges(graph) => self.write_edges(graph, out),
                Part::Close => out.push_str("  }\n"),
            }
        }
    }

    fn open_stream(&mut self, graph: usize, stream: u32, runs: Vec<usize>, out: &mut String) {
        let schedule = self.graphs[graph].0;
        let color = if schedule.kind(stream) == StreamKind::Host { "#f6f6f6" } else { "#eef2f8" };
        let _ = writeln!(out, "  subgraph cluster_{}{stream} {{", prefix(graph));
        let _ = writeln!(out, "    label={}; style=filled; color=\"{color}\";", quoted(&schedule.stream_name(stream)));
        self.open.push(Part::Close);
        self.open.extend(runs.into_iter().rev().map(|run| Part::Run { graph, run }));
    }

    fn write_run(&mut self, graph: usize, run: usize, out: &mut String) {
        let (schedule, runs) = &self.graphs[graph];
        let id = runs.all[run].node;
        let (node, prefix) = (&schedule.shape().nodes()[id.index()], prefix(graph));
        let Some(control) = &node.control else {
            let _ = writeln!(out, "    {prefix}r{run} [label={}, fillcolor=\"{}\"];", quoted(&node.name), fill(node.backend));
            return;
        };
        self.clusters += 1;
        let _ = writeln!(out, "  subgraph cluster_c{} {{", self.clusters);
        let _ = writeln!(
            out,
            "    label={}; style=\"filled,rounded\"; color=\"#607d8b\"; fillcolor=\"#ffffff\";",
            quoted(&node.name)
        );
        let label = quoted(&control.remark());
        let _ = writeln!(
            out,
            "    {prefix}r{run} [label={label}, shape=diamond, style=filled, fillcolor=\"{}\"];",
            fill(node.backend)
        );
        self.open.push(Part::Close);
        // The inner graphs of a node on several streams are drawn on its first stream.
        for inner in self.inner.remove(&(graph, id)).unwrap_or_default().into_iter().rev() {
            self.open.extend([Part::Close, Part::Graph(inner), Part::Open(inner)]);
        }
    }

    fn write_edges(&self, graph: usize, out: &mut String) {
        let (runs, prefix) = (&self.graphs[graph].1, prefix(graph));
        for run in 0..runs.all.len() {
            if let Some(before) = runs.before[run] {
                let _ = writeln!(out, "  {prefix}r{before} -> {prefix}r{run} [color=\"#9aa4b2\"];");
            }
            for wait in runs.waits(run) {
                let _ = writeln!(out, "  {prefix}r{wait} -> {prefix}r{run} [color=\"#c2452d\", penwidth=1.5];");
            }
        }
    }
}

/// Returns the prefix of all names in a graph.
fn prefix(graph: usize) -> String {
    if graph == 0 { String::new() } else { format!("g{graph}_") }
}

/// The colours of backends, in all pictures.
pub(super) fn fill(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu => "#f4c875",
        Backend::Mixed => "#c3a6e0",
        Backend::Gpu => "#8ec9a6",
    }
}

/// Returns a quoted name, with quotes and backslashes escaped. Control characters become spaces.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, " "))
}
