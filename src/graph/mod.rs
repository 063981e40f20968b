//! Graphs: nodes, the values that flow between them, loops and branches.
//!
//! A [`Graph`] is built by its methods. [`Value`] is a typed handle to the value of a node. [`Reads`] lists
//! the values that a node can read. [`TaskFn`], [`KernelFn`] and [`FutureFn`] are the closures that can be
//! its body. A [`Shape`] is a graph without closures: policies get it, and JSON describes it. [`Bodies`] are
//! the closures for the nodes of a shape.
//
// WHAT: graphs as data. Lives here: the graph and its builder, the shape, the checks that a graph must pass.
// This room is pure. Never here: a thread, a clock, a device, an executor. No code in this room runs a node.

mod around;
mod between;
mod bodies;
mod body;
mod builder;
mod carry;
mod chain;
pub(super) mod check;
mod closures;
mod communication;
mod condition;
mod control;
mod control_node;
mod handle;
mod inner;
mod items;
mod job;
#[cfg(feature = "json")]
mod json;
mod links;
mod load;
mod nested;
mod node;
mod nodes;
mod ports;
mod reads;
mod section;
mod select;
mod shape;
mod source;
mod starts;
mod states;
mod takes;
mod values;

pub use crate::value::args::{Data, Each, FutureFn, KernelFn, OneRead, Reads, TaskFn};
pub(crate) use between::{Between, Fill, ItemEdge, Kept, Stays};
pub use bodies::{Bodies, Given};
pub(crate) use body::Body;
pub use builder::Graph;
pub(crate) use builder::{NO_CELL, NodeWork};
pub(crate) use carry::Carries;
#[cfg(feature = "json")]
pub(crate) use check::is_one_slip;
pub(crate) use check::{check, check_ids, check_name, check_size, cycle_of, explain_cycle, take_last, unknown_node};
pub use communication::{Communication, Exchange, Peer, Ranks};
pub use condition::{Condition, Times, times};
pub use control::Branch;
pub(crate) use control_node::{ControlKind, ControlNode, Origin};
pub use handle::{Takable, Take, Value, take};
pub use items::{Feedback, Held, Outlets, State};
pub(crate) use job::{Detail, Job, JobFuture, Made, NewJob, RunContext, Shared, SharedContext};
#[cfg(feature = "json")]
pub(crate) use json::{fault as json_fault, no_json};
pub(crate) use links::{Links, Rows, kahn_order};
pub use nested::{Control, Role};
pub use node::NodeMut;
pub(crate) use select::Test;
pub use select::{Above, Holds, Select, above};
pub use shape::{Backend, Edge, EdgeKind, Memory, NodeId, NodeShape, Shape};
pub use states::{OneState, States};
pub(crate) use values::{InputPort, Maker, OutputPort, Sharer, Transfer, ValueInfo};

/// The most nodes of one graph: the number that one ticket of the host device can name.
pub const NODES_MAX: usize = (1 << 24) - 1;
/// The most inputs, and the most outputs, that one graph may have.
pub const PORTS_MAX: usize = 4096;
/// The largest ordinal of a device. One node may span at most one device more than this number.
pub const DEVICE_MAX: u32 = 1023;
/// The largest cost of one node in microseconds: eleven days. The limit keeps sums of costs finite.
pub const COST_US_MAX: f64 = 1e12;
/// The deepest nesting of a graph that is loaded from data.
const NESTING_MAX: usize = 64;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
