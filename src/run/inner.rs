//! One run's data: what its programs, its futures and its cancellers share.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Inputs;
use super::countdown::Countdown;
use super::once_box::OnceBox;
use super::pipe::Pipe;
use super::state::{self, State};
use super::step_state::StepState;
use super::times::{ObservedRun, Times};
use super::values::FrameValues;
use crate::device::host::{Progress, Ticket, Tickets};
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::plan::code::Code;
use crate::plan::{Pipelining, Plan, PlanInner};
use crate::runtime::{AsyncContext, Collector, Core, Held, Lane, LazyId, Precedence, WakeSet};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering};
use crate::value::{Access, Cells, Frame};

/// The point of a run's own lane at which the run is complete.
pub(super) const COMPLETE: u64 = 1;

pub(super) struct RunInner {
    me: Me,
    pub(super) plan: Own<Plan>,
    /// How the plan runs over many items, if it does.
    pub(super) pipelining: Option<Arc<Pipelining>>,
    /// Whether a node of another run awaits it.
    pub(super) is_nested: bool,
    pub(super) id: LazyId,
    /// If the executor has observers.
    pub(super) observed: Option<Box<ObservedRun>>,
    pub(super) core: Own<Arc<Core>>,
    pub(super) state: State,
    /// Reaches [`COMPLETE`] once. Rung when an async node was woken.
    pub(super) lane: Arc<Lane>,
    pub(super) start: Mutex<Start>,
    pub(super) live: OnceBox<Live>,
    /// The ready programs of a run without workers. Only the task that has the lock runs them.
    pub(super) driver: Mutex<Tickets>,
    /// The step of an inline run's poll.
    pub(super) progress: Progress,
    /// Why the run never got memory.
    pub(super) refusal: OnceLock<Error>,
    /// A lane for each program that has an awaited node; made when the first node is awaited.
    pub(super) watched: OnceLock<Box<[OnceLock<Arc<Lane>>]>>,
    /// Why a complete run has failed, if it has.
    failure: OnceLock<Error>,
    pub(super) held: Held<Self>,
    /// Last, so that it is dropped after the values.
    _collector: Collector,
}

/// The address of a run in its `Arc`: lets the last step keep the run alive while it completes it.
struct Me(*const RunInner);

// SAFETY: the address of a run, which is Send.
unsafe impl Send for Me {}
// SAFETY: the address of a run, which is Sync.
unsafe impl Sync for Me {}

/// What each run has, and a [spare block](super::blocks) does not have. It may be lent to a run that ends
/// before its owner goes on: that costs no count.
pub(super) struct Own<T> {
    of: Option<ManuallyDrop<T>>,
    is_lent: bool,
}

impl<T> Own<T> {
    pub(super) fn new(of: T) -> Self {
        Self { of: Some(ManuallyDrop::new(of)), is_lent: false }
    }

    /// # Safety
    /// The owner keeps it until this is dropped, or until [`Own::keep`].
    #[inline]
    pub(super) unsafe fn lent(of: &T) -> Self {
        // SAFETY: a second copy, which is not dropped.
        Self { of: Some(unsafe { ptr::from_ref(of).cast::<ManuallyDrop<T>>().read() }), is_lent: true }
    }

    /// Makes it the run's own.
    pub(super) fn keep(&mut self)
    where
        T: Clone,
    {
        if self.is_lent {
            *self = Self::new(T::clone(self));
        }
    }

    #[inline]
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { of: None, is_lent: false })
    }

    pub(super) fn is_spare(&self) -> bool {
        self.of.is_none()
    }
}

impl<T> Drop for Own<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(of) = self.of.as_mut().filter(|_| !self.is_lent) {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(of) };
        }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        debug_assert!(self.of.is_some(), "a spare block does not run");
        // SAFETY: `RunInner::of` and `in_block` set it before there is a run, and only `make_spare`, which
        // has the only reference, takes it out of a block.
        unsafe { self.of.as_ref().unwrap_unchecked() }
    }
}

/// What a run holds until it starts.
pub(super) enum Start {
    Waiting(Waiting),
    /// The worker that gets the first ticket makes its memory, where it is used.
    Admitted(Admitted),
    Started,
}

pub(super) struct Waiting {
    pub(super) inputs: Inputs,
    pub(super) precedence: Precedence,
    /// Its place among those in flight, if it has one already.
    pub(super) slot: Option<u16>,
    /// The memory of an earlier run.
    pub(super) spare: Option<Box<Live>>,
}

