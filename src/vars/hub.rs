//! An engine's inside: how operations get into their variables' queues, how they are run, and what becomes of their failures.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::body::Ran;
use super::devices::Devices;
use super::hand::Hand;
use super::handle::{Pushed, Watchers};
use super::later::{Later, Laters, Resume};
use super::op::{Job, Role};
use super::queue::RequestId;
use super::ready::Ready;
use super::slots::{Slots, Told, Turn};
use super::within::{self, Common, Polling};
use super::work::{work_alone, work_shared};
use crate::bridge::{Lane, shielded};
use crate::device::host::Entry;
use crate::error::{Error, Kind, Result, panic_message};
use crate::exec::{Executor, Guest, Inside, Room, is_inside};
use crate::sync::{AtomicBool, AtomicU64, Line, Mutex, Ordering, fence, lock, spin_loop};

/// How many failures of operations that write nothing are kept for `idle`.
const FAILURES_MAX: usize = 1024;
/// How many free slots a worker keeps back at most, to give them back together; all workers keep no more than one in 64 of what may be pending.
const FREED_MAX: usize = 32;
/// How often a worker that has found nothing looks again before it goes, and the pause between two looks: a few microseconds in all. Who pushes then need not
/// call it, and gets ahead of it, so that what depends on each other is run in a row.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 8 };
const PAUSE: u32 = 32;
/// The key of an operation that is run where it lies.
pub(super) const NOWHERE: within::Key = (u32::MAX, 0);

pub(super) struct Hub {
    pub(super) slots: Slots,
    pub(super) watchers: Watchers,
    /// Rung when there is room for operations.
    pub(super) space: Lane,
    /// Rung when none is pending.
    pub(super) idle: Lane,
    /// Rung when an operation is ready that a poll is to run: there are no workers.
    pub(super) bell: Lane,
    laters: Laters,
    pub(super) ready: Line<Ready>,
    /// Held while an operation enters several queues, so that all of them have it in the same order.
    pushing: Mutex<()>,
    /// Tickets that there are. Each has a count of the hub.
    pub(super) active: Line<AtomicU64>,
    /// Workers among them that look for something to do, and will come for it without being called.
    looking: AtomicU64,
    pub(super) workers: u64,
    pub(super) is_simulated: bool,
    /// The executor's devices that queue work. Then there are workers.
    pub(super) devices: Option<Devices>,
    /// Whether a poll runs operations of a simulated executor.
    pub(super) is_rehearsing: AtomicBool,
    /// None once the executor is shut down and nothing is pending.
    pub(super) room: Mutex<Option<Room>>,
    pub(super) is_closed: AtomicBool,
    max_pending: usize,
    freed_max: usize,
    /// Of operations that write nothing.
    failures: Mutex<VecDeque<Error>>,
}

impl Guest for Hub {
    fn close(&self) {
        // ORDERING: SeqCst: of "close, look for work" and "push, look whether closed" one sees the other; the locks do the rest.
        self.is_closed.store(true, Ordering::SeqCst);
        self.space.ring();
        self.laters.wake_all();
        self.bell.ring();
        self.leave_if_over();
    }
}

impl Hub {
    pub(super) fn new(exec: &Executor, max_pending: usize, devices: Option<Devices>) -> Result<Arc<Self>> {
        let hub = Arc::new(Self {
            slots: Slots::new(),
            watchers: Watchers::default(),
            space: Lane::new(),
            idle: Lane::new(),
            bell: Lane::new(),
            laters: Laters::default(),
            ready: Line(Ready::new()),
            pushing: Mutex::new(()),
            active: Line(AtomicU64::new(0)),
            looking: AtomicU64::new(0),
            workers: exec.workers() as u64,
            is_simulated: exec.is_simulated(),
            devices,
            is_rehearsing: AtomicBool::new(false),
            room: Mutex::new(None),
            is_closed: AtomicBool::new(false),
            max_pending,
            freed_max: (max_pending / 64 / exec.workers().max(1)).clamp(1, FREED_MAX),
            failures: Mutex::default(),
        });
        let guest: Weak<Self> = Arc::downgrade(&hub);
        let entry = Entry { run: Arc::as_ptr(&hub).cast(), resume: work_shared, resume_alone: work_alone };
        // SAFETY: a ticket has a count of the hub, and the room is dropped with it, or when there is no ticket.
        let room = unsafe { exec.take_in(guest, entry) }?;
        *lock(&hub.room) = Some(room);
        // The executor may have been shut down meanwhile, and have found no room to leave.
        hub.leave_if_over();
        Ok(hub)
    }

