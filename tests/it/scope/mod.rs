//! Scopes: array programs in batches.

mod bounds;
mod endings;
mod mistakes;
mod program;
mod random;
mod refused;
