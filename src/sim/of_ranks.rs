//! The simulation of all ranks of a graph, as one machine with a host for each rank.

use std::collections::HashMap;

use super::inner::{Control, Inner};
use super::links::Links;
use super::simulation::Simulation;
use crate::error::{Kind, Result};
use crate::graph::{COST_US_MAX, Role};
use crate::name::Name;
use crate::ranks::{Exchanged, Joined, RankSchedules, What};

impl Simulation {
    /// Returns a simulation of the schedules of all ranks. Each rank has the cores and the devices of
    /// [`Slots`](super::Slots). A message takes the link of its sender, which carries one at a time; a
    /// collective begins when all ranks have come to it, and ends on all at once. What an exchange carries is
    /// given by [`bytes`](crate::graph::NodeShape::bytes): of the nodes that it reads, else of its own node.
    /// The states of a loop have none.
    ///
    /// A loop or a branch that communicates begins when all ranks have come to it, and takes as long as its
    /// graphs on all ranks.
    ///
    /// # Errors
    /// If an exchange takes more than 10¹² µs.
    ///
    /// # Examples
    /// Two parts of a computation, on one rank and on two:
    /// ```
    /// use anabranch::Ranked;
    /// use anabranch::graph::{Backend, Ranks, Shape};
    /// use anabranch::sim::{Links, Simulation, Slots};
    ///
    /// fn takes_us(places: [u32; 2]) -> anabranch::Result<f64> {
    ///     let mut shape = Shape::new();
    ///     let [left, right, join] = ["left", "right", "join"].map(|name| shape.node(name, Backend::Cpu));
    ///     for (part, rank) in [left, right].into_iter().zip(places) {
    ///         shape.read(part, 0, join);
    ///         let part = &mut shape.nodes_mut()[part.index()];
    ///         (part.cost_us, part.bytes, part.ranks) = (100.0, Some(40_000), Some(Ranks::One(rank)));
    ///     }
    ///     shape.nodes_mut()[join.index()].ranks = Some(Ranks::One(0));
    ///     let schedules = shape.schedule_ranks(2, &Ranked::default())?;
    ///     let simulation = Simulation::of_ranks(&schedules, &Links::new(2.0, 10.0)?)?;
    ///     Ok(simulation.slots(Slots::default().cores(1)).run()?.makespan_us())
    /// }
    /// assert_eq!(takes_us([0, 0])?, 201.0);
    /// assert_eq!(takes_us([0, 1])?, 100.0 + 6.0 + 1.0);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn of_ranks(schedules: &RankSchedules, links: &Links) -> Result<Self> {
        // The place of each unit among the inner graphs, and the loop or branch that it is in.
        let mut around: HashMap<usize, (Control, Role)> = HashMap::new();
        let (mut outermost, mut inner) = (None, Vec::new());
        for (unit, path) in schedules.paths().into_iter().enumerate() {
            let Some(mut joined) = Joined::of(schedules, unit) else { continue };
            let place = outermost.is_some().then_some(inner.len());
            for Exchanged { node, what, bytes } in &joined.exchanges {
                match what {
                    What::Exchange(exchange) => {
                        let us = links.takes_us(exchange, *bytes, schedules.ranks());
                        joined.shape.nodes_mut()[node.index()].cost_us = checked(us, joined.shape.name_of(*node))?;
                    }
                    What::Control(units) => {
                        around.extend(units.iter().map(|&(role, unit)| (unit, ((place, *node), role))));
                    }
                }
            }
            let simulation = Self::of_programs(joined.shape, joined.programs);
            let simulation = simulation.over_ranks(joined.on, joined.names, joined.places);
            match around.remove(&unit) {
                Some((control, role)) => inner.push(Inner::of_ranks(control, role, simulation, path)),
                None => outermost = Some(simulation),
            }
        }
        let mut outermost: Self = outermost.expect("the outermost unit is always there");
        outermost.inner = inner;
        Ok(outermost)
    }
}

/// Checks how long a node takes.
fn checked(us: f64, name: &Name) -> Result<f64> {
    if us <= COST_US_MAX {
        return Ok(us);
    }
    let fault = format!("node '{name}' takes more than 10^12 us: a time is from 0 to 10^12");
    Err(Kind::Simulation { fault }.into())
}
