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

use smallvec::SmallVec;

use super::cost::Cost;
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
    pub(super) cost: Cost,
}

#[derive(Default)]
struct Begun {
    items: u64,
    /// Whether none begins any more.
    has_ended: bool,
}

/// Instead of an iteration: the consumer awaits the end of any item.
const ANY: u32 = u32::MAX;

struct ItemState {
    /// The phases that have not ended.
    ends: Countdown,
    state: AtomicU32,
}

/// The states of an iteration.
mod item {
    /// In flight, or free.
    pub(super) const BEGUN: u32 = 0;
    /// In flight, without a value: its phases do nothing.
    pub(super) const EMPTY: u32 = 1;
    pub(super) const DONE: u32 = 2;
}

/// Phases of items: the iteration, and the phase.
pub(super) type Phases = SmallVec<[(u32, u32); 4]>;

impl Pipe {
    pub(super) fn new(plan: &Pipelining, is_shared: bool, cost: Cost) -> Self {
        let gates = (0..plan.slots).flat_map(|iteration| {
            (0..plan.phases.len() as u32).map(move |phase| Countdown::new(plan.first_arrivals(phase, iteration)))
        });
        let item = || ItemState { ends: Countdown::new(plan.phases.len() as u32), state: AtomicU32::new(item::BEGUN) };
        Self {
            gates: gates.collect(),
            items: (0..plan.slots).map(|_| item()).collect(),
            open: Line(AtomicU64::new(1)),
            is_closed: AtomicBool::new(false),
            awaited: Line(AtomicU32::new(0)),
            begun: plan.waits_behind().then(Mutex::default),
            is_shared,
            cost,
        }
    }

    /// Returns whether the item in an iteration is done. What it made is then visible.
    #[inline]
    pub(super) fn is_done(&self, iteration: u32) -> bool {
        // ORDERING: Acquire pairs with the Release in `Item::end`.
        self.items[iteration as usize].state.load(Ordering::Acquire) == item::DONE
    }

    /// Returns the number of items that have begun and not ended, and of a consumer that has not closed.
    pub(super) fn open(&self) -> u64 {
        // ORDERING: Relaxed: a thread reads what it did itself.
        self.open.0.load(Ordering::Relaxed)
    }

    /// Records which item the consumer awaits; none for any. It checks the item once more behind a fence.
    pub(super) fn await_item(&self, iteration: Option<u32>) {
        let awaited = iteration.map_or(ANY, |iteration| iteration + 1);
        // ORDERING: Relaxed: the fence in `Lane::poll` orders it before the second check.
        self.awaited.0.store(awaited, Ordering::Relaxed);
    }

    #[inline]
    fn arrive(&self, gate: &Countdown) -> bool {
        if self.is_shared { gate.arrive::<true>() } else { gate.arrive::<false>() }
    }

    /// Counts one more item, unless the run is over, or items have ended.
    #[inline]
    fn try_open(&self) -> bool {
        match &self.begun {
            None => self.count_one(),
            Some(begun) => {
                // Held until the item is counted: the end of items arrives for those that do not come.
                let mut begun = lock(begun);
                let is_open = !begun.has_ended && self.count_one();
                begun.items += u64::from(is_open);
                is_open
            }
        }
    }

