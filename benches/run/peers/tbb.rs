//! oneTBB's `flow_graph`: compiles `benches/peers/tbb.cpp` and runs the program for each figure.
//!
//! The program reads the same graph that the Rust peers run, and prints its figure and the sum of its values.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Load, Payload, Peer, Workers};
use crate::cpp;
use crate::shapes::{Form, Shape};

/// Name of the column that the budgets are ratios to.
pub(crate) const NAME: &str = "oneTBB";

/// A `continue_node` per node, built once, run many times.
pub(crate) struct Tbb {
    program: Option<PathBuf>,
    /// The graphs that this process has written, by form and node count.
    written: HashSet<(Form, usize)>,
}

impl Tbb {
    /// Compiles the program unless it exists and is newer than its source.
    pub(crate) fn new() -> Self {
        Self { program: cpp::tbb("tbb"), written: HashSet::new() }
    }

    fn graph_file(&mut self, shape: &Shape) -> PathBuf {
        let path = cpp::scratch(&format!("{}-{}.graph", shape.form, shape.len()));
        if self.written.insert((shape.form, shape.len())) {
            fs::write(&path, shape.to_bytes()).expect("cargo's scratch folder can be written to");
        }
        path
    }
}

impl Peer for Tbb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn missing(&self) -> Option<&str> {
        self.program.is_none().then_some(cpp::HINT)
    }

    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64> {
        let Workers::Threads(workers) = load.workers else { return None };
        let mut command = Command::new(self.program.as_ref()?);
        command.arg(self.graph_file(shape)).arg(workers.to_string());
        command.arg(if load.payload == Payload::Values { "values" } else { "empty" });
        command.args([load.work_ns.to_string(), load.runs.to_string()]);
        command.arg(if load.is_checked { "check" } else { "trust" });
        let (figure, checksum) = answer(&mut command);
        assert!(load.payload != Payload::Values || checksum == shape.checksum(), "oneTBB's values must flow along every edge");
        Some(figure)
    }
}

fn answer(command: &mut Command) -> (f64, u64) {
    let output = command.output().expect("the program was just compiled");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let figure = words.next().and_then(|word| word.parse().ok());
    let checksum = words.next().and_then(|word| word.parse().ok());
    match (output.status.success(), figure, checksum) {
        (true, Some(figure), Some(checksum)) => (figure, checksum),
        _ => panic!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}
