//! The answer: phases, and what follows from them.

use std::fmt;
use std::sync::Arc;

use super::check::Checked;
use super::work::Resource;
use crate::error::Result;
use crate::graph::NodeId;
use crate::name::Name;

/// A work split into phases, with its periodic schedule. Immutable and cheap to share.
#[derive(Clone, Debug)]
pub struct Phasing {
    checked: Arc<Checked>,
    phases: Vec<u32>,
    iteration: Vec<PhaseSpan>,
    warnings: Vec<String>,
}

/// How the phases were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Method {
    /// They were given.
    Given,
    /// By an exact search: no other phases are better.
    Exact,
    /// By a heuristic of this name: better phases may exist.
    Heuristic(&'static str),
}

/// What bounds the period from below.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// This resource is busy all the time.
    Resource(Name),
    /// The longest path through one phase is as long as the period; 0 for a path through unpipelined nodes.
    CriticalPath(u32),
    /// Neither: the order that edges and resources force together.
    Order,
}

/// How busy a resource is.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Load {
    /// The resource.
    pub resource: Resource,
    /// Its name.
    pub name: Name,
    /// How many nodes it can do at once.
    pub capacity: u32,
    /// The time of all its nodes in one period, in microseconds.
    pub busy_us: f64,
    /// The same as a share of the period and of all lanes, from 0 to 1.
    pub share: f64,
}

/// When a node runs in each schedule iteration, in microseconds from its start.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct PhaseSpan {
    /// The node.
    pub node: NodeId,
    /// Its resource.
    pub resource: Resource,
    /// The lane of the resource, from 0.
    pub lane: u32,
    /// When it begins.
    pub start_us: f64,
    /// When it has ended.
    pub end_us: f64,
}

/// When a node runs for one item, in microseconds from the start of the first one.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct ItemSpan {
    /// The node.
    pub node: NodeId,
    /// The item, from 0.
    pub item: u64,
    /// The resource of the node.
    pub resource: Resource,
    /// The lane of the resource, from 0.
    pub lane: u32,
    /// When it begins.
    pub start_us: f64,
    /// When it has ended.
    pub end_us: f64,
}

/// When a schedule iteration may begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Beat {
    /// When the schedule iteration before it has ended.
    Lockstep,
    /// Each of its nodes when its inputs are there, in the order that lockstep has on each lane. Never slower.
    #[default]
    Elastic,
}

impl Phasing {
    pub(super) fn of(checked: Arc<Checked>, phases: Vec<u32>) -> Result<Self> {
        Ok(Self { checked, phases, iteration: Vec::new(), warnings: Vec::new() })
    }

    /// Returns the phase of a node, from 1 on; 0 for an unpipelined node, and for one that the work does not
    /// have.
    pub fn phase_of(&self, node: NodeId) -> u32 {
        self.phases.get(node.index()).copied().unwrap_or(0)
    }

    /// Returns the largest phase, at least 1.
    pub fn depth(&self) -> u32 {
        self.phases.iter().copied().max().unwrap_or(0).max(1)
    }

    /// Returns the time from item to item in microseconds.
    pub fn period_us(&self) -> f64 {
        0.0
    }

    /// Returns the time from the start of an item's first node to the end of its last one in microseconds.
    pub fn latency_us(&self) -> f64 {
        0.0
    }

    /// Returns how busy each resource is, in the order in which they were added.
    pub fn loads(&self) -> impl Iterator<Item = Load> {
        std::iter::empty()
    }

    /// Returns what bounds the period.
    pub fn bound(&self) -> Bound {
        Bound::Order
    }

    /// Returns how the phases were found.
    pub fn method(&self) -> Method {
        Method::Given
    }

    /// Returns true if no schedule of these phases has a shorter period, or the same and a smaller latency.
    pub fn is_exact(&self) -> bool {
        false
    }

    /// Returns the memory of the values of all items in flight, in bytes.
    pub fn bytes_in_flight(&self) -> u64 {
        0
    }

    /// Returns a warning for each unpipelined node that mixes the data of different items.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the periodic schedule: when each node runs in a schedule iteration, in the order of the starts.
    pub fn iteration(&self) -> &[PhaseSpan] {
        &self.iteration
    }

    /// Returns the name of a node; none if the work does not have it.
    pub fn name_of(&self, node: NodeId) -> Option<&Name> {
        self.checked.nodes.get(node.index()).map(|node| &node.name)
    }

    /// Returns the name of a resource; none if the work does not have it.
    pub fn resource_name(&self, resource: Resource) -> Option<&Name> {
        self.checked.resources.get(resource.index()).map(|(name, _)| name)
    }

    /// Returns when each node runs for each of `items` items, by the costs.
    ///
    /// # Errors
    ///
    /// Fails if that were more than 2^24 spans.
    pub fn simulate(&self, items: u64, beat: Beat) -> Result<Vec<ItemSpan>> {
        let _ = (items, beat);
        Ok(Vec::new())
    }

    /// Draws two periods as an SVG.
    pub fn to_svg(&self) -> String {
        String::new()
    }
}

impl fmt::Display for Phasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} phases", self.depth())
    }
}
