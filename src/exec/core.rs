//! What an executor and its runs share: the device, who is in flight, who waits to be, and the memory of
//! dropped runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Poll;

use super::guest::{GUESTS_MAX, Guest};
use super::inner::RunInner;
use super::inside::is_inside_body;
use super::observe::Observer;
use super::queues::Queues;
use super::rehearse::Rehearsal;
use super::state;
use crate::bridge::{Lane, Limbo, shielded};
use crate::device::host::{Barrier, Origin, Pool, SLOTS_MAX};
use crate::error::{Kind, Result};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

pub(super) struct Core {
    /// None: nodes run inside the poll of whoever awaits the run.
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) limbo: Limbo,
    pub(super) barrier: Barrier,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Devices that queue work. Then there is a pool.
    pub(super) queues: Option<Arc<Queues>>,
    /// Runs are simulated. Then there is no pool.
    pub(super) rehearsal: Option<Rehearsal>,
    /// How many observed runs there were.
    numbers: AtomicU64,
    pub(super) max_in_flight: usize,
    /// The process that has its threads.
    origin: Origin,
    /// How many workers have ended.
    pub(super) exits: Arc<Lane>,
    /// Rung when no run is in flight.
    pub(super) idle: Lane,
    admission: Mutex<Admission>,
    /// What guests share: see `Executor::common`.
    pub(super) common: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

/// Who is in flight, and who waits for room, first come first served.
struct Admission {
    is_closed: bool,
    in_flight: usize,
    /// In-flight runs, by place.
    runs: Vec<Option<Weak<RunInner>>>,
    free: Vec<u32>,
    /// The lanes of runs that wait for room, by their turn.
    waiting: BTreeMap<u64, Arc<Lane>>,
    last_turn: u64,
    /// The last turn for which there is room. The waiting runs with this turn or an earlier one were each
    /// woken once. They fill the room, or no run waits behind them.
    called: u64,
    /// By place, counted from `max_in_flight`.
    guests: Vec<Option<Weak<dyn Guest>>>,
}

impl Core {
    pub(super) fn new(
        pool: Option<Arc<Pool>>,
        barrier: Barrier,
        observer: Option<Arc<dyn Observer>>,
        rehearsal: Option<Rehearsal>,
        queues: Option<Arc<Queues>>,
        max_in_flight: usize,
        exits: Arc<Lane>,
    ) -> Self {
        let admission = Admission {
            is_closed: false,
            in_flight: 0,
            runs: Vec::new(),
            free: Vec::new(),
            waiting: BTreeMap::new(),
            last_turn: 0,
            called: 0,
            guests: Vec::new(),
        };
        let (limbo, idle) = (Limbo::new(), Lane::new());
        let origin = if pool.is_some() { Origin::here() } else { Origin::anywhere() };
        Self {
            pool,
            limbo,
            barrier,
            observer,
            queues,
            rehearsal,
            numbers: AtomicU64::new(0),
            max_in_flight,
            origin,
            exits,
            idle,
            admission: Mutex::new(admission),
            common: Mutex::new(None),
        }
    }

    /// Returns true in a child that was forked from the process that has the executor's threads. There, a
    /// lock may be held for ever by a thread that does not exist, and the threads' work is half done. So the
    /// child locks, drops and awaits nothing of the executor.
    pub(super) fn is_forked(&self) -> bool {
        self.origin.is_forked()
    }

