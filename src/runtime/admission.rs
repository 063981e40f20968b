//! Admission: which runs are in flight, which wait for room, and which engines there are. Waiting runs are
//! admitted in the order in which they came. One lock has all states.
//!
//! ```text
//!  state of a run   event              next         then
//!  new              admit, room        in flight
//!  new              admit, no room     waiting      its lane is queued by turn
//!  waiting          end of another     called       its lane is rung; the room is kept for it
//!  called           admit              in flight
//!  waiting          leave              gone
//!  called           leave              gone         the next waiting run is called
//!  in flight        end                gone         the next waiting run is called
//!  any              close              (unchanged)  clients are shut down; the next admit is an error
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::{Client, Lane};
use crate::device::host::SLOTS_MAX;
use crate::error::{Kind, Result};
use crate::sync::{Mutex, lock};

/// How many engines an executor may have.
pub(crate) const ENGINES_MAX: usize = 256;

/// The clients of an executor.
pub(crate) struct Admission {
    state: Mutex<State>,
    max_in_flight: usize,
}

struct State {
    is_closed: bool,
    in_flight: usize,
    runs: Places,
    engines: Places,
    /// The lanes of runs that wait for room, by turn.
    waiting: BTreeMap<u64, Arc<Lane>>,
    last_turn: u64,
    /// The last turn that was called. Each waiting run up to this turn was woken once. It takes its room when
    /// it is polled, or passes it on when it leaves.
    called: u64,
}

/// Clients by place. Free places are used again.
#[derive(Default)]
struct Places {
    clients: Vec<Option<Weak<dyn Client>>>,
    free: Vec<u32>,
}

/// The consequences of the end of a run.
#[must_use = "the next run is to be woken"]
pub(super) struct Ended {
    /// The lane of the run that is called next.
    pub(super) next: Option<Arc<Lane>>,
    /// No run is in flight any more.
    pub(super) is_idle: bool,
}

/// The clients and the waiting runs of an executor that is closed.
pub(super) struct Closed {
    pub(super) clients: Vec<Arc<dyn Client>>,
    pub(super) waiting: BTreeMap<u64, Arc<Lane>>,
}

impl Admission {
    pub(super) fn new(max_in_flight: usize) -> Self {
        let state = State {
            is_closed: false,
            in_flight: 0,
            runs: Places::default(),
            engines: Places::default(),
            waiting: BTreeMap::new(),
            last_turn: 0,
            called: 0,
        };
        Self { state: Mutex::new(state), max_in_flight }
    }

    pub(super) fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.state).in_flight
    }

    /// Admits a run and returns its place, or an error if the executor is closed. Returns None if there is no
    /// room; then a run with a lane is queued. `turn` is 0 for a run that is not in the queue. `expect` is
    /// called under the lock, so that a later shutdown keeps the workers for this run.
    pub(super) fn admit(
        &self,
        run: Weak<dyn Client>,
        turn: &mut u64,
        lane: Option<&Arc<Lane>>,
        expect: impl FnOnce(),
    ) -> Option<Result<u32>> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Some(Err(Kind::ShutDown.into()));
        }
        if state.has_room(self.max_in_flight, *turn) {
            state.waiting.remove(turn);
            debug_assert!(state.in_flight < self.max_in_flight, "no more runs are called than there is room for");
            expect();
            state.in_flight += 1;
            return Some(Ok(state.runs.add(run)));
        }
        if let Some(lane) = lane.filter(|_| *turn == 0) {
            state.last_turn += 1;
            *turn = state.last_turn;
            state.waiting.insert(*turn, lane.clone());
        }
        None
    }

    /// Takes a waiting run out of the queue. Returns the lane of the run that gets its room, if it had any.
    #[must_use = "the next run is to be woken"]
    pub(super) fn leave(&self, turn: u64) -> Option<Arc<Lane>> {
        let mut state = lock(&self.state);
        let had_room = state.waiting.remove(&turn).is_some() && turn <= state.called;
        if had_room { state.call_next() } else { None }
    }

    /// Ends the flight of a run, and calls the next waiting run.
    pub(super) fn end(&self, place: u32) -> Ended {
        let (ended, run) = {
            let mut state = lock(&self.state);
            let run = state.runs.remove(place);
            state.in_flight -= 1;
            (Ended { next: state.call_next(), is_idle: state.in_flight == 0 }, run)
        };
        drop(run);
        ended
    }

    /// Adds an engine, and returns its place.
    pub(super) fn add_engine(&self, engine: Weak<dyn Client>, expect: impl FnOnce()) -> Result<u32> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Kind::ShutDown.into());
        }
        let limit = ENGINES_MAX.min(SLOTS_MAX - self.max_in_flight);
        if state.engines.len() == limit {
            let what = "the number of engines of an executor".into();
            return Err(Kind::Limit { what, got: limit + 1, limit }.into());
        }
        expect();
        Ok(state.engines.add(engine))
    }

    pub(super) fn remove_engine(&self, place: u32) {
        let engine = lock(&self.state).engines.remove(place);
        drop(engine);
    }

    /// Admits no client from now on.
    pub(super) fn close(&self) -> Closed {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let clients = state.runs.all().chain(state.engines.all()).collect();
        Closed { clients, waiting: std::mem::take(&mut state.waiting) }
    }
}

impl State {
    /// Returns true if there is room for every run that came before `turn`, and for this one. A new run comes
    /// after all that wait.
    fn has_room(&self, max: usize, turn: u64) -> bool {
        match turn {
            0 => self.waiting.len() < max - self.in_flight,
            _ => turn <= self.called,
        }
    }

    /// Gives room to one more waiting run, and returns its lane. The run stays in the queue until it is
    /// admitted or leaves.
    fn call_next(&mut self) -> Option<Arc<Lane>> {
        let (&turn, lane) = self.waiting.range(self.called + 1..).next()?;
        let lane = lane.clone();
        self.called = turn;
        Some(lane)
    }
}

impl Places {
    fn add(&mut self, client: Weak<dyn Client>) -> u32 {
        let place = self.free.pop().unwrap_or(self.clients.len() as u32);
        if place as usize == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[place as usize] = Some(client);
        place
    }

    fn remove(&mut self, place: u32) -> Option<Weak<dyn Client>> {
        self.free.push(place);
        self.clients[place as usize].take()
    }

    fn len(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    fn all(&self) -> impl Iterator<Item = Arc<dyn Client>> {
        self.clients.iter().flatten().filter_map(Weak::upgrade)
    }
}
