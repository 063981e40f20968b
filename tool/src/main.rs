//! `anabranch`: plans, simulates, verifies and compares graphs that are given as JSON, plans pipelines of
//! application descriptions, and says which operations on arrays stream.

mod args;
mod commands;
mod compare;
mod files;
mod form;
mod pipeline;
mod stream;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;

/// What ends the tool: who is at fault decides the exit code.
pub(crate) enum Failure {
    /// The graph or the plan is not valid: 1.
    Invalid(String),
    /// The tool was asked for something it cannot do: 2, as clap's own.
    Usage(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Usage(format!("cannot write: {error}"))
    }
}

fn main() -> ExitCode {
    let (message, code) = match commands::run(&Args::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Invalid(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
    };
    eprintln!("error: {message}");
    ExitCode::from(code)
}
