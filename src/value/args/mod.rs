//! The one vocabulary of arguments, for nodes of graphs and operations of engines alike: what they read
//! ([`Reads`]), what their closures get for it ([`Param`]), and the closures ([`TaskFn`] and its like).
//!
//! A place ([`Place`]) has the values: a graph those of its nodes, an engine those of its variables. A
//! [`Key`] names one value of a place. All else is the same for both.

mod closures;
mod each;
mod params;
mod reads;
mod tuples;

pub(crate) use closures::{Fallible, Finish, Infallible};
pub use closures::{FutureFn, KernelFn, OpFn, OpFutureFn, OpKernelFn, TaskFn};
pub use each::Each;
pub use params::Data;
#[expect(unreachable_pub, reason = "named by hidden items of public traits")]
pub use params::{ByRef, ByValue, EachOf, Key, Param, Params, Place};
pub use reads::{OneRead, Reads};
#[expect(unreachable_pub, reason = "seals public traits")]
pub use reads::{Sealed, Single};
pub(crate) use tuples::tuples;
