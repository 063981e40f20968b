//! The answer: phases, and what follows from them.

use std::sync::Arc;

use super::bytes::bytes_in_flight;
use super::check::{Checked, PS};
use super::iteration::{Iteration, Lanes, Placed, Timetable};
use super::mixes::warnings;
use super::work::Resource;
use crate::graph::NodeId;
use crate::name::Name;

/// A work split into phases, with its periodic schedule. Immutable.
///
/// Each phase handles one item at a time. A run of a [`Pipeline`](crate::Pipeline) can be faster: a phase
/// without a state handles several items side by side there.
///
/// Prints itself as a table: the phases with their nodes, and what follows from them.
///
/// ```
/// use anabranch::phases::Work;
///
/// let mut work = Work::new();
/// let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
/// let (detect, track) = (work.node("detect", gpu, 3.0), work.node("track", cpu, 1.0));
/// work.edge(detect, track, 4096);
/// let phasing = work.auto(2)?;
/// println!("{phasing}");
/// assert_eq!((phasing.depth(), phasing.phase_of(track)), (2, 2));
/// assert_eq!((phasing.period_us(), phasing.latency_us()), (3.0, 4.0));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Phasing {
    pub(super) checked: Arc<Checked>,
    /// By node; 0 if it is unpipelined.
    pub(super) phases: Vec<u32>,
    pub(super) lanes: Lanes,
    pub(super) timetable: Timetable,
    spans: Vec<PhaseSpan>,
    bytes: u64,
    bound: Bound,
    warnings: Vec<String>,
    method: Method,
    is_exact: bool,
}

/// How the phases were found.
///
/// ```
/// use anabranch::phases::{Method, Work};
///
/// # let mut work = Work::new();
/// # let cpu = work.resource("CPU", 2);
/// # let (read, draw) = (work.node("read", cpu, 1.0), work.node("draw", cpu, 1.0));
/// # work.edge(read, draw, 4096);
/// assert_eq!(work.each()?.method(), Method::Given);
/// assert_eq!(work.auto(2)?.method(), Method::Exact);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::phases::{Bound, Work};
///
/// # let mut work = Work::new();
/// # let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
/// # let (detect, track) = (work.node("detect", gpu, 3.0), work.node("track", cpu, 1.0));
/// # work.edge(detect, track, 4096);
/// // In one phase, each item takes the whole path. In two, the GPU is always busy.
/// assert_eq!(work.written()?.bound(), Bound::CriticalPath(1));
/// assert_eq!(work.auto(2)?.bound(), Bound::Resource("GPU".into()));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// This resource is busy all the time.
    Resource(Name),
    /// The longest path through one phase is as long as the period; 0 for a path through unpipelined nodes.
    CriticalPath(u32),
    /// Neither: the order that edges and resources force together.
    Order,
    /// No node takes any time.
    Nothing,
}

/// How busy a resource is.
///
/// ```
/// use anabranch::phases::Work;
///
/// # let mut work = Work::new();
/// # let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
/// # let (detect, track) = (work.node("detect", gpu, 4.0), work.node("track", cpu, 1.0));
/// # work.edge(detect, track, 4096);
/// for load in work.auto(2)?.loads() {
///     println!("{}: {:.0} % busy", load.name, 100.0 * load.share);
/// }
/// # let shares: Vec<f64> = work.auto(2)?.loads().map(|load| load.share).collect();
/// # assert_eq!(shares, [1.0, 0.25]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::phases::Work;
///
/// # let mut work = Work::new();
/// # let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
/// # let (detect, track) = (work.node("detect", gpu, 3.0), work.node("track", cpu, 1.0));
/// # work.edge(detect, track, 4096);
/// let phasing = work.auto(2)?;
/// for span in phasing.iteration() {
///     println!("{:?}: {} to {} us", phasing.name_of(span.node), span.start_us, span.end_us);
/// }
/// // `track` of an item runs beside `detect` of the next one.
/// assert!(phasing.iteration().iter().all(|span| span.start_us == 0.0));
/// # Ok::<(), anabranch::Error>(())
/// ```
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

