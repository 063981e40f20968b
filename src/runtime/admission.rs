//! Admission: which runs are in flight, which wait for room, and which engines there are. Waiting runs are
//! admitted in the order in which they came. One lock has all states.
//!
//! A run that a node of another run awaits is a *nested* one. It has a place of its own kind: if it waited
//! for those in flight, each of them could wait for one that waits.
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
use std::task::Poll;

use slab::Slab;

use super::{Client, Core, Lane};
use crate::error::{Kind, Result, shielded};
use crate::sync::lock;

pub(crate) const ENGINES_MAX: usize = 256;
/// The most nested runs in flight. Others wait.
pub(crate) const NESTED_MAX: usize = 255;

/// A run in flight, by its address: that costs no count.
pub(crate) struct Flying(*const dyn Client);

// SAFETY: the address of a client, which is Send and Sync.
unsafe impl Send for Flying {}

impl Flying {
    /// The run has an owner until [`Core::end_flight`] returns.
    pub(crate) fn new<C: Client>(run: &Arc<C>) -> Self {
        Self(Arc::as_ptr(run) as *const dyn Client)
    }

    /// Returns an owner.
    ///
    /// # Safety
    /// The run is in flight: the caller found it among those, and still has the lock.
    unsafe fn owner(&self) -> Arc<dyn Client> {
        // SAFETY: the address comes from an `Arc`, which has an owner as long as the run is in flight.
        unsafe { Arc::increment_strong_count(self.0) };
        // SAFETY: this takes over the count that was added.
        unsafe { Arc::from_raw(self.0) }
    }
}

#[derive(Default)]
pub(super) struct Clients {
    is_closed: bool,
    in_flight: usize,
    /// By slot and by place. Those that are free are used again.
    runs: Slab<Option<Flying>>,
    engines: Slab<Weak<dyn Client>>,
    /// Which places of nested runs are taken.
    nested: Slab<()>,
    /// The lanes of nested runs that wait for a place.
    nested_waiting: Vec<Arc<Lane>>,
    /// The lanes of runs that wait for room, by turn.
    waiting: BTreeMap<u64, Arc<Lane>>,
    last_turn: u64,
    /// The last turn that was called. Each waiting run up to this turn was woken once. It takes its room when
    /// it is polled, or passes it on when it leaves.
    called: u64,
}

impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.clients).is_closed
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.clients).in_flight
    }

    /// Returns whether no run is in flight, and no nested one: that of a dropped run ends after it.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.clients).is_idle()
    }

    /// Admits a run and returns its place among those in flight, or an error if the executor is closed. If
    /// there is no room, a run with a lane is queued; the lane is rung when the run is called. `turn` is 0 at
    /// first, and then the run's turn in the queue, until [`Core::leave_queue`].
    pub(crate) fn admit(&self, run: Flying, turn: &mut u64, lane: Option<&Arc<Lane>>) -> Poll<Result<u16>> {
        let mut clients = lock(&self.clients);
        if clients.is_closed {
            return Poll::Ready(Err(Kind::ShutDown.into()));
        }
        if clients.has_room(self.max_in_flight, *turn) {
            clients.waiting.remove(turn);
            debug_assert!(clients.in_flight < self.max_in_flight, "no more runs are called than there is room for");
            self.expect_client();
            clients.in_flight += 1;
            return Poll::Ready(Ok(clients.runs.insert(Some(run)) as u16));
        }
        if let Some(lane) = lane.filter(|_| *turn == 0) {
            clients.last_turn += 1;
            *turn = clients.last_turn;
            clients.waiting.insert(*turn, lane.clone());
        }
        Poll::Pending
    }

    /// Admits a nested run, and returns its place. If there is none, its lane is rung when one is free. It is
    /// not counted among the runs in flight, and a shutdown ends it with the run around it.
    pub(crate) fn admit_nested(&self, lane: &Arc<Lane>) -> Poll<Result<u16>> {
        let mut clients = lock(&self.clients);
        if clients.is_closed {
            return Poll::Ready(Err(Kind::ShutDown.into()));
        }
        if clients.nested.len() < NESTED_MAX {
            self.expect_client();
            return Poll::Ready(Ok((self.nested_base() + clients.nested.insert(())) as u16));
        }
        if !clients.nested_waiting.iter().any(|waiting| Arc::ptr_eq(waiting, lane)) {
            clients.nested_waiting.push(lane.clone());
        }
        Poll::Pending
    }

    /// Returns the first place of nested runs: behind those of runs and engines.
    fn nested_base(&self) -> usize {
        self.max_in_flight + ENGINES_MAX
    }

    fn end_nested(&self, place: usize) {
        let (waiting, is_idle) = {
            let mut clients = lock(&self.clients);
            clients.nested.remove(place);
            (std::mem::take(&mut clients.nested_waiting), clients.is_idle())
        };
        // All of them: one alone could be dropped before it takes the place.
        waiting.iter().for_each(|lane| lane.ring());
        if is_idle {
            self.idle.ring();
        }
    }

    /// Takes a run that will not start out of the queue. The next waiting run gets its room, if it had any.
    pub(crate) fn leave_queue(&self, turn: u64) {
        let next = {
            let mut clients = lock(&self.clients);
            let had_room = clients.waiting.remove(&turn).is_some() && turn <= clients.called;
            if had_room { clients.call_next() } else { None }
        };
        next.iter().for_each(|lane| lane.ring());
    }

    /// Counts a run that is run at once among those in flight, if there is room. It has no place.
    pub(crate) fn admit_at_once(&self) -> bool {
        let mut clients = lock(&self.clients);
        let may_fly = !clients.is_closed && clients.has_room(self.max_in_flight, 0);
        if may_fly {
            self.expect_client();
            clients.in_flight += 1;
        }
        may_fly
    }

    /// Keeps a place for such a run, which [`Core::take_place`] takes.
    pub(crate) fn keep_place(&self) -> u16 {
        lock(&self.clients).runs.insert(None) as u16
    }

    /// Gives a kept place to its run, which a shutdown finds there. Returns whether there was one before.
    pub(crate) fn take_place(&self, place: u16, run: Flying) -> bool {
        let mut clients = lock(&self.clients);
        clients.runs[place.into()] = Some(run);
        clients.is_closed
    }

    /// Ends such a run, if it got no place.
    pub(crate) fn end_at_once(&self) {
        self.land(None);
        self.pool.iter().for_each(|pool| pool.forget_run());
    }

    /// Ends the flight of a run, and calls the next waiting run.
    pub(crate) fn end_flight(&self, place: u16) {
        match usize::from(place).checked_sub(self.nested_base()) {
            Some(nested) => self.end_nested(nested),
            None => self.land(Some(place)),
        }
    }

    fn land(&self, place: Option<u16>) {
        let (next, is_idle) = {
            let mut clients = lock(&self.clients);
            place.into_iter().for_each(|place| _ = clients.runs.remove(place.into()));
            clients.in_flight -= 1;
            (clients.call_next(), clients.is_idle())
        };
        next.iter().for_each(|lane| lane.ring());
        if is_idle {
            self.idle.ring();
        }
    }

    /// Gives back the place of an admitted run that never entered the pool.
    pub(crate) fn withdraw(&self, place: u16) {
        self.pool.iter().for_each(|pool| pool.forget_run());
        self.end_flight(place);
    }

    pub(super) fn add_engine(&self, engine: Weak<dyn Client>) -> Result<u16> {
        let mut clients = lock(&self.clients);
        if clients.is_closed {
            return Err(Kind::ShutDown.into());
        }
        if clients.engines.len() == ENGINES_MAX {
            let what = "the number of engines of an executor".into();
            return Err(Kind::Limit { what, got: ENGINES_MAX + 1, limit: ENGINES_MAX }.into());
        }
        self.expect_client();
        Ok(clients.engines.insert(engine) as u16)
    }

    pub(super) fn remove_engine(&self, place: u16) {
        let engine = lock(&self.clients).engines.remove(place.into());
        drop(engine);
    }

    /// Keeps the workers for a client. Called under the lock, so that a shutdown that closes later leaves
    /// them there.
    fn expect_client(&self) {
        self.pool.iter().for_each(|pool| pool.expect_run());
    }

    /// Admits no further client, and shuts down the present ones.
    pub(crate) fn close(&self) {
        let (present, waiting) = {
            let mut clients = lock(&self.clients);
            clients.is_closed = true;
            // SAFETY: these are in flight, and the lock is held.
            let runs = clients.runs.iter().filter_map(|(_, run)| run.as_ref()).map(|run| unsafe { run.owner() });
            let engines = clients.engines.iter().filter_map(|(_, engine)| engine.upgrade());
            let present: Vec<_> = runs.chain(engines).collect();
            (present, std::mem::take(&mut clients.waiting))
        };
        for client in present {
            client.clone().shut_down();
            // This may be the last owner of the client, whose drop runs user code.
            let _ = shielded(|| drop(client));
        }
        waiting.values().for_each(|lane| lane.ring());
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }
}

impl Clients {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.nested.is_empty()
    }

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
