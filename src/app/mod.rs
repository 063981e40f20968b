//! Application descriptions of the Compute Graph Framework: `NAME.app.json` with its graphlets, nodes and
//! costs. Needs the feature `json`.
//!
//! [`App::open`] reads and checks them. An [`App`] has its [`Component`]s with their [`Pass`]es, its
//! [`Connection`]s, and the [`StmSchedule`] of each state. A schedule has [`Hyperepoch`]s, and these have
//! [`Epoch`]s. Of an epoch, [`App::written`] plans the phases that the file has, [`App::auto`] finds better
//! ones, and [`App::shape`] is the graph of one item, which runs with bodies for its passes: once
//! ([`Graph::from_shape`](crate::Graph::from_shape)), or over items
//! ([`Graph::add_shape`](crate::Graph::add_shape)).
//! [`Hyperepoch::simulate`] runs one hyperepoch on its engines. [`ports`] is a model of the original's ports.
//!
//! # How a description is read
//!
//! Row 0 of `passes` is not pipelined; rows 1, 2, ... are phases. A component in a row stands for all its
//! passes. A single pass in a row (`top.filter.PROCESS`) loses its implicit dependency on the pass before.
//!
//! A pass on a device is two runnables: a submitter on a CPU and a submittee on the engine. What depends on
//! the pass comes after the submittee. A connection lets the consumer's first pass come after the producer's
//! last one if both are in one phase of one epoch. If the first pass is not scheduled, the first one that is
//! takes its place. If the consumer is in a later phase, it reads the message
//! of its own item, which an earlier iteration has sent, so there is no dependency within the iteration.
//!
//! All CPUs of a machine are one engine with a lane for each. So are engines that differ in their number
//! only. Each other engine runs one submittee at a time. In the original, streams limit how many passes are
//! submitted to an engine at once, and do not let it run two; so they limit nothing here. The passes that
//! hold a mutex exclude each other in [`Hyperepoch::simulate`]; the plans of phases cannot keep that, and
//! have a warning.
//!
//! ```no_run
//! use anabranch::app::App;
//!
//! let app = App::open("Piped.app.json")?;
//! for epoch in app.schedule(None)?.hyperepochs.iter().flat_map(|hyperepoch| &hyperepoch.epochs) {
//!     println!("{}: as written\n{}", epoch.name, app.written(epoch)?.phasing);
//!     println!("{}: at most 3 phases\n{}", epoch.name, app.auto(epoch, 3)?.phasing);
//! }
//! # Ok::<(), anabranch::Error>(())
//! ```
//
// DESCRIPTIONS FROM OUTSIDE. Lives here: the forms of the files, what they say, their mistakes with file and
// place, the model of the original's ports, the simulation of a hyperepoch. Never here: a thread, a clock, a
// device, a body of a node; nothing recurses over what a file nests, and each list and number has a bound.

mod build;
mod capacity;
mod depend;
mod description;
mod fault;
mod files;
mod forms;
mod kind;
mod names;
mod order;
mod parts;
mod planning;
pub mod ports;
mod processor;
mod resources;
mod rows;
mod schedule;
mod simulation;
mod slips;
mod trace;
mod tree;
mod wcet;
mod wiring;

pub use description::{App, AppState};
pub use fault::Warning;
pub use parts::{Component, ComponentId, Connection, End, Pass, PassId, PortShape, Process};
pub use planning::EpochPlan;
pub use processor::Processor;
pub use schedule::{
    AliasGroup, Delivery, Dependency, Engine, EngineId, EngineStream, Epoch, Hyperepoch, Link, Mutex, Reason, Role, Runnable,
    RunnableId, StmSchedule,
};
pub use simulation::{EngineLoad, HyperepochLog, RunnableSpan};
pub use wcet::WCET_DEFAULT_NS;