    /// Returns an error in such a child.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Kind::Forked.into()) } else { Ok(()) }
    }

    /// Returns the result of a pending poll. Inside of a task of this executor it is an error: a task that
    /// waits blocks a worker that the awaited work may need. Without workers the next poll does the work
    /// itself.
    pub(super) fn pending<T>(&self) -> Poll<Result<T>> {
        if self.is_in_task() { Poll::Ready(Err(Kind::WaitsInTask.into())) } else { Poll::Pending }
    }

    /// Returns true if this thread is a worker, and runs an observer, or the body of a node or an operation.
    pub(super) fn is_in_task(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_in_body() || pool.is_on_worker() && is_inside_body(self.place()))
    }

    /// Returns the mark of the process that has the executor's threads.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns a number that no other run has.
    pub(super) fn next_number(&self) -> u64 {
        // ORDERING: Relaxed, the number is only unique.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the run in, and returns its place among those in flight; or queues it. `turn` is 0 at first, and
    /// then the run's place in the queue, which it keeps until [`Core::leave_queue`]. The run's lane is rung
    /// when it is worth asking again.
    pub(super) fn admit(&self, run: &Arc<RunInner>, turn: &mut u64) -> Poll<Result<u32>> {
        let mut admission = lock(&self.admission);
        if let Some(admitted) = admission.admit(self, run, *turn) {
            return Poll::Ready(admitted);
        }
        if *turn == 0 {
            admission.last_turn += 1;
            *turn = admission.last_turn;
            admission.waiting.insert(*turn, run.lane.clone());
        }
        Poll::Pending
    }

    /// Lets the run in at once, or not at all.
    pub(super) fn try_admit(&self, run: &Arc<RunInner>) -> Result<u32> {
        self.check_process()?;
        let admitted = lock(&self.admission).admit(self, run, 0);
        admitted.unwrap_or_else(|| Err(Kind::Busy { max: self.max_in_flight }.into()))
    }

    /// Gives the place of a run back that never took off.
    pub(super) fn give_back(&self, place: u32) {
        self.pool.iter().for_each(|pool| pool.forget_run());
        self.end_flight(place);
    }

    /// Takes a guest in, and returns its place in the pool.
    pub(super) fn take_in(&self, guest: Weak<dyn Guest>) -> Result<u16> {
        self.check_process()?;
        let mut admission = lock(&self.admission);
        if admission.is_closed {
            return Err(Kind::ShutDown.into());
        }
        let guests = &mut admission.guests;
        let place = guests.iter().position(Option::is_none).unwrap_or(guests.len());
        if place == GUESTS_MAX.min(SLOTS_MAX - self.max_in_flight) {
            return Err(Kind::Limit { what: "the number of engines of an executor".into(), got: place + 1, limit: place }.into());
        }
        guests.resize(guests.len().max(place + 1), None);
        guests[place] = Some(guest);
        // As with a run.
        self.pool.iter().for_each(|pool| pool.expect_run());
        Ok((self.max_in_flight + place) as u16)
    }

    /// Gives the place of a guest back, who has left the pool.
    pub(super) fn let_out(&self, place: u16) {
        lock(&self.admission).guests[place as usize - self.max_in_flight] = None;
    }

    /// What stands for the executor where it is asked whether a thread is inside of it.
    pub(super) fn place(&self) -> *const () {
        Arc::as_ptr(&self.exits).cast()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.admission).is_closed
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.admission).in_flight
    }

    /// Takes a run that will not start out of the queue.
    pub(super) fn leave_queue(&self, turn: u64) {
        if turn == 0 {
            return;
        }
        let next = {
            let mut admission = lock(&self.admission);
            // Its room, if it had any, goes to the next run.
            let had_room = admission.waiting.remove(&turn).is_some() && turn <= admission.called;
            if had_room { admission.call_next() } else { None }
        };
        next.iter().for_each(|lane| lane.ring());
    }

    /// Ends a run's flight and lets the next one in.
    pub(super) fn end_flight(&self, place: u32) {
        let (ended, next, is_idle) = {
            let mut admission = lock(&self.admission);
            let ended = admission.runs[place as usize].take();
            admission.free.push(place);
            admission.in_flight -= 1;
            (ended, admission.call_next(), admission.in_flight == 0)
        };
        drop(ended);
        next.iter().for_each(|lane| lane.ring());
        if is_idle {
            self.idle.ring();
        }
    }

    /// Lets nobody in any more, and cancels who is in.
    pub(super) fn close(&self) {
        let (runs, waiting, guests) = {
            let mut admission = lock(&self.admission);
            admission.is_closed = true;
            let runs: Vec<Arc<RunInner>> = admission.runs.iter().flatten().filter_map(Weak::upgrade).collect();
            let guests: Vec<Arc<dyn Guest>> = admission.guests.iter().flatten().filter_map(Weak::upgrade).collect();
            (runs, std::mem::take(&mut admission.waiting), guests)
        };
        for run in runs {
            run.cancel(state::SHUT_DOWN);
            // Perhaps its last owner: what it drops then is foreign.
            let _ = shielded(|| drop(run));
        }
        for guest in guests {
            guest.clone().close();
            let _ = shielded(|| drop(guest));
        }
        waiting.values().for_each(|lane| lane.ring());
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }
}

impl Admission {
    /// Lets the run in if it has room, or never will. None: it would have to wait.
    fn admit(&mut self, core: &Core, run: &Arc<RunInner>, turn: u64) -> Option<Result<u32>> {
        if self.is_closed {
            return Some(Err(Kind::ShutDown.into()));
        }
        if !self.has_room(core.max_in_flight, turn) {
            return None;
        }
        self.waiting.remove(&turn);
        debug_assert!(self.in_flight < core.max_in_flight, "no more runs are called than there is room for");
        // While the lock is held, so that a shutdown that comes now leaves workers for this run.
        core.pool.iter().for_each(|pool| pool.expect_run());
        Some(Ok(self.enter(run)))
    }

    /// Whether there is room for everyone who came before `turn`, and for it. A newcomer comes after
    /// everyone.
    fn has_room(&self, max: usize, turn: u64) -> bool {
        match turn {
            0 => self.waiting.len() < max - self.in_flight,
            _ => turn <= self.called,
        }
    }

    fn enter(&mut self, run: &Arc<RunInner>) -> u32 {
        self.in_flight += 1;
        let entry = Some(Arc::downgrade(run));
        match self.free.pop() {
            Some(place) => {
                self.runs[place as usize] = entry;
                place
            }
            None => {
                self.runs.push(entry);
                self.runs.len() as u32 - 1
            }
        }
    }

    /// Gives room to one more run, and returns its lane. The run stays in the queue until it is polled again,
    /// or leaves.
    fn call_next(&mut self) -> Option<Arc<Lane>> {
        let (&turn, lane) = self.waiting.range(self.called + 1..).next()?;
        let lane = lane.clone();
        self.called = turn;
        Some(lane)
    }
}
