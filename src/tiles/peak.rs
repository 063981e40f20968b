//! The least bytes that a group needs, while it grows by one operation after the other. Each use of a store
//! is looked at once or twice, so the time does not depend on the group's length.
//!
//! ```text
//!  a store that is there before the group            its bytes, used or not
//!  a store that the group makes and others need      its bytes, as long as the group is too short
//!  a store with all its uses in the group            its window
//! ```
//! Windows that share memory count with the most that are used at one time. [`pack`](super::memory::pack) may
//! need more than that, so the least may be less than the group's bytes, and is never more.

use super::index::{Index, UseId};
use super::memory::{Placed, window};

/// The least bytes of a group that begins at an operation.
pub(super) struct Peak<'i> {
    index: &'i Index<'i>,
    first: usize,
    /// The bytes that longer groups need, too.
    settled: u128,
    /// The bytes of the stores that need not be whole in a longer group.
    pending: u128,
    before: Load,
    own: Load,
}

impl<'i> Peak<'i> {
    pub(super) fn new(index: &'i Index<'i>, first: usize) -> Self {
        let settled = index.lifetimes.bytes_before(first);
        Self { index, first, settled, pending: 0, before: Load::default(), own: Load::default() }
    }

    /// Adds the last of the group's operations.
    pub(super) fn add(&mut self, ops: &[Placed]) {
        let op = ops[ops.len() - 1].op;
        for access in 0..self.index.outline.ops[op].accesses.len() {
            self.add_use(ops, UseId { op, access });
        }
    }

    fn add_use(&mut self, ops: &[Placed], used: UseId) {
        let id = self.index.access(used).store;
        let store = &self.index.outline.stores[id.index()];
        if self.index.lifetimes.is_before(id, self.first) {
            return;
        }
        if self.index.is_first(used, self.first) {
            let sum = if store.is_kept { &mut self.settled } else { &mut self.pending };
            *sum += u128::from(store.bytes());
        }
        if store.is_kept || !self.index.is_last(used) {
            return;
        }
        self.pending -= u128::from(store.bytes());
        let window = window(self.index, ops, id);
        match () {
            () if window.is_before => self.before.add(window.used, window.store_bytes),
            () if window.is_of_a_batch() => self.own.add(window.used, window.tile_bytes),
            () => self.settled += u128::from(window.bytes(1)),
        }
    }

    /// Returns the least bytes that this group needs, and any that is longer.
    pub(super) fn settled(&self) -> u128 {
        self.settled + self.before.most + self.own.most
    }

    /// Returns the least bytes that this group needs.
    pub(super) fn bytes(&self) -> u128 {
        self.settled() + self.pending
    }
}

/// The bytes in use at each time.
#[derive(Default)]
struct Load {
    at: Vec<u128>,
    most: u128,
}

impl Load {
    fn add(&mut self, (first, last): (usize, usize), bytes: u64) {
        self.at.resize(self.at.len().max(last + 1), 0);
        for at in &mut self.at[first..=last] {
            *at += u128::from(bytes);
            self.most = self.most.max(*at);
        }
    }
}
