//! The ready operations: higher priorities first, equal ones first come, first served.
//!
//! Nearly all have priority 0. These form a chain through their slots, so that a push takes no lock:
//!
//! ```text
//!  push:
//!    `last` before    then
//!    0                `last` becomes this, then `first`
//!    another          `last` becomes this, then the other's link
//!
//!  pop, under a lock:
//!    `first`    its link    `last`     then
//!    0          -           0          the chain is empty
//!    0          -           another    a push has not set `first` yet: the pop checks for a while, then returns
//!                                      None; that push calls a worker when it is done
//!    any        next        -          `first` becomes the next; returns the old first
//!    any        0           `first`    `first` becomes 0, then `last`; returns the old first
//!    any        0           another    a push has not set the link yet: `first` becomes 0, and the pop checks
//!                                      for a while; either the next becomes `first`, and the old first is
//!                                      returned, or the old first becomes `first` again
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::operation::FREES;
use super::scope::{ENGINE, Scope};
use super::slots::{LINKED, Slots, spot};
use super::tokens::Runnable;
use crate::sync::{AtomicU32, AtomicU64, Line, Mutex, Ordering, lock, spin_loop};

/// The number of times that a pop checks for a missing link.
const LOOKS: u32 = if cfg!(anabranch_loom) { 2 } else { 64 };

pub(crate) struct Ready {
    tail: Line<Tail>,
    front: Line<Front>,
}

/// The part for threads that make operations ready.
struct Tail {
    /// One more than the last of the chain, or 0.
    last: AtomicU32,
    lists: Mutex<Lists>,
    /// Whether all operations go into the lists. They do in an engine without workers, which takes some out
    /// of the middle.
    is_listed: bool,
}

/// The part for threads that take operations out.
struct Front {
    /// One more than the first of the chain, or 0. Changed under the lock `popping`, and by a push to an
    /// empty chain.
    first: AtomicU32,
    popping: Mutex<()>,
    /// The number of operations in the lists. It is here because each pop loads it. Changed under the lock of
    /// the lists.
    listed: AtomicU64,
}

/// The place of an operation in the lists: higher priorities first, equal ones in the order in which they
/// became ready.
type Rank = (Reverse<i32>, u64);

#[derive(Default)]
struct Lists {
    ready: BTreeMap<Rank, Listed>,
    /// The places of operations with an owner, by the owner.
    owned: BTreeSet<(usize, Rank)>,
    /// The number of operations ever added.
    pushed: u64,
}

struct Listed {
    operation: u32,
    owner: Option<usize>,
}

impl Ready {
    pub(crate) fn new(is_listed: bool) -> Self {
        let tail = Tail { last: AtomicU32::new(0), lists: Mutex::default(), is_listed };
        let front = Front { first: AtomicU32::new(0), popping: Mutex::new(()), listed: AtomicU64::new(0) };
        Self { tail: Line(tail), front: Line(front) }
    }

    /// Adds an operation. Its owner is looked up under the lock of the lists. So either this sees that the
    /// flow is cancelled, or [`Ready::give_up`] finds the operation.
    pub(crate) fn push(&self, slots: &Slots, runnable: Runnable) {
        let (tail, number, slot) = (&self.tail.0, runnable.number(), slots.slot(runnable.0));
        // SAFETY: the operation stays in its slot until its `Runnable` is used, and this function has that.
        let operation = unsafe { slot.operation() };
        let priority = operation.priority;
        if priority != 0 || tail.is_listed {
            let mut lists = lock(&tail.lists);
            let owner = if tail.is_listed { operation.owner() } else { None };
            lists.push(number, priority, owner);
            return self.count(1);
        }
        // ORDERING: Relaxed: the swap below publishes it.
        slot.holds.store(0, Ordering::Relaxed);
        // ORDERING: AcqRel pairs with `is_still_empty`, and with the exchange in `pop_chain`.
        let before = tail.last.swap(number + 1, Ordering::AcqRel);
        // ORDERING: Release, both, pairs with the Acquire in `look_for` and `pop_chain`: the operation is
        // visible.
        match before {
            0 => self.front.0.first.store(number + 1, Ordering::Release),
            _ => slots.get(before - 1).holds.store(LINKED | (number + 1), Ordering::Release),
        }
    }

    /// Takes out the first operation.
    pub(crate) fn pop(&self, slots: &Slots) -> Option<Runnable> {
        let mut is_urgent = true;
        // ORDERING: Relaxed: a worker that leaves checks `is_still_empty`.
        if self.front.0.listed.load(Ordering::Relaxed) > 0 {
            let mut lists = lock(&self.tail.0.lists);
            let first = lists.first();
            is_urgent = first.is_some_and(|(priority, _)| priority.0 > 0);
            if is_urgent {
                return self.take(&mut lists, slots, first);
            }
        }
        let popped = self.pop_chain(slots);
        if popped.is_some() || is_urgent { popped } else { self.remove(slots, 0) }
    }

