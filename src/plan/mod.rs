//! Plans: the program of each stream, made of a graph by a policy.
//!
//! A [`Plan`] is what an executor runs. Its [`Schedule`] holds the programs, whose [`Step`]s wait, run nodes,
//! record points and release values; it prints itself as text, as a picture and as JSON. A [`Span`] says when
//! a node runs, by the costs of the graph, in a simulation or in a real run. Policies have a
//! [module](crate::policy) of their own.
//
// WHERE AND WHEN: which stream each node goes to, what waits for what, and the programs that come of it.
//
// Lives here: the contract of policies and the policies that come with the library (one file each), the
// orders in which a graph is walked, chains for nodes that no policy placed, the fewest waits, releases, and
// the schedule with its text form. Never here: a thread, a clock, a device, a future, a closure of the user
// other than a policy. The same shape and policy always give the same schedule, byte for byte, and nothing
// recurses, so that a chain of a million nodes is only long.
//
// Shape ──Policy──▶ Assignment ──chains──▶ a stream for every node ──waits──▶ points ──releases──▶ Schedule
//         (labels)               (host streams for the rest)       (transitive reduction)

mod ancestors;
mod arrivals;
mod causes;
mod chains;
pub(crate) mod code;
mod compile;
mod critical_path;
mod dot;
mod fabric;
mod joining;
#[cfg(feature = "json")]
mod json;
mod link;
mod lower;
mod marks;
mod min_streams;
mod needs;
mod nest;
mod numbering;
mod online;
mod order;
mod parts;
mod per_backend;
mod per_operator;
pub(crate) mod pipelining;
mod policy;
mod programs;
mod queued;
mod ranked;
mod ready_set;
mod records;
mod releases;
mod rules;
mod runs;
mod schedule;
mod segments;
mod single;
mod spans;
mod spare;
mod steps;
mod stream_set;
mod streams;
mod svg;
mod table;
pub(crate) mod text;
#[cfg(feature = "json")]
mod trace;
mod unrolled;
mod verify;
mod waits;

pub use crate::draw::TimeUnit;
pub use compile::Plan;
pub(crate) use compile::PlanInner;
pub(crate) use critical_path::CriticalPath;
pub(crate) use online::Placement;
pub(crate) use online::{Need, Placed, Placer, Stamp};
pub(crate) use pipelining::{Pipelining, Wanted};
pub(crate) use policy::{Assignment, Policy};
pub(crate) use ranked::Ranked;
pub use schedule::{InnerSchedule, Schedule, StreamKind};
pub use spans::Span;
pub use steps::{Point, Step};
pub(crate) use unrolled::OverItems;
pub(crate) use verify::check_steps;

/// Instead of the number of a stream, a chain, a gate or the like: there is none.
const NONE: u32 = u32::MAX;

/// Up to this many nodes every search of this room is exhaustive: host chains recycle exactly and no wait is
/// redundant. Above it each search visits a bounded number of nodes, so that compiling stays near-linear.
const EXACT_NODES_MAX: usize = 4096;

/// What the module `policy` of the crate has.
pub(crate) mod policies {
    pub use super::critical_path::CriticalPath;
    pub use super::min_streams::MinStreams;
    pub use super::online::Placement;
    pub use super::per_backend::PerBackend;
    pub use super::per_operator::PerOperator;
    pub use super::policy::{Assignment, Policy};
    pub use super::ranked::Ranked;
    pub use super::ready_set::ReadySet;
    pub use super::single::Single;
}
