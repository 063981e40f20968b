//! THE RUNTIME, which runs and engines share: the core of an executor with its admission, its devices and
//! its observer; lanes and the reactor, which turn progress into wakes; limbo, which keeps the memory of
//! dropped runs.
//!
//! Lives here: [`Core`] (an executor's inside), [`Client`] (a run or an engine), [`Lane`] (a stream's
//! progress and its waiters), [`Reactor`] (the thread that watches devices), [`Devices`] and
//! [`when_reached`] (completion), [`Submission`], [`Limbo`], [`Parking`] (the poller of futures),
//! [`WakeSet`] (wakers of a run's futures), [`Observer`]. Never here: a run or an engine itself. See
//! README.md beside this file for the protocols.

mod admission;
mod cancel;
mod choices;
mod client;
mod completion;
mod core;
mod deadline;
mod devices;
mod drain;
mod flights;
mod flow_count;
mod here;
mod idle;
mod inside;
mod lane;
mod lane_faults;
mod limbo;
mod observe;
mod observers;
mod poller;
mod reactor;
mod remote;
mod run_id;
mod share;
mod stats;
mod submission;
mod timeline;
mod wake_set;

pub(crate) use self::core::{Core, Keeper, Limits, address_of};
pub(crate) use admission::{ENGINES_MAX, Flying, NESTED_MAX, Precedence};
pub(crate) use cancel::Cancel;
pub use cancel::Canceller;
pub(crate) use choices::{Choices, STEPS_MAX};
pub(crate) use client::{Client, Registration, Visited, Visits};
pub(crate) use completion::when_reached;
pub(crate) use deadline::Deadline;
pub(crate) use devices::{Collector, Devices, LaneId};
pub(crate) use drain::Quiet;
pub(crate) use flow_count::{CountedFlow, FlowCount};
pub(crate) use here::{at_core, core_here};
pub use idle::Idle;
pub(crate) use idle::{IdleWait, Idles};
pub(crate) use inside::{inside, inside_executor, inside_poll, is_inside, is_inside_body, is_inside_work, is_outside};
pub(crate) use lane::{Lane, WaiterKey};
pub(crate) use lane_faults::LaneFaults;
pub(crate) use limbo::{Held, Limbo};
pub use observe::{DeviceSpan, Ended, Launched, Observer, Origin, Work, WorkKind, WorkSpan, WorkThread};
pub(crate) use observers::{Begun, Observers, Origins, note_worker, run_around};
#[cfg_attr(not(feature = "mpi"), allow(unused_imports))]
pub(crate) use poller::has_nothing_else;
pub(crate) use poller::{AsyncContext, Parking};
#[cfg_attr(not(feature = "cuda"), allow(unreachable_pub))]
pub use reactor::Pace;
pub(crate) use reactor::Reactor;
pub(crate) use remote::RemoteLane;
pub(crate) use run_id::LazyId;
pub use run_id::RunId;
pub(crate) use share::{add_work, may_work, own_share, poll_share, poll_unit, poll_work};
pub use stats::Stats;
pub(crate) use submission::Submission;
pub use timeline::Timeline;
pub(crate) use wake_set::{Resumes, WakeSet};