/// What a run has between its admission and its start.
pub(super) struct Admitted {
    pub(super) inputs: Inputs,
    pub(super) slot: u16,
    pub(super) context: AsyncContext,
    pub(super) is_timed: bool,
    pub(super) spare: Option<Box<Live>>,
}

impl Start {
    /// Takes the inputs of a run that waits. It counts as started from now on.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        match std::mem::replace(self, Self::Started) {
            Self::Waiting(waiting) => Some(waiting),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What a run has from its start on.
pub(super) struct Live {
    pub(super) wakes: Option<Arc<WakeSet>>,
    /// The runtime of the poll that started the run, for async nodes.
    pub(super) context: AsyncContext,
    /// The run's place among those in flight, and in the pool.
    pub(super) slot: u16,
    /// The ns that workers have worked on the run, if it is timed.
    pub(super) worked: Option<AtomicU64>,
    pub(super) first: Iteration,
    /// Those of a run over many items.
    pub(super) more: Box<[Iteration]>,
    /// In a box: most runs have none, and it is large.
    pub(super) pipe: Option<Box<Pipe>>,
}

/// What one execution of the graph needs: memory, gates and places of programs.
pub(super) struct Iteration {
    /// Its number among those of the run.
    pub(super) number: u32,
    /// The number of its first program among those of all iterations.
    pub(super) base: u32,
    pub(super) frame: Frame,
    pub(super) gates: Box<[Countdown]>,
    /// Where each program continues: twice its step, plus one when the step's body is done.
    pub(super) places: Box<[AtomicU32]>,
    /// What it needs on an executor with devices. In a box: most have none.
    pub(super) on_devices: Option<Box<OnDevices>>,
    /// If the run is observed.
    pub(super) times: Option<Box<Times>>,
    /// The number of its item.
    pub(super) item: AtomicU64,
    /// Of its item: see `pipe::item`.
    pub(super) state: AtomicU32,
    /// The last phases of its item that have not ended.
    pub(super) ends: Countdown,
    pub(super) asyncs: Box<[StepState]>,
    pub(super) controls: Box<[StepState]>,
    /// The failures, each with its node, if it has one.
    pub(super) faults: Mutex<Vec<(Option<NodeId>, Error)>>,
    /// The outcomes of the nodes, once one has failed. A small run needs no allocation for them.
    pub(super) outcomes: OnceLock<SmallVec<[AtomicU32; 4]>>,
    /// Whether there is an outcome or a failure.
    pub(super) is_marked: AtomicBool,
    /// Whether the item is counted in the state of the run.
    pub(super) has_failed: AtomicBool,
}

/// What an execution of the graph needs for devices with queues.
pub(super) struct OnDevices {
    /// The events that streams of a device wait for; 0 until recorded.
    pub(super) events: Box<[AtomicU64]>,
    /// The end of each segment that is not awaited, as a point of its lane. 0 until it is submitted, and once
    /// it is awaited.
    pub(super) points: Box<[AtomicU64]>,
    /// The number of lane faults found when it began.
    pub(super) lane_faults: AtomicU64,
}

impl Iteration {
    pub(super) fn on_devices(&self) -> &OnDevices {
        self.on_devices.as_deref().expect("only an executor with devices has segments")
    }
}

impl Live {
    #[inline]
    pub(super) fn iteration(&self, number: u32) -> &Iteration {
        number.checked_sub(1).map_or(&self.first, |more| &self.more[more as usize])
    }
}

/// One execution of the graph, in one iteration of a run.
#[derive(Clone, Copy)]
pub(crate) struct Item<'r> {
    pub(super) run: &'r RunInner,
    pub(super) live: &'r Live,
    pub(super) at: &'r Iteration,
}

impl<'r> Item<'r> {
    #[inline]
    pub(super) fn code(self) -> &'r Code {
        self.run.code()
    }

    #[inline]
    pub(super) fn plan(self) -> &'r PlanInner {
        self.run.plan()
    }

    /// Returns its number among all items.
    pub(super) fn number(self) -> u64 {
        // ORDERING: Relaxed: stored before the item began.
        self.at.item.load(Ordering::Relaxed)
    }

    /// Returns the item in another iteration of the same run.
    #[inline]
    pub(super) fn iteration(self, number: u32) -> Self {
        Self { at: self.live.iteration(number), ..self }
    }

    /// Returns the ticket of programs of this item.
    #[inline]
    pub(super) fn ticket(self, first: u32, count: u32) -> Ticket {
        Ticket::new(self.live.slot, self.at.base + first, count)
    }

    /// Returns the item's values.
    ///
    /// # Safety
    /// No step touches the cells of the item while these live.
    pub(super) unsafe fn values(self) -> FrameValues<'r> {
        // SAFETY: the frame was made for the plan; the caller promises the rest.
        unsafe { FrameValues::new(&self.run.plan, self.code(), &self.at.frame) }
    }

    /// Returns the cells as the node may use them.
    ///
    /// # Safety
    /// The caller is the only thread that runs, polls or releases this node now.
    pub(super) unsafe fn cells(self, node: NodeId) -> Cells<'r> {
        // SAFETY: the caller is the only user of the node's cells; the plan has found `access` for the node.
        unsafe { self.at.frame.cells(self.code().access(node)) }
    }
}

