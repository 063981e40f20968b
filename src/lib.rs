//! x
mod error;
mod graph;
mod sync;
mod value;
pub use error::{BoxError, Error, Result};
pub use graph::*;
