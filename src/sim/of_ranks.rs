//! The simulation of all ranks of a graph, as one machine with a host for each rank.

use std::collections::HashMap;

use super::links::Links;
use super::simulation::Simulation;
use crate::error::{Kind, Result};
use crate::graph::COST_US_MAX;
use crate::ranks::{Exchanged, Joined, RankSchedules, What};

impl Simulation {
    /// Returns a simulation of the schedules of all ranks. Each rank has the cores and the devices of
    /// [`Slots`](super::Slots). A message takes the link of its sender, which carries one at a time; a
    /// collective begins when all ranks have come to it, and ends on all at once. What an exchange carries is
    /// given by [`bytes`](crate::graph::NodeShape::bytes): of the node, or of those that it reads.
    ///
    /// A loop or a branch that communicates begins when all ranks have come to it, and takes as long as its
    /// graphs on all ranks.
    ///
    /// # Errors
    /// If a loop takes more than 10¹² µs.
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
        let mut took_us: HashMap<usize, f64> = HashMap::new();
        // Inner before outer: each unit comes after the one around it.
        for unit in (1..schedules.units()).rev() {
            if let Some(joined) = Joined::of(schedules, unit) {
                took_us.insert(unit, Self::of_joined(joined, links, schedules, &took_us)?.run()?.makespan_us());
            }
        }
        let outermost = Joined::of(schedules, 0).expect("the outermost unit is always there");
        Self::of_joined(outermost, links, schedules, &took_us)
    }

    fn of_joined(mut joined: Joined, links: &Links, schedules: &RankSchedules, took_us: &HashMap<usize, f64>) -> Result<Self> {
        for Exchanged { node, what, bytes } in &joined.exchanges {
            let us = match what {
                What::Exchange(exchange) => links.takes_us(exchange, *bytes, schedules.ranks()),
                What::Control(control, units) => control.takes_us(|role| {
                    let unit = units.iter().find(|unit| unit.0 == role).map(|unit| unit.1);
                    unit.and_then(|unit| took_us.get(&unit)).copied().unwrap_or(0.0)
                }),
            };
            if us > COST_US_MAX {
                let fault = format!("node '{}' takes more than 10^12 us: a time is from 0 to 10^12", joined.shape.name_of(*node));
                return Err(Kind::Simulation { fault }.into());
            }
            joined.shape.nodes_mut()[node.index()].cost_us = us;
        }
        let simulation = Self::of_programs(joined.shape, joined.programs);
        Ok(simulation.over_ranks(joined.on, joined.names, joined.places))
    }
}
