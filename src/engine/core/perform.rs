//! The run of an operation's body, or of the bodies that are joined in it: whether it is run, its effect on
//! variables and errors. And how a variable without a handle is freed.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::engine_core::{Accepted, EngineCore, NO_SLOT};
use crate::engine::order::{Access, Frees, Granted, Joined, Operation, Rest, Role, Scope, Unpushed, Variable};
use crate::error::{BoxError, Error, Kind, Result, panic_message, shielded};
use crate::runtime::inside;

type Caught = std::thread::Result<Result<(), BoxError>>;

impl Frees for EngineCore {
    #[inline]
    fn may_free_now(&self) -> bool {
        let is_unused = self.lanes.is_none() && self.slots.in_use() == 0 && !self.is_forked();
        if is_unused {
            self.slots.before_free();
        }
        is_unused
    }

    fn free(self: Arc<Self>, operation: Unpushed<'static>) {
        if let Ok(Accepted::Pending(key)) = self.push_beyond(operation) {
            self.handles.let_go(&self.slots, key, false);
        }
        // This may be the last reference: dropping the engine drops foreign values.
        let _ = shielded(|| drop(self));
    }
}

impl EngineCore {
    /// Runs the body of an operation, and updates the state of its variables. Returns the work that is left.
    #[inline(always)]
    pub(super) fn perform(&self, mut operation: Granted<'_>, number: u32) -> Result<Rest> {
        if !self.is_smooth(&operation) {
            return self.perform_with_care(operation, number);
        }
        match self.run_simple(&mut operation) {
            Ok(Ok(())) => {
                operation.each_variable(|access, variable| {
                    if access.uses().changes() {
                        variable.count_write();
                    }
                });
                Ok(Rest::Nothing)
            }
            Ok(Err(cause)) => Err(self.has_returned(&operation, cause)),
            Err(panic) => Err(self.has_failed(&operation, operation.panicked(panic_message(panic)))),
        }
    }

    /// Performs the parts of a joined operation, which has been granted all their variables. Returns the
    /// first failure.
    fn perform_parts(&self, joined: &Granted<'_>, parts: Joined) -> Result<()> {
        let mut outcome = Ok(());
        parts.run_each(|part| match self.perform(joined.part(part), NO_SLOT) {
            Ok(rest) => {
                debug_assert!(matches!(rest, Rest::Nothing), "what may leave work is not joined");
                mem::forget(rest);
            }
            Err(error) if outcome.is_ok() => outcome = Err(error),
            Err(error) => drop(error),
        });
        outcome
    }

    /// Runs the body of an operation that is nothing else.
    #[inline(always)]
    fn run_simple(&self, operation: &mut Granted<'_>) -> Caught {
        let mut rest = Rest::Nothing;
        let caught = inside(self.address(), || catch_unwind(AssertUnwindSafe(|| operation.run(&mut rest))));
        debug_assert!(matches!(rest, Rest::Nothing), "such an operation is its body");
        // The compiler does not know that, and would call a function to drop it.
        mem::forget(rest);
        caught
    }

    /// Returns true for nearly all operations: they need only a call of the body, and a count of the writes.
    #[inline(always)]
    fn is_smooth(&self, operation: &Granted<'_>) -> bool {
        if !operation.is_simple() {
            return false;
        }
        let mut is_smooth = !self.needs_attention();
        operation.each_variable(|_, variable| is_smooth &= !variable.may_be_poisoned());
        is_smooth
    }

    #[inline(never)]
    fn perform_with_care(&self, mut operation: Granted<'_>, number: u32) -> Result<Rest> {
        if operation.frees() {
            return self.free_variable(operation);
        }
        if let Some(error) = self.obstacle(&operation) {
            self.tell_not_ended(&operation, number);
            let _ = shielded(|| operation.discard_body());
            self.take_effect(&operation, Some(&error));
            return Err(error);
        }
        let mut rest = Rest::Nothing;
        let mut begun = self.begin_observed(&operation, number);
        let ran = self.around(&mut begun, || self.run_caught(&mut operation, number, &mut rest));
        self.go_on_observed(&operation, number, begun, &rest, matches!(ran, Ok(Ok(()))));
        match ran {
            Ok(Ok(())) => match rest {
                Rest::Parts(parts) => self.perform_parts(&operation, parts).map(|()| Rest::Nothing),
                Rest::Nothing if operation.has_own_effect() => {
                    self.take_effect(&operation, None);
                    Ok(rest)
                }
                rest => Ok(rest),
            },
            Ok(Err(cause)) => Err(self.has_returned(&operation, cause)),
            Err(panic) => Err(self.has_failed(&operation, operation.panicked(panic_message(panic)))),
        }
    }

    /// Frees a variable, also after a shutdown.
    fn free_variable(&self, mut operation: Granted<'_>) -> Result<Rest> {
        self.slots.before_free();
        match self.run_simple(&mut operation) {
            Ok(Ok(())) => Ok(Rest::Nothing),
            Ok(Err(cause)) => Err(self.has_failed(&operation, operation.failed(cause))),
            Err(panic) => Err(self.has_failed(&operation, operation.panicked(panic_message(panic)))),
        }
    }

