//! What an operation comes to: whether it is run, and what becomes of its variables and of its failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::body::Ran;
use super::hub::Hub;
use super::op::{Job, Role};
use super::within::{Key, Polling};
use crate::bridge::shielded;
use crate::error::{Error, Kind, Result, panic_message};
use crate::exec::Inside;
use crate::sync::Ordering;

impl Hub {
    /// Does what an operation is there for, without its queues.
    pub(super) fn perform(&self, job: &Job, key: Key) -> Result<Ran> {
        let ran = match self.obstacle(job) {
            Some(error) => {
                // SAFETY: whoever performs it has it alone, but for its requests.
                let _ = shielded(|| unsafe { job.forgo() });
                Err(error)
            }
            None => {
                // Who is inside of one that is a future may wait, but not for itself.
                let polling = job.is_async.then(|| Polling::enter(self.address(), key, job));
                let inside = (!job.is_async && job.role != Role::Joins).then(|| Inside::enter(self.place()));
                // SAFETY: all that it asked for was granted; and as above.
                let ran = catch_unwind(AssertUnwindSafe(|| unsafe { self.run_body(job) }));
                drop((inside, polling));
                ran.map_err(|panic| job.panicked(panic_message(panic))).and_then(|ran| ran.map_err(|cause| job.failed(cause)))
            }
        };
        if job.is_plain() && matches!(ran, Ok(Ran::Over) | Err(_)) {
            self.take_effect(job, ran.as_ref().err());
        } else if let Err(error) = &ran {
            self.tell_idle(job, error);
        }
        ran
    }

    /// Returns why an operation is not run.
    fn obstacle(&self, job: &Job) -> Option<Error> {
        if !job.is_plain() {
            return None;
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Some(Kind::ShutDown.into());
        }
        if job.scope().is_some_and(|scope| scope.is_cancelled()) {
            return Some(Kind::Cancelled.into());
        }
        job.asked.iter().filter(|asked| asked.is_read()).find_map(|asked| {
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
        // What was cancelled is as if it had never been, as far as that can be.
        let is_undone = failure.is_some_and(Error::is_cancelled);
        let has_begun = job.has_begun.load(Ordering::Relaxed);
        for asked in job.asked.iter().filter(|asked| asked.changes()) {
            // SAFETY: granted to write.
            let place = unsafe { asked.place() };
            if is_undone && !place.is_unwritten() && !(has_begun && asked.is_taken()) {
                continue;
            }
            place.count_write();
            place.set_poison(failure.map(|error| error.origin().clone()));
            if self.devices.is_some() && !job.is_kernel {
                place.trail.clear();
            }
        }
        if let Some(error) = failure {
            self.tell_idle(job, error);
        }
    }

    /// Keeps a failure for `idle` if nobody else may hear of it.
    pub(super) fn tell_idle(&self, job: &Job, error: &Error) {
        let is_unheard = job.frees() || job.role == Role::User && !job.writes();
        if is_unheard && !error.is_shut_down() && !error.is_cancelled() {
            self.failures.keep(error);
        }
    }
}
