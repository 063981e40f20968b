//! What an operation comes to: whether it is run, and what becomes of its variables and of its failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::body::Ran;
use super::hub::Hub;
use super::op::{Job, Role};
use super::place::Asked;
use super::scope::Scope;
use super::within::Polling;
use crate::error::shielded;
use crate::error::{BoxError, Error, Kind, Result, panic_message};
use crate::runtime::inside;
use crate::sync::Ordering;

impl Hub {
    /// Does what an operation is there for, without its queues.
    #[inline(always)]
    pub(super) fn perform(&self, job: &Job, number: u32) -> Result<Ran> {
        if !self.is_smooth(job) {
            return self.perform_with_care(job, number);
        }
        match inside(self.address(), || self.run_caught(job)) {
            Ok(Ok(ran)) => {
                // As below, where nothing was poisoned before.
                job.each(|asked| {
                    if asked.changes() {
                        // SAFETY: granted to write.
                        unsafe { asked.place() }.count_write();
                    }
                });
                Ok(ran)
            }
            Ok(Err(cause)) => Err(self.has_returned(job, cause)),
            Err(panic) => Err(self.has_failed(job, job.panicked(panic_message(panic)))),
        }
    }

    /// Returns true if all that is to be done for an operation is to run it and to count what it writes, as
    /// with nearly all.
    #[inline(always)]
    fn is_smooth(&self, job: &Job) -> bool {
        let mut is_smooth = job.is_simple() && !self.is_closed.load(Ordering::Relaxed);
        // SAFETY: granted.
        job.each(|asked| is_smooth &= !unsafe { asked.place() }.may_be_poisoned());
        is_smooth
    }

    #[inline(never)]
    fn perform_with_care(&self, job: &Job, number: u32) -> Result<Ran> {
        if !job.frees()
            && let Some(error) = self.obstacle(job)
        {
            // SAFETY: whoever performs it has it alone, but for its requests.
            let _ = shielded(|| unsafe { job.forgo() });
            self.take_effect(job, Some(&error));
            return Err(error);
        }
        let ran = if job.is_async {
            // Who is inside of one that is a future may wait, but not for itself.
            let _polling = Polling::enter(self.address(), number, job);
            self.run_caught(job)
        } else {
            inside(self.address(), || self.run_caught(job))
        };
        match ran {
            Ok(Ok(Ran::Parts(parts))) => self.perform_parts(parts),
            Ok(Ok(ran)) => {
                if matches!(ran, Ran::Over) && job.is_plain() {
                    self.take_effect(job, None);
                }
                Ok(ran)
            }
            Ok(Err(cause)) => Err(self.has_returned(job, cause)),
            Err(panic) => Err(self.has_failed(job, job.panicked(panic_message(panic)))),
        }
    }

    #[inline(always)]
    fn run_caught(&self, job: &Job) -> std::thread::Result<Result<Ran, BoxError>> {
        // SAFETY: all that it asked for was granted, and whoever performs it has it alone, but for its
        // requests.
        catch_unwind(AssertUnwindSafe(|| unsafe { self.run_body(job) }))
    }

    /// Handles an error that an operation's body returned, or that kept it from being called.
    #[cold]
    fn has_returned(&self, job: &Job, cause: BoxError) -> Error {
        let kept = cause.downcast_ref::<Error>().and_then(Error::kept_variable);
        let Some(variable) = kept else { return self.has_failed(job, job.failed(cause)) };
        // SAFETY: granted to write.
        let leaves_old = job.asked.iter().any(|asked| asked.is_written() && !unsafe { asked.place() }.is_unwritten());
        let error = Error::new(Kind::OpNotBegun { operation: job.said_name(), variable, leaves_old });
        self.leave_unchanged(job, &error);
        self.tell_not_begun(job, &error);
        error
    }

