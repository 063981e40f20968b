//! An engine's inside: how operations get into their variables' queues, how they are run, and what becomes of
//! their failures.

use std::sync::{Arc, Weak};

use super::body::Ran;
use super::failures::Failures;
use super::hand::Hand;
use super::handle::{Handled, Pushed, Watchers};
use super::lanes::Lanes;
use super::later::{Later, Laters, Resume};
use super::op::{Job, Role};
use super::pace::Pace;
use super::place::Place;
use super::queue::RequestId;
use super::ready::Ready;
use super::slots::{Slots, Spot, Told};
use super::turn::Turn;
use super::work::{work_alone, work_shared};
use crate::device::host::{Entry, Origin};
use crate::error::{Error, Kind, Result};
use crate::runtime::Lane;
use crate::runtime::{Client, Core, Registration, is_inside};
use crate::sync::{AtomicBool, AtomicU64, Line, Mutex, Ordering, fence, lock};

/// How many free slots a worker keeps back at most, to give them back together; all workers keep no more than
/// one in 64 of what may be pending.
pub(super) const FREED_MAX: usize = 32;
/// The number of an operation that is run where it lies.
pub(super) const NOWHERE: u32 = u32::MAX;

pub(crate) struct Hub {
    pub(super) slots: Slots,
    pub(super) watchers: Watchers,
    /// Rung when there is room for operations.
    pub(super) space: Lane,
    /// Rung when none is pending.
    pub(super) idle: Lane,
    /// Rung when an operation is ready that a poll is to run: there are no workers.
    pub(super) bell: Lane,
    laters: Laters,
    pub(super) ready: Ready,
    /// Whose turn it is without workers.
    pub(super) turn: Turn,
    pub(super) pace: Pace,
    /// Tickets that there are. Each has a count of the hub.
    pub(super) active: Line<AtomicU64>,
    /// Workers among them that look for something to do, and will come for it without being called.
    pub(super) looking: Line<AtomicU64>,
    pub(super) workers: u64,
    pub(super) is_simulated: bool,
    /// The executor's devices that queue work. Then there are workers.
    pub(super) lanes: Option<Lanes>,
    /// Whether a poll runs operations of a simulated executor.
    pub(super) is_rehearsing: AtomicBool,
    /// None once the executor is shut down and nothing is pending.
    pub(super) room: Mutex<Option<Registration>>,
    pub(super) is_closed: AtomicBool,
    /// Whether pending futures keep it alive without a handle: workers, or other flows, go on with them.
    pub(super) is_kept: bool,
    /// The process that the executor's threads are in.
    pub(super) origin: Origin,
    pub(super) max_pending: usize,
    freed_max: usize,
    /// Gone when nobody is left who could ask.
    pub(super) failures: Weak<Failures>,
}

impl Client for Hub {
    fn shut_down(self: Arc<Self>) {
        // ORDERING: SeqCst: of "close, look for work" and "push, look whether closed" one sees the other; the
        // locks do the rest.
        self.is_closed.store(true, Ordering::SeqCst);
        self.space.ring();
        self.laters.wake_all();
        self.bell.ring();
        self.end_what_is_ready();
        self.leave_if_over();
    }
}

impl Hub {
    /// An engine of the user's has an owner; the engine of an executor's flows has none.
    pub(super) fn new(
        core: &Arc<Core>,
        max_pending: usize,
        lanes: Option<Lanes>,
        owner: Option<&Arc<Failures>>,
    ) -> Result<Arc<Self>> {
        let hub = Arc::new(Self {
            slots: Slots::new(),
            watchers: Watchers::new(),
            space: Lane::new(),
            idle: Lane::new(),
            bell: Lane::new(),
            laters: Laters::default(),
            ready: Ready::new(core.workers() == 0),
            turn: Turn::new(),
            pace: Pace::new(),
            active: Line(AtomicU64::new(0)),
            looking: Line(AtomicU64::new(0)),
            workers: core.workers() as u64,
            is_simulated: core.choices.is_some(),
            lanes,
            is_rehearsing: AtomicBool::new(false),
            room: Mutex::new(None),
            is_closed: AtomicBool::new(false),
            is_kept: core.workers() > 0 || owner.is_none(),
            origin: core.origin().clone(),
            max_pending,
            freed_max: (max_pending / 64 / core.workers().max(1)).clamp(1, FREED_MAX),
            failures: owner.map_or_else(Weak::new, Arc::downgrade),
        });
        let client: Weak<Self> = Arc::downgrade(&hub);
        let entry = Entry { run: Arc::as_ptr(&hub).cast(), resume: work_shared, resume_alone: work_alone };
        // SAFETY: a ticket has a count of the hub, and the room is dropped with it, or when there is no
        // ticket.
        let room = unsafe { Registration::new(core, client, entry) }?;
        *lock(&hub.room) = Some(room);
        // The executor may have been shut down meanwhile, and have found no room to leave.
        hub.leave_if_over();
        Ok(hub)
    }

