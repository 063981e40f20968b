//! What an executor and its runs share: the device, who is in flight, who waits to be, and the memory of dropped runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::inner::RunInner;
use super::observe::Observer;
use super::state;
use crate::bridge::{Lane, Limbo, shielded};
use crate::device::host::{Barrier, Pool};
use crate::error::{Kind, Result};
use crate::sync::{Mutex, lock};

pub(super) struct Core {
    /// None: nodes run inside the poll of whoever awaits the run.
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) limbo: Limbo,
    pub(super) barrier: Barrier,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) max_in_flight: usize,
    /// How many workers have ended.
    pub(super) exits: Arc<Lane>,
    /// Rung when no run is in flight.
    pub(super) idle: Lane,
    admission: Mutex<Admission>,
}

/// What became of a run that wants to start.
pub(super) enum Admit {
    /// It has a place among those in flight, or there will be none.
    Ready(Result<u32>),
    /// It waits for its turn.
    Queued,
    /// It would have to wait: ask again with a waker.
    NeedsWaker,
}

/// Who is in flight, and who waits for room, first come first served.
struct Admission {
    is_closed: bool,
    in_flight: usize,
    /// In-flight runs, by place.
    runs: Vec<Option<Weak<RunInner>>>,
    free: Vec<u32>,
    /// Runs that wait for room, by their turn. A waker that was used is gone until its run is polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    last_turn: u64,
}

impl Core {
    pub(super) fn new(
        pool: Option<Arc<Pool>>,
        barrier: Barrier,
        observer: Option<Arc<dyn Observer>>,
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
        };
        let (limbo, idle) = (Limbo::new(), Lane::new());
        Self { pool, limbo, barrier, observer, max_in_flight, exits, idle, admission: Mutex::new(admission) }
    }

    /// Lets the run in, or queues it. `turn` is 0 at first, and then the run's place in the queue, which it keeps until
    /// [`Core::leave_queue`]. A waker that is no longer needed comes back in `waker`.
    pub(super) fn admit(&self, run: &Arc<RunInner>, turn: &mut u64, waker: &mut Option<Waker>) -> Admit {
        let mut admission = lock(&self.admission);
        if admission.is_closed {
            return Admit::Ready(Err(Kind::ShutDown.into()));
        }
        if admission.has_room(self.max_in_flight, *turn) {
            *waker = admission.waiting.remove(turn).flatten();
            return Admit::Ready(Ok(admission.enter(run)));
        }
        if waker.is_none() {
            return Admit::NeedsWaker;
        }
        if *turn == 0 {
            admission.last_turn += 1;
            *turn = admission.last_turn;
        }
        *waker = admission.waiting.insert(*turn, waker.take()).flatten();
        Admit::Queued
    }

    /// Returns true if a run that came now would have to wait.
    pub(super) fn is_full(&self) -> bool {
        !lock(&self.admission).has_room(self.max_in_flight, 0)
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
        let (removed, next) = {
            let mut admission = lock(&self.admission);
            (admission.waiting.remove(&turn), admission.next_waiting(self.max_in_flight))
        };
        let _ = shielded(|| drop(removed));
        wake(next);
    }

    /// Ends a run's flight and lets the next one in.
    pub(super) fn end_flight(&self, place: u32) {
        let (removed, next, is_idle) = {
            let mut admission = lock(&self.admission);
            let removed = admission.runs[place as usize].take();
            admission.free.push(place);
            admission.in_flight -= 1;
            (removed, admission.next_waiting(self.max_in_flight), admission.in_flight == 0)
        };
        drop(removed);
        wake(next);
        if is_idle {
            self.idle.ring();
        }
    }

    /// Lets nobody in any more, and cancels who is in.
    pub(super) fn close(&self) {
        let (runs, waiting) = {
            let mut admission = lock(&self.admission);
            admission.is_closed = true;
            let runs: Vec<Arc<RunInner>> = admission.runs.iter().flatten().filter_map(Weak::upgrade).collect();
            (runs, std::mem::take(&mut admission.waiting))
        };
        for run in runs {
            run.cancel(state::SHUT_DOWN);
        }
        wake(waiting.into_values().flatten());
        if let Some(pool) = &self.pool {
            pool.stop();
        }
        self.limbo.collect();
    }
}

impl Admission {
    /// Whether there is room for everyone who came before `turn`, and for it. A newcomer comes after everyone.
    fn has_room(&self, max: usize, turn: u64) -> bool {
        let before = if turn == 0 { self.waiting.len() } else { self.waiting.range(..turn).count() };
        self.in_flight + before < max
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

    /// The wakers of those who have room now. They stay in the queue until they are polled, or leave.
    fn next_waiting(&mut self, max: usize) -> Vec<Waker> {
        let room = max.saturating_sub(self.in_flight);
        self.waiting.values_mut().take(room).filter_map(Option::take).collect()
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = shielded(|| waker.wake());
    }
}
