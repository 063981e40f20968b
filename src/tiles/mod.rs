//! Tiles: which operations on arrays can run batch by batch, so that little of the arrays is in memory.
//!
//! An [`Outline`] has stores and operations. An operation has batches, and each uses a [`Part`] of a store.
//! [`Outline::stream`] finds the groups of operations that stream together: how many batches each runs
//! behind, the [`Window`] of each store that is in memory, and the [`Reason`]s where a group ends.
//!
//! # Rules
//!
//! Batch b of a later operation needs the batches of an earlier one that use the same elements, unless both
//! read, or both reduce by one operator. Let L be how far ahead the last of them is, at the most. With L ≤ 0,
//! the order of batches is enough. Otherwise the later operation runs L batches behind: so stencils stream.
//! If its first batch needs the last one of the other, nothing would overlap, and it does not stream. An
//! operation that is done once comes before the batches, if none before it conflicts with it; otherwise after
//! those that it needs. [`Rule`] has two other rules, for comparison.
//!
//! ```
//! use anabranch::tiles::{OpKind, Operation, Outline, Part, Rule};
//!
//! let mut outline = Outline::new();
//! let (a, sum) = (outline.store("a", [100_000_000], 8), outline.store("sum", [1], 8));
//! let tiles = || Part::tiles([1_562_500]);
//! outline.op(Operation::new("fill", [64]).write(a, tiles()));
//! outline.op(Operation::once("zero").kind(OpKind::Fill).write(sum, Part::whole()));
//! outline.op(Operation::new("add", [64]).read(a, tiles()).reduce(sum, Part::whole(), "+"));
//! let streamed = outline.stream(Rule::Exact)?;
//! assert!(streamed.is_one());
//! assert_eq!((streamed.unstreamed_bytes(), streamed.bytes(2)), (800_000_008, 25_000_008));
//! assert_eq!(outline.stream(Rule::Legate)?.groups().len(), 3);
//! # Ok::<(), anabranch::Error>(())
//! ```
//
// WHAT MAY STREAM. Lives here: stores and operations as data, the rules, the memory that they need, the
// report and the picture. Never here: an element, a closure of the user, a thread, a clock, a device. The
// cost of a rule does not depend on the number of batches, but for a diagonal.

mod index;
#[cfg(feature = "json")]
mod json;
mod legate;
mod lifetimes;
mod meet;
mod memory;
mod outline;
mod part;
mod peak;
mod reason;
mod report;
mod rules;
mod streamed;
mod svg;
mod written;

pub use meet::Meeting;
pub use memory::Window;
pub(crate) use memory::{Place, pack};
pub use outline::{AXES_MAX, Mode, OPS_MAX, OpId, OpKind, OpName, Operation, Outline, StoreId, VOLUME_MAX};
pub(crate) use part::Along;
pub use part::Part;
pub use reason::{Clash, Reason, Side};
pub(crate) use rules::conflicts;
pub use streamed::{Group, Rule, Streamed};
