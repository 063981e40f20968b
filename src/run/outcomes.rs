//! The outcomes of a run's nodes, and the errors of those that have no value.

use super::inner::{Item, Live, RunInner};
use super::state;
use crate::error::{BoxError, Error, Kind, Result, panic_message};
use crate::graph::{NodeId, Role};
use crate::name::Name;
use crate::sync::{AtomicU32, Ordering, lock};
use crate::value::{Access, Outcome};

/// The outcome of a node; 0 is none, or success.
pub(super) mod outcome {
    pub(in crate::run) const NONE: u32 = 0;
    pub(in crate::run) const FAILED: u32 = 1;
    pub(in crate::run) const SKIPPED: u32 = 2;
    pub(in crate::run) const CANCELLED: u32 = 3;
}

impl Item<'_> {
    /// Returns the first failure of the item, with the others.
    pub(super) fn result(self) -> Result<()> {
        if !self.is_marked() {
            return Ok(());
        }
        let causes = lock(&self.at.faults).iter().map(|(_, error)| error.clone()).collect();
        Error::first_of(causes).map_or(Ok(()), Err)
    }

    /// Records a node's outcome. Its error, if it has one, is a cause of the item's failure.
    pub(super) fn set_outcome(self, node: NodeId, outcome: u32, error: Option<Error>) {
        if let Some(error) = error {
            self.tell_context(node, &error);
            lock(&self.at.faults).push((Some(node), error));
        }
        let outcomes = self.at.outcomes.get_or_init(|| self.code().step_of.iter().map(|_| AtomicU32::new(0)).collect());
        // ORDERING: Relaxed: dependants are started, and waiters signalled, after this.
        outcomes[node.index()].store(outcome, Ordering::Relaxed);
        // ORDERING: Relaxed: the end of the item comes after this.
        self.at.is_marked.store(true, Ordering::Relaxed);
        if outcome == outcome::FAILED {
            self.fail_around(node);
            // ORDERING: Relaxed: only one of the item's steps counts it.
            if !self.at.has_failed.swap(true, Ordering::Relaxed) {
                self.run.state.add_failure();
            }
        }
    }

    /// Tells what the nodes of the run share of a failure. Other nodes may wait for what will not come.
    fn tell_context(self, node: NodeId, error: &Error) {
        if let Some(context) = &self.plan().context {
            // SAFETY: the cell was written before the run began, and is only read until the run has ended.
            let cells = unsafe { self.at.frame.cells(Access::Tagged) };
            cells.get(context.slot).fail(&self.plan().name_of(node), error);
        }
    }

    /// Records an error that is no node's outcome: the node succeeded, or it is of the whole item.
    pub(super) fn add_fault(self, node: Option<NodeId>, error: Error) {
        lock(&self.at.faults).push((node, error));
        // ORDERING: Relaxed: the end of the item comes after this.
        self.at.is_marked.store(true, Ordering::Relaxed);
    }

    pub(super) fn outcome(self, node: NodeId) -> u32 {
        // ORDERING: Relaxed: see `set_outcome`.
        self.at.outcomes.get().map_or(0, |outcomes| outcomes[node.index()].load(Ordering::Relaxed))
    }

    /// Returns true if a predecessor of the node has no value.
    pub(super) fn lacks_input(self, node: NodeId) -> bool {
        self.plan().predecessors(node).any(|before| self.outcome(before) != 0)
    }

    /// Records the failure of a call of a node's body.
    pub(super) fn judge_call(self, node: NodeId, called: std::thread::Result<Outcome>) {
        let error = match called {
            Ok(Ok(())) => return,
            Ok(Err(error)) => self.site(node).failed(error),
            Err(panic) => self.site(node).panicked(panic_message(panic)),
        };
        self.set_outcome(node, outcome::FAILED, Some(error));
    }

    pub(super) fn site(self, node: NodeId) -> Site {
        let (schedule, local) = self.plan().locate(node);
        let device = self.device_of(node).unwrap_or_else(|| "the host device".into());
        Site { node: self.plan().name_of(node), stream: schedule.stream_name(schedule.stream_of(local)), device }
    }

    fn fault_of(self, node: NodeId) -> Error {
        let faults = lock(&self.at.faults);
        // A loop or a branch that failed because of a node in it has that node's error.
        let is_of = |failed| failed == node || self.run.around(failed).any(|(_, control)| control == node);
        let found = faults.iter().find(|(failed, _)| failed.is_some_and(is_of));
        found.expect("a failed node has an error").1.clone()
    }

    fn skipped(self, node: NodeId) -> Error {
        let mut because = node;
        // Each skipped node has a predecessor without a value, so this ends at one that failed.
        while self.outcome(because) == outcome::SKIPPED {
            let before = self.plan().predecessors(because).find(|&before| self.outcome(before) != 0);
            because = before.expect("a node is skipped because of a predecessor");
        }
        let name = |node| self.plan().name_of(node);
        Error::with_source(Kind::Skipped { node: name(node), because: name(because) }, Box::new(self.fault_of(because)))
    }
}