    fn pop_chain(&self, slots: &Slots) -> Option<Runnable> {
        if self.is_chain_empty() {
            return None;
        }
        let Front { first, popping, .. } = &self.front.0;
        let _popping = lock(popping);
        let number = look_for(first).checked_sub(1)?;
        let slot = slots.get(number);
        // ORDERING: Acquire pairs with the Release in `push`: the next operation is in its slot.
        let mut next = slot.holds.load(Ordering::Acquire) & !LINKED;
        if next == 0 {
            // It may be the last one. `first` is cleared before `last`, because a push that finds no last
            // stores its operation as the first.
            // ORDERING: Relaxed: the exchange below publishes it.
            first.store(0, Ordering::Relaxed);
            // ORDERING: AcqRel pairs with the swap in `push`: a push that finds no last stores `first` after
            // the store above. Relaxed on failure: `look_for` acquires the next.
            if self.tail.0.last.compare_exchange(number + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(Runnable(spot(number, slot)));
            }
            next = look_for(&slot.holds) & !LINKED;
        }
        if next == 0 {
            // ORDERING: Relaxed: other pops take the lock `popping`, and no push stores `first` now.
            first.store(number + 1, Ordering::Relaxed);
            return None;
        }
        // ORDERING: Relaxed: other pops take the lock `popping`, and no push stores `first` now.
        first.store(next, Ordering::Relaxed);
        Some(Runnable(spot(number, slot)))
    }

    /// Takes out an operation that frees a variable. These come before all others.
    pub(crate) fn pop_free(&self, slots: &Slots) -> Option<Runnable> {
        let mut lists = lock(&self.tail.0.lists);
        let first = lists.first().filter(|(priority, _)| priority.0 == FREES);
        self.take(&mut lists, slots, first)
    }

    /// Gives the operations of a cancelled flow to the engine, so that [`Ready::extract_over`] returns them.
    pub(crate) fn give_up(&self, scope: &Scope) {
        lock(&self.tail.0.lists).give_up(scope.address());
    }

    /// Takes out the operations of the engine, and of flows that were given up, if all operations are in the
    /// lists. It does not visit the others.
    pub(crate) fn extract_over(&self, slots: &Slots) -> Vec<Runnable> {
        let mut lists = lock(&self.tail.0.lists);
        let places: Vec<Rank> = lists.of(ENGINE).collect();
        places.into_iter().filter_map(|place| self.take(&mut lists, slots, Some(place))).collect()
    }

    /// Returns the number of operations in the lists.
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed: a count; `remove` checks the place under the lock.
        self.front.0.listed.load(Ordering::Relaxed) as usize
    }

    /// Takes an operation out of the middle of the lists.
    pub(crate) fn remove(&self, slots: &Slots, place: usize) -> Option<Runnable> {
        let mut lists = lock(&self.tail.0.lists);
        let rank = lists.ready.keys().nth(place).copied();
        self.take(&mut lists, slots, rank)
    }

    /// Returns true if no operation is known to be ready.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed: a worker that leaves checks `is_still_empty`.
        self.is_chain_empty() && self.front.0.listed.load(Ordering::Relaxed) == 0
    }

    /// Loads `first` before `last`, which is on the cache line of pushes. While there is a first, pops do not
    /// load that line.
    #[inline]
    fn is_chain_empty(&self) -> bool {
        // ORDERING: Relaxed, both: a pop takes the lock, and a worker that leaves checks `is_still_empty`.
        self.front.0.first.load(Ordering::Relaxed) == 0 && self.tail.0.last.load(Ordering::Relaxed) == 0
    }

    /// Returns true if no operation is ready, for a worker that leaves. A push adds its operation, and then
    /// loads the number of workers. So either this finds the operation, or the push sees that no worker is
    /// left.
    pub(crate) fn is_still_empty(&self) -> bool {
        // ORDERING: AcqRel pairs with the swap in `push`: of two read-modify-writes of a word, the second
        // sees what the first thread did before. Relaxed on failure: there is an operation.
        self.tail.0.last.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && lock(&self.tail.0.lists).ready.is_empty()
    }

    fn take(&self, lists: &mut Lists, slots: &Slots, place: Option<Rank>) -> Option<Runnable> {
        let number = lists.remove(place?)?;
        self.count(-1);
        Some(Runnable(spot(number, slots.get(number))))
    }

    /// Counts an operation that was added to the lists or taken out. The caller has their lock.
    fn count(&self, change: i64) {
        let listed = &self.front.0.listed;
        // ORDERING: Relaxed, both: changed only under the lock of the lists.
        listed.store(listed.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }
}

