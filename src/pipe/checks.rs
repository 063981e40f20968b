//! Pipelines without items: the proof that a run keeps all orders, and runs in virtual time.

use std::sync::Arc;

use super::Pipeline;
use crate::error::Result;
use crate::plan::{OverItems, Schedule, StreamName};
use crate::sim::{Simulation, Slots};

impl<I, T> Pipeline<I, T> {
    /// Checks that a run keeps every order that the graph asks for, whatever the nodes take, and never waits
    /// for ever.
    ///
    /// It unrolls more than twice as many items as can be in flight. What a run does with them is what phases
    /// wait for, and the number of items in flight. What it must keep comes from the graph, and is checked as
    /// [`Shape::verify_programs`](crate::graph::Shape::verify_programs) does: data and order within an item,
    /// a state before the next item has it, feedback before it is read and until it was read, the memory of
    /// an item until its results were taken, and [`serial`](Pipeline::serial) and [`beat`](Pipeline::beat).
    /// The arrivals that each phase waits for are counted. This is done for the phases, for those that most
    /// runs have, where phases that only continue another are one with it, and for the same graph in one
    /// phase, which executors without workers run if no node is async.
    ///
    /// # Errors
    /// The first thing that is wrong: the error names the nodes with their items, such as `track #3`. For a
    /// pipeline of this library that is a defect of the library. Or there are too many items in flight: their
    /// nodes count against [`NODES_MAX`](crate::graph::NODES_MAX).
    ///
    /// # Examples
    /// ```
    /// use anabranch::pipe::Phases;
    /// use anabranch::{Pipeline, Ranked};
    ///
    /// let sums = Pipeline::new("sums", &Ranked::default(), |g, x| {
    ///     let mut sum = g.state("sum", || 0);
    ///     let square = g.task("square", &x, |x: &u64| x * x);
    ///     g.task("add", (&mut sum, &square), |sum: &mut u64, x: &u64| {
    ///         *sum += x;
    ///         *sum
    ///     })
    /// })?;
    /// sums.phases(Phases::Each)?.verify()?;
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn verify(&self) -> Result<()> {
        let [phased, joined, merged] = self.over_items();
        let is_joined = !std::ptr::eq(phased.pipelining, joined.pipelining);
        for over in [Some(phased), Some(joined).filter(|_| is_joined), Some(merged)].into_iter().flatten() {
            over.schedule.verify()?;
            over.verify(2 * over.pipelining.slots + self.depth())?;
        }
        Ok(())
    }

    /// Returns the simulation of a run over so many items, with phases. The source has each item as soon as
    /// it is asked for it, and results are taken as soon as they are there.
    ///
    /// The nodes are those of all items: node `track` of item 3 is `track #3`. There are
    /// [`max_in_flight`](Pipeline::max_in_flight) places for items, each with its own streams. Item k has
    /// place k modulo their number. Nodes take their costs, also those of [`retime`](Pipeline::retime). The
    /// machine is that of [`phasing`](Pipeline::phasing): as many cores as [`cpus`](Pipeline::cpus) says, and
    /// one kernel at a time on each device; copies have engines of their own. [`Simulation::slots`] sets
    /// others.
    ///
    /// Where several nodes could begin, the one that lockstep begins first does. A run has no such order: see
    /// [`Order::Seeded`](crate::sim::Order::Seeded) for others.
    /// [`SimLog::to_svg`](crate::sim::SimLog::to_svg) draws the log.
    ///
    /// An item with a node that fails does not disturb the others. [`races`](crate::sim::SimLog::races) are
    /// those within items; [`verify`](Pipeline::verify) checks the others.
    ///
    /// # Errors
    /// As [`Pipeline::phasing`], or if there are too many items.
    ///
    /// # Examples
    /// ```
    /// use anabranch::pipe::Phases;
    /// use anabranch::{Pipeline, Ranked};
    ///
    /// let frames = Pipeline::new("frames", &Ranked::default(), |g, frame| {
    ///     let small = g.task("resize", &frame, |frame: &u64| frame / 2);
    ///     let found = g.task("detect", &small, |small: &u64| small + 1);
    ///     g.node(&small).cost_us(20.0);
    ///     g.node(&found).cost_us(30.0);
    ///     found
    /// })?
    /// .phases(Phases::Each)?
    /// .serial()
    /// .cpus(2)?;
    ///
    /// let simulation = frames.simulation(10)?;
    /// let log = simulation.run()?;
    /// // The first item takes 50 us, and then there is one each 30 us.
    /// assert_eq!(log.makespan_us(), 50.0 + 9.0 * 30.0);
    /// let (shape, spans) = (log.shape(), log.spans());
    /// let last = spans.iter().find(|span| *shape.nodes()[span.node.index()].name == *"detect #9").unwrap();
    /// assert_eq!((last.start_us, last.end_us), (290.0, 320.0));
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn simulation(&self, items: u32) -> Result<Simulation> {
        let [over, ..] = self.over_items();
        let mut unrolled = over.unrolled(items)?;
        let nodes = over.schedule.order().len();
        unrolled.shape.nodes_mut().iter_mut().zip(self.costs_us().iter().cycle()).for_each(|(node, &us)| node.cost_us = us);
        let places = self.places(&over, items as usize, nodes)?;
        unrolled.shape.set_name(self.name());
        let names = names(over.schedule, unrolled.slots);
        let machine = Slots::default().compute(1).cores(self.cores());
        Ok(Simulation::of_programs(unrolled.shape, unrolled.programs).over_items(nodes as u32, names, places).slots(machine))
    }

    /// Returns the place of each node of each item in the order of lockstep: by schedule iteration, then by
    /// the start in it.
    fn places(&self, over: &OverItems<'_>, items: usize, nodes: usize) -> Result<Vec<u32>> {
        let mut starts_us = vec![0.0; nodes];
        self.phasing()?.iteration().iter().for_each(|span| starts_us[span.node.index()] = span.start_us);
        let mut of_one = vec![0; nodes];
        over.schedule.order().iter().zip(0..).for_each(|(node, place)| of_one[node.index()] = place);
        let key = |at: &u32| {
            let (item, node) = (*at as usize / nodes, *at as usize % nodes);
            (item + over.phase_of[node] as usize, starts_us[node], of_one[node])
        };
        let mut order: Vec<u32> = (0..(items * nodes) as u32).collect();
        order.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("a time is a number"));
        let mut places = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&at, place)| places[at as usize] = place);
        Ok(places)
    }
}

/// Returns the names of the streams of all places, and of the consumer.
fn names(schedule: &Schedule, places: u32) -> Arc<[StreamName]> {
    let of_place = |place| (0..schedule.streams()).map(move |stream| StreamName::Place(place, schedule.named(stream)));
    (0..places).flat_map(of_place).chain([StreamName::Consumer]).collect()
}
