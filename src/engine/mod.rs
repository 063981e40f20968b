//! Order from use: an [`Engine`] runs operations ([`Op`]) on variables ([`Var`]), as parallel as what they
//! read and write allows.
//!
//! [`Op`] makes operations; [`Reads`] and [`Writes`] say what they can read and write. A push returns a
//! handle, [`Pushed`].
//
// ORDER FROM USE: variables, and an engine that runs operations in an order which follows from what they
// read and write.
//
// Lives here: `Var`, `Op`, `Engine`, and each variable's queue. Never here: threads (`device`), wakes
// (`runtime`), graphs. See README.md beside this file for the queue, and how an operation gets from `push` to
// its handle's wake-up.
//
// Engine ──push(Op)──▶ a request at the end of each variable's queue ──all granted──▶ ready ──worker──▶ run ──▶ leave each queue
//                      x: r1 r2 │ w3 │ r4                                              first come, first served

mod api;
mod blocked;
pub(crate) mod core;
mod op;
pub(crate) mod order;

pub use crate::value::args::{Data, Each, OneRead, OpFn, OpFutureFn, OpKernelFn, Reads};
pub use api::{Engine, EngineBuilder};
pub use blocked::{Blocked, PendingOp, WaitsFor};
pub(crate) use core::{EngineCore, poll_share};
pub use core::{Push, Pushed};
pub(crate) use op::Shared;
pub use op::{Bulk, Op, Put, Stream, TakeVar, Var, VarRead, VarWait, Vars, Writes};
pub(crate) use order::{Grant, Scope};