impl Phasing {
    pub(super) fn new(checked: Arc<Checked>, phases: Vec<u32>, timetable: Timetable, method: Method, is_exact: bool) -> Self {
        let lanes = Lanes::new(&checked);
        let iteration = Iteration::new(&checked, phases);
        let span = |placed: &Placed| {
            let resource = iteration.resource(placed.node);
            PhaseSpan {
                node: NodeId(placed.node as u32),
                resource: Resource(resource as u32),
                lane: (placed.lane - lanes.of(resource).start) as u32,
                start_us: us(placed.start),
                end_us: us(placed.end),
            }
        };
        let spans = timetable.placed.iter().map(span).collect();
        let bound = bound(&iteration, timetable.period);
        let phases = iteration.phases;
        let bytes = bytes_in_flight(&checked, &phases);
        let warnings = warnings(&checked, &phases);
        Self { checked, phases, lanes, timetable, spans, bytes, bound, warnings, method, is_exact }
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
        us(self.timetable.period)
    }

    /// Returns the time from the start of an item's first node to the end of its last one in microseconds.
    pub fn latency_us(&self) -> f64 {
        us(self.timetable.latency)
    }

    /// Returns how busy each resource is, in the order in which they were added.
    pub fn loads(&self) -> impl Iterator<Item = Load> {
        let loads = self.checked.loads().into_iter().zip(&self.checked.resources);
        loads.enumerate().map(|(number, (busy, (name, capacity)))| {
            let room = us(self.timetable.period) * f64::from(*capacity);
            Load {
                resource: Resource(number as u32),
                name: name.clone(),
                capacity: *capacity,
                busy_us: us(busy),
                share: if room > 0.0 { us(busy) / room } else { 0.0 },
            }
        })
    }

    /// Returns what bounds the period. If several things do, a resource comes first.
    pub fn bound(&self) -> Bound {
        self.bound.clone()
    }

    /// Returns how the phases were found.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns true if no schedule of these phases has a shorter period, or the same and a smaller latency.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the memory of the values of all items in flight, in bytes.
    ///
    /// A value that is made in phase ps and read last in phase pd is alive in pd - ps + 1 schedule
    /// iterations. So a node counts once: the most of the bytes of its edges, each times the number of its
    /// iterations. An edge of an unpipelined node counts for one iteration. Feedback counts in addition: the
    /// most of the bytes of the node's feedback edges, each times its lag.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes
    }

    /// Returns a warning for each node that mixes the data of different items, because it is unpipelined or
    /// reads from an unpipelined node.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the periodic schedule: when each node runs in a schedule iteration, in the order of the
    /// starts.
    pub fn iteration(&self) -> &[PhaseSpan] {
        &self.spans
    }

    /// Returns the name of a node; none if the work does not have it.
    pub fn name_of(&self, node: NodeId) -> Option<&Name> {
        self.checked.nodes.get(node.index()).map(|node| &node.name)
    }

    /// Returns the name of a resource; none if the work does not have it.
    pub fn resource_name(&self, resource: Resource) -> Option<&Name> {
        self.checked.resources.get(resource.index()).map(|(name, _)| name)
    }
}

/// From picoseconds to microseconds.
pub(super) fn us(ps: u64) -> f64 {
    ps as f64 / PS
}

fn bound(iteration: &Iteration<'_>, period: u64) -> Bound {
    if period == 0 {
        return Bound::Nothing;
    }
    let checked = iteration.checked;
    let is_full = |load: u64, capacity: u32| load.div_ceil(u64::from(capacity)) >= period;
    let mut loads = checked.loads().into_iter().zip(&checked.resources);
    if let Some((_, (name, _))) = loads.find(|(load, (_, capacity))| is_full(*load, *capacity)) {
        return Bound::Resource(name.clone());
    }
    let Some(end) = (0..iteration.nodes()).find(|&node| iteration.heads[node] == period) else { return Bound::Order };
    // Back along the dearest path, to see whether it stays in one phase.
    let (mut node, phase) = (end, iteration.phases[end]);
    loop {
        let before = iteration.sources(node).max_by_key(|&source| iteration.heads[source]);
        match before {
            Some(source) if iteration.phases[source] != phase => return Bound::CriticalPath(0),
            Some(source) => node = source,
            None => return Bound::CriticalPath(phase),
        }
    }
}