    #[cold]
    fn has_failed(&self, job: &Job, error: Error) -> Error {
        if job.is_plain() {
            self.take_effect(job, Some(&error));
        } else {
            self.tell_idle(job, &error);
        }
        error
    }

    /// Returns why an operation is not run.
    fn obstacle(&self, job: &Job) -> Option<Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Some(Kind::ShutDown.into());
        }
        if job.scope().is_some_and(|scope| scope.is_cancelled()) {
            return Some(Kind::Cancelled.into());
        }
        // Of joined operations each looks for itself.
        job.asked.iter().filter(|asked| asked.is_read() && job.is_plain()).find_map(|asked| {
            // SAFETY: granted.
            let place = unsafe { asked.place() };
            let origin = place.poison()?;
            let because = origin.node().unwrap_or("an operation").to_owned();
            let (operation, variable) = (job.said_name(), place.name.to_cow());
            Some(Error::with_source(Kind::NotRun { operation, variable, because }, Box::new(origin)))
        })
    }

    /// Marks what an operation has written, or has failed to write.
    pub(super) fn take_effect(&self, job: &Job, failure: Option<&Error>) {
        if let Some(cancelled) = failure.filter(|error| error.is_cancelled()) {
            return self.leave_unchanged(job, cancelled);
        }
        for asked in job.asked.iter().filter(|asked| asked.changes()) {
            self.change(job, asked, failure);
        }
        if let Some(error) = failure {
            self.tell_idle(job, error);
        }
    }

    fn change(&self, job: &Job, asked: &Asked, failure: Option<&Error>) {
        // SAFETY: granted to write.
        let place = unsafe { asked.place() };
        place.count_write();
        place.set_poison(failure.map(|error| error.origin().clone()));
        if self.lanes.is_some() && !job.is_kernel {
            place.device_uses.clear();
        }
    }

    /// Leaves variables as they were before an operation that was cancelled or could not begin. Only a
    /// variable that never had a value gets the error, and one whose value the operation took.
    fn leave_unchanged(&self, job: &Job, error: &Error) {
        let has_begun = job.has_begun.load(Ordering::Relaxed);
        for asked in job.asked.iter().filter(|asked| asked.changes()) {
            // SAFETY: granted to write.
            let is_unwritten = unsafe { asked.place() }.is_unwritten();
            if is_unwritten || has_begun && asked.is_taken() {
                self.change(job, asked, Some(error));
            }
        }
    }

    /// Reports an operation that could not begin: no later read would report it.
    fn tell_not_begun(&self, job: &Job, error: &Error) {
        if self.failures.strong_count() > 0 {
            self.tell_idle(job, error);
        } else if let Some(scope) = job.scope() {
            self.tell_flow(scope, error);
        }
    }

    /// The same for a flow whose engine has no `idle` to report it: unless the handle reports the error, the
    /// flow ends with it. So the flow does not go on with an old value unnoticed.
    #[cold]
    pub(super) fn tell_flow(&self, scope: &Arc<Scope>, error: &Error) {
        if error.leaves_old_value() && self.failures.strong_count() == 0 {
            let flow: Weak<Scope> = Arc::downgrade(scope);
            error.tell_at_last(flow);
        }
    }

    /// Keeps an error for `idle`, unless the last handle of the engine is gone.
    pub(super) fn keep_failure(&self, error: &Error) {
        self.failures.upgrade().iter().for_each(|failures| failures.keep(error));
    }

    /// Keeps a failure for `idle`: of an operation that has nothing to poison at once, of another if it turns
    /// out that nobody was told.
    pub(super) fn tell_idle(&self, job: &Job, error: &Error) {
        let origin = error.origin();
        // Who cancels, or shuts down, knows of it.
        if matches!(job.role, Role::Waits | Role::Joins) || origin.is_shut_down() || origin.is_cancelled() {
            return;
        }
        if job.frees() || !job.writes() {
            self.keep_failure(error);
        } else {
            origin.tell_at_last(self.failures.clone());
        }
    }
}
