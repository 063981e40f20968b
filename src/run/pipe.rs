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
//!  n > 0        reserve, for m items        n + m
//!  0            reserve                     (unchanged)  refused: the run is over
//!  n            an item ends, or does not   n - 1        at 0 the run ends
//!               come; close, once
//! ```
//! The consumer has one count until it closes, and each item one, which is reserved before the source is
//! asked for it. So the run ends once, after its last item, and no item begins after that.

use std::ops::Range;

use smallvec::SmallVec;

use super::countdown::Countdown;
use super::inner::{Item, RunInner};
use super::outcomes::outcome;
use crate::device::host::{Cost, Ticket, aside};
use crate::error::shielded;
use crate::graph::NodeId;
use crate::plan::Pipelining;
use crate::plan::code::Code;
use crate::plan::pipelining::{Feed, Passed};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Line, Mutex, Ordering, fence, lock};
use crate::value::Access;

pub(super) struct Pipe {
    /// Of each phase of each iteration, iteration by iteration.
    gates: Box<[Countdown]>,
    open: Line<AtomicU64>,
    is_closed: AtomicBool,
    /// The iteration whose end the consumer awaits, plus one; 0 for none; [`ANY`] for all.
    awaited: Line<AtomicU32>,
    /// Where an item waits for items behind it, as in lockstep: those that have begun.
    begun: Option<Mutex<Begun>>,
    /// Whether threads other than the consumer's run phases.
    pub(super) is_shared: bool,
    /// Whether an item that does not fail is done when its only program is.
    pub(super) is_plain: bool,
    /// What an item costs. None if polls never run items beside workers.
    pub(super) cost: Option<Cost>,
}

#[derive(Default)]
struct Begun {
    items: u64,
    /// Whether none begins any more.
    has_ended: bool,
}

/// Instead of an iteration: the consumer awaits the end of any item.
const ANY: u32 = u32::MAX;

/// The states of an iteration.
mod item {
    /// In flight, or free.
    pub(super) const BEGUN: u32 = 0;
    /// In flight, without a value: its phases do nothing.
    pub(super) const EMPTY: u32 = 1;
    pub(super) const DONE: u32 = 2;
}

/// Phases without work that have begun, and so end at once: the iteration, and the phase.
pub(super) type EndedPhases = SmallVec<[(u32, u32); 4]>;

