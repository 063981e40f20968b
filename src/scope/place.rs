//! The places of what the closures of a scope read.

use std::convert::Infallible;

use super::batch::Batch;
use super::draft::Uses;
use crate::value::args::Place;

/// What the operations of a [`Scope`](super::Scope) read and write: the tiles of its stores, values that it
/// makes once, and values of the graph around. It has no values of its own.
#[derive(Debug)]
pub enum Scoped {}

/// The same for kernels: they read tiles of the device too.
#[derive(Debug)]
pub enum Queued {}

impl Place for Scoped {
    type View<'a> = Batch<'a>;
    type Fault = Infallible;
    type Binder<'b> = Uses<'b>;
}

impl Place for Queued {
    type View<'a> = Batch<'a>;
    type Fault = Infallible;
    type Binder<'b> = Uses<'b>;
}
