//! Reports of an engine's operations to the observer.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::order::{Operation, Role};
use crate::error::{Error, Kind, shielded};
use crate::runtime::{Core, Launched, Observer, OpSpan, inside};

/// The observer of an engine's operations.
pub(super) struct Observed {
    observer: Arc<dyn Observer>,
    /// The engine's number.
    number: u64,
}

impl Observed {
    pub(super) fn new(core: &Core) -> Option<Self> {
        let observer = core.observer.clone()?;
        Some(Self { observer, number: core.next_number() })
    }

    /// Reports an operation whose body has returned. Returns an error if the observer panics.
    pub(super) fn report(&self, operation: &Operation, started: Instant, is_ok: bool, launched: Launched) -> Result<(), Error> {
        if operation.role != Role::User {
            return Ok(());
        }
        let (engine, operation) = (self.number, operation.name.clone());
        let span = OpSpan { engine, operation, start: started, end: Instant::now(), is_ok, launched };
        inside(0, || shielded(|| self.observer.operation(&span)))
            .map_err(|message| Kind::Observer { node: span.operation, message }.into())
    }
}
