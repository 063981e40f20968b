//! The duration of loops and branches. It is computed from the durations of their inner graphs, each alone on
//! a machine like that of the graph around.

use std::collections::HashMap;

use super::log::SimLog;
use super::machine::Machine;
use super::simulation::Simulation;
use crate::error::{Kind, Result};
use crate::graph::{COST_US_MAX, NodeId, Role};
use crate::plan::{InnerSchedule, Schedule};

/// An inner graph that is to be simulated.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    control: Control,
    role: Role,
    simulation: Simulation,
    /// The path of the graph, if pictures show it.
    path: Option<String>,
}

impl Inner {
    /// Returns a graph inside of a loop or a branch of ranks.
    pub(super) fn of_ranks(control: Control, role: Role, simulation: Simulation, path: String) -> Self {
        Self { control, role, simulation, path: Some(path) }
    }
}

/// A loop or a branch: the number of its graph (None for the outermost one), and its node in that graph.
pub(super) type Control = (Option<usize>, NodeId);

/// The durations of loops and branches, and the logs of the graphs inside that pictures show.
pub(super) type Inside = (HashMap<NodeId, f64>, Vec<(String, SimLog)>);

impl Inner {
    /// Returns all inner graphs of a schedule.
    pub(super) fn all(schedule: &Schedule) -> Vec<Self> {
        let of = |inner: &InnerSchedule| {
            let control = (inner.around(), inner.node());
            Self { control, role: inner.role(), simulation: Simulation::of_one(inner.schedule()), path: None }
        };
        schedule.inner().iter().map(of).collect()
    }
}

impl Simulation {
    /// Returns the duration of each loop and branch of this graph, in microseconds.
    pub(super) fn inside(&self) -> Result<Inside> {
        let mut logs = Vec::new();
        // Inner before outer: the list has each graph before its inner graphs, so it runs backwards.
        let mut took_us: HashMap<Control, Vec<(Role, f64)>> = HashMap::new();
        for (at, inner) in self.inner.iter().enumerate().rev() {
            let simulation = inner.simulation.clone().slots(self.slots).hand_off_us(self.hand_off_us);
            let controls_us = simulation.of_controls(Some(at), &took_us)?;
            let log = Machine::new(&simulation, &controls_us).run()?;
            took_us.entry(inner.control).or_default().push((inner.role, log.makespan_us()));
            logs.extend(inner.path.clone().map(|path| (path, log)));
        }
        logs.reverse();
        Ok((self.of_controls(None, &took_us)?, logs))
    }

    /// Returns the duration of each loop and branch of one graph, from the durations of its inner graphs.
    fn of_controls(&self, graph: Option<usize>, took_us: &HashMap<Control, Vec<(Role, f64)>>) -> Result<HashMap<NodeId, f64>> {
        let mut controls_us = HashMap::new();
        for node in self.shape.ids() {
            let Some(control) = &self.shape.nodes()[node.index()].control else { continue };
            let inner_us = took_us.get(&(graph, node));
            let of = |role| inner_us.and_then(|inner| inner.iter().find(|inner| inner.0 == role)).map_or(0.0, |inner| inner.1);
            let us = control.takes_us(of);
            if us > COST_US_MAX {
                let fault = format!("node '{}' takes more than 10^12 us: a time is from 0 to 10^12", self.shape.name_of(node));
                return Err(Kind::Simulation { fault }.into());
            }
            controls_us.insert(node, us);
        }
        Ok(controls_us)
    }
}