    /// Returns what stands for this engine where engines are compared.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Pushes an operation, unless there is a mistake in it or no room: then it is left there.
    #[inline(never)]
    pub(super) fn try_push(self: &Arc<Self>, job: &mut Option<Job>) -> Result<Pushed> {
        let Some(sound) = job else { return Err(Kind::Spent.into()) };
        if let Some(fault) = self.fault(sound) {
            return Err(fault);
        }
        self.push_within(self.max_pending, job).ok_or_else(|| self.is_full())
    }

    /// Pushes an operation for workers if there is nothing particular about it or who pushes it, and room.
    #[inline(never)]
    pub(super) fn push_plainly(self: &Arc<Self>, job: &mut Option<Job>) -> Option<Handled> {
        let is_plain = !self.is_inline() && self.fault(job.as_ref()?).is_none();
        if is_plain { self.push_behind(self.max_pending, job) } else { None }
    }

    /// Runs an operation where it lies, if there is no mistake in it, and nothing is pending on an engine
    /// without workers. None if something is: then it is left there.
    #[inline(never)]
    pub(super) fn run_now(self: &Arc<Self>, job: &mut Option<Job>) -> Option<Result<Result<()>>> {
        let sound = job.as_ref().filter(|job| self.is_inline() && !job.is_async)?;
        match self.fault(sound) {
            Some(fault) => Some(Err(fault)),
            None => self.push_alone(job).map(Ok),
        }
    }

    #[cold]
    pub(super) fn is_full(&self) -> Error {
        Kind::EngineBusy { max: self.max_pending }.into()
    }

    /// Pushes what the engine needs itself, whatever the bound.
    pub(super) fn push_beyond(self: &Arc<Self>, job: Job) -> Result<Pushed> {
        let mut job = Some(job);
        let pushed = self.push_within(usize::MAX, &mut job);
        // Sixteen million operations are pending, and what was to be freed may be in use by some of them.
        std::mem::forget(job);
        pushed.ok_or_else(|| self.is_full())
    }

    #[inline(always)]
    fn push_within(self: &Arc<Self>, max: usize, job: &mut Option<Job>) -> Option<Pushed> {
        if self.is_inline()
            && job.as_ref().is_some_and(|job| !job.is_async)
            && let Some(outcome) = self.push_alone(job)
        {
            return Some(Pushed::ended(outcome));
        }
        let handled = if self.is_inline() { self.push_to_inbox(max, job) } else { self.push_behind(max, job) };
        Some(Pushed::pending(self.clone(), handled?))
    }

    /// Pushes an operation that others run.
    #[inline(always)]
    fn push_behind(self: &Arc<Self>, max: usize, job: &mut Option<Job>) -> Option<Handled> {
        let mut hand = Hand::new(self);
        let handled = self.enter_new(max, job, &mut hand)?;
        hand.give_back();
        self.start(&mut hand);
        Some(handled)
    }

    /// Puts an operation into a slot, and has it enter the queues of its variables.
    #[inline(always)]
    pub(super) fn enter_new(self: &Arc<Self>, max: usize, job: &mut Option<Job>, hand: &mut Hand<'_>) -> Option<Handled> {
        // All queues have the operation in the same order, because others wait here.
        let mut free = self.slots.free();
        let spot = self.slots.spot(self.slots.take(&mut free, max)?);
        let handled = self.settle(spot, job);
        self.enter(spot, hand);
        Some(handled)
    }

    /// Puts an operation into its slot.
    #[inline(always)]
    pub(super) fn settle(&self, spot: Spot<'_>, job: &mut Option<Job>) -> Handled {
        if let Some(scope) = job.as_ref().and_then(Job::scope) {
            scope.begin_one();
        }
        // SAFETY: the slot is free: no other thread has its number.
        unsafe { spot.slot.put(job) };
        Handled::new(spot)
    }

    pub(super) fn is_inline(&self) -> bool {
        self.workers == 0 && !self.is_simulated
    }

