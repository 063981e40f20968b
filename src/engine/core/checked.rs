//! What orders the operations of a simulated engine, told to the sanitizer: the variables that they use. A
//! kernel is checked against this order. An operation of the host knows what the host knows.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::engine_core::EngineCore;
use crate::device::StreamMut;
use crate::device::host::HostStream;
use crate::device::sanitize::{Key, within};
use crate::engine::order::{Enqueue, Granted, Variable};
use crate::error::{BoxError, Kind, Site};
use crate::sync::Ordering;

/// A kernel shares its strand with the one so many kernels before, so a race of these two is missed.
const STRANDS: u64 = 256;

impl EngineCore {
    fn base(&self) -> Key {
        Key::Base(self.address() as u64)
    }

    /// Enqueues a kernel on the host. A race is its error.
    pub(super) fn enqueue_on_host(&self, operation: &mut Granted<'_>, kernel: Enqueue) -> Result<(), BoxError> {
        let Some(sanitizer) = &self.sanitizer else {
            return operation.enqueue(kernel, StreamMut::Host(&mut HostStream::new(0)));
        };
        // ORDERING: Relaxed: a number that guards nothing.
        let number = self.kernels.fetch_add(1, Ordering::Relaxed);
        let key = Key::Operation(self.address() as u64, (number % STRANDS) as u32);
        sanitizer.restart(key, &before(operation));
        let site = Site { node: operation.full_name().into(), stream: "the simulated device".into() };
        let enqueue = || operation.enqueue(kernel, StreamMut::Host(&mut HostStream::new(0)));
        let (called, race) = within(sanitizer, key, site, || catch_unwind(AssertUnwindSafe(enqueue)));
        // Also after a panic: what follows the operation follows its uses.
        self.note_uses(operation, key);
        sanitizer.join(self.base(), key);
        called.unwrap_or_else(|panic| resume_unwind(panic))?;
        race.map_or(Ok(()), |race| Err(Box::new(Kind::Race(Box::new(race)).into())))
    }

    /// Notes that the host runs an operation.
    pub(super) fn note_host(&self, operation: &Granted<'_>) {
        let Some(sanitizer) = &self.sanitizer else { return };
        if operation.is_async {
            // Its future may have awaited others.
            sanitizer.join(Key::Host, self.base());
        }
        before(operation).into_iter().for_each(|key| sanitizer.join(Key::Host, key));
        self.note_uses(operation, Key::Host);
    }

    /// Notes that the variables of an operation were used, behind what a key knows.
    fn note_uses(&self, operation: &Granted<'_>, key: Key) {
        let Some(sanitizer) = &self.sanitizer else { return };
        for (access, variable) in operation.variables() {
            let used = if access.mode().is_exclusive() { written(variable) } else { read(variable) };
            sanitizer.join(used, key);
        }
    }

    /// Notes that the host sees what has ended: a poll that has run operations may return.
    pub(super) fn note_seen(&self) {
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.join(Key::Host, self.base());
        }
    }
}

/// Returns what a kernel comes after: the uses of its variables, and what the host has seen.
fn before(operation: &Granted<'_>) -> Vec<Key> {
    let mut keys = vec![Key::Host];
    for (access, variable) in operation.variables() {
        keys.push(written(variable));
        keys.extend(access.mode().is_exclusive().then(|| read(variable)));
    }
    keys
}

fn written(variable: &Variable) -> Key {
    Key::Written(ptr::from_ref(variable).addr())
}

fn read(variable: &Variable) -> Key {
    Key::Read(ptr::from_ref(variable).addr())
}
