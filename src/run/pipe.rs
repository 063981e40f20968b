//! What a run over many items has besides its iterations: the gates of phases, and which items are done.
//! [`Pipelining`](crate::plan::Pipelining) says which phase arrives at which gate.
//!
//! ```text
//!  item         event                       next         then
//!  free         begin                       in flight    counted; the source arrives at the first gates
//!  in flight    its last phase ends         done         its memory is as new but for the results; the consumer is woken
//!  done         results taken               free
//!
//!  open         event                       open         then
//!  n > 0        begin                       n + 1
//!  0            begin                       (unchanged)  refused: the run is over
//!  n            an item ends; close, once   n - 1        at 0 the run ends
//! ```
//! The consumer has one count until it closes, and each item one. So the run ends once, after its last item,
//! and no item begins after that.

use smallvec::{SmallVec, smallvec};

use super::countdown::Countdown;
use super::inner::{Item, RunInner};
use super::outcomes::outcome;
use super::values::FrameValues;
use crate::device::host::{Ticket, aside};
use crate::error::shielded;
use crate::graph::NodeId;
use crate::plan::Pipelining;
use crate::plan::pipelining::Feed;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Line, Mutex, Ordering, fence, lock};
use crate::value::Access;

pub(super) struct Pipe {
    /// Of each phase of each iteration, iteration by iteration.
    gates: Box<[Countdown]>,
    items: Box<[ItemState]>,
    open: Line<AtomicU64>,
    is_closed: AtomicBool,
    /// The iteration whose end the consumer awaits, plus one; 0 for none; [`ANY`] for all.
    awaited: Line<AtomicU32>,
    /// Where an item waits for items behind it, as in lockstep: those that have begun.
    begun: Option<Mutex<Begun>>,
    /// Whether threads other than the consumer's run phases.
    is_shared: bool,
}

#[derive(Default)]
struct Begun {
    items: u64,
    /// Whether none begins any more.
    has_ended: bool,
}

/// Instead of an iteration: the consumer awaits the end of any item.
pub(super) const ANY: u32 = u32::MAX;

struct ItemState {
    /// The phases that have not ended.
    ends: Countdown,
    is_done: AtomicBool,
    /// Whether the item has no value: its phases do nothing.
    is_empty: AtomicBool,
}

impl Pipe {
    pub(super) fn new(plan: &Pipelining, is_shared: bool) -> Self {
        let gates = (0..plan.slots).flat_map(|iteration| {
            (0..plan.phases.len() as u32).map(move |phase| Countdown::new(plan.first_arrivals(phase, iteration)))
        });
        let item = || ItemState {
            ends: Countdown::new(plan.phases.len() as u32),
            is_done: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
        };
        Self {
            gates: gates.collect(),
            items: (0..plan.slots).map(|_| item()).collect(),
            open: Line(AtomicU64::new(1)),
            is_closed: AtomicBool::new(false),
            awaited: Line(AtomicU32::new(0)),
            begun: plan.waits_behind().then(Mutex::default),
            is_shared,
        }
    }

    /// Returns whether the item in an iteration is done. What it made is then visible.
    pub(super) fn is_done(&self, iteration: u32) -> bool {
        // ORDERING: Acquire pairs with the Release in `end_item`.
        self.items[iteration as usize].is_done.load(Ordering::Acquire)
    }

    /// Records which item the consumer awaits. It checks the item once more behind a fence.
    pub(super) fn await_item(&self, awaited: u32) {
        // ORDERING: Relaxed: the fence in `Lane::poll` orders it before the second check.
        self.awaited.0.store(awaited, Ordering::Relaxed);
    }

    fn arrive(&self, gate: &Countdown) -> bool {
        if self.is_shared { gate.arrive::<true>() } else { gate.arrive::<false>() }
    }

