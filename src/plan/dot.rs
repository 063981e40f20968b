//! A schedule as a DOT graph: nodes in the lane of their stream, edges of the graph, waits as they stand in the programs.

use std::fmt::Write;

use super::runs::Runs;
use super::{Schedule, StreamKind};
use crate::graph::Backend;

impl Schedule {
    /// Writes the schedule as a DOT graph, for Graphviz: a cluster for each stream with its nodes in order, waits in red. Edges of the
    /// graph that these two keep are not drawn.
    pub fn to_dot(&self) -> String {
        let runs = Runs::new(self);
        let mut by_stream = vec![Vec::new(); self.streams() as usize];
        runs.all.iter().enumerate().for_each(|(number, run)| by_stream[run.stream as usize].push(number));
        let mut out = String::new();
        let title = quoted(self.shape().name().unwrap_or(self.policy()));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "digraph {title} {{");
        let _ = writeln!(out, "  rankdir=LR;\n  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\"];");
        for stream in 0..self.streams() {
            let color = if self.kind(stream) == StreamKind::Host { "#f6f6f6" } else { "#eef2f8" };
            let _ = writeln!(out, "  subgraph cluster_{stream} {{");
            let _ = writeln!(out, "    label={}; style=filled; color=\"{color}\";", quoted(&self.stream_name(stream)));
            for &number in &by_stream[stream as usize] {
                let node = &self.shape().nodes()[runs.all[number].node.index()];
                let _ = writeln!(out, "    r{number} [label={}, fillcolor=\"{}\"];", quoted(&node.name), fill(node.backend));
            }
            let _ = writeln!(out, "  }}");
        }
        for run in 0..runs.all.len() {
            if let Some(before) = runs.before[run] {
                let _ = writeln!(out, "  r{before} -> r{run} [color=\"#9aa4b2\"];");
            }
            for wait in &runs.waits[run] {
                let _ = writeln!(out, "  r{wait} -> r{run} [color=\"#c2452d\", penwidth=1.5];");
            }
        }
        out.push_str("}\n");
        out
    }
}

/// The colours of backends, in all pictures.
pub(super) fn fill(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu => "#f4c875",
        Backend::Mixed => "#c3a6e0",
        Backend::Gpu => "#8ec9a6",
    }
}

/// A name between quotes, with what would end them escaped; control characters become spaces.
fn quoted(name: &str) -> String {
    let mut out = String::from("\"");
    for char in name.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => out.push(' '),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}