impl RunInner {
    fn outcome(&self, node: NodeId) -> u32 {
        self.first().map_or(0, |item| item.outcome(node))
    }

    /// Returns the result of a node future whose node is done, or will never run.
    pub(super) fn node_result(&self, node: NodeId) -> Result<()> {
        match (self.outcome(node), self.first()) {
            (outcome::FAILED, Some(item)) => Err(item.fault_of(node)),
            (outcome::SKIPPED, Some(item)) => Err(item.skipped(node)),
            (outcome::CANCELLED, _) => Err(cancelled(self.state.glance())),
            _ if self.is_complete() && !self.has_passed(node) => Err(self.why_not_run(node)),
            _ => Ok(()),
        }
    }

    /// Returns why a complete run never reached a node, from the outcome of the loops and branches around it.
    fn why_not_run(&self, node: NodeId) -> Error {
        for (scope, control) in self.around(node) {
            if self.outcome(control) != 0
                && let Err(error) = self.node_result(control)
            {
                return error;
            }
            if self.has_passed(control) {
                let (node, control) = (self.plan().name_of(node), self.plan().name_of(control));
                let why = match self.plan().schedule.inner()[scope].role() {
                    Role::Arm(arm) => format!("branch '{control}' did not take arm {arm}"),
                    Role::Condition | Role::Body => format!("loop '{control}' ended before its first iteration"),
                };
                return Kind::NotTaken { node, why }.into();
            }
        }
        self.verdict().expect_err("a run that succeeds reaches all nodes that are in no loop or branch")
    }

    /// Returns true if the node's program went past it. A cancelled run, or one that never started, may not
    /// have come so far.
    fn has_passed(&self, node: NodeId) -> bool {
        let code = self.code();
        let step = code.step_of[node.index()];
        // ORDERING: Acquire pairs with the Release of the store when the program parked.
        let place = |live: &Live| live.first.places[code.program_of(step) as usize].load(Ordering::Acquire);
        self.live.get().map(place).is_some_and(|place| (place >> 1) + (place & 1) > step)
    }

    /// Returns the loops and branches around a node, the innermost first, each with the inner graph.
    pub(super) fn around(&self, node: NodeId) -> impl Iterator<Item = (usize, NodeId)> {
        let code = self.code();
        let outer = |node| code.scope_of(node).map(|scope| (scope, code.scopes[scope].control));
        std::iter::successors(outer(node), move |&(_, control)| outer(control))
    }
}

/// A node, with its stream and its device, for errors.
pub(super) struct Site {
    pub(super) node: Name,
    pub(super) stream: String,
    pub(super) device: String,
}

impl Site {
    pub(super) fn failed(self, cause: BoxError) -> Error {
        // The next submission gets the error of a lost device, whichever work caused the loss.
        if let Some(lost) = cause.downcast_ref::<Error>().filter(|cause| cause.is_device_lost()) {
            return lost.clone();
        }
        let Self { node, stream, device } = self;
        Error::with_source(Kind::Failed { node, stream, device }, cause)
    }

    pub(super) fn panicked(self, message: String) -> Error {
        let Self { node, stream, device } = self;
        Kind::Panicked { node, stream, device, message }.into()
    }
}

/// Returns the error of a run that was cancelled with these bits.
pub(super) fn cancelled(bits: u32) -> Error {
    match () {
        () if bits & state::SHUT_DOWN != 0 => Kind::ShutDown.into(),
        () if bits & state::LATE != 0 => Kind::PastDeadline.into(),
        () => Kind::Cancelled.into(),
    }
}
