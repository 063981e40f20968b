//! Plans: a policy turns a graph into one program for each stream.
//!
//! An executor runs a [`Plan`]. Its [`Schedule`] holds the programs. Their [`Step`]s wait, run nodes, record
//! points and release values. A schedule prints as text, as a picture and as JSON. A [`Span`] is the time in
//! which a node runs, by the costs of the graph, in a simulation or in a real run. Policies are in the module
//! [`policy`](crate::policy).
//
// WHERE AND WHEN: the stream of each node, the waits between nodes, and the resulting programs.
//
// Lives here: the contract of policies and the policies that come with the library (one file each), the
// orders in which a graph is visited, chains for nodes without a stream of the policy, the fewest waits,
// releases, and the schedule with its text form. Never here: a thread, a clock, a device, a future, a user
// closure other than a policy. The same shape and policy always give the same schedule, byte for byte. No
// function recurses, so a chain of a million nodes needs no deep stack.
//
// Shape ──Policy──▶ Assignment ──chains──▶ a stream for every node ──waits──▶ points ──releases──▶ Schedule
//         (labels)               (host streams for the rest)       (transitive reduction)

mod ancestors;
mod arrivals;
mod causes;
mod chains;
mod checks;
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
mod search;
mod segments;
mod single;
mod spans;
mod spare;
mod steps;
mod stream_name;
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
pub(crate) use compile::{Context, Elsewhere, OfRank, PlanInner};
pub(crate) use critical_path::CriticalPath;
pub(crate) use nest::Nested;
pub(crate) use online::Placement;
pub(crate) use online::{Need, Placed, Placer, Stamp};
pub(crate) use pipelining::{Pipelining, Wanted};
pub(crate) use policy::{Assignment, Policy};
pub(crate) use ranked::Ranked;
pub use schedule::{InnerSchedule, Schedule, StreamKind};
pub use spans::Span;
pub use steps::{Point, Step};
pub(crate) use stream_name::StreamName;
pub(crate) use unrolled::OverItems;
pub(crate) use verify::check_steps;

/// Stands for no stream, no chain, no gate, and so on.
const NONE: u32 = u32::MAX;

/// Up to this number of nodes every search of this room is exhaustive: host chains recycle exactly and no
/// wait is redundant. In larger graphs a search visits a bounded number of nodes, so that compiling stays
/// near-linear.
const EXACT_NODES_MAX: usize = 4096;

/// The items of the crate's module `policy`.
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
