//! x
mod bridge;
mod device;
mod error;
mod exec;
mod graph;
mod plan;
mod sync;
mod value;
pub use device::host::HostStream;
pub use error::{BoxError, Error, Result};
pub use exec::*;
pub use graph::*;
pub use plan::{Assignment, PerBackend, PerOperator, Plan, Point, Policy, Schedule, Single, Step, StreamKind, topological_order};
