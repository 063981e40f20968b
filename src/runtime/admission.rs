//! Admission: which runs are in flight, which wait for room, and which engines there are. Waiting runs are
//! admitted in the order in which they came. One lock has all states, but one word counts those in flight: a
//! run at once needs no place, and so no lock (see [`Flights`]).
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
use crate::sync::{AtomicU64, MutexGuard, Ordering, lock};

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

/// The number of runs in flight, and two flags for runs that begin or end:
///
/// ```text
/// bit      set under the lock                            then
/// ASKED    a run is queued, or a task waits until        a run at once is not admitted, and one that ends
///          none is in flight                             takes the lock
/// CLOSED   by a shutdown                                 no run is admitted
/// ```
///
/// A run is queued only by the exchange that finds no room. So a run that ends before it makes room, and one
/// that ends after it sees ASKED. Only runs at once change the word without the lock.
pub(super) struct Flights(AtomicU64);

const CLOSED: u64 = 1 << 63;
const ASKED: u64 = 1 << 62;

impl Flights {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    fn word(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `end`: what those runs did is visible.
        self.0.load(Ordering::Acquire)
    }

    fn count(&self) -> usize {
        (self.word() & !(CLOSED | ASKED)) as usize
    }

    /// Changes the word, unless `change` returns None.
    #[inline]
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // ORDERING: Relaxed: the exchange decides.
        let mut word = self.0.load(Ordering::Relaxed);
        while let Some(new) = change(word) {
            // ORDERING: AcqRel: as in `word`, and as in `end`.
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// Counts one more run, if there is room for it beside `kept` others.
    fn begin(&self, max: usize, kept: usize) -> bool {
        let max = max.saturating_sub(kept) as u64;
        self.update(|word| ((word & !ASKED) < max).then_some(word + 1))
    }

    /// As `begin`, unless the lock is needed.
    #[inline]
    fn begin_at_once(&self, max: usize) -> bool {
        self.update(|word| (word < max as u64).then_some(word + 1))
    }

    /// Sets ASKED if there is no room beside `kept` others.
    fn ask_for_room(&self, max: usize, kept: usize) -> bool {
        let max = max.saturating_sub(kept) as u64;
        self.update(|word| ((word & !ASKED) >= max).then_some(word | ASKED))
    }

    /// Counts one run less. Returns whether the lock is needed.
    #[inline]
    fn end(&self) -> bool {
        // ORDERING: AcqRel: a thread that sees the new count sees what the run did.
        self.0.fetch_sub(1, Ordering::AcqRel) & ASKED != 0
    }

    /// Sets bits.
    fn raise(&self, bits: u64) {
        // ORDERING: AcqRel: a run that is not counted before has ended, or sees the bits.
        self.0.fetch_or(bits, Ordering::AcqRel);
    }

    fn clear_asked(&self) {
        // ORDERING: Relaxed: it is set again under the same lock.
        self.0.fetch_and(!ASKED, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(super) struct Clients {
    /// By slot and by place. Those that are free are used again.
    runs: Slab<Option<Flying>>,
    pub(super) engines: Slab<Weak<dyn Client>>,
    /// Which places of nested runs are taken.
    nested: Slab<()>,
    /// The lanes of nested runs that wait for a place.
    pub(super) nested_waiting: Vec<Arc<Lane>>,
    /// The lanes of runs that wait for room, by turn.
    pub(super) waiting: BTreeMap<u64, Arc<Lane>>,
    last_turn: u64,
    /// The last turn that was called. Each waiting run up to this turn was woken once. It takes its room when
    /// it is polled, or passes it on when it leaves.
    called: u64,
}

impl Core {
    pub(crate) fn is_closed(&self) -> bool {
        self.flights.word() & CLOSED != 0
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.count()
    }

    /// Asks the next run that ends to ring `idle`, on which the caller is registered. Returns whether no run
    /// is in flight, and no nested one: that of a dropped run ends after it.
    pub(super) fn check_idle(&self) -> bool {
        let clients = lock(&self.clients);
        // It stays set: another task may be registered, too. The next run to end answers it.
        self.flights.raise(ASKED);
        clients.nested.is_empty() && self.flights.count() == 0
    }

    /// Admits a run and returns its place among those in flight, or an error if the executor is closed. If
    /// there is no room, a run with a lane is queued; the lane is rung when the run is called. `turn` is 0 at
    /// first, and then the run's turn in the queue, until [`Core::leave_queue`].
    pub(crate) fn admit(&self, run: Flying, turn: &mut u64, lane: Option<&Arc<Lane>>) -> Poll<Result<u16>> {
        let mut clients = lock(&self.clients);
        if self.is_closed() {
            return Poll::Ready(Err(Kind::ShutDown.into()));
        }
        loop {
            // A new run comes after all that wait.
            let kept = if *turn == 0 { clients.waiting.len() } else { 0 };
            let is_called = *turn == 0 || *turn <= clients.called;
            if is_called && self.flights.begin(self.max_in_flight, kept) {
                clients.waiting.remove(turn);
                self.expect_client();
                return Poll::Ready(Ok(clients.runs.insert(Some(run)) as u16));
            }
            debug_assert!(*turn == 0 || !is_called, "no more runs are called than there is room for");
            let Some(lane) = lane.filter(|_| *turn == 0) else { return Poll::Pending };
            if self.flights.ask_for_room(self.max_in_flight, kept) {
                clients.last_turn += 1;
                *turn = clients.last_turn;
                clients.waiting.insert(*turn, lane.clone());
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
    pub(crate) fn leave_queue(&self, turn: u64) {
        let mut clients = lock(&self.clients);
        if clients.waiting.remove(&turn).is_some() {
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
        while clients.called_ones() + count < self.max_in_flight
            && let Some(lane) = clients.call_next()
        {
            called.push(lane);
        }
        let is_idle = clients.nested.is_empty() && count == 0;
        if clients.waiting.is_empty() && (is_idle || !self.idle.is_awaited()) {
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
            self.flights.raise(CLOSED);
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
    /// Returns the number of waiting runs that were called, for which room is kept.
    fn called_ones(&self) -> usize {
        self.waiting.range(..=self.called).count()
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
