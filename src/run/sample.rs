//! The time of one visit of a worker to a run over items.

use std::sync::Arc;
use std::time::Instant;

use super::inner::RunInner;
use super::pipe::Pipe;
use crate::error::shielded;

/// The time of one visit. Its drop adds it.
pub(super) struct Sample {
    /// None once it was added.
    run: Option<Arc<RunInner>>,
    start: Instant,
}

impl RunInner {
    /// Begins to time a visit, if that is wanted.
    #[inline]
    pub(super) fn sample(&self, pipe: &Pipe) -> Option<Sample> {
        pipe.cost.wants_sample().then(|| Sample { run: Some(self.me()), start: Instant::now() })
    }

    /// Returns whether polls run the items.
    #[inline]
    pub(super) fn is_cheap(&self) -> bool {
        self.core.pool.is_some() && self.pipe().is_some_and(|pipe| pipe.cost.is_known && pipe.cost.score() == 0)
    }

    /// Records that a poll has run items for its whole time slice.
    pub(super) fn doubt_cost(&self) {
        self.pipe().into_iter().for_each(|pipe| pipe.cost.add(u128::MAX));
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let nanos = self.start.elapsed().as_nanos();
        let run = self.run.take();
        run.as_ref().and_then(|run| run.pipe()).into_iter().for_each(|pipe| pipe.cost.add(nanos));
        // This may be the last owner of the run, whose drop runs user code.
        let _ = shielded(|| drop(run));
    }
}