impl Pipe {
    pub(super) fn new(plan: &Pipelining, code: &Code, is_shared: bool, is_observed: bool, cost: Option<Cost>) -> Self {
        let shifts = &plan.shifts();
        let gates = (0..plan.slots).flat_map(|iteration| {
            let phases = (0..).zip(shifts);
            phases.map(move |(phase, shifts)| Countdown::new(plan.first_arrivals(phase, iteration, shifts)))
        });
        Self {
            gates: gates.collect(),
            open: Line(AtomicU64::new(1)),
            is_closed: AtomicBool::new(false),
            awaited: Line(AtomicU32::new(0)),
            begun: plan.waits_behind().then(Mutex::default),
            is_shared,
            is_plain: plan.is_plain() && code.is_one_program() && !is_observed,
            cost,
        }
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

    /// Counts so many items that may begin, unless the run is over.
    #[inline]
    fn reserve(&self, items: u32) -> bool {
        let items = u64::from(items);
        if !self.is_shared {
            // ORDERING: Relaxed: the consumer's thread alone begins and ends items. A cancel from elsewhere
            // does not rely on the count: it ends the run itself.
            let open = self.open.0.load(Ordering::Relaxed);
            if open > 0 {
                // ORDERING: Relaxed: as for the load.
                self.open.0.store(open + items, Ordering::Relaxed);
            }
            return open > 0;
        }
        let more = |open: u64| (open > 0).then_some(open + items);
        // ORDERING: Relaxed: a count above 0 keeps the run, and the tickets bring the item to its threads.
        self.open.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts items among those that items before them wait for, unless these have ended.
    #[inline]
    fn enter(&self, items: u32) -> bool {
        self.begun.as_ref().is_none_or(|begun| {
            let mut begun = lock(begun);
            begun.items += if begun.has_ended { 0 } else { u64::from(items) };
            !begun.has_ended
        })
    }

    /// Lets no further item begin. Returns how many have begun, the first time.
    fn end_items(&self) -> Option<u64> {
        let mut begun = lock(self.begun.as_ref()?);
        (!std::mem::replace(&mut begun.has_ended, true)).then_some(begun.items)
    }

    /// Gives counts back. Returns true for the last.
    #[must_use = "the last ends the run"]
    #[inline]
    fn leave(&self, count: u32) -> bool {
        let count = u64::from(count);
        if !self.is_shared {
            // ORDERING: Relaxed: see `reserve`.
            let open = self.open.0.load(Ordering::Relaxed);
            // ORDERING: Relaxed: see `reserve`.
            self.open.0.store(open.saturating_sub(count), Ordering::Relaxed);
            return open == count;
        }
        // ORDERING: AcqRel: the last sees what all items did.
        self.open.0.fetch_sub(count, Ordering::AcqRel) == count
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
    pub(super) fn end_items(&self, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        let plan = self.pipelining();
        // Each arrival lets an item end. So until the last one the run is not over.
        for (phase, item) in self.pipe().and_then(Pipe::end_items).into_iter().flat_map(|items| plan.missing_behind(items)) {
            self.item((item % u64::from(plan.slots)) as u32).arrive_for_missing(phase, ended, ready);
        }
    }

    /// Begins items that have counts and are marked as begun: all without a value, or none. Calls `ready`
    /// with programs that can be resumed. Returns false if no item begins any more.
    #[must_use = "items that did not begin are still the caller's"]
    #[inline]
    pub(super) fn begin_items(
        &self,
        iterations: Range<u32>,
        is_empty: bool,
        ended: &mut EndedPhases,
        ready: &mut impl FnMut(Ticket),
    ) -> bool {
        let (plan, count) = (self.pipelining(), iterations.end - iterations.start);
        let first = self.item(iterations.start);
        if !first.pipe().enter(count) {
            return false;
        }
        for &phase in &plan.begun_by_source {
            let programs = first.programs_of(phase);
            // Then those of the items follow each other.
            let is_whole = programs.1 > 0 && programs == (0, self.code().programs());
            if plan.phases[phase as usize].arrivals == 1 && !is_empty && is_whole {
                ready(first.ticket(0, count * programs.1));
            } else {
                iterations.clone().for_each(|iteration| first.iteration(iteration).arrive(phase, ended, ready));
            }
        }
        if !ended.is_empty() {
            first.end_rest(ended, ready);
        }
        true
    }

    /// Gives the consumer's count back: no further item begins. The run may be over afterwards.
    pub(super) fn close(&self) {
        if let (Some(pipe), Some(live)) = (self.pipe(), self.live.get())
            // ORDERING: Relaxed: only one call continues; the count orders the rest.
            && !pipe.is_closed.swap(true, Ordering::Relaxed)
            && pipe.leave(1)
        {
            Self::finish(self.me(), Some(live.slot));
        }
    }

    /// Counts so many items that may begin. Returns false if the run is over.
    #[inline]
    pub(super) fn reserve_items(&self, items: u32) -> bool {
        self.pipe().is_some_and(|pipe| pipe.reserve(items))
    }

    /// Gives back what was reserved for items that did not begin. The run may be over afterwards.
    #[inline]
    pub(super) fn release_items(&self, items: u32) {
        if items > 0
            && let (Some(pipe), Some(live)) = (self.pipe(), self.live.get())
            && pipe.leave(items)
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

    /// Returns whether the item is done. What it made is then visible.
    #[inline]
    pub(super) fn is_done(self) -> bool {
        // ORDERING: Acquire pairs with the Release in `Item::set_done`.
        self.at.state.load(Ordering::Acquire) == item::DONE
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
        self.iteration((number + ahead - back) as u32)
    }

    /// Marks an item as begun, with its number, or without a value. Those that then do not begin are not done
    /// either.
    #[inline]
    pub(super) fn begin(self, number: u64, is_empty: bool) {
        // ORDERING: Relaxed: only the consumer's task begins items, and the arrivals that follow publish it.
        self.at.item.store(number, Ordering::Relaxed);
        if let (Some(own), Some(devices)) = (&self.at.on_devices, &self.run.core.devices) {
            // ORDERING: Relaxed: as for the number.
            own.lane_faults.store(devices.faults(), Ordering::Relaxed);
        }
        // ORDERING: Relaxed: as for the number.
        self.at.state.store(if is_empty { item::EMPTY } else { item::BEGUN }, Ordering::Relaxed);
        if self.at.times.is_some() {
            self.tell_begin();
        }
    }

    /// Returns the programs that begin a phase: the first, and how many.
    #[inline]
    fn programs_of(self, phase: u32) -> (u32, u32) {
        let code = self.code();
        code.phases.get(phase as usize).copied().unwrap_or((0, code.roots))
    }

    /// Arrives at the gate of a phase instead of a later item that does not come.
    fn arrive_for_missing(self, phase: u32, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        self.arrive(phase, ended, ready);
        self.end_rest(ended, ready);
    }

    /// Carries out what follows when a phase has ended, or is queued or reached. Calls `ready` with programs
    /// that can be resumed. The run may be over afterwards, unless the phase is only queued. `ended` is empty
    /// before and after.
    #[inline(always)]
    pub(super) fn pass(self, phase: u32, passed: Passed, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        self.pass_one(phase, passed, ended, ready);
        if !ended.is_empty() {
            self.end_rest(ended, ready);
        }
    }

    /// Ends phases without work, and those that begin thereby. Nothing recurses.
    #[cold]
    #[inline(never)]
    fn end_rest(self, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        while let Some((number, phase)) = ended.pop() {
            self.iteration(number).pass_one(phase, Passed::Ended, ended, ready);
        }
    }

    /// Passes a phase. Adds the phases without work that begin thereby to `ended`: their items are not over.
    #[inline(always)]
    fn pass_one(self, phase: u32, passed: Passed, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        let (plan, pipe) = (self.run.pipelining(), self.pipe());
        let rule = &plan.phases[phase as usize];
        if rule.feeds_on(passed) {
            plan.feeds.iter().filter(|feed| feed.phase == phase).for_each(|feed| self.feed(feed));
        }
        // Until the last arrow, or the count behind them, the item is not over, and so neither is the run,
        // whatever other threads do with the items that the arrows lead to. Then the run may be gone.
        let may_end = passed != Passed::Queued && !rule.is_followed;
        if !rule.arrows.is_empty() {
            for arrow in rule.arrows_of(passed) {
                self.later(arrow.shift).arrive(arrow.phase, ended, ready);
            }
        }
        if may_end && (plan.last_phases == 1 || pipe.arrive(&self.at.ends)) {
            self.end();
        }
    }

    /// Arrives at the gate of a phase. The last arrival begins the phase.
    #[inline]
    fn arrive(self, phase: u32, ended: &mut EndedPhases, ready: &mut impl FnMut(Ticket)) {
        let (pipe, plan) = (self.pipe(), self.run.pipelining());
        let arrivals = plan.phases[phase as usize].arrivals;
        if arrivals > 1 {
            let gate = &pipe.gates[self.at.number as usize * plan.phases.len() + phase as usize];
            if !pipe.arrive(gate) {
                return;
            }
            // Before the phase begins: an arrival for the next item in this iteration comes after that.
            gate.reset(arrivals);
        }
        let (first, count) = self.programs_of(phase);
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
        let access = self.plan().inputs[feed.input as usize].access();
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
    #[inline(always)]
    pub(super) fn end(self) {
        let plan = self.run.pipelining();
        if self.at.times.is_some() {
            self.tell_all_submitted();
            self.tell_end();
        }
        if self.is_marked() || !plan.dropped.is_empty() {
            aside(|| self.drop_values());
        }
        self.renew(self.code());
        if plan.last_phases > 1 {
            self.at.ends.reset(plan.last_phases);
        }
        self.set_done(self.pipe());
    }

    /// Lets the consumer take the results. The run may be over afterwards.
    #[inline(always)]
    pub(super) fn set_done(self, pipe: &Pipe) {
        // ORDERING: Release pairs with the Acquire in `is_done`.
        self.at.state.store(item::DONE, Ordering::Release);
        // From here on the consumer may begin another item in this iteration.
        if pipe.is_shared {
            // ORDERING: pairs with the fence in `Lane::poll`: of "store DONE, load awaited" and "store
            // awaited, load the state" one side sees the other.
            fence(Ordering::SeqCst);
            // ORDERING: Relaxed: the fence orders it.
            let awaited = pipe.awaited.0.load(Ordering::Relaxed);
            if awaited == ANY || awaited == self.at.number + 1 {
                aside(|| self.run.lane.ring());
            }
        }
        if pipe.leave(1) {
            RunInner::finish(self.run.me(), Some(self.live.slot));
        }
    }

    /// Drops the values that stayed until the end of the item; of one that has failed, all.
    fn drop_values(self) {
        // SAFETY: all phases of the item have ended, and its results are not taken yet.
        let values = unsafe { self.values() };
        let plan = self.run.pipelining();
        if self.is_marked() {
            values.drop_carried();
            values.drop_outputs();
            values.drop_others();
            values.drop_cells(plan.inputs_out.iter().copied());
        }
        values.drop_cells(plan.dropped.iter().copied());
    }

    #[inline(always)]
    fn renew(self, code: &Code) {
        for (gate, countdown) in code.gates.iter().zip(&self.at.gates) {
            countdown.reset(gate.count);
        }
        if !code.segments.is_empty() {
            self.free_events(&code.segments);
            // ORDERING: Relaxed: the tickets for these programs come after this.
            self.at.on_devices().points.iter().for_each(|point| point.store(0, Ordering::Relaxed));
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
        // ORDERING: Relaxed: `is_done` has acquired it, or the arrivals at the gate of the last phase, or at
        // the count of the last phases; or the item's only program asks, on its own thread.
        self.at.is_marked.load(Ordering::Relaxed)
    }

    /// Returns whether the item has no value.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        // ORDERING: Relaxed: the consumer's own store, which an arrival at a gate has brought to its thread.
        self.at.state.load(Ordering::Relaxed) == item::EMPTY
    }
}
