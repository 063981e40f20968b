//! Admission: which runs are in flight, which wait for room, and which engines there are. Waiting runs are
//! admitted by priority, and those of one priority in the order in which they came. One lock has all states,
//! but one word counts those in flight: a run at once needs no place, and so no lock (see
//! [`flights`](super::flights)).
//!
//! A run that a node of another run awaits is a *nested* one. It has a place of its own kind: if it waited
//! for those in flight, each of them could wait for one that waits.
//!
//! ```text
//!  state of a run   event              next         then
//!  new              admit, room        in flight
//!  new              admit, no room     waiting      its lane is queued by precedence
//!  waiting          end of another     called       its lane is rung; the room is kept for it
//!  called           admit              in flight
//!  waiting          leave              gone
//!  called           leave              gone         the next waiting run is called
//!  in flight        end                gone         the next waiting run is called
//!  any              close              (unchanged)  clients are shut down; the next admit is an error
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::task::Poll;

use slab::Slab;

use super::{Client, Core, Lane};
use crate::error::{Kind, Result, shielded};
use crate::sync::{MutexGuard, lock};

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
    pub(super) unsafe fn owner(&self) -> Arc<dyn Client> {
        // SAFETY: the address comes from an `Arc`, which has an owner as long as the run is in flight.
        unsafe { Arc::increment_strong_count(self.0) };
        // SAFETY: this takes over the count that was added.
        unsafe { Arc::from_raw(self.0) }
    }
}

#[derive(Default)]
pub(super) struct Clients {
    /// By slot and by place. Those that are free are used again.
    pub(super) runs: Slab<Option<Flying>>,
    pub(super) engines: Slab<Weak<dyn Client>>,
    /// Which places of nested runs are taken.
    pub(super) nested: Slab<()>,
    /// The lanes of nested runs that wait for a place.
    pub(super) nested_waiting: Vec<Arc<Lane>>,
    /// The lanes of runs that wait for room, by precedence.
    pub(super) waiting: BTreeMap<Precedence, Arc<Lane>>,
    arrivals: u64,
    /// The runs that have waited and were woken. Each takes its room when it is polled, or passes it on when
    /// it leaves.
    pub(super) called: BTreeSet<Precedence>,
}

/// When a run is admitted: those of a higher priority first, then in the order of arrival. One word, because
/// each run at once writes it:
///
/// ```text
/// bits
/// 56 and up    127 minus the priority
/// 1 to 55      the run's number among those that had to wait, from 1; 0 if it has not waited
/// 0            whether other work has made the run
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Precedence(u64);

const PRIORITY: u32 = 56;
const ARRIVAL: u64 = (1 << PRIORITY) - 2;
const INNER: u64 = 1;

impl Default for Precedence {
    #[inline]
    fn default() -> Self {
        Self((i8::MAX as u64) << PRIORITY)
    }
}

impl Precedence {
    #[cfg(feature = "tokio")]
    pub(crate) fn set_inner(&mut self) {
        self.0 |= INNER;
    }

    pub(crate) fn set_priority(&mut self, priority: i8) {
        debug_assert!(!self.is_queued(), "the queue is sorted by it");
        let rank = i16::from(i8::MAX) - i16::from(priority);
        self.0 = self.0 & (ARRIVAL | INNER) | (rank as u64) << PRIORITY;
    }

    fn set_arrival(&mut self, arrival: u64) {
        self.0 = self.0 & !ARRIVAL | arrival << 1;
    }

    #[inline]
    pub(crate) fn is_queued(self) -> bool {
        self.0 & ARRIVAL != 0
    }

    fn is_inner(self) -> bool {
        self.0 & INNER != 0
    }

    /// Returns the last place among those of its priority.
    fn last(self) -> Self {
        Self(self.0 | ARRIVAL)
    }
}

impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        self.flights.is_closed()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.count()
    }

    /// Asks the next run that ends to ring `idle`, on which the caller is registered. Returns whether no run
    /// is in flight, and no nested one: that of a dropped run ends after it.
    pub(super) fn check_idle(&self) -> bool {
        let clients = lock(&self.clients);
        // It stays set: another task may be registered, too. The next run to end answers it.
        self.flights.ask();
        clients.nested.is_empty() && self.flights.count() == 0
    }

    /// Admits a run and returns its place among those in flight, or an error if the executor is closed. If
    /// there is no room, a run with a lane is queued, and gets an arrival in its `precedence`, until
    /// [`Core::leave_queue`]. The lane is rung when the run is called.
    pub(crate) fn admit(&self, run: Flying, precedence: &mut Precedence, lane: Option<&Arc<Lane>>) -> Poll<Result<u16>> {
        let mut clients = lock(&self.clients);
        if self.is_closed() {
            return Poll::Ready(Err(Kind::ShutDown.into()));
        }
        if !precedence.is_queued() && !precedence.is_inner() {
            self.check_draining()?;
        }
        loop {
            let is_queued = precedence.is_queued();
            let is_called = is_queued && clients.called.contains(precedence);
            let kept = if is_queued { 0 } else { clients.room_before(*precedence) };
            if (is_called || !is_queued) && self.flights.begin(self.max_in_flight, kept) {
                clients.called.remove(precedence);
                self.expect_client();
                return Poll::Ready(Ok(clients.runs.insert(Some(run)) as u16));
            }
            debug_assert!(!is_called, "no more runs are called than there is room for");
            let Some(lane) = lane.filter(|_| !is_queued) else { return Poll::Pending };
            if self.flights.ask_for_room(self.max_in_flight, kept) {
                clients.arrivals += 1;
                precedence.set_arrival(clients.arrivals);
                clients.waiting.insert(*precedence, lane.clone());
                return Poll::Pending;
            }
            // A run at once has ended meanwhile.
        }
    }

    /// Admits a nested run, and returns its place. If there is none, its lane is rung when one is free. It is
    /// not counted among the runs in flight, and a shutdown ends it with the run around it.
    pub(crate) fn admit_nested(&self, lane: &Arc<Lane>) -> Poll<Result<u16>> {
        let mut clients = lock(&self.clients);
        if self.is_closed() {
            return Poll::Ready(Err(Kind::ShutDown.into()));
        }
        if clients.nested.len() < NESTED_MAX {
            self.expect_client();
            self.flights.note_begun();
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
            (std::mem::take(&mut clients.nested_waiting), clients.nested.is_empty() && self.flights.count() == 0)
        };
        // All of them: one alone could be dropped before it takes the place.
        waiting.iter().for_each(|lane| lane.ring());
        if is_idle {
            self.idle.ring();
        }
    }

    /// Takes a run that will not start out of the queue. The next waiting run gets its room, if it had any.
    pub(crate) fn leave_queue(&self, precedence: Precedence) {
        let mut clients = lock(&self.clients);
        if clients.waiting.remove(&precedence).is_some() || clients.called.remove(&precedence) {
            self.answer(clients);
        }
    }

    /// Counts a run that is run at once among those in flight, if there is room. It has no place.
    pub(crate) fn admit_at_once(&self) -> bool {
        // First: a shutdown that closes after the run is counted leaves the workers there.
        self.expect_client();
        let is_admitted = self.flights.begin_at_once(self.max_in_flight);
        if !is_admitted {
            self.pool.iter().for_each(|pool| pool.forget_run());
        }
        is_admitted
    }

    /// Keeps a place for such a run, which [`Core::take_place`] takes.
    pub(crate) fn keep_place(&self) -> u16 {
        lock(&self.clients).runs.insert(None) as u16
    }

    /// Gives a kept place to its run, which a shutdown finds there. Returns whether there was one before.
    pub(crate) fn take_place(&self, place: u16, run: Flying) -> bool {
        let mut clients = lock(&self.clients);
        clients.runs[place.into()] = Some(run);
        self.is_closed()
    }

    /// Ends such a run, if it got no place.
    #[inline]
    pub(crate) fn end_at_once(&self) {
        if self.flights.end() {
            self.answer(lock(&self.clients));
        }
        self.pool.iter().for_each(|pool| pool.forget_run());
    }

    /// Ends the flight of a run, and calls the next waiting run.
    pub(crate) fn end_flight(&self, place: u16) {
        match usize::from(place).checked_sub(self.nested_base()) {
            Some(nested) => self.end_nested(nested),
            None => self.land(place),
        }
    }

    fn land(&self, place: u16) {
        let mut clients = lock(&self.clients);
        clients.runs.remove(place.into());
        if self.flights.end() {
            self.answer(clients);
        }
    }

    /// Answers those that have set ASKED: calls waiting runs for which there is room, and rings `idle` if no
    /// run is in flight.
    #[cold]
    fn answer(&self, mut clients: MutexGuard<'_, Clients>) {
        let count = self.flights.count();
        let mut called = Vec::new();
        while clients.called.len() + count < self.max_in_flight
            && let Some(lane) = clients.call_next()
        {
            called.push(lane);
        }
        let is_idle = clients.nested.is_empty() && count == 0;
        if clients.waiting.is_empty() && clients.called.is_empty() && (is_idle || !self.idle.is_awaited()) {
            self.flights.clear_asked();
        }
        drop(clients);
        called.iter().for_each(|lane| lane.ring());
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
        if self.is_closed() {
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

    /// Keeps the workers for a client. Called under the lock, or before the run is counted in the word that a
    /// shutdown changes: one that closes later leaves the workers there.
    fn expect_client(&self) {
        self.pool.iter().for_each(|pool| pool.expect_run());
    }

    /// Admits no further client, and shuts down the present ones.
    pub(crate) fn close(&self) {
        let (present, waiting) = {
            let mut clients = lock(&self.clients);
            self.flights.close();
            // SAFETY: these are in flight, and the lock is held.
            let runs = clients.runs.iter().filter_map(|(_, run)| run.as_ref()).map(|run| unsafe { run.owner() });
            let engines = clients.engines.iter().filter_map(|(_, engine)| engine.upgrade());
            let present: Vec<_> = runs.chain(engines).collect();
            // Called runs were woken: each is about to ask for its room.
            clients.called.clear();
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
    /// Returns whether runs wait for room, or are about to take it.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.called.is_empty() || !self.nested_waiting.is_empty()
    }

    /// Returns how much room is not for a run that did not wait: it is kept for those that were called, and
    /// for those that wait, if one of them comes first. Room that waiting runs leave is transient: the run
    /// that made it is about to call one of them.
    fn room_before(&self, precedence: Precedence) -> usize {
        let is_behind = self.waiting.first_key_value().is_some_and(|(first, _)| *first < precedence.last());
        self.called.len() + if is_behind { self.waiting.len() } else { 0 }
    }

    /// Gives room to one more waiting run, and returns its lane. The run keeps it until it is admitted or
    /// leaves.
    fn call_next(&mut self) -> Option<Arc<Lane>> {
        let (precedence, lane) = self.waiting.pop_first()?;
        self.called.insert(precedence);
        Some(lane)
    }
}
