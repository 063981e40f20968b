//! Order from use: an [`Engine`] runs operations ([`Op`]) on variables ([`Var`]), as parallel as what they
//! read and write allows.
//!
//! [`Op`] makes operations; [`Reads`] and [`Writes`] say what they can read and write. A push returns a
//! handle, [`Pushed`].
//
// ORDER FROM USE: variables, and an engine that runs operations in an order which follows from what they
// read and write.
//
// Lives here: `Var`, `Op`, `Engine`, and each variable's queue. Never here: threads and wakes
// (`device`, `bridge`), graphs. See README.md beside this file for the queue, and why nobody's turn is lost.
//
// Engine ──push(Op)──▶ a request at the end of each variable's queue ──all granted──▶ ready ──worker──▶ run ──▶ leave each queue
//                      x: r1 r2 │ w3 │ r4                                              first come, first served

mod api;
mod arity;
mod body;
mod bulk;
mod device_use;
mod device_uses;
mod drive;
mod failures;
mod hand;
mod handle;
mod home;
mod hub;
mod idle;
mod kernel;
mod lanes;
mod later;
mod name;
mod op;
mod pace;
mod perform;
mod place;
mod push;
mod queue;
mod ready;
mod scope;
mod slots;
mod stream;
mod submit;
mod task;
mod turn;
mod uses;
mod var;
mod waiting;
mod wakers;
mod within;
mod work;

pub use api::{Engine, EngineBuilder};
pub use bulk::Bulk;
#[cfg(test)]
pub(crate) use device_use::Ending;
pub use handle::Pushed;
pub(crate) use hub::Hub as EngineCore;
pub use op::Op;
pub(crate) use pace::poll_share;
pub use push::Push;
#[cfg(test)]
pub(crate) use queue::{Queue, Request, RequestId, Requests};
pub(crate) use scope::Scope;
pub use stream::OpStream;
pub(crate) use uses::Shared;
pub use uses::{Fetch, OpFn, OpFutureFn, OpKernelFn, Put, Reads, TakeVar, Use, Writes};
pub use var::{Var, VarRead, VarWait};
