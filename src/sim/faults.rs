//! Injected faults: nodes fail or take longer, and devices are lost. The fault of a node depends on the seed
//! and the node only, not on the order of events.

use crate::device::sim::Draw;
use crate::graph::{COST_US_MAX, NodeId};

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

    /// Returns a description of a setting that is out of range, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_probability = |value: f64| (0.0..=1.0).contains(&value);
        if let Some(probability) = [self.fail, self.stall].into_iter().find(|&value| !is_probability(value)) {
            return Some(format!("a fault has the probability {probability:?}: it is from 0 to 1"));
        }
        let times = [self.stall_factor, self.lost.map_or(0.0, |lost| lost.1)];
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

    /// Returns the time at which the device is lost, in microseconds. Returns None if it is not lost.
    pub(super) fn lost_us(&self, device: u32) -> Option<f64> {
        self.lost.filter(|&(lost, _)| lost == device).map(|(_, at_us)| at_us)
    }

    /// Returns the random numbers of a node.
    fn draw(&self, node: NodeId) -> Draw {
        let mut draw = Draw(self.seed ^ (node.index() as u64).wrapping_mul(0xD1B5_4A32_D192_ED03));
        draw.word();
        draw
    }
}
