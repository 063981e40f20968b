//! Scopes: array programs in batches.

mod program;
mod random;
