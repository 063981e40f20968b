//! What became of a run's nodes, and what to say of those that have no value.

use super::inner::{Live, RunInner, cancelled};
use super::state;
use crate::error::{Error, Kind, Result};
use crate::graph::{NodeId, Role};
use crate::sync::{AtomicU32, Ordering, lock};

/// What became of a node.
pub(super) mod fate {
    pub(in crate::exec) const FAILED: u32 = 1;
    pub(in crate::exec) const SKIPPED: u32 = 2;
    pub(in crate::exec) const CANCELLED: u32 = 3;
}

impl RunInner {
    /// Notes down what became of a node. The error, if it has one, is a cause of the run's failure.
    pub(super) fn set_fate(&self, node: NodeId, fate: u32, error: Option<Error>) {
        if let Some(error) = error {
            lock(&self.faults).push((Some(node), error));
        }
        let fates = self.fates.get_or_init(|| self.code().step_of.iter().map(|_| AtomicU32::new(0)).collect());
        // ORDERING: Relaxed: dependants, and those who await the node, are started or signalled after this.
        fates[node.index()].store(fate, Ordering::Relaxed);
        if fate == fate::FAILED {
            self.fail_around(node);
            self.state.raise(state::FAILED);
        }
    }

    /// Notes down an error that is no node's fate: the node did its part, or it is of the whole run.
    pub(super) fn add_fault(&self, node: Option<NodeId>, error: Error) {
        lock(&self.faults).push((node, error));
    }

    pub(super) fn fate(&self, node: NodeId) -> u32 {
        self.fates.get().map_or(0, |fates| fates[node.index()].load(Ordering::Relaxed))
    }

    /// Returns true if a predecessor of the node has no value.
    pub(super) fn lacks_input(&self, node: NodeId) -> bool {
        self.plan().predecessors(node).any(|before| self.fate(before) != 0)
    }

    /// Returns what to say of a node that is done, one way or another.
    pub(super) fn node_result(&self, node: NodeId) -> Result<()> {
        match self.fate(node) {
            fate::FAILED => Err(self.fault_of(node)),
            fate::SKIPPED => Err(self.skipped(node)),
            fate::CANCELLED => Err(cancelled(self.state.glance())),
            _ if self.is_complete() && !self.has_passed(node) => Err(self.why_not_run(node)),
            _ => Ok(()),
        }
    }

    /// Returns why a complete run never reached a node, from the outcome of the loops and branches around it.
    fn why_not_run(&self, node: NodeId) -> Error {
        let code = self.code();
        let mut inner = node;
        while let Some(scope) = code.scope_of(inner) {
            inner = code.scopes[scope].control;
            if let Err(error) = self.ended_badly(inner) {
                return error;
            }
            if self.has_passed(inner) {
                let (node, control) = (self.plan().name_of(node), self.plan().name_of(inner));
                let why = match self.plan().schedule.inner()[scope].role() {
                    Role::Arm(arm) => format!("branch '{control}' did not take arm {arm}"),
                    Role::Condition | Role::Body => format!("loop '{control}' ended before its first iteration"),
                };
                return Kind::NotTaken { node, why }.into();
            }
        }
        let verdict = self.verdict.get().expect("the run is complete").clone();
        verdict.expect_err("a run that succeeds reaches all nodes that are in no loop or branch")
    }

    fn ended_badly(&self, control: NodeId) -> Result<()> {
        if self.fate(control) == 0 { Ok(()) } else { self.node_result(control) }
    }

    /// Returns true if the node's program came past it. A cancelled run, or one that never started, may not
    /// have come so far.
    fn has_passed(&self, node: NodeId) -> bool {
        let code = self.code();
        let step = code.step_of[node.index()];
        let place = |live: &Live| live.places[code.program_of(step) as usize].load(Ordering::Acquire);
        self.live.get().map(place).is_some_and(|place| (place >> 1) + (place & 1) > step)
    }

    /// Whether a node is `control`, or in an inner graph of it.
    fn is_within(&self, mut node: NodeId, control: NodeId) -> bool {
        let code = self.code();
        while node != control {
            let Some(scope) = code.scope_of(node) else { return false };
            node = code.scopes[scope].control;
        }
        true
    }

    fn fault_of(&self, node: NodeId) -> Error {
        let faults = lock(&self.faults);
        // Of a loop or a branch that failed because of a node in it, that node's.
        let found = faults
            .iter()
            .find(|(failed, _)| failed.is_some_and(|failed| self.is_within(failed, node)))
            .map(|(_, error)| error.clone());
        found.expect("a failed node has an error")
    }

    fn skipped(&self, node: NodeId) -> Error {
        let mut because = node;
        // Each skipped node has a predecessor without a value, so this ends at one that failed.
        while self.fate(because) == fate::SKIPPED {
            let before = self.plan().predecessors(because).find(|&before| self.fate(before) != 0);
            because = before.expect("a node is skipped because of a predecessor");
        }
        let name = |node| self.plan().name_of(node);
        Error::with_source(Kind::Skipped { node: name(node), because: name(because) }, Box::new(self.fault_of(because)))
    }
}
