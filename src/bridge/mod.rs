//! THE DOORBELL: how "stream s has reached n" becomes a wake, and who keeps memory until then. See README.md
//! beside this file for the protocol, its race, and why no wake is lost.
//!
//! Lives here: [`Lane`] (a stream's progress and those who wait for it), [`Limbo`] (memory of dropped runs),
//! [`Wakeset`] (which of a run's futures were woken), [`Reactor`] (who watches lanes that devices move).
//! Never here: graphs, plans, what a run is.

mod faults;
mod lane;
mod limbo;
mod reactor;
mod remote;
mod wakeset;

pub(crate) use crate::error::shielded;
pub(crate) use faults::Faults;
pub(crate) use lane::{Lane, WaiterKey};
pub(crate) use limbo::{Held, Limbo};
#[cfg_attr(not(feature = "cuda"), allow(unreachable_pub))]
pub use reactor::Pace;
pub(crate) use reactor::Reactor;
pub(crate) use remote::RemoteLane;
pub(crate) use wakeset::{Wakeset, Woken};
