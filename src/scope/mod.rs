//! Scopes: array programs that stream through less memory than their arrays need.
//!
//! [`Graph::scope`](crate::Graph::scope) adds a scope to a graph. Its closure gets a [`Scope`], declares
//! [`Store`]s, and adds operations on them. [`Streaming`] says how it streams. The rules are those of
//! [`tiles`](crate::tiles).
//!
//! ```
//! use anabranch::scope::{Streaming, Sum, Tile, TileMut};
//! use anabranch::{Executor, Graph, inputs};
//!
//! const N: usize = 1_000_000;
//! let mut g = Graph::new();
//! let total = g.scope("sums", Streaming::strict().memory_max(200_000), |s| {
//!     let a = s.store("a", [N]);
//!     s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
//!     let b = s.update("inc", (), &a, |mut a: TileMut<f64, 1>| {
//!         a.as_mut_slice().iter_mut().for_each(|x| *x += 1.0);
//!     });
//!     s.fold("sum", &b, Sum, |b: Tile<f64, 1>| b.as_slice().iter().sum::<f64>())
//! });
//! g.output("total", &total);
//!
//! let exec = Executor::host()?;
//! let mut outputs = futures::executor::block_on(exec.run(&g.compile()?, inputs! {}))?;
//! assert_eq!(*outputs.take::<f64>("total")?, 2.0 * N as f64);
//! # Ok::<(), anabranch::Error>(())
//! ```
//
// ARRAYS IN BATCHES. Lives here: what users say of a scope, where the elements of its stores are, and the
// pipelines that its groups become. Never here: which batches conflict (`tiles` says it), a second way to run
// a graph (a group is a pipeline, and its steps are the items).

mod args;
mod array;
mod batch;
mod bodies;
mod body;
mod cache;
#[cfg(debug_assertions)]
mod claims;
mod compile;
mod device_memory;
mod device_tile;
#[cfg(feature = "dlpack")]
mod dlpack;
mod draft;
mod fit;
mod group;
mod job;
mod kernels;
mod layout;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod on_device;
mod place;
mod plan;
mod queued;
mod results;
mod scalar;
#[expect(clippy::module_inception, reason = "it has the type of this name")]
mod scope;
mod stages;
mod store;
mod streaming;
mod tile;

pub use args::{Append, GivenOf, PartsOf, ScalarOf, Target, TileOf};
pub use array::Array;
pub use batch::Batch;
pub use device_tile::{DeviceTile, DeviceTileMut, Parts};
pub use draft::Uses;
pub use fit::NotStreaming;
pub use place::{Queued, Scoped};
pub use plan::ScopePlan;
pub use results::Declared;
pub use results::{Kept, Results};
pub use scalar::{Max, Min, Operator, Own, Product, Scalar, Sum, operator};
pub use scope::Scope;
pub use store::{DeviceStore, OnDevice, OnHost, Space, Store, View};
pub use streaming::Streaming;
pub use tile::{Tile, TileMut, TilePlace};

use crate::tiles::AXES_MAX;
