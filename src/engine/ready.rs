//! Operations that are ready: higher priorities first, the same ones first come, first served.
//!
//! Those of priority 0, nearly all, stand in a chain through their slots, so that who makes one ready takes
//! no lock:
//!
//! ```text
//! first ──▶ a ──▶ b ──▶ c ◀── tail        push: swap yourself into the tail, then link yourself behind who was there (or make yourself the first)
//! ```
//!
//! Who takes one out has a lock, and finds the chain broken where somebody has swapped and not linked yet. It
//! waits for that a moment, then leaves it to the other, who sees to it that a worker comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::op::FREES;
use super::scope::Scope;
use super::slots::{Slots, Spot};
use crate::sync::{AtomicU32, AtomicU64, Line, Mutex, Ordering, lock, spin_loop};

/// How often who finds a broken chain looks again.
const LOOKS: u32 = if cfg!(anabranch_loom) { 2 } else { 64 };

/// The queue.
pub(super) struct Ready {
    tail: Line<Tail>,
    front: Line<Front>,
}

/// What those touch who make operations ready.
struct Tail {
    /// One more than the last of the chain, or 0.
    last: AtomicU32,
    lists: Mutex<Lists>,
    /// Whether all go into the lists: where one is to be taken out of the middle.
    is_listed: bool,
}

/// What those touch who take them out.
struct Front {
    /// One more than the first of the chain, or 0. Changed by who has the lock, and by who finds the chain
    /// empty.
    first: AtomicU32,
    popping: Mutex<()>,
    /// How many are in the lists: here, because who takes out asks for it each time. Changes under the lists'
    /// lock.
    listed: AtomicU64,
}

/// The place of an operation in the lists: higher priorities first, equal ones in the order in which they
/// became ready.
type Key = (Reverse<i32>, u64);

#[derive(Default)]
struct Lists {
    ready: BTreeMap<Key, Entry>,
    /// The places of operations with an owner, by the owner.
    owned: BTreeSet<(usize, Key)>,
    /// How many there ever were.
    pushed: u64,
}

struct Entry {
    operation: u32,
    owner: Option<usize>,
}

/// What ends a ready operation if only polls run those, and there may be none.
pub(super) enum Owner<'s> {
    Nobody,
    /// The engine: the next sweep runs it.
    Engine,
    /// A flow: once that is cancelled, the next sweep runs it.
    Flow(&'s Scope),
}

/// The engine's number among the addresses of scopes.
const ENGINE: usize = 0;

impl Owner<'_> {
    fn number(self) -> Option<usize> {
        match self {
            Owner::Nobody => None,
            Owner::Engine => Some(ENGINE),
            Owner::Flow(scope) => Some(if scope.is_cancelled() { ENGINE } else { address(scope) }),
        }
    }
}

/// Returns the number of a flow. It is unique: a scope lives as long as one of its operations.
fn address(scope: &Scope) -> usize {
    std::ptr::from_ref(scope).addr()
}

impl Ready {
    pub(super) fn new(is_listed: bool) -> Self {
        let tail = Tail { last: AtomicU32::new(0), lists: Mutex::default(), is_listed };
        let front = Front { first: AtomicU32::new(0), popping: Mutex::new(()), listed: AtomicU64::new(0) };
        Self { tail: Line(tail), front: Line(front) }
    }