    /// Has an operation enter the queues of its variables, while nobody else has one enter.
    #[inline(always)]
    pub(super) fn enter(self: &Arc<Self>, spot: Spot<'_>, hand: &mut Hand<'_>) {
        let Spot { number, slot } = spot;
        // SAFETY: it does not run before the last hold is released.
        let job = unsafe { slot.job() };
        let requests = job.asked.len() as u32;
        // With one request it cannot stand half in its queues.
        let own = u32::from(requests != 1);
        // ORDERING: Relaxed: the queues hand it over.
        slot.holds.store(requests + own, Ordering::Relaxed);
        slot.looks.store(requests + 1, Ordering::Relaxed);
        hand.begin_count(number);
        for (place, asked) in job.asked.iter().enumerate() {
            // SAFETY: whoever pushes it has a handle to the variable, or had one and what frees it stands
            // behind.
            unsafe { asked.place() }.queue.enter(RequestId::new(number, place), &asked.request, hand);
        }
        let granted = hand.end_count();
        if granted + own > 0 {
            hand.release_holds(spot, granted + own);
        }
    }

    #[inline]
    pub(super) fn fault(&self, job: &Job) -> Option<Error> {
        let mut is_odd = job.is_kernel || !job.has_no_fault() || self.is_closed.load(Ordering::SeqCst) || self.is_forked();
        // SAFETY: whoever made the operation has handles to its variables.
        job.each(|asked| is_odd |= unsafe { asked.place() }.hub != self.address());
        if is_odd { self.describe_fault(job) } else { None }
    }

    fn lacks_device(&self, job: &Job) -> bool {
        job.kernel().zip(self.lanes.as_ref()).is_some_and(|(target, devices)| target.device as usize >= devices.device_count())
    }

    #[cold]
    fn describe_fault(&self, job: &Job) -> Option<Error> {
        if let Err(forked) = self.check_process() {
            return Some(forked);
        }
        if self.is_closed.load(Ordering::SeqCst) {
            return Some(Kind::ShutDown.into());
        }
        if let (Some(devices), Some(target), true) = (&self.lanes, job.kernel(), self.lacks_device(job)) {
            let (operation, device, count) = (job.name.to_cow(), target.device, devices.device_count());
            return Some(Kind::OpDevice { operation, device, count }.into());
        }
        // SAFETY: as in `fault`.
        let foreign = || job.asked.iter().map(|asked| unsafe { asked.place() }).find(|place| place.hub != self.address());
        let is_foreign = |place: &Place| Kind::ForeignVar { variable: place.name.to_cow(), operation: job.name.to_cow() };
        job.fault().cloned().or_else(|| foreign().map(|place| is_foreign(place).into()))
    }

    /// Has what a hand has made ready run.
    #[inline(always)]
    pub(super) fn start(self: &Arc<Self>, hand: &mut Hand<'_>) {
        if !hand.ready.is_empty() {
            self.start_all(hand);
        }
    }

    fn start_all(self: &Arc<Self>, hand: &mut Hand<'_>) {
        hand.pass_on();
        if self.workers > 0 && self.call_workers() {
            return;
        }
        if self.workers == 0 {
            return self.call_polls();
        }
        // Inside of an operation it is for whoever runs that.
        if is_inside(self.address()) {
            return;
        }
        self.run_all(hand);
    }

    /// Returns what is to be run next. First come, first served: what this thread has made ready goes on at
    /// once only where nobody waits.
    #[inline]
    pub(super) fn next(&self, hand: &mut Hand<'_>) -> Option<u32> {
        if !self.ready.is_empty() || hand.ready.len() > 1 {
            hand.pass_on();
        }
        hand.next_own().or_else(|| self.ready.pop(&self.slots))
    }

    /// Runs what is ready in this thread: nobody else will.
    pub(super) fn run_all(self: &Arc<Self>, hand: &mut Hand<'_>) {
        while let Some(number) = self.next(hand) {
            self.run(number, hand);
        }
        hand.give_back();
    }

    pub(super) fn add_ready(&self, number: u32) {
        let spot = self.slots.spot(number);
        // SAFETY: it is ready, and nobody has begun it.
        let job = unsafe { spot.slot.job() };
        self.ready.push(&self.slots, spot, job.priority, || job.owner());
    }

