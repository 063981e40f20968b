//! Injected faults: nodes fail or take longer, and devices and ranks are lost. The fault of a node depends on
//! the seed and the node only, not on the order of events.

use crate::device::sim::Draw;
use crate::graph::{COST_US_MAX, NodeId};
use crate::plan::StreamKind;
use crate::ranks::On;

/// The faults to inject into a simulation. There are none by default.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::{Faults, Simulation};
///
/// let mut shape = Shape::new();
/// let [load, left, right] = ["load", "left", "right"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(load, 0, left);
/// shape.read(load, 0, right);
/// let schedule = shape.schedule()?;
///
/// let log = Simulation::new(&schedule).faults(Faults::new(7).fail_node(left)).run()?;
/// assert_eq!(log.failed().collect::<Vec<_>>(), [left]);
/// assert!(log.skipped().next().is_none());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    seed: u64,
    fail: f64,
    fail_nodes: Vec<NodeId>,
    stall: f64,
    stall_factor: f64,
    lost: Option<(u32, f64)>,
    lost_rank: Option<(u32, f64)>,
}

impl Faults {
    /// Returns settings without faults. The seed decides faults that are added with a probability.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Makes each node fail with this probability.
    pub fn fail(self, probability: f64) -> Self {
        Self { fail: probability, ..self }
    }

    /// Makes this node fail.
    pub fn fail_node(mut self, node: NodeId) -> Self {
        self.fail_nodes.push(node);
        self
    }

    /// Makes each node take `factor` times as long with this probability.
    pub fn stall(self, probability: f64, factor: f64) -> Self {
        Self { stall: probability, stall_factor: factor, ..self }
    }

    /// Sets that a device is lost at this time, in microseconds. Nodes on it that have not ended by then
    /// fail.
    pub fn lose_device(self, device: u32, at_us: f64) -> Self {
        Self { lost: Some((device, at_us)), ..self }
    }

    /// Sets that a rank is lost at this time, in microseconds: in a simulation
    /// [of all ranks](crate::sim::Simulation::of_ranks). Nodes on it, and messages from it, that have not
    /// ended by then fail; what waits for them on other ranks is skipped. Loops and branches have inner
    /// graphs without faults.
    ///
    /// # Examples
    /// ```
    /// use anabranch::Ranked;
    /// use anabranch::graph::{Backend, Ranks, Shape};
    /// use anabranch::sim::{Faults, Links, Simulation};
    ///
    /// let mut shape = Shape::new();
    /// let [load, scale, own] = ["load", "scale", "own"].map(|name| shape.node(name, Backend::Cpu));
    /// shape.read(load, 0, scale);
    /// for (node, rank) in [(load, 1), (scale, 0), (own, 0)] {
    ///     shape.nodes_mut()[node.index()].ranks = Some(Ranks::One(rank));
    /// }
    /// let simulation = Simulation::of_ranks(&shape.schedule_ranks(2, &Ranked::default())?, &Links::default())?;
    /// let log = simulation.clone().faults(Faults::new(7).lose_rank(1, 0.5)).run()?;
    /// let failed: Vec<&str> = log.failed().map(|node| &*simulation.shape().nodes()[node.index()].name).collect();
    /// assert_eq!(failed, ["load"]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn lose_rank(self, rank: u32, at_us: f64) -> Self {
        Self { lost_rank: Some((rank, at_us)), ..self }
    }

    /// Returns a description of a setting that is out of range, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_probability = |value: f64| (0.0..=1.0).contains(&value);
        if let Some(probability) = [self.fail, self.stall].into_iter().find(|&value| !is_probability(value)) {
            return Some(format!("a fault has the probability {probability:?}: it is from 0 to 1"));
        }
        let lost_us = |lost: Option<(u32, f64)>| lost.map_or(0.0, |lost| lost.1);
        let times = [self.stall_factor, lost_us(self.lost), lost_us(self.lost_rank)];
        let time = times.into_iter().find(|time| !(0.0..=COST_US_MAX).contains(time))?;
        Some(format!("a fault has the factor or time {time:?}: it is from 0 to 10^12"))
    }

    pub(crate) fn does_fail(&self, node: NodeId) -> bool {
        self.fail_nodes.contains(&node) || (self.fail > 0.0 && self.draw(node).is_hit(self.fail))
    }

    pub(super) fn factor(&self, node: NodeId) -> f64 {
        let mut draw = self.draw(node);
        draw.word();
        if self.stall > 0.0 && draw.is_hit(self.stall) { self.stall_factor } else { 1.0 }
    }

    /// Returns the time at which a stream is lost with its device or its rank, in microseconds. None if it is
    /// not lost.
    pub(super) fn lost_us(&self, kind: StreamKind, on: On) -> Option<f64> {
        let is_device = |&(lost, _): &(u32, f64)| kind == StreamKind::Device(lost);
        let is_rank = |&(lost, _): &(u32, f64)| on == On::Rank(lost) || on == On::Link(lost);
        let lost = self.lost.filter(is_device).into_iter().chain(self.lost_rank.filter(is_rank));
        lost.map(|(_, at_us)| at_us).reduce(f64::min)
    }

    /// Returns the random numbers of a node.
    fn draw(&self, node: NodeId) -> Draw {
        let mut draw = Draw(self.seed ^ (node.index() as u64).wrapping_mul(0xD1B5_4A32_D192_ED03));
        draw.word();
        draw
    }
}
