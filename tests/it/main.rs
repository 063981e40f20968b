//! The integration tests: one module per subject.
// The tests contain code that users may write: values that are boxes, futures that move between runtimes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::type_complexity,
    clippy::unit_arg,
    clippy::redundant_closure,
    clippy::borrowed_box,
    clippy::ptr_arg,
    clippy::async_yields_async
)]
#[cfg(feature = "json")]
mod app;
mod bounds;
mod builtin;
mod cancelling;
mod cheap;
mod comm;
mod control;
// The software driver is loaded with calls that only Unix has.
#[cfg(all(unix, feature = "cuda"))]
mod cuda;
mod destructors;
mod dice;
mod endings;
mod failures;
mod flow;
#[cfg(target_os = "linux")]
mod forking;
#[cfg(target_os = "linux")]
mod gpu_script;
mod graphs;
#[cfg(feature = "json")]
mod json;
mod kernels;
mod lending;
#[cfg(feature = "json")]
mod loading;
mod mistakes;
mod misuse;
mod nested_waits;
mod observing;
mod phases;
mod pipe;
pub(crate) mod policies;
mod random;
mod rehearsing;
mod reserving;
mod runtimes;
#[cfg(target_os = "linux")]
mod sandbox;
mod sanitizing;
mod scope;
mod sections;
mod services;
mod simulating;
mod sizes;
mod smoke;
#[cfg(target_os = "linux")]
mod starved;
mod support;
#[cfg(all(feature = "dlpack", feature = "ndarray"))]
mod tensors;
mod tidy;
mod tiles;
mod values;
mod vars;
mod vocabulary;
mod waiting_runs;
mod wakers;
mod waking;
