//! oneTBB's `parallel_pipeline`: compiles `benches/peers/tbb_pipeline.cpp` and runs it for each figure.
//! With one thread it runs on the thread that waits, as we do inline.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Peer;
use crate::chain::Chain;
use crate::cpp;

pub(super) struct Tbb {
    program: Option<PathBuf>,
}

impl Tbb {
    pub(super) fn new() -> Self {
        Self { program: cpp::tbb("tbb_pipeline") }
    }
}

impl Peer for Tbb {
    fn name(&self) -> &'static str {
        "oneTBB"
    }

    fn missing(&self) -> Option<&str> {
        self.program.is_none().then_some(cpp::HINT)
    }

    fn run(&mut self, chain: &Chain, target: Duration) -> Option<f64> {
        let Chain { tasks, serial, in_flight, workers, work_ns } = chain;
        let mut command = Command::new(self.program.as_ref()?);
        command.args([workers.max(&1).to_string(), in_flight.to_string(), tasks.to_string(), serial.to_string()]);
        command.args([work_ns.to_string(), target.as_millis().to_string()]);
        let output = command.output().expect("the program was just compiled");
        let figure = String::from_utf8_lossy(&output.stdout).trim().parse().ok().filter(|_| output.status.success());
        let why = || String::from_utf8_lossy(&output.stderr).into_owned();
        Some(figure.unwrap_or_else(|| panic!("{command:?}: {}: {}", output.status, why())))
    }
}
