//! Handles that cancel a run, a pipeline or a flow.

use std::sync::Weak;

use crate::error::shielded;

/// Cancels a run, a pipeline or a flow from elsewhere; made by [`Run::canceller`](crate::Run::canceller),
/// [`Piped::canceller`](crate::pipe::Piped::canceller) and
/// [`FlowRun::canceller`](crate::flow::FlowRun::canceller). Does not keep it alive.
///
/// # Examples
/// A button, a signal or another thread cancels a run that is being awaited:
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let never = g.future("never", (), async || std::future::pending().await);
/// g.output::<u32>("never", &never);
///
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// let canceller = run.canceller();
/// let button = std::thread::spawn(move || canceller.cancel());
/// assert!(futures::executor::block_on(run).unwrap_err().is_cancelled());
/// # button.join().unwrap();
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Canceller(Weak<dyn Cancel>);

/// A run, a pipeline or a flow: it can be cancelled by a [`Canceller`].
pub(crate) trait Cancel: Send + Sync + 'static {
    fn cancel(&self);
}

impl Canceller {
    pub(crate) fn new(target: Weak<dyn Cancel>) -> Self {
        Self(target)
    }

    /// Cancels it, as its own `cancel` does. Does nothing once it is complete or gone.
    pub fn cancel(&self) {
        if let Some(target) = self.0.upgrade() {
            target.cancel();
            // This may be the last owner of the target, whose drop runs user code.
            let _ = shielded(|| drop(target));
        }
    }
}
