//! Pipelines: a graph that runs once for each item of a stream, several items at once.
//!
//! A [`Pipeline`] is made of a graph by [`Pipeline::new`]. [`Phases`] split it, [`Pipeline::in_flight`]
//! bounds it. [`Executor::pipe`](crate::Executor::pipe) runs it over a stream of items; [`Piped`] is the
//! stream of the results. [`Executor::run_stream`](crate::Executor::run_stream) does the same for a plain
//! plan and a stream of its inputs. [`Pipeline::verify`] checks what a run does, and [`Pipeline::simulation`]
//! runs it in virtual time.
//
// OVER ITEMS. Lives here: the pipeline and how it is compiled, and the streams of results. Never here: what
// begins when (`plan/pipelining.rs` says it, `run/pipe.rs` does it), a second way to run a graph.

mod answers;
mod checks;
mod phased;
mod piped;
mod pipeline;

pub use crate::graph::{Feedback, Outlets, State};
pub use crate::phases::Beat;
pub use crate::value::StateGuard;
pub use phased::Phases;
pub use piped::{Piped, RunStream};
pub use pipeline::Pipeline;
