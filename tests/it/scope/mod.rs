//! Scopes: array programs in batches.

mod bounds;
mod endings;
pub(crate) mod kernels;
mod mistakes;
mod polls;
mod program;
pub(crate) mod random;
mod refused;
mod results;
mod transfers;
