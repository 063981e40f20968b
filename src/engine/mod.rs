//! Order from use: an [`Engine`] runs operations ([`Op`]) on variables ([`Var`]), in parallel as far as their
//! reads and writes allow.
//!
//! [`Op`] makes operations. [`Reads`] and [`Writes`] are the arguments that they can have. A push returns a
//! handle, [`Pushed`].
//
// ORDER FROM USE: variables, and an engine. The reads and writes of operations decide their order.
//
// Lives here: `Var`, `Op`, `Engine`, and each variable's queue. Never here: threads (`device`), lanes and
// wakes (`runtime`), graphs. README.md beside this file describes the queue, and the way of an operation from
// `push` to its handle's wake-up.
//
// Engine ──push(Op)──▶ a request at the end of each variable's queue ──all granted──▶ ready ──worker──▶ run, leave
//                      x: r1 r2 │ w3 │ r4

mod api;
mod blocked;
pub(crate) mod core;
mod hash;
mod op;
pub(crate) mod order;

pub use crate::value::args::{Data, Each, OneRead, OpFn, OpFutureFn, OpKernelFn, Reads};
pub use api::{Engine, EngineBuilder};
pub use blocked::{Blocked, PendingOp, WaitsFor};
pub(crate) use core::EngineCore;
pub use core::{Push, Pushed};
pub(crate) use op::{Begun, Bound, PutShared, ShareVar};
pub use op::{Bulk, Op, Put, Stream, TakeVar, Var, VarRead, VarWait, Writes};
pub use order::Vars;
pub(crate) use order::{Grant, Scope};
