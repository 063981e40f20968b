//! Control flow as async code: a [`Flow`] pushes operations and calls graphs ([`Function`]), and awaits only
//! the values that decide what comes next.
//!
//! `executor.flow(async |f: &Flow| { .. })` makes a [`FlowRun`], which is a future.
//
// CONTROL FLOW: branches and loops over graphs and operations, as async code.
//
// Lives here: the context that such code uses (`Flow`), its future (`FlowRun`), graphs as functions
// (`Function`), and calls of these (`Call`). Never here: order between operations (`engine`), the runs of
// graphs (`run`).
//
// exec.flow(async |f: &Flow| { .. }) ──▶ FlowRun (a future)
//      f.task, f.call ──▶ operations on variables, pushed at once ──▶ Var
//      f.get(&var).await ◀── the only place that waits

mod arity;
mod call;
mod context;
mod function;
mod get;
mod observe;
mod run;
mod slice;

pub use call::{Call, OneValue, Values};
pub use context::Flow;
pub use function::{Arg, Args, Function, Ports};
pub use get::Get;
pub use run::FlowRun;