    #[inline]
    fn count_one(&self) -> bool {
        if !self.is_shared {
            // ORDERING: Relaxed: the consumer's thread alone begins and ends items. A cancel from elsewhere
            // does not rely on the count: it ends the run itself.
            let open = self.open.0.load(Ordering::Relaxed);
            // ORDERING: Relaxed: as for the load.
            self.open.0.store(open + u64::from(open > 0), Ordering::Relaxed);
            return open > 0;
        }
        let more = |open: u64| (open > 0).then_some(open + 1);
        // ORDERING: Relaxed: a count above 0 keeps the run, and the tickets bring the item to its threads.
        self.open.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Lets no further item begin. Returns how many have begun, the first time.
    fn end_items(&self) -> Option<u64> {
        let mut begun = lock(self.begun.as_ref()?);
        (!std::mem::replace(&mut begun.has_ended, true)).then_some(begun.items)
    }

    /// Gives a count back. Returns true for the last.
    #[must_use = "the last ends the run"]
    #[inline]
    fn leave(&self) -> bool {
        if !self.is_shared {
            // ORDERING: Relaxed: see `try_open`.
            let open = self.open.0.load(Ordering::Relaxed);
            // ORDERING: Relaxed: see `try_open`.
            self.open.0.store(open.saturating_sub(1), Ordering::Relaxed);
            return open == 1;
        }
        // ORDERING: AcqRel: the last sees what all items did.
        self.open.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl RunInner {
    #[inline]
    pub(super) fn pipelining(&self) -> &Pipelining {
        self.pipelining.as_ref().expect("the run is over many items")
    }

    #[inline]
    pub(super) fn pipe(&self) -> Option<&Pipe> {
        self.live.get()?.pipe.as_deref()
    }

    /// Lets no further item begin, where items wait for those behind them, and arrives for these. Calls
    /// `ready` with programs that can be resumed. The run may be over afterwards.
    pub(super) fn end_items(&self, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        let plan = self.pipelining();
        // Each arrival lets an item end. So until the last one the run is not over.
        for (phase, item) in self.pipe().and_then(Pipe::end_items).into_iter().flat_map(|items| plan.missing_behind(items)) {
            self.item((item % u64::from(plan.slots)) as u32).arrive_for_missing(phase, ended, ready);
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
    #[inline]
    fn pipe(&self) -> &Pipe {
        self.live.pipe.as_deref().expect("the run is over many items")
    }

    #[inline]
    fn state(&self) -> &ItemState {
        &self.pipe().items[self.at.number as usize]
    }

    /// Returns the item that comes so many items later, or earlier.
    #[inline]
    fn later(self, shift: i32) -> Self {
        if shift == 0 {
            return self;
        }
        let (slots, number) = (self.run.pipelining().slots as i32, self.at.number as i32 + shift);
        // No shift is beyond the number of slots.
        let back = if number >= slots { slots } else { 0 };
        let ahead = if number < 0 { slots } else { 0 };
        self.run.item((number + ahead - back) as u32)
    }

    /// Begins an item, of that number, whose memory is filled; or an empty one. Calls `ready` with programs
    /// that can be resumed. Returns false if the run is over.
    #[must_use = "an item that did not begin is still the caller's"]
    #[inline]
    pub(super) fn begin(self, number: u64, is_empty: bool, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) -> bool {
        if !self.pipe().try_open() {
            return false;
        }
        // ORDERING: Relaxed: only the consumer's task begins items, and the arrivals below publish it.
        self.at.item.store(number, Ordering::Relaxed);
        if self.run.core.devices.is_some() {
            // ORDERING: Relaxed: as for the state.
            self.at.lane_faults.store(self.run.lane_faults(), Ordering::Relaxed);
        }
        // ORDERING: Relaxed: as for the number.
        self.state().state.store(if is_empty { item::EMPTY } else { item::BEGUN }, Ordering::Relaxed);
        for &phase in &self.run.pipelining().begun_by_source {
            self.arrive(phase, ended, ready);
        }
        self.end_rest(ended, ready);
        true
    }

    /// Arrives at the gate of a phase instead of a later item that does not come.
    fn arrive_for_missing(self, phase: u32, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        self.arrive(phase, ended, ready);
        self.end_rest(ended, ready);
    }

    /// Carries out what follows the end of a phase. Calls `ready` with programs that can be resumed. The run
    /// may be over afterwards. `ended` is empty before and after.
    #[inline]
    pub(super) fn end_phase(self, phase: u32, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        self.end_one(phase, ended, ready);
        if !ended.is_empty() {
            self.end_rest(ended, ready);
        }
    }

    /// Ends phases without work, and those that begin thereby. Nothing recurses.
    #[inline]
    fn end_rest(self, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        let run = self.run;
        while let Some((number, phase)) = ended.pop() {
            run.item(number).end_one(phase, ended, ready);
        }
    }

    /// Ends a phase. Adds the phases without work that begin thereby to `ended`: their items are not over.
    #[inline]
    fn end_one(self, phase: u32, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        let (plan, pipe) = (self.run.pipelining(), self.pipe());
        let rule = &plan.phases[phase as usize];
        if rule.has_feeds {
            plan.feeds.iter().filter(|feed| feed.phase == phase).for_each(|feed| self.feed(feed));
        }
        for arrow in &rule.arrows {
            self.later(arrow.shift).arrive(arrow.phase, ended, ready);
        }
        // Last: until then the item, and so the run, is not over, whatever other threads do with the items
        // that the arrows lead to.
        if plan.phases.len() == 1 || pipe.arrive(&self.state().ends) {
            self.end();
        }
    }

    /// Arrives at the gate of a phase. The last arrival begins the phase.
    #[inline]
    fn arrive(self, phase: u32, ended: &mut Phases, ready: &mut impl FnMut(Ticket)) {
        let (pipe, plan, code) = (self.pipe(), self.run.pipelining(), self.code());
        let arrivals = plan.phases[phase as usize].arrivals;
        if arrivals > 1 {
            let gate = &pipe.gates[self.at.number as usize * plan.phases.len() + phase as usize];
            if !pipe.arrive(gate) {
                return;
            }
            // Before the phase begins: an arrival for the next item in this iteration comes after that.
            gate.reset(arrivals);
        }
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
    #[inline]
    fn end(self) {
        let (run, live) = (self.run, self.live);
        let pipe = self.pipe();
        let (state, plan) = (self.state(), run.pipelining());
        if self.is_marked() || !plan.dropped.is_empty() {
            aside(|| self.drop_values());
        }
        self.renew();
        state.ends.reset(plan.phases.len() as u32);
        // ORDERING: Release pairs with the Acquire in `is_done`.
        state.state.store(item::DONE, Ordering::Release);
        // From here on the consumer may begin another item in this iteration.
        if pipe.is_shared {
            // ORDERING: pairs with the fence in `Lane::poll`: of "store DONE, load awaited" and "store
            // awaited, load the state" one side sees the other.
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

    #[inline]
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
    #[inline]
    pub(super) fn is_marked(self) -> bool {
        // ORDERING: Relaxed: `is_done`, or the arrivals at the gate of the item's end, have acquired it.
        self.at.is_marked.load(Ordering::Relaxed)
    }

    /// Returns whether the item has no value.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        // ORDERING: Relaxed: the consumer's own store, which an arrival at a gate has brought to its thread.
        self.state().state.load(Ordering::Relaxed) == item::EMPTY
    }
}