    /// Runs a body. The body of an asynchronous operation may wait, but not for itself, so it is run as the
    /// polled one. A kernel is left to be enqueued if there are devices for it, else it runs on the host.
    fn run_caught(&self, operation: &mut Granted<'_>, number: u32, rest: &mut Rest) -> Caught {
        if !operation.is_kernel {
            self.note_host(operation);
        }
        if operation.is_async {
            return operation.run_as_polled(self.address(), number, rest);
        }
        let run = || {
            operation.run(rest)?;
            match mem::replace(rest, Rest::Nothing) {
                Rest::Kernel(kernel) if self.lanes.is_none() => self.enqueue_on_host(operation, kernel)?,
                left => *rest = left,
            }
            Ok(())
        };
        inside(self.address(), || catch_unwind(AssertUnwindSafe(run)))
    }

    /// Takes the error that a body returned, or that prevented its call.
    #[cold]
    fn has_returned(&self, operation: &Granted<'_>, cause: BoxError) -> Error {
        let kept = cause.downcast_ref::<Error>().and_then(Error::kept_variable);
        let Some(variable) = kept else { return self.has_failed(operation, operation.failed(cause)) };
        let leaves_old = operation.variables().any(|(access, variable)| access.uses().is_written() && !variable.is_unwritten());
        let error = Kind::OpNotBegun { operation: operation.full_name(), variable, leaves_old }.into();
        self.leave_unchanged(operation, &error, false);
        self.report_not_begun(operation, &error);
        error
    }

    #[cold]
    fn has_failed(&self, operation: &Granted<'_>, error: Error) -> Error {
        if operation.has_own_effect() {
            self.take_effect(operation, Some(&error));
        } else {
            self.report(operation, &error);
        }
        error
    }

    /// Returns the error if an operation must not run.
    fn obstacle(&self, operation: &Granted<'_>) -> Option<Error> {
        if self.is_closed_relaxed() {
            return Some(Kind::ShutDown.into());
        }
        if operation.scope().is_some_and(|scope| scope.is_cancelled()) {
            return Some(Kind::Cancelled.into());
        }
        if !operation.has_own_effect() {
            // Each of the joined operations is checked by itself.
            return None;
        }
        operation.variables().filter(|(access, _)| access.uses().is_read()).find_map(|(_, variable)| {
            let origin = variable.poison()?;
            let because = origin.node().unwrap_or("an operation").to_owned();
            let (operation, variable) = (operation.full_name(), variable.name.to_cow());
            Some(Error::with_source(Kind::NotRun { operation, variable, because }, Box::new(origin)))
        })
    }

    /// Updates the variables that an operation has written, or has failed to write.
    pub(super) fn take_effect(&self, operation: &Granted<'_>, failure: Option<&Error>) {
        if let Some(cancelled) = failure.filter(|error| error.is_cancelled()) {
            return self.leave_unchanged(operation, cancelled, operation.has_begun());
        }
        for (access, variable) in operation.variables() {
            if access.uses().changes() {
                self.change(operation, variable, failure);
            }
        }
        if let Some(error) = failure {
            self.report(operation, error);
        }
    }

    fn change(&self, operation: &Granted<'_>, variable: &Variable, failure: Option<&Error>) {
        variable.count_write();
        variable.set_poison(failure.map(|error| error.origin().clone()));
        if self.lanes.is_some() && !operation.is_kernel {
            variable.device_uses.clear();
        }
    }

    /// Leaves variables unchanged after an operation that was cancelled or could not begin. Only a variable
    /// that never had a value gets the error, and one whose value the operation took.
    fn leave_unchanged(&self, operation: &Granted<'_>, error: &Error, has_begun: bool) {
        let is_lost = |access: &Access, variable: &Variable| variable.is_unwritten() || has_begun && access.uses().is_taken();
        for (access, variable) in operation.variables() {
            if access.uses().changes() && is_lost(access, variable) {
                self.change(operation, variable, Some(error));
            }
        }
    }

    /// Reports an operation that could not begin, because no later read would report it.
    fn report_not_begun(&self, operation: &Operation, error: &Error) {
        if self.failures.strong_count() > 0 {
            self.report(operation, error);
        } else if let Some(scope) = operation.scope() {
            self.report_to_flow(scope, error);
        }
    }

    /// Ends a flow with the error of an operation that could not begin, unless the handle or `idle` reports
    /// it. Otherwise the flow would continue with an old value.
    #[cold]
    pub(in crate::engine) fn report_to_flow(&self, scope: &Arc<Scope>, error: &Error) {
        if error.leaves_old_value() && self.failures.strong_count() == 0 {
            let flow: Weak<Scope> = Arc::downgrade(scope);
            error.report_at_last(flow);
        }
    }

    /// Keeps an error for `idle`, if the engine has a handle.
    pub(in crate::engine) fn keep_failure(&self, error: &Error) {
        self.failures.upgrade().iter().for_each(|failures| failures.keep(error));
    }

    /// Keeps the error of a refused push for `idle`, if nothing else reports it.
    pub(in crate::engine) fn keep_refusal(&self, refused: &Error) {
        if !refused.is_shut_down() {
            self.keep_failure(refused);
        }
    }

    /// Reports a failure to `idle`. If the operation has no variable to poison, it does so at once. Otherwise
    /// it does so when the last clone of the error is dropped, and no handle and no read has reported it.
    pub(super) fn report(&self, operation: &Operation, error: &Error) {
        let origin = error.origin();
        // A cancellation or a shutdown is no news to its caller.
        if matches!(operation.role, Role::Waits | Role::Joins) || origin.is_shut_down() || origin.is_cancelled() {
            return;
        }
        if operation.frees() || !operation.writes() {
            self.keep_failure(error);
        } else {
            origin.report_at_last(self.failures.clone());
        }
    }
}
