//! Blocks: a finished run leaves its memory to its plan, and the next run of the plan takes it. So a run that
//! is awaited alone allocates nothing of its own.
//!
//! ```text
//!  block      event                                        next
//!  in a run   its `Run` is dropped after a success; no     spare: it has neither plan nor executor, so it
//!             canceller and no other owner is left         keeps neither alive
//!  in a run   anything else                                freed
//!  spare      a run of the plan is made                    in a run
//!  spare      the plan is dropped                          freed
//! ```
//! A block is given back by its only owner: no other thread has a reference, a canceller or a future of the
//! run before. So nothing of that run reaches the next one.

use std::sync::Arc;

use super::Inputs;
use super::inner::{Live, Own, RunInner, Start, Waiting};
use super::state::State;
use crate::error::shielded;
use crate::plan::Plan;
use crate::plan::code::Code;
use crate::runtime::{Core, LazyId, Precedence};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The most bytes of the values of a spare block.
const BYTES_MAX: usize = 1 << 16;

impl RunInner {
    /// Returns a run in a spare block of the plan, or else the inputs.
    pub(super) fn again(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Result<Arc<Self>, Inputs> {
        Self::in_block(core, plan, inputs, || (Own::new(core.clone()), Own::new(plan.clone())))
    }

    /// Returns a run in a spare block to which the executor and the plan are lent, or else the inputs.
    ///
    /// # Safety
    /// The caller keeps them until [`keep_what_was_lent`](Self::keep_what_was_lent), or until the run was
    /// given back.
    pub(super) unsafe fn again_lent(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Result<Arc<Self>, Inputs> {
        Self::in_block(core, plan, inputs, || {
            // SAFETY: the caller promises it.
            let core = unsafe { Own::lent(core) };
            // SAFETY: the caller promises it.
            (core, unsafe { Own::lent(plan) })
        })
    }

    pub(super) fn keep_what_was_lent(&mut self) {
        self.core.keep();
        self.plan.keep();
    }

    #[inline]
    fn in_block(
        core: &Arc<Core>,
        plan: &Plan,
        inputs: Inputs,
        own: impl FnOnce() -> (Own<Arc<Core>>, Own<Plan>),
    ) -> Result<Arc<Self>, Inputs> {
        if core.devices.is_some() || Self::needs_attention(core) {
            // A run there needs more.
            return Err(inputs);
        }
        let spare = plan.inner().spare.take().and_then(|spare| spare.downcast::<Self>().ok());
        let Some(mut run) = spare else { return Err(inputs) };
        // SAFETY: `give_back` left it to the plan as its only owner.
        let block = unsafe { Self::alone(&mut run) };
        (block.state, block.id) = (State::new(0), LazyId::new());
        (block.core, block.plan) = own();
        let spare = block.live.take();
        block.start = Mutex::new(Start::Waiting(Waiting { inputs, precedence: Precedence::default(), slot: None, spare }));
        Ok(run)
    }

    /// Returns the run, which nothing but this owner reaches.
    ///
    /// # Safety
    /// There is no other owner and no canceller.
    #[inline(always)]
    pub(super) unsafe fn alone(run: &mut Arc<Self>) -> &mut Self {
        debug_assert!(Arc::get_mut(run).is_some(), "there is no other owner");
        // SAFETY: the caller promises that nothing else reaches it.
        unsafe { &mut *Arc::as_ptr(run).cast_mut() }
    }

    /// Gives up an owner of a run: the last one leaves the block to the plan, if that can use it again.
    pub(super) fn let_go(mut run: Arc<Self>) {
        if Arc::get_mut(&mut run).is_some_and(|last| Arc::get_mut(&mut last.lane).is_some()) {
            // SAFETY: it was found to be the last owner.
            unsafe { Self::give_back(run, true) };
        }
    }

    /// Leaves the block of a run to its plan, if that can use it again. Else frees it.
    ///
    /// # Safety
    /// Nothing but this owner reaches the run or its lane. Unless it `has_values`, they were dropped.
    pub(super) unsafe fn give_back(mut run: Arc<Self>, has_values: bool) {
        // SAFETY: the caller promises it.
        if let Some(plan) = unsafe { Self::alone(&mut run) }.make_spare(has_values) {
            plan.inner().spare.put(run);
        }
    }

    /// Makes the block of a run that has ended a spare one. Returns its plan.
    fn make_spare(&mut self, has_values: bool) -> Option<Own<Plan>> {
        // Models that do not ask for it make a plan once for all executions.
        let is_kept = !cfg!(anabranch_loom) || !self.core.poll_budget.is_zero();
        let is_plain = self.pipelining.is_none()
            && !self.is_nested
            && self.core.devices.is_none()
            && self.watched.get().is_none()
            && self.observed.is_none();
        let is_small = self.plan().layout.size() <= BYTES_MAX && self.live.get().is_some_and(|live| live.wakes.is_none());
        if !(is_kept && is_plain && is_small && self.has_succeeded()) {
            return None;
        }
        if has_values {
            self.drop_values();
        }
        self.lane.renew();
        // First: without a plan, the drop of the block touches no values and needs no executor.
        let plan = self.plan.take();
        // This may be the last owner of the executor, and so of its observer.
        let _ = shielded(|| drop(self.core.take()));
        Some(plan)
    }
}

impl Live {
    /// Makes the memory of a run that has succeeded that of one that begins.
    pub(super) fn renew(&mut self, code: &Code, slot: u16, worked: Option<AtomicU64>) {
        (self.slot, self.worked) = (slot, worked);
        let first = &mut self.first;
        for (gate, of) in first.gates.iter().zip(&code.gates) {
            gate.reset(of.count);
        }
        for (place, step) in first.places.iter().zip(&code.starts) {
            // ORDERING: Relaxed: the tickets of the run come after this.
            place.store(step << 1, Ordering::Relaxed);
        }
    }
}
