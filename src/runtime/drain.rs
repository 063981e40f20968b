//! The drain of an executor: work that has begun goes on to its end, and may make further work on the way. No
//! other run or flow begins. When nothing is left, the executor is closed.
//!
//! ```text
//!  begins             while draining
//!  a run              if it waited before, or a flow, a node or an operation polls or spawns it first;
//!                     otherwise its end is an error
//!  a flow             if a flow, a node or an operation polls it first; otherwise its end is an error
//!  an item            if a flow, a node or an operation polled its pipeline first; otherwise the last result
//!                     of the pipeline is an error
//!  an operation       always
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};

use super::admission::Flying;
use super::flow_count::CountedFlow;
use super::inside::{is_in_poll_of, is_inside, is_inside_work};
use super::{Client, Core, IdleWait, Idles};
use crate::error::{Kind, Result, shielded};
use crate::sync::{Ordering, fence, lock};

impl Core {
    pub(crate) fn is_draining(&self) -> bool {
        self.flights.is_draining()
    }

    /// Returns an error if new work may not begin here.
    #[cfg(feature = "tower")]
    pub(crate) fn check_new(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(Kind::ShutDown.into()) } else { self.check_draining() }
    }

    /// Returns an error for new work while the executor drains, unless work that has begun makes it.
    pub(super) fn check_draining(&self) -> Result<()> {
        let is_refused = self.is_draining() && !is_inside_work();
        match is_refused {
            true if self.is_closed() => Err(Kind::ShutDown.into()),
            true => Err(Kind::Draining.into()),
            false => Ok(()),
        }
    }

    /// Returns whether this thread polls or runs work of this executor.
    pub(crate) fn is_inside(&self) -> bool {
        is_inside(self.address()) || is_in_poll_of(self.address())
    }

    /// Admits no other work from now on, and notifies the runs in flight.
    pub(crate) fn drain(&self) {
        let present: Vec<Arc<dyn Client>> = {
            let clients = lock(&self.clients);
            self.flights.drain();
            // SAFETY: these are in flight, and the lock is held.
            let owner = |run: &Flying| unsafe { run.owner() };
            clients.runs.iter().filter_map(|(_, run)| run.as_ref()).map(owner).collect()
        };
        for run in present {
            run.drain();
            // This may be the last owner of the run, whose drop runs user code.
            let _ = shielded(|| drop(run));
        }
    }

    /// Counts a flow, until its end.
    pub(crate) fn begin_flow(&self, flow: &mut CountedFlow, is_inner: bool) -> Result<()> {
        flow.begin(&self.flows);
        // ORDERING: pairs with the fence in `quiet`. Of "count the flow, look for a drain" and "drain, look
        // for flows" one side sees the other.
        fence(Ordering::SeqCst);
        let checked = if is_inner { Ok(()) } else { self.check_draining() };
        if self.is_draining() {
            // A flow that an operation has made may outlive it, as a run may.
            self.flights.note_begun();
        }
        if checked.is_err() {
            self.end_flow(flow);
        }
        checked
    }

    pub(crate) fn end_flow(&self, flow: &mut CountedFlow) {
        if flow.end(&self.flows) {
            self.idle.ring();
        }
    }

    /// Returns the word of the runs, if there is neither a run nor a flow.
    fn quiet(&self) -> Option<u64> {
        let clients = lock(&self.clients);
        self.flights.ask();
        // ORDERING: pairs with the fence in `begin_flow`. This thread has set DRAINING before, or has seen
        // it.
        fence(Ordering::SeqCst);
        let word = self.flights.word();
        let is_quiet = self.flows.get() == 0 && self.flights.count() == 0 && !clients.has_waiting();
        (is_quiet && clients.nested.is_empty()).then_some(word)
    }

    /// Returns the engines.
    pub(crate) fn engines(&self) -> Vec<Arc<dyn Client>> {
        lock(&self.clients).engines.iter().filter_map(|(_, engine)| engine.upgrade()).collect()
    }

    /// Closes the executor if it has neither runs nor flows nor operations.
    ///
    /// An operation may make a run, and a run an operation. So the engines are looked at between two looks at
    /// the runs: if none has begun between these, no operation has come from one.
    pub(crate) fn close_if_drained(&self) -> bool {
        let Some(word) = self.quiet() else { return false };
        let engines = self.engines();
        let is_idle = engines.iter().all(|engine| engine.pending() == 0);
        // One of these may be the last owner of its engine, whose drop runs user code.
        engines.into_iter().for_each(|engine| _ = shielded(|| drop(engine)));
        let is_closed = is_idle && {
            let _clients = lock(&self.clients);
            self.flights.close_if(word)
        };
        if is_closed {
            self.close();
        }
        is_closed
    }
}

impl Core {
    /// Waits on `idle` until a check returns true.
    pub(super) fn poll_idle_if(
        &self,
        wait: &mut IdleWait,
        cx: &mut Context<'_>,
        is_idle: impl FnOnce() -> bool,
    ) -> Poll<Result<()>> {
        self.check_process()?;
        if is_inside(self.address()) {
            return Poll::Ready(Err(Kind::InsideNode.into()));
        }
        self.idle.register(&mut wait.lane, cx);
        if !is_idle() {
            return Poll::Pending;
        }
        self.idle.forget(&mut wait.lane);
        Poll::Ready(Ok(()))
    }
}

impl Idles for Core {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_idle_if(wait, cx, || self.check_idle())
    }

    fn end_wait(&self, wait: &mut IdleWait) {
        if !self.is_forked() {
            self.idle.forget(&mut wait.lane);
        }
    }
}

/// An executor, which can be waited for until it has neither runs nor flows.
pub(crate) struct Quiet(pub(crate) Arc<Core>);

impl Idles for Quiet {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.0.is_inside() {
            return Poll::Ready(Err(Kind::DrainsInside.into()));
        }
        self.0.poll_idle_if(wait, cx, || self.0.quiet().is_some())
    }

    fn end_wait(&self, wait: &mut IdleWait) {
        self.0.end_wait(wait);
    }
}