    /// Leaves the executor when that is shut down and nothing is left to do.
    pub(super) fn leave_if_over(&self) {
        // ORDERING: SeqCst: of "close, look who is left" and "be the last, look whether closed" one sees the
        // other.
        fence(Ordering::SeqCst);
        if !self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let room = {
            let mut room = lock(&self.room);
            // Behind the lock who pushes from now on sees that nobody works, and that there is no room, and
            // runs what it has pushed.
            let is_over = self.active.0.load(Ordering::SeqCst) == 0 && self.slots.is_unused();
            if is_over { room.take() } else { None }
        };
        drop(room);
    }

    /// Returns true if an operation can be pushed, or will be refused for another reason than want of room;
    /// else `space` is rung when that changes.
    pub(super) fn has_space(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst) || self.slots.has_space(self.max_pending)
    }

    /// Returns true if nothing is pending; else `idle` is rung when that changes.
    pub(super) fn is_idle(&self) -> bool {
        let is_empty = self.slots.is_idle();
        self.turn.is_over() && is_empty
    }

    /// Runs an operation that is ready, and ends it, unless it is a future that is not ready.
    pub(super) fn run(self: &Arc<Self>, number: u32, hand: &mut Hand<'_>) {
        let spot @ Spot { slot, .. } = self.slots.spot(number);
        // SAFETY: it was pushed, and is kept until it is done with.
        let job = unsafe { slot.job() };
        if self.lanes.as_ref().is_some_and(|lanes| lanes.defers(number, job)) {
            return;
        }
        let outcome = match self.perform(job, number) {
            Ok(Ran::Over) => Ok(()),
            Ok(Ran::Parts(_)) => unreachable!("`perform` performs the parts"),
            Err(error) => Err(error),
            Ok(Ran::Enqueue(kernel)) => return self.enqueue(number, kernel, hand),
            Ok(Ran::Later(rest, context)) => {
                let later = Later::new(self, number, job.scope().cloned(), rest, context);
                // ORDERING: Relaxed: whoever runs the operation next is told so through the ready list.
                job.has_begun.store(true, Ordering::Relaxed);
                self.laters.add(&later);
                if let Some(scope) = job.scope() {
                    scope.laters.add(&later);
                }
                // SAFETY: this thread runs it, alone.
                unsafe { job.go_on_with(Resume::new(later)) };
                return hand.ready.push(number);
            }
            Ok(Ran::Parked(later)) => {
                // SAFETY: as above.
                unsafe { job.go_on_with(Resume::new(later.clone())) };
                return later.park();
            }
        };
        self.end(spot, outcome, hand);
    }

    pub(super) fn end(&self, spot: Spot<'_>, outcome: Result<()>, hand: &mut Hand<'_>) {
        // SAFETY: its slot is given back only below.
        let frees = unsafe { spot.slot.job() }.role == Role::Frees;
        self.leave_scope(spot);
        hand.begin_count(spot.number);
        if !frees {
            self.leave_queues(spot, hand);
        }
        let done_with = hand.end_count();
        self.watchers.end(spot, outcome);
        hand.release_looks(spot, if frees { 2 } else { 1 + done_with });
        if hand.freed.len() >= self.freed_max {
            hand.give_back();
        }
    }

    /// An operation is over, for those who count and end what a flow or the engine has.
    #[inline]
    pub(super) fn leave_scope(&self, Spot { number, slot }: Spot<'_>) {
        // SAFETY: whoever ends it gives its slot back later.
        let job = unsafe { slot.job() };
        if job.is_async {
            self.laters.remove(number);
        }
        if let Some(scope) = job.scope() {
            if job.is_async {
                scope.laters.remove(number);
            }
            scope.end_one();
        }
    }

    pub(super) fn leave_queues(&self, Spot { number, slot }: Spot<'_>, hand: &mut Hand<'_>) {
        // SAFETY: as in `leave_scope`.
        let job = unsafe { slot.job() };
        for (place, asked) in job.asked.iter().enumerate() {
            // SAFETY: its request has not left yet.
            unsafe { asked.place() }.queue.leave(RequestId::new(number, place), &asked.request, hand);
        }
    }

    /// Gives slots back.
    pub(super) fn give_back(&self, freed: &[u32]) {
        let told = self.slots.give_back(freed);
        self.tell(told);
        if let Some(lanes) = &self.lanes
            && self.slots.in_use() == 0
        {
            lanes.devices.collect();
        }
        self.leave_if_over();
    }

    pub(super) fn tell(&self, told: Told) {
        if told.space {
            self.space.ring();
        }
        if told.idle {
            self.idle.ring();
        }
    }
}