    pub(super) fn place(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    pub(super) fn address(&self) -> usize {
        self.place().addr()
    }

    /// Pushes an operation, unless there is a mistake in it or no room: then it is left there.
    pub(super) fn try_push(self: &Arc<Self>, job: &mut Option<Job>) -> Result<Pushed> {
        match job.as_ref().map(|job| self.fault(job)) {
            None => return Err(Kind::Spent.into()),
            Some(Some(fault)) => return Err(fault),
            Some(None) => {}
        }
        self.push_within(self.max_pending, job).ok_or_else(|| Kind::EngineBusy { max: self.max_pending }.into())
    }

    /// Pushes what the engine needs itself, whatever the bound.
    pub(super) fn push_beyond(self: &Arc<Self>, job: Job) -> Result<Pushed> {
        let mut job = Some(job);
        let pushed = self.push_within(usize::MAX, &mut job);
        // Sixteen million operations are pending, and what was to be freed may be in use by some of them.
        std::mem::forget(job);
        pushed.ok_or_else(|| Kind::EngineBusy { max: self.max_pending }.into())
    }

    fn push_within(self: &Arc<Self>, max: usize, job: &mut Option<Job>) -> Option<Pushed> {
        let is_async = job.as_ref().is_some_and(|job| job.is_async);
        if !is_async && let Some(outcome) = self.push_alone(job) {
            return Some(Pushed::ended(outcome));
        }
        let number = self.slots.take(max)?;
        let slot = self.slots.get(number);
        let common = job.as_mut().and_then(|job| {
            job.common = Common::of(self.address(), job);
            job.scope.iter().for_each(|scope| scope.begin_one());
            job.common.clone()
        });
        let handle = Pushed::new(self.clone(), number, common);
        // SAFETY: nobody knows the slot yet.
        unsafe { slot.put(job) };
        if self.workers > 0 || self.is_simulated {
            let hand = Hand::new(self);
            self.enter(number, &hand);
            hand.give_back();
            self.start(hand);
        } else if matches!(self.slots.begin_turn(Some(number)), Turn::Ours) {
            self.empty(vec![number]);
        }
        Some(handle)
    }

    pub(super) fn is_inline(&self) -> bool {
        self.workers == 0 && !self.is_simulated
    }

    /// Has an operation enter the queues of its variables.
    pub(super) fn enter(self: &Arc<Self>, number: u32, hand: &Hand<'_>) {
        let slot = self.slots.get(number);
        // SAFETY: it does not run before the last hold is released.
        let job = unsafe { slot.job() };
        let requests = job.asked.len() as u32;
        // ORDERING: Relaxed: the queues hand it over.
        slot.holds.store(requests + 1, Ordering::Relaxed);
        slot.looks.store(requests + 1, Ordering::Relaxed);
        {
            let _together = (requests > 1).then(|| lock(&self.pushing));
            for (place, asked) in job.asked.iter().enumerate() {
                // SAFETY: whoever pushes it has a handle to the variable, or had one and what frees it stands behind.
                unsafe { asked.place() }.queue.enter(RequestId::new(number, place), hand);
            }
        }
        if let Some(common) = &job.common
            && common.look(job)
        {
            self.watchers.nudge(number, slot);
        }
        hand.release_hold(number);
    }

    fn fault(&self, job: &Job) -> Option<Error> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Some(Kind::ShutDown.into());
        }
        if let (Some(devices), Some(target)) = (&self.devices, job.kernel)
            && target.device as usize >= devices.count()
        {
            let (operation, device, count) = (job.name.clone(), target.device, devices.count());
            return Some(Kind::OpDevice { operation, device, count }.into());
        }
        // SAFETY: whoever made the operation has handles to its variables.
        let mut places = job.asked.iter().map(|asked| unsafe { asked.place() });
        let foreign = places.find(|place| place.hub != self.address());
        let is_foreign =
            |place: &super::place::Place| Kind::ForeignVar { variable: place.name.clone(), operation: job.name.clone() };
        job.fault.clone().or_else(|| foreign.map(|place| is_foreign(place).into()))
    }

    /// Has what a hand has made ready run.
    pub(super) fn start(self: &Arc<Self>, hand: Hand<'_>) {
        hand.ready.take().into_iter().for_each(|number| self.add_ready(number));
        if self.ready.0.is_empty() || self.workers > 0 && self.call_workers() {
            return;
        }
        if self.workers == 0 {
            return self.call_polls();
        }
        // Inside of an operation it is for whoever runs that.
        if is_inside(self.place()) {
            return;
        }
        self.run_all(&hand);
    }

    /// Runs what is ready in this thread: nobody else will.
    pub(super) fn run_all(self: &Arc<Self>, hand: &Hand<'_>) {
        while let Some(number) = hand.next_own().or_else(|| self.ready.0.pop()) {
            self.run(number, hand);
        }
        hand.give_back();
    }

    pub(super) fn add_ready(&self, number: u32) {
        // SAFETY: it is ready, and nobody has begun it.
        let priority = unsafe { self.slots.get(number).job() }.priority;
        self.ready.0.push(number, priority);
    }

    /// Sees to it that a worker comes for what was made ready. Returns false if there are none any more.
    pub(super) fn call_workers(self: &Arc<Self>) -> bool {
        // ORDERING: pairs with the fence in `is_still_empty`: of "push, look who works" and "stop to work, look" one sees the other.
        fence(Ordering::SeqCst);
        if self.looking.load(Ordering::Relaxed) > 0 || self.active.0.load(Ordering::Relaxed) >= self.workers {
            return true;
        }
        let room = lock(&self.room);
        let Some(room) = &*room else { return false };
        if self.try_activate() {
            std::mem::forget(self.clone());
            room.call_worker();
        }
        true
    }

    /// Looks for a while whether more becomes ready.
    pub(super) fn look_again(&self) -> bool {
        self.looking.fetch_add(1, Ordering::Relaxed);
        let found = (0..LOOKS).any(|_| {
            (0..PAUSE).for_each(|_| spin_loop());
            !self.ready.0.is_empty()
        });
        // ORDERING: Release: whoever still saw it has pushed before, and the look behind `active` finds that.
        self.looking.fetch_sub(1, Ordering::Release);
        found
    }

    /// The same for a worker that has just let go of its ticket, and was the last in the engine perhaps.
    pub(super) fn activate_again(&self) -> bool {
        let room = lock(&self.room);
        room.is_some() && self.try_activate()
    }

    fn try_activate(&self) -> bool {
        let more = |active| (active < self.workers).then_some(active + 1);
        self.active.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }

    /// Leaves the executor when that is shut down and nothing is left to do.
    pub(super) fn leave_if_over(&self) {
        if !self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let room = {
            let mut room = lock(&self.room);
            let is_over = self.active.0.load(Ordering::SeqCst) == 0 && self.slots.in_use() == 0;
            if is_over { room.take() } else { None }
        };
        drop(room);
    }

    /// Returns true if an operation can be pushed, or will be refused for another reason than want of room; else `space` is rung when that changes.
    pub(super) fn has_space(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst) || self.slots.has_space(self.max_pending)
    }

    /// Returns an error if who asks would wait for ever: inside of an operation, blocking.
    pub(super) fn may_wait(&self) -> Result<()> {
        if is_inside(self.place()) {
            return Err(Kind::InsideOperation.into());
        }
        Ok(())
    }

    /// The same for who waits until there is room, or none is pending: an asynchronous operation is itself one of those.
    pub(super) fn may_wait_for_all(&self) -> Result<()> {
        if within::is_polling(self.address()) {
            return Err(Kind::InsideOperation.into());
        }
        self.may_wait()
    }

    /// Takes the oldest failure that only `idle` tells.
    pub(super) fn take_failure(&self) -> Option<Error> {
        lock(&self.failures).pop_front()
    }

    /// Runs an operation that is ready, and ends it, unless it is a future that is not ready.
    pub(super) fn run(self: &Arc<Self>, number: u32, hand: &Hand<'_>) {
        let slot = self.slots.get(number);
        // SAFETY: it was pushed, and is kept until it is done with.
        let job = unsafe { slot.job() };
        if self.devices.as_ref().is_some_and(|devices| devices.puts_aside(number, job)) {
            return;
        }
        let outcome = match self.perform(job, (number, Watchers::key(slot))) {
            Ok(Ran::Over) => Ok(()),
            Err(error) => Err(error),
            Ok(Ran::Enqueue(kernel)) => return self.enqueue(number, job, kernel, hand),
            Ok(Ran::Later(rest, runtime)) => {
                let later = Later::new(self.clone(), number, rest, runtime);
                // ORDERING: Relaxed: whoever runs the operation next is told so through the ready list.
                job.has_begun.store(true, Ordering::Relaxed);
                self.laters.add(&later);
                job.scope.iter().for_each(|scope| scope.laters.add(&later));
                // SAFETY: this thread runs it, alone.
                unsafe { job.go_on_with(Resume::new(later)) };
                return hand.ready.borrow_mut().push(number);
            }
            Ok(Ran::Parked(later)) => {
                // SAFETY: as above.
                unsafe { job.go_on_with(Resume::new(later.clone())) };
                return later.park();
            }
        };
        self.end(number, job, outcome, hand);
    }

    pub(super) fn end(&self, number: u32, job: &Job, outcome: Result<()>, hand: &Hand<'_>) {
        let (slot, frees) = (self.slots.get(number), job.frees());
        if job.is_async {
            self.laters.remove(number);
            job.scope.iter().for_each(|scope| scope.laters.remove(number));
        }
        job.scope.iter().for_each(|scope| scope.end_one());
        if !frees {
            self.leave_queues(number, job, hand);
        }
        self.watchers.end(number, slot, outcome);
        hand.release_looks(number, if frees { 2 } else { 1 });
        if hand.freed.borrow().len() >= self.freed_max {
            hand.give_back();
        }
    }

    pub(super) fn leave_queues(&self, number: u32, job: &Job, hand: &Hand<'_>) {
        for (place, asked) in job.asked.iter().enumerate() {
            // SAFETY: its request has not left yet.
            unsafe { asked.place() }.queue.leave(RequestId::new(number, place), hand);
        }
    }

    /// Does what an operation is there for, without its queues.
    pub(super) fn perform(&self, job: &Job, key: within::Key) -> Result<Ran> {
        let ran = match self.obstacle(job) {
            Some(error) => {
                // SAFETY: whoever performs it has it alone, but for its requests.
                let _ = shielded(|| unsafe { job.forgo() });
                Err(error)
            }
            None => {
                // Who is inside of one that is a future may wait, but not for itself.
                let polling = job.is_async.then(|| Polling::enter(self.address(), key, job));
                let inside = (!job.is_async).then(|| Inside::enter(self.place()));
                // SAFETY: all that it asked for was granted; and as above.
                let ran = catch_unwind(AssertUnwindSafe(|| unsafe { self.run_body(job) }));
                drop((inside, polling));
                ran.map_err(|panic| job.panicked(panic_message(panic))).and_then(|ran| ran.map_err(|cause| job.failed(cause)))
            }
        };
        if job.role != Role::Frees && matches!(ran, Ok(Ran::Over) | Err(_)) {
            self.take_effect(job, ran.as_ref().err());
        }
        ran
    }

    /// Returns why an operation is not run.
    fn obstacle(&self, job: &Job) -> Option<Error> {
        if self.is_closed.load(Ordering::Relaxed) && job.role != Role::Frees {
            return Some(Kind::ShutDown.into());
        }
        if job.scope.as_ref().is_some_and(|scope| scope.is_cancelled()) {
            return Some(Kind::Cancelled.into());
        }
        job.asked.iter().filter(|asked| asked.how.is_read).find_map(|asked| {
            // SAFETY: granted.
            let place = unsafe { asked.place() };
            let origin = place.poison()?;
            let because = origin.node().unwrap_or("an operation").to_owned();
            let (operation, variable) = (job.name.clone(), place.name.clone());
            Some(Error::with_source(Kind::NotRun { operation, variable, because }, Box::new(origin)))
        })
    }

    /// Marks what an operation has written, or has failed to write.
    pub(super) fn take_effect(&self, job: &Job, failure: Option<&Error>) {
        // What was cancelled is as if it had never been, as far as that can be.
        let is_undone = failure.is_some_and(Error::is_cancelled);
        let has_begun = job.has_begun.load(Ordering::Relaxed);
        for asked in job.asked.iter().filter(|asked| asked.how.changes()) {
            // SAFETY: granted to write.
            let place = unsafe { asked.place() };
            if is_undone && !place.is_unwritten() && !(has_begun && asked.how.is_taken) {
                continue;
            }
            place.count_write();
            place.set_poison(failure.map(|error| error.origin().clone()));
            if job.kernel.is_none() {
                place.trail.clear();
            }
        }
        if let Some(error) = failure {
            self.tell_idle(job, error);
        }
    }

    /// Keeps a failure for `idle` if nobody else may hear of it.
    pub(super) fn tell_idle(&self, job: &Job, error: &Error) {
        if job.role == Role::User && !job.writes() && !error.is_shut_down() && !error.is_cancelled() {
            let mut failures = lock(&self.failures);
            if failures.len() < FAILURES_MAX {
                failures.push_back(error.clone());
            }
        }
    }

    pub(super) fn give_back(&self, freed: impl IntoIterator<Item = u32>) {
        self.tell(self.slots.give_back(freed));
        if let Some(devices) = &self.devices
            && self.slots.in_use() == 0
        {
            devices.queues.collect();
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