    /// Counts one more item, unless the run is over, or items have ended.
    fn try_open(&self) -> bool {
        // Held until the item is counted: whoever ends the items arrives for those that do not come.
        let begun = self.begun.as_ref().map(lock);
        if begun.as_ref().is_some_and(|begun| begun.has_ended) {
            return false;
        }
        let more = |open: u64| (open > 0).then_some(open + 1);
        // ORDERING: Relaxed: a count above 0 keeps the run, and the tickets bring the item to its threads.
        let is_open = self.open.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        begun.into_iter().for_each(|mut begun| begun.items += u64::from(is_open));
        is_open
    }

    /// Lets no further item begin. Returns how many have begun, the first time.
    fn end_items(&self) -> Option<u64> {
        let mut begun = lock(self.begun.as_ref()?);
        (!std::mem::replace(&mut begun.has_ended, true)).then_some(begun.items)
    }

    /// Gives a count back. Returns true for the last.
    #[must_use = "the last ends the run"]
    fn leave(&self) -> bool {
        // ORDERING: AcqRel: the last sees what all items did.
        self.open.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl RunInner {
    pub(super) fn pipelining(&self) -> &Pipelining {
        self.pipelining.as_ref().expect("the run is over many items")
    }

    pub(super) fn pipe(&self) -> Option<&Pipe> {
        self.live.get().and_then(|live| live.pipe.as_ref())
    }

    /// Lets no further item begin, where items wait for those behind them, and arrives for these. Calls
    /// `ready` with programs that can be resumed. The run may be over afterwards.
    pub(super) fn end_items(&self, ready: &mut dyn FnMut(Ticket)) {
        let plan = self.pipelining();
        // Each arrival lets an item end. So until the last one the run is not over.
        for (phase, item) in self.pipe().and_then(Pipe::end_items).into_iter().flat_map(|items| plan.missing_behind(items)) {
            self.item((item % u64::from(plan.slots)) as u32).arrive_for_missing(phase, ready);
        }
    }

    /// Gives the consumer's count back: no further item begins. The run may be over afterwards.
    pub(super) fn close(&self) {
        if let (Some(pipe), Some(live)) = (self.pipe(), self.live.get())
            // ORDERING: Relaxed: only one call continues; the count orders the rest.
            && !pipe.is_closed.swap(true, Ordering::Relaxed)
            && pipe.leave()
        {
            Self::finish(self.me(), Some(live.slot));
        }
    }
}

impl Item<'_> {
    fn pipe(&self) -> &Pipe {
        self.live.pipe.as_ref().expect("the run is over many items")
    }

    fn state(&self) -> &ItemState {
        &self.pipe().items[self.at.number as usize]
    }

    /// Returns the item that comes so many items later, or earlier.
    fn later(self, shift: i32) -> Self {
        let slots = self.run.pipelining().slots as i32;
        self.run.item((self.at.number as i32 + shift).rem_euclid(slots) as u32)
    }

    /// Begins an item whose memory is filled, or an empty one. Calls `ready` with programs that can be
    /// resumed. Returns false if the run is over.
    #[must_use = "an item that did not begin is still the caller's"]
    pub(super) fn begin(self, is_empty: bool, ready: &mut dyn FnMut(Ticket)) -> bool {
        if !self.pipe().try_open() {
            return false;
        }
        let state = self.state();
        // ORDERING: Relaxed: only the consumer's task begins items, and the arrivals below publish it.
        state.is_done.store(false, Ordering::Relaxed);
        // ORDERING: Relaxed: as for `is_done`.
        state.is_empty.store(is_empty, Ordering::Relaxed);
        if let Some(devices) = &self.run.core.devices {
            // Earlier faults are those of earlier items.
            // ORDERING: Relaxed: as for `is_done`.
            self.at.lane_faults.store(devices.faults(), Ordering::Relaxed);
        }
        let mut ended = SmallVec::new();
        for &phase in &self.run.pipelining().begun_by_source {
            self.arrive(phase, ready, &mut ended);
        }
        self.end_phases(ended, ready);
        true
    }

    /// Arrives at the gate of a phase instead of a later item that does not come.
    fn arrive_for_missing(self, phase: u32, ready: &mut dyn FnMut(Ticket)) {
        let mut ended = SmallVec::new();
        self.arrive(phase, ready, &mut ended);
        self.end_phases(ended, ready);
    }

    /// Carries out what follows the end of a phase. Calls `ready` with programs that can be resumed. The run
    /// may be over afterwards.
    pub(super) fn end_phase(self, phase: u32, ready: &mut dyn FnMut(Ticket)) {
        self.end_phases(smallvec![(self.at.number, phase)], ready);
    }

    /// Ends phases of items, and phases without work that begin thereby. Nothing recurses.
    #[inline]
    fn end_phases(self, mut ended: SmallVec<[(u32, u32); 4]>, ready: &mut dyn FnMut(Ticket)) {
        let (run, plan) = (self.run, self.run.pipelining());
        while let Some((number, phase)) = ended.pop() {
            let (item, rule) = (run.item(number), &plan.phases[phase as usize]);
            plan.feeds.iter().filter(|feed| feed.phase == phase).for_each(|feed| item.feed(feed));
            for arrow in &rule.arrows {
                item.later(arrow.shift).arrive(arrow.phase, ready, &mut ended);
            }
            // Last: until then the item, and so the run, is not over, whatever other threads do with the
            // items that the arrows lead to.
            if item.pipe().arrive(&item.state().ends) {
                item.end();
            }
        }
    }

    /// Arrives at the gate of a phase. The last arrival begins the phase.
    fn arrive(self, phase: u32, ready: &mut dyn FnMut(Ticket), ended: &mut SmallVec<[(u32, u32); 4]>) {
        let (pipe, plan, code) = (self.pipe(), self.run.pipelining(), self.code());
        let gate = &pipe.gates[self.at.number as usize * plan.phases.len() + phase as usize];
        if !pipe.arrive(gate) {
            return;
        }
        // Before the phase begins: an arrival for the next item in this iteration comes after that.
        gate.reset(plan.phases[phase as usize].arrivals);
        let (first, count) = code.phases.get(phase as usize).copied().unwrap_or((0, code.roots));
        if count == 0 || self.is_empty() {
            ended.push((self.at.number, phase));
        } else {
            ready(self.ticket(first, count));
        }
    }

    /// Copies a value to a later item. If it was not made, or its copy panics, the value of the item before
    /// is copied again. If that panics too, the later item has an older value.
    fn feed(self, feed: &Feed) {
        let (to, before) = (self.later(feed.lag as i32), self.later(feed.lag as i32 - 1));
        let is_made = !self.is_empty() && feed.node.is_none_or(|node| self.outcome(node) == 0);
        let is_copied = is_made && self.copy(feed, self, feed.from, to);
        if !is_copied && before.at.number != to.at.number {
            self.copy(feed, before, feed.to, to);
        }
    }

    /// Copies a value from a cell of one item to the feedback of another. Returns false after a panic.
    fn copy(self, feed: &Feed, from: Self, offset: u32, to: Self) -> bool {
        let access = if self.plan().inputs[feed.input as usize].is_shared { Access::Share } else { Access::Tagged };
        // SAFETY: the phase has ended, and the value stays until the item does. Only this phase writes the
        // feedback's cells, in the order of items.
        let from = unsafe { from.at.frame.cells(Access::Tagged) };
        // SAFETY: the readers of the cell's last value are done: the phase waits for them.
        let to = unsafe { to.at.frame.cells(access) };
        let copied = aside(|| shielded(|| (feed.copy)(from, offset, to, feed.to)));
        let is_copied = copied.is_ok();
        if let Err(message) = copied {
            let node = feed.node.unwrap_or(NodeId(0));
            let message = format!("copying its value for a later item: {message}");
            self.add_fault(Some(node), self.site(node).panicked(message));
        }
        is_copied
    }

    /// Ends an item: drops what it has beside its results, and makes its gates and places as new. The run may
    /// be over afterwards.
    fn end(self) {
        let (run, live) = (self.run, self.live);
        let pipe = self.pipe();
        aside(|| self.drop_values());
        self.renew();
        let state = self.state();
        state.ends.reset(run.pipelining().phases.len() as u32);
        // ORDERING: Release pairs with the Acquire in `is_done`.
        state.is_done.store(true, Ordering::Release);
        // From here on the consumer may begin another item in this iteration.
        if pipe.is_shared {
            // ORDERING: pairs with the fence in `Lane::poll`: of "store is_done, load awaited" and "store
            // awaited, load is_done" one side sees the other.
            fence(Ordering::SeqCst);
            // ORDERING: Relaxed: the fence orders it.
            let awaited = pipe.awaited.0.load(Ordering::Relaxed);
            if awaited == ANY || awaited == self.at.number + 1 {
                aside(|| run.lane.ring());
            }
        }
        if pipe.leave() {
            RunInner::finish(run.me(), Some(live.slot));
        }
    }

    /// Drops the values that stayed until the end of the item; of one that has failed, all.
    fn drop_values(self) {
        // SAFETY: all phases of the item have ended, and its results are not taken yet.
        let values = unsafe { FrameValues::new(&self.run.plan, self.code(), &self.at.frame) };
        let plan = self.run.pipelining();
        if self.is_marked() {
            values.drop_carried();
            values.drop_outputs();
            values.drop_others();
            values.drop_cells(plan.inputs_out.iter().copied());
        }
        values.drop_cells(plan.dropped.iter().copied());
    }

    fn renew(self) {
        let code = self.code();
        for (gate, countdown) in code.gates.iter().zip(&self.at.gates) {
            countdown.reset(gate.count);
        }
        for (place, &start) in self.at.places.iter().zip(&code.starts) {
            // ORDERING: Relaxed: the tickets for these programs come after this.
            place.store(start << 1, Ordering::Relaxed);
        }
        if !code.segments.is_empty() {
            self.free_events(&code.segments);
            // ORDERING: Relaxed: the tickets for these programs come after this.
            self.at.points.iter().for_each(|point| point.store(0, Ordering::Relaxed));
        }
    }

    /// Makes an item that has failed, or was cancelled, like one that never ran. Called by the consumer, when
    /// the item is done.
    pub(super) fn forget_failure(self) {
        // ORDERING: Relaxed: the item is done, and the next one begins after this.
        self.at.is_marked.store(false, Ordering::Relaxed);
        for outcome in self.at.outcomes.get().into_iter().flatten() {
            // ORDERING: Relaxed: as for `is_marked`.
            outcome.store(outcome::NONE, Ordering::Relaxed);
        }
        let faults = std::mem::take(&mut *lock(&self.at.faults));
        let _ = shielded(|| drop(faults));
        self.at.controls.iter().chain(&self.at.asyncs).for_each(|state| state.renew());
        // ORDERING: Relaxed: as for `is_marked`.
        if self.at.has_failed.swap(false, Ordering::Relaxed) {
            self.run.state.remove_failure();
        }
    }

    /// Returns whether a node of the item has an outcome, or the item a failure.
    pub(super) fn is_marked(self) -> bool {
        // ORDERING: Relaxed: `is_done`, or the arrivals at the gate of the item's end, have acquired it.
        self.at.is_marked.load(Ordering::Relaxed)
    }

    /// Returns whether the item has no value.
    pub(super) fn is_empty(self) -> bool {
        // ORDERING: Relaxed: the consumer's own store, which an arrival at a gate has brought to its thread.
        self.state().is_empty.load(Ordering::Relaxed)
    }
}
