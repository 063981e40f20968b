//! What the observers of an executor are told of an engine's operations.

use std::time::Instant;

use super::engine_core::{EngineCore, NO_SLOT};
use crate::device::queue::Submitted;
use crate::engine::order::{Granted, Operation, Rest, Role};
use crate::error::Error;
use crate::runtime::{Begun, Ended, LaneId, Launched, Observers, Origins, Work, WorkKind};
use crate::sync::lock;

impl EngineCore {
    /// Tells observers, if there are any, that an operation begins; or goes on with one that has begun. A
    /// kernel for a device begins when it is enqueued.
    pub(super) fn begin_observed(&self, operation: &Granted<'_>, number: u32) -> Option<Begun> {
        let observed = self.observed.as_ref()?;
        if operation.has_begun() {
            return lock(&observed.pending).remove(&number);
        }
        let is_later = operation.is_kernel && self.lanes.is_some();
        if is_later { None } else { self.begin_now(operation, number) }
    }

    /// Tells observers, if there are any, that an operation begins.
    pub(super) fn begin_now(&self, operation: &Granted<'_>, number: u32) -> Option<Begun> {
        let observed = self.observed.as_ref().filter(|_| operation.role == Role::User)?;
        let run = operation.scope().map_or_else(|| self.id.get(), |scope| scope.id.get());
        let kind = WorkKind::Operation { number };
        let work = Work { run, around: None, item: 0, name: operation.name.clone(), kind };
        let ready = self.ready(&observed.observers, operation);
        let none = Origins::default();
        let origins = operation.pushed().map_or(&none, |pushed| &pushed.origins);
        Some(observed.observers.begin(self.address(), work, ready, origins))
    }

    /// Returns when an operation could have begun: it was pushed, and those that it waits for had ended.
    fn ready(&self, observers: &Observers, operation: &Granted<'_>) -> Instant {
        // A part of a joined operation was not pushed itself.
        let Some(pushed) = operation.pushed().map(|pushed| pushed.at) else { return Instant::now() };
        let ended = |ns| if ns > 0 { observers.instant_of(ns) } else { pushed };
        let before = operation.variables().map(|(access, variable)| ended(variable.ended_ns(access.uses().changes())));
        before.fold(pushed, Instant::max)
    }

    /// Runs a body, which does not unwind.
    pub(super) fn around<R>(&self, begun: &mut Option<Begun>, body: impl FnOnce() -> R) -> R {
        match (&self.observed, begun) {
            (Some(observed), Some(begun)) => observed.observers.around(begun, body),
            _ => body(),
        }
    }

    /// Tells observers that an operation has ended, unless work is left.
    pub(super) fn go_on_observed(&self, operation: &Granted<'_>, number: u32, begun: Option<Begun>, rest: &Rest, is_ok: bool) {
        match (rest, &self.observed, begun) {
            (Rest::Future(..) | Rest::Pending(_), Some(observed), Some(begun)) => {
                debug_assert_ne!(number, NO_SLOT, "an asynchronous operation is in a slot");
                lock(&observed.pending).insert(number, begun);
            }
            (_, _, begun) => self.end_observed(operation, begun, Ended::of(is_ok)),
        }
    }

    /// Tells observers that an asynchronous operation, if it has begun, was cancelled.
    pub(super) fn tell_not_ended(&self, operation: &Granted<'_>, number: u32) {
        if let Some(observed) = self.observed.as_ref().filter(|_| operation.has_begun()) {
            let begun = lock(&observed.pending).remove(&number);
            self.end_observed(operation, begun, Ended::Cancelled);
        }
    }

    /// Tells observers that an operation has ended. A panic of theirs fails the flow, or `idle` reports it.
    /// It is no failure of the operation.
    pub(super) fn end_observed(&self, operation: &Granted<'_>, begun: Option<Begun>, ended: Ended) {
        if let Some(mut begun) = begun {
            begun.leave(Launched::Host, Instant::now());
            self.tell_end(operation, begun, ended);
        }
    }

    fn tell_end(&self, operation: &Granted<'_>, begun: Begun, ended: Ended) {
        self.note_end(operation, begun.end());
        self.tell(operation, begun, ended);
    }

    fn tell(&self, operation: &Operation, begun: Begun, ended: Ended) {
        let Some(observed) = &self.observed else { return };
        if let Err(error) = observed.observers.end_left(begun, ended) {
            self.report_observer(operation, error);
        }
    }

    /// Tells observers that an operation was submitted to a device: now, or if it returns the operation, when
    /// the device has ended it.
    pub(super) fn submit_observed(
        &self,
        operation: &Granted<'_>,
        begun: Option<Begun>,
        ended: Ended,
        submitted: Option<(&Submitted, LaneId)>,
    ) -> Option<Begun> {
        let mut begun = begun?;
        begun.submit(submitted.map(|(submitted, lane)| (submitted, lane.device, 0)), Instant::now());
        if ended == Ended::Ok && begun.is_timed() {
            self.note_end(operation, begun.end());
            return Some(begun);
        }
        self.tell_end(operation, begun, ended);
        None
    }

    /// Tells observers that a device has ended an operation, or that it never will.
    pub(super) fn end_submitted(&self, operation: &Operation, mut begun: Begun, ended: Ended) {
        begun.read_times();
        self.tell(operation, begun, ended);
    }

    /// Notes when the uses of an operation have ended.
    fn note_end(&self, operation: &Granted<'_>, end: Instant) {
        let Some(observed) = &self.observed else { return };
        for (access, variable) in operation.variables() {
            variable.set_ended_ns(access.uses().changes(), observed.observers.ns_of(end));
        }
    }

    #[cold]
    fn report_observer(&self, operation: &Operation, error: Error) {
        match operation.scope() {
            Some(scope) => scope.fail(error),
            None => self.keep_failure(&error),
        }
    }
}