/// Returns the number stored in a place. Returns 0 if none is stored soon.
fn look_for(place: &AtomicU32) -> u32 {
    for _ in 0..LOOKS {
        // ORDERING: Acquire pairs with the Release in `push`: the operation is visible.
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
        let rank = (Reverse(priority), self.pushed);
        self.pushed += 1;
        self.ready.insert(rank, Listed { operation, owner });
        self.owned.extend(owner.map(|owner| (owner, rank)));
    }

    fn remove(&mut self, rank: Rank) -> Option<u32> {
        let Listed { operation, owner } = self.ready.remove(&rank)?;
        if let Some(owner) = owner {
            self.owned.remove(&(owner, rank));
        }
        Some(operation)
    }

    fn first(&self) -> Option<Rank> {
        self.ready.first_key_value().map(|(&rank, _)| rank)
    }

    fn of(&self, owner: usize) -> impl Iterator<Item = Rank> {
        let all = (owner, (Reverse(i32::MAX), 0))..=(owner, (Reverse(i32::MIN), u64::MAX));
        self.owned.range(all).map(|(_, rank)| *rank)
    }

    fn give_up(&mut self, owner: usize) {
        let places: Vec<Rank> = self.of(owner).collect();
        for rank in places {
            self.owned.remove(&(owner, rank));
            self.owned.insert((ENGINE, rank));
            self.ready.entry(rank).and_modify(|entry| entry.owner = Some(ENGINE));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::batch::Batch;
    use super::super::body::Body;
    use super::super::operation::{Accesses, Operation, Role, Unpushed};
    use super::*;
    use crate::device::host::Barrier;

    /// Adds a ready operation.
    fn push(ready: &Ready, slots: &Slots, priority: i32, role: Role, scope: Option<&Arc<Scope>>) {
        let mut operation = Operation::new("ready".into(), Accesses::new(), Body::new(|_, _| Ok(())));
        (operation.priority, operation.role) = (priority, role);
        scope.iter().for_each(|scope| operation.set_scope(Arc::clone(scope)));
        let (entering, _) = slots.put(&mut slots.free(), 100, &mut Unpushed::new(operation)).expect("there is room");
        let mut batch = Batch::new(slots);
        batch.enter(entering);
        ready.push(slots, batch.next_own().expect("it asks for nothing"));
    }

    fn numbers(all: Vec<Runnable>) -> Vec<u32> {
        all.iter().map(Runnable::number).collect()
    }

    /// Seen to fail with negative priorities before plain ones, with a list that is taken from its end, and
    /// with a chain whose first is its last.
    #[test]
    fn higher_priorities_go_first_and_equal_ones_in_order() {
        for is_listed in [false, true] {
            let (ready, slots) = (Ready::new(is_listed), Slots::new(Barrier::new()));
            [-1, 0, 5, 0, 5, -1].into_iter().for_each(|priority| push(&ready, &slots, priority, Role::User, None));
            let order = numbers(std::iter::from_fn(|| ready.pop(&slots)).collect());
            assert_eq!((order, ready.is_empty(), ready.is_still_empty()), (vec![2, 4, 1, 3, 0, 5], true, true));
        }
    }

    #[test]
    fn one_is_taken_out_of_the_middle() {
        let (ready, slots) = (Ready::new(true), Slots::new(Barrier::new()));
        [0, 5, 5, 5].into_iter().for_each(|priority| push(&ready, &slots, priority, Role::User, None));
        let remove = |place| ready.remove(&slots, place).map(|removed| removed.number());
        assert_eq!((remove(1), remove(2), remove(2), ready.len()), (Some(2), Some(0), None, 2));
        assert_eq!((remove(1), remove(0), ready.pop(&slots).is_none()), (Some(3), Some(1), true));
    }

    /// Seen to fail with owners that are read once, before a flow is cancelled; with owners that keep what
    /// was taken out; and with operations that stay among the flow's own when it is given up.
    #[test]
    fn what_is_over_is_taken_out_and_nothing_else_is_looked_at() {
        let (ready, slots, [one, other]) = (Ready::new(true), Slots::new(Barrier::new()), [0; 2].map(|_| Scope::new(None)));
        let push = |priority, role, scope| push(&ready, &slots, priority, role, scope);
        let over = || numbers(ready.extract_over(&slots));
        let pop = || ready.pop(&slots).map(|popped| popped.number());
        push(0, Role::User, None);
        push(0, Role::User, Some(&one));
        push(0, Role::Waits, None);
        push(0, Role::User, Some(&other));
        push(5, Role::User, Some(&one));
        assert_eq!((over(), pop(), over()), (vec![2], Some(4), vec![]));
        one.cancel();
        assert!(over().is_empty());
        push(0, Role::User, Some(&one));
        push(5, Role::User, Some(&other));
        assert_eq!((over(), ready.len()), (vec![5], 4));
        ready.give_up(&one);
        assert_eq!((over(), ready.len()), (vec![1], 3));
        other.cancel();
        ready.give_up(&other);
        let removed = ready.remove(&slots, 2).map(|removed| removed.number());
        assert_eq!((removed, over(), pop()), (Some(3), vec![6], Some(0)));
        assert!(ready.is_still_empty() && lock(&ready.tail.0.lists).owned.is_empty());
    }
}