    /// Calls `owner` under the lists' lock. So either it sees that the flow is cancelled, or the flow finds
    /// the operation when it is [given up](Ready::give_up).
    pub(super) fn push<'s>(
        &self,
        slots: &Slots,
        Spot { number: operation, slot }: Spot<'_>,
        priority: i32,
        owner: impl FnOnce() -> Owner<'s>,
    ) {
        let tail = &self.tail.0;
        if priority != 0 || tail.is_listed {
            let mut lists = lock(&tail.lists);
            let owner = if tail.is_listed { owner().number() } else { None };
            lists.push(operation, priority, owner);
            return self.count(1);
        }
        // ORDERING: Relaxed: the swap publishes it.
        slot.holds.store(0, Ordering::Relaxed);
        // ORDERING: AcqRel: see `is_still_empty`; and whoever takes it out sees the operation.
        let before = tail.last.swap(operation + 1, Ordering::AcqRel);
        // ORDERING: Release: as above.
        match before {
            0 => self.front.0.first.store(operation + 1, Ordering::Release),
            _ => slots.get(before - 1).holds.store(operation + 1, Ordering::Release),
        }
    }

    pub(super) fn pop(&self, slots: &Slots) -> Option<u32> {
        let mut is_urgent = true;
        if self.front.0.listed.load(Ordering::Relaxed) > 0 {
            let mut lists = lock(&self.tail.0.lists);
            let first = lists.first();
            is_urgent = first.is_some_and(|(priority, _)| priority.0 > 0);
            if is_urgent {
                return self.take(&mut lists, first);
            }
        }
        let popped = self.pop_chain(slots);
        if popped.is_some() || is_urgent { popped } else { self.remove(0) }
    }

    fn pop_chain(&self, slots: &Slots) -> Option<u32> {
        if self.is_chain_empty() {
            return None;
        }
        let Front { first, popping, .. } = &self.front.0;
        let _popping = lock(popping);
        let operation = look_for(first).checked_sub(1)?;
        let behind = &slots.get(operation).holds;
        // ORDERING: Acquire: see `push`.
        let mut next = behind.load(Ordering::Acquire);
        if next == 0 {
            // It may be the last. Emptied first, because whoever finds the tail empty makes itself the first.
            first.store(0, Ordering::Relaxed);
            // ORDERING: Release: who finds the tail empty stores behind that.
            if self.tail.0.last.compare_exchange(operation + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(operation);
            }
            next = look_for(behind);
        }
        if next == 0 {
            first.store(operation + 1, Ordering::Relaxed);
            return None;
        }
        first.store(next, Ordering::Relaxed);
        Some(operation)
    }

    /// Takes what frees a variable: that goes before all else.
    pub(super) fn pop_free(&self) -> Option<u32> {
        let mut lists = lock(&self.tail.0.lists);
        let first = lists.first().filter(|(priority, _)| priority.0 == FREES);
        self.take(&mut lists, first)
    }

    /// Passes the operations of a cancelled flow to [`Ready::extract_over`].
    pub(super) fn give_up(&self, scope: &Scope) {
        lock(&self.tail.0.lists).give_up(address(scope));
    }

    /// Takes out the operations of the engine, and of flows that were given up, if all are in lists. The
    /// others cost nothing.
    pub(super) fn extract_over(&self) -> Vec<u32> {
        let mut lists = lock(&self.tail.0.lists);
        let places: Vec<Key> = lists.of(ENGINE).collect();
        places.into_iter().filter_map(|place| self.take(&mut lists, Some(place))).collect()
    }

    /// Returns how many there are, where all are in lists.
    pub(super) fn len(&self) -> usize {
        self.front.0.listed.load(Ordering::Relaxed) as usize
    }

    /// Takes one out of the middle of the lists.
    pub(super) fn remove(&self, place: usize) -> Option<u32> {
        let mut lists = lock(&self.tail.0.lists);
        let key = lists.nth(place);
        self.take(&mut lists, key)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.is_chain_empty() && self.front.0.listed.load(Ordering::Relaxed) == 0
    }

    /// Asks the front first: as long as there is a first, who takes out leaves the end to those who push.
    #[inline]
    fn is_chain_empty(&self) -> bool {
        // ORDERING: Relaxed, as of `listed`: who takes out has the locks, and who goes asks `is_still_empty`.
        self.front.0.first.load(Ordering::Relaxed) == 0 && self.tail.0.last.load(Ordering::Relaxed) == 0
    }

    /// The same, where of "push, then look who works" and "stop to work, then ask" one is to see the other.
    pub(super) fn is_still_empty(&self) -> bool {
        // ORDERING: AcqRel: of two who change a word one is second, and sees what the first did before: this
        // here that there is something, or who pushes that nobody works.
        self.tail.0.last.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && lock(&self.tail.0.lists).ready.is_empty()
    }

    fn take(&self, lists: &mut Lists, place: Option<Key>) -> Option<u32> {
        let removed = lists.remove(place?)?;
        self.count(-1);
        Some(removed)
    }

    /// Under the lists' lock.
    fn count(&self, change: i64) {
        let listed = &self.front.0.listed;
        // ORDERING: Relaxed: the lock orders it.
        listed.store(listed.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }
}

/// Returns what is stored there, if that is done soon.
fn look_for(place: &AtomicU32) -> u32 {
    for _ in 0..LOOKS {
        // ORDERING: Acquire: see `push`.
        let found = place.load(Ordering::Acquire);
        if found != 0 {
            return found;
        }
        spin_loop();
    }
    0
}

impl Lists {
    fn push(&mut self, operation: u32, priority: i32, owner: Option<usize>) {
        let key = (Reverse(priority), self.pushed);
        self.pushed += 1;
        self.ready.insert(key, Entry { operation, owner });
        self.owned.extend(owner.map(|owner| (owner, key)));
    }

