//! The core of an engine: pushes, the workers and polls that run operations, handles, asynchronous
//! operations, kernels on devices, failures.

mod async_op;
mod checked;
mod client;
mod engine_core;
mod failures;
mod faults;
mod handle;
mod handles;
mod inspect;
mod lanes;
mod observe;
mod observed;
mod pace;
mod perform;
mod polls;
mod push;
mod sites;
mod submit;
mod waits;
mod workers;

pub(crate) use engine_core::EngineCore;
pub(super) use failures::Failures;
pub use handle::Pushed;
pub(super) use inspect::Futures;
pub(super) use lanes::Lanes;
pub use push::Push;
pub(super) use waits::EngineDrain;
