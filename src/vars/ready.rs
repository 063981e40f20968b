//! Operations that are ready: higher priorities first, the same ones first come, first served.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// The queue.
pub(super) struct Ready {
    lists: Mutex<Lists>,
    len: AtomicU64,
}

#[derive(Default)]
struct Lists {
    /// Those of priority 0.
    plain: VecDeque<u32>,
    others: BTreeMap<Reverse<i32>, VecDeque<u32>>,
}

impl Ready {
    pub(super) fn new() -> Self {
        Self { lists: Mutex::default(), len: AtomicU64::new(0) }
    }

    pub(super) fn push(&self, operation: u32, priority: i32) {
        let mut lists = lock(&self.lists);
        lists.of(priority).push_back(operation);
        self.count(1);
    }

    pub(super) fn pop(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut lists = lock(&self.lists);
        let popped = lists.pop()?;
        self.count(-1);
        Some(popped)
    }

    /// Takes what frees a variable: that goes before all else.
    pub(super) fn pop_free(&self) -> Option<u32> {
        let mut lists = lock(&self.lists);
        let frees = lists.others.get_mut(&Reverse(i32::MAX))?;
        let popped = frees.pop_front()?;
        self.count(-1);
        Some(popped)
    }

    /// Takes out all that are as `is_wanted` says.
    pub(super) fn extract(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut lists = lock(&self.lists);
        let mut wanted = Vec::new();
        let Lists { plain, others } = &mut *lists;
        for list in others.values_mut().chain([plain]) {
            list.retain(|&operation| {
                let is_taken = is_wanted(operation);
                wanted.extend(is_taken.then_some(operation));
                !is_taken
            });
        }
        self.count(-(wanted.len() as i64));
        wanted
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Takes one out of the middle.
    pub(super) fn remove(&self, place: usize) -> Option<u32> {
        let mut lists = lock(&self.lists);
        let removed = lists.remove(place)?;
        self.count(-1);
        Some(removed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// The same, where of "push, then look who works" and "stop to work, then ask" one is to see the other.
    pub(super) fn is_still_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_empty()
    }

    /// Under the lock.
    fn count(&self, change: i64) {
        // ORDERING: Relaxed: the lock, or a fence, orders it.
        self.len.store(self.len.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }
}

impl Lists {
    fn of(&mut self, priority: i32) -> &mut VecDeque<u32> {
        if priority == 0 { &mut self.plain } else { self.others.entry(Reverse(priority)).or_default() }
    }

    fn remove(&mut self, mut place: usize) -> Option<u32> {
        let lists = self.others.values_mut().chain([&mut self.plain]);
        for list in lists {
            if place < list.len() {
                return list.remove(place);
            }
            place -= list.len();
        }
        None
    }

    fn pop(&mut self) -> Option<u32> {
        let Some(mut first) = self.others.first_entry() else { return self.plain.pop_front() };
        if first.key().0 < 0 && !self.plain.is_empty() {
            return self.plain.pop_front();
        }
        let popped = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        popped.or_else(|| self.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with negative priorities before plain ones, and with a list that is taken from its end.
    #[test]
    fn higher_priorities_go_first_and_equal_ones_in_order() {
        let ready = Ready::new();
        for (operation, priority) in [(0, -1), (1, 0), (2, 5), (3, 0), (4, 5), (5, -1)] {
            ready.push(operation, priority);
        }
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!((order, ready.is_empty()), (vec![2, 4, 1, 3, 0, 5], true));
        [(0, 0), (1, 5), (2, 5), (3, 5)].into_iter().for_each(|(operation, priority)| ready.push(operation, priority));
        assert_eq!((ready.remove(1), ready.remove(2), ready.remove(2), ready.len()), (Some(2), Some(0), None, 2));
        assert_eq!((ready.remove(1), ready.remove(0), ready.pop()), (Some(3), Some(1), None));
    }
}
