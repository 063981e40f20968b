//! `anabranch`: plans, simulates, verifies and compares graphs that are given as JSON, plans pipelines of
//! application descriptions, and reports which operations on arrays stream.

mod args;
mod commands;
mod compare;
mod files;
mod form;
mod pipeline;
mod ranks;
mod stream;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;

/// The failures of the tool. The cause decides the exit code.
pub(crate) enum Failure {
    /// The graph or the plan is not valid: exit code 1.
    Invalid(String),
    /// The tool cannot do what was requested: exit code 2, as that of clap.
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
