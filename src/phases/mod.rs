//! Phases: how a graph that runs once for each item of a stream is split into the phases of a pipeline, and
//! when each node runs.
//!
//! A [`Work`] has nodes with costs on [`Resource`]s, and the edges between them. [`Work::written`] takes the
//! phases that are fixed, [`Work::each`] makes a phase of each node, and [`Work::auto`] finds the split with
//! the shortest period. The answer is a [`Phasing`]: phases, period, latency, loads, and the periodic
//! schedule. [`Phasing::simulate`] says when the nodes of each item run.
//!
//! # Rules
//!
//! Each node has a phase, from 1 to the depth D. *Schedule iteration* N runs phase p on item N - p + 1. So K
//! items take K + D - 1 schedule iterations. Of the nodes of one schedule iteration, only an edge within one
//! phase orders two nodes. An edge to a later phase reads what an earlier schedule iteration made. An edge to
//! an earlier phase is an error, unless it is feedback: the target of feedback gets the value of an earlier
//! item, and is in the phase of its source or in an earlier one.
//!
//! A resource of capacity c has c *lanes*. A node occupies one lane for its cost, without interruption. In a
//! *semi-active* schedule the nodes are placed one by one, in the order of their starts. Each takes the lane
//! of its resource that is free first, and starts as soon as that lane is free and its predecessors have
//! ended. On exclusive resources these are all schedules that are shifted to the left.
//!
//! The *period* is the length of the shortest semi-active schedule of one schedule iteration: in lockstep, an
//! iteration ends when all its nodes have ended. The *latency* is the time from the start of an item's first
//! node to the end of its last one, with the next iteration one period later. Among the schedules of that
//! period, the one with the smallest latency is chosen. The search is exact for small works, and otherwise
//! list scheduling; [`Phasing::is_exact`] and [`Phasing::method`] say which.
//!
//! An *unpipelined* node has no phase. Its edges order it within the schedule iteration, so it may mix the
//! data of different items. For the latency it counts as phase 1.
//!
//! ```
//! use anabranch::phases::Work;
//!
//! let mut work = Work::new();
//! let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
//! let nodes = [("resize", gpu), ("detect", gpu), ("track", cpu), ("draw", cpu)];
//! let nodes = nodes.map(|(name, resource)| work.node(name, resource, 1.0));
//! nodes.windows(2).for_each(|pair| work.edge(pair[0], pair[1], 1 << 20));
//! let phasing = work.auto(2)?;
//! assert_eq!(nodes.map(|node| phasing.phase_of(node)), [1, 1, 2, 2]);
//! assert_eq!((phasing.period_us(), phasing.latency_us()), (2.0, 4.0));
//! # Ok::<(), anabranch::Error>(())
//! ```
//
// WHEN, FOR ITEMS. Lives here: the work and its checks, the periodic schedule of one iteration, the search
// for phases, the report, the picture. Never here: a thread, a clock, a future, a device, a closure of the
// user. The same work always gives the same phases, and nothing recurses over nodes without a bound.

mod auto;
mod bytes;
mod check;
mod cuts;
mod exact;
mod iteration;
mod list;
mod mixes;
mod phasing;
mod planning;
mod report;
mod simulate;
mod solve;
mod svg;
mod units;
mod work;

pub use phasing::{Bound, Load, Method, PhaseSpan, Phasing};
pub use simulate::{Beat, ItemSpan};
pub use work::{Resource, Work};

/// The largest phase.
pub const PHASE_MAX: u32 = 1024;
/// The most nodes of one work.
pub const NODES_MAX: usize = 1 << 16;
/// The most spans that one simulation makes.
pub const SPANS_MAX: usize = 1 << 24;