    fn remove(&mut self, key: Key) -> Option<u32> {
        let Entry { operation, owner } = self.ready.remove(&key)?;
        if let Some(owner) = owner {
            self.owned.remove(&(owner, key));
        }
        Some(operation)
    }

    fn first(&self) -> Option<Key> {
        self.ready.first_key_value().map(|(&key, _)| key)
    }

    /// Returns the key of the operation at a place, counted from the front.
    fn nth(&self, place: usize) -> Option<Key> {
        let from_back = self.ready.len().checked_sub(place + 1)?;
        let mut keys = self.ready.keys();
        if place <= from_back { keys.nth(place) } else { keys.nth_back(from_back) }.copied()
    }

    fn of(&self, owner: usize) -> impl Iterator<Item = Key> {
        let all = (owner, (Reverse(i32::MAX), 0))..=(owner, (Reverse(i32::MIN), u64::MAX));
        self.owned.range(all).map(|(_, key)| *key)
    }

    fn give_up(&mut self, owner: usize) {
        let places: Vec<Key> = self.of(owner).collect();
        for key in places {
            self.owned.remove(&(owner, key));
            self.owned.insert((ENGINE, key));
            self.ready.entry(key).and_modify(|entry| entry.owner = Some(ENGINE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with negative priorities before plain ones, with a list that is taken from its end, and
    /// with a chain whose first is its last.
    #[test]
    fn higher_priorities_go_first_and_equal_ones_in_order() {
        for is_listed in [false, true] {
            let (ready, slots) = (Ready::new(is_listed), Slots::new());
            let _made: Vec<Option<u32>> = (0..6).map(|_| slots.take(&mut slots.free(), 6)).collect();
            for (operation, priority) in [(0, -1), (1, 0), (2, 5), (3, 0), (4, 5), (5, -1)] {
                ready.push(&slots, slots.spot(operation), priority, || Owner::Nobody);
            }
            let order: Vec<u32> = std::iter::from_fn(|| ready.pop(&slots)).collect();
            assert_eq!((order, ready.is_empty(), ready.is_still_empty()), (vec![2, 4, 1, 3, 0, 5], true, true));
        }
    }

    #[test]
    fn one_is_taken_out_of_the_middle() {
        let (ready, slots) = (Ready::new(true), Slots::new());
        let _made: Vec<Option<u32>> = (0..4).map(|_| slots.take(&mut slots.free(), 4)).collect();
        [(0, 0), (1, 5), (2, 5), (3, 5)]
            .into_iter()
            .for_each(|(number, priority)| ready.push(&slots, slots.spot(number), priority, || Owner::Nobody));
        assert_eq!((ready.remove(1), ready.remove(2), ready.remove(2), ready.len()), (Some(2), Some(0), None, 2));
        assert_eq!((ready.remove(1), ready.remove(0), ready.pop(&slots)), (Some(3), Some(1), None));
    }
    /// Seen to fail with owners that are read once, before a flow is cancelled; with owners that keep what
    /// was taken out; and with operations that stay among the flow's own when it is given up.
    #[test]
    fn what_is_over_is_taken_out_and_nothing_else_is_looked_at() {
        let (ready, slots, [one, other]) = (Ready::new(true), Slots::new(), [0; 2].map(|_| Scope::new(None)));
        let _made: Vec<Option<u32>> = (0..8).map(|_| slots.take(&mut slots.free(), 8)).collect();
        let push = |number, priority, owner| ready.push(&slots, slots.spot(number), priority, || owner);
        push(0, 0, Owner::Nobody);
        push(1, 0, Owner::Flow(&one));
        push(2, 0, Owner::Engine);
        push(3, 0, Owner::Flow(&other));
        push(4, 5, Owner::Flow(&one));
        assert_eq!((ready.extract_over(), ready.pop(&slots), ready.extract_over()), (vec![2], Some(4), vec![]));
        one.cancel();
        assert!(ready.extract_over().is_empty());
        push(5, 0, Owner::Flow(&one));
        push(6, 5, Owner::Flow(&other));
        assert_eq!((ready.extract_over(), ready.len()), (vec![5], 4));
        ready.give_up(&one);
        assert_eq!((ready.extract_over(), ready.len()), (vec![1], 3));
        other.cancel();
        ready.give_up(&other);
        assert_eq!((ready.remove(2), ready.extract_over(), ready.pop(&slots)), (Some(3), vec![6], Some(0)));
        assert!(ready.is_still_empty() && lock(&ready.tail.0.lists).owned.is_empty());
    }
}
