//! What the observers of an executor are told of a flow.

use std::time::Instant;

use super::context::FlowShared;
use crate::error::Result;
use crate::name::Name;
use crate::runtime::{Begun, Ended, Launched, Work, WorkKind, run_around};

impl FlowShared {
    /// Polls the flow's code. Tells observers, if there are any: in the first poll that it begins, and in
    /// each that this thread polls it.
    pub(super) fn tell_around<R>(&self, begun: &mut Option<Begun>, poll: impl FnOnce() -> R) -> R {
        let Some(observers) = &self.core.observers else { return poll() };
        let begun = begun.get_or_insert_with(|| {
            let outer = self.scope.outer.as_ref().map(|outer| outer.id.get());
            let (run, around) = (self.scope.id.get(), outer.or_else(run_around));
            observers.begin(
                0,
                Work { run, around, item: 0, name: Name::from("flow"), kind: WorkKind::Flow },
                Instant::now(),
                &self.origins,
            )
        });
        observers.around(begun, poll)
    }

    /// Tells observers, if there are any, that it has ended so. A panic of theirs fails it. In a forked
    /// child, where a thread that does not exist may hold their locks, they are told nothing.
    pub(super) fn tell_end<T>(&self, begun: Option<Begun>, result: Result<T>) -> Result<T> {
        if self.core.is_forked() {
            return result;
        }
        let (Some(observers), Some(begun)) = (&self.core.observers, begun) else { return result };
        let told = observers.end(begun, Ended::of_result(&result), Launched::Host, Instant::now());
        result.and_then(|done| told.map(|()| done))
    }
}