impl RunInner {
    pub(super) fn new(core: &Arc<Core>, plan: &Plan, pipelining: Option<Arc<Pipelining>>, inputs: Inputs) -> Arc<Self> {
        Self::of(core, plan, pipelining, inputs, false)
    }

    /// Returns a run; `is_nested` if a node of another run awaits it.
    pub(super) fn of(
        core: &Arc<Core>,
        plan: &Plan,
        pipelining: Option<Arc<Pipelining>>,
        inputs: Inputs,
        is_nested: bool,
    ) -> Arc<Self> {
        let attention = if Self::needs_attention(core) { state::OBSERVED } else { 0 };
        Arc::new_cyclic(|me| Self {
            me: Me(me.as_ptr()),
            plan: Own::new(plan.clone()),
            pipelining,
            is_nested,
            id: LazyId::new(),
            observed: Self::observed(core),
            core: Own::new(core.clone()),
            state: State::new(attention),
            lane: Arc::new(Lane::new()),
            start: Mutex::new(Start::Waiting(Waiting { inputs, precedence: Precedence::default(), slot: None, spare: None })),
            live: OnceBox::new(),
            driver: Mutex::default(),
            progress: Progress::new(),
            refusal: OnceLock::new(),
            watched: OnceLock::new(),
            failure: OnceLock::new(),
            held: Held::new(),
            _collector: Collector(core.devices.clone()),
        })
    }

    /// Returns whether each step needs attention: there are observers, or choices of a simulation.
    pub(super) fn needs_attention(core: &Core) -> bool {
        core.observers.is_some() || core.choices.is_some()
    }

    /// Returns an owner. The run is not complete, or the caller has an owner: so it is alive.
    pub(super) fn me(&self) -> Arc<Self> {
        // SAFETY: `of` stored the address of the run in its `Arc`. As `&self` shows, it has an owner.
        unsafe { Arc::increment_strong_count(self.me.0) };
        // SAFETY: this takes over the count that was added.
        unsafe { Arc::from_raw(self.me.0) }
    }

    /// Returns the address that stands for this run in [`is_inside`](crate::runtime::is_inside).
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn plan(&self) -> &PlanInner {
        self.plan.inner()
    }

    /// Returns the code that this executor runs.
    #[inline]
    pub(super) fn code(&self) -> &Code {
        if self.core.devices.is_some() { self.plan().queue_code() } else { &self.plan().code }
    }

    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.lane.has_reached(COMPLETE)
    }

    /// Stores the verdict, before the run is complete.
    pub(super) fn decide(&self, verdict: Result<()>) {
        if let Some(context) = &self.plan().context
            && let Some(item) = self.first()
        {
            // SAFETY: the run is complete: no step touches its cells any more.
            let cells = unsafe { item.at.frame.cells(Access::Tagged) };
            cells.get(context.slot).end(&verdict);
        }
        if let Err(failure) = verdict {
            let _ = self.failure.set(failure);
        }
    }

    /// Returns the verdict of a complete run.
    pub(super) fn verdict(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Returns whether it is complete, and has not failed.
    pub(super) fn has_succeeded(&self) -> bool {
        self.is_complete() && self.failure.get().is_none()
    }

    /// Returns the first item, once the run is live. Most runs have no other.
    #[inline]
    pub(super) fn first(&self) -> Option<Item<'_>> {
        self.live.get().map(|live| Item { run: self, live, at: &live.first })
    }

    /// Returns the item in an iteration of a live run.
    #[inline]
    pub(super) fn item(&self, number: u32) -> Item<'_> {
        let live = self.live.get().expect("a live run has iterations");
        Item { run: self, live, at: live.iteration(number) }
    }

    /// Returns the items of all iterations, once the run is live.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let iterations = self.live.get().map_or(0, |live| 1 + live.more.len() as u32);
        (0..iterations).map(|number| self.item(number))
    }
}
