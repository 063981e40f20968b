//! The places of what the closures of a scope read.

use std::convert::Infallible;

use super::batch::Batch;
use super::draft::Uses;
use crate::value::args::Place;

/// What the operations of a [`Scope`](super::Scope) read and write: the tiles of its stores, values that it
/// makes once, and values of the graph around. It has no values of its own.
///
/// ```
/// use anabranch::graph::Reads;
/// use anabranch::scope::{Scoped, Store};
///
/// fn is_read(_: impl Reads<Scoped>) {}
///
/// fn all_that_operations_read(a: &Store<f32, 2>, b: &Store<f32, 2>) {
///     is_read(a);
///     is_read((a, b.halo([1, 0], [1, 0])));
/// }
/// ```
#[derive(Debug)]
pub enum Scoped {}

/// The same for kernels: they read tiles of the device too.
///
/// ```
/// use anabranch::graph::Reads;
/// use anabranch::scope::{DeviceStore, Queued};
///
/// fn is_read(_: impl Reads<Queued>) {}
///
/// fn all_that_kernels_read(a: &DeviceStore<f32, 2>, b: &DeviceStore<f32, 2>) {
///     is_read((a, b.whole()));
/// }
/// ```
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
