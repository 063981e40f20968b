//! From which operation to which other each store is in memory, if nothing streams.

use super::outline::{Mode, Operation, Outline, StoreId};
use super::written::Written;

/// By store, the first and the last operation with which it is in memory; None if nothing uses it. -1 is
/// before the first one, and the number of operations is behind the last.
pub(super) struct Lifetimes {
    of: Vec<Option<(i64, i64)>>,
    /// By operation: the bytes of the stores in memory with it.
    with: Vec<u128>,
    /// By operation: the bytes of those among them that are there before it.
    before: Vec<u128>,
}

impl Lifetimes {
    pub(super) fn new(outline: &Outline) -> Self {
        let mut of: Vec<Option<(i64, i64)>> = vec![None; outline.stores.len()];
        let mut written = vec![Written::default(); outline.stores.len()];
        for (op, number) in outline.ops.iter().zip(0..) {
            for access in &op.accesses {
                let from = if is_made_by(op, access.store) { number } else { -1 };
                let is_kept = outline.stores[access.store.index()].is_kept;
                let until = if is_kept { outline.ops.len() as i64 } else { number };
                let known = of[access.store.index()].get_or_insert((from, until));
                known.1 = known.1.max(until);
                // A store was there before, if elements are read that nothing wrote.
                let (written, extents) = (&written[access.store.index()], &outline.stores[access.store.index()].extents);
                if access.mode == Mode::Read && !written.has(extents, op.axes(), &access.part) {
                    known.0 = -1;
                }
            }
            for access in op.accesses.iter().filter(|access| access.mode != Mode::Read) {
                let extents = &outline.stores[access.store.index()].extents;
                written[access.store.index()].add(extents, op.axes(), &access.part);
            }
        }
        let (with, before) = (sums(outline, &of, 0), sums(outline, &of, 1));
        Self { of, with, before }
    }

    /// Returns whether a store is in memory before or behind these operations, too.
    pub(super) fn is_beyond(&self, store: StoreId, (first, last): (usize, usize)) -> bool {
        self.is_before(store, first) || self.of[store.index()].is_some_and(|(_, until)| until > last as i64)
    }

    /// Returns whether a store is in memory before an operation.
    pub(super) fn is_before(&self, store: StoreId, first: usize) -> bool {
        self.of[store.index()].is_some_and(|(from, _)| from < first as i64)
    }

    /// Returns the bytes of the stores that are in memory before an operation, and with it.
    pub(super) fn bytes_before(&self, first: usize) -> u128 {
        self.before[first]
    }

    /// Returns the most bytes of the operations one after the other, with whole stores.
    pub(super) fn unstreamed_bytes(&self) -> u64 {
        clamped(self.with.iter().copied().max().unwrap_or(0))
    }
}

/// Returns by operation the bytes of the stores in memory, from so many operations behind their first one.
fn sums(outline: &Outline, of: &[Option<(i64, i64)>], behind: i64) -> Vec<u128> {
    let count = outline.ops.len();
    let (mut begins, mut ends) = (vec![0_u128; count + 1], vec![0_u128; count + 1]);
    for (store, &lifetime) in outline.stores.iter().zip(of) {
        let Some((from, until)) = lifetime else { continue };
        begins[((from + behind).max(0) as usize).min(count)] += u128::from(store.bytes());
        ends[(until as usize + 1).min(count)] += u128::from(store.bytes());
    }
    let add = |(begun, ended): &mut (u128, u128), (begin, end): (u128, u128)| {
        (*begun, *ended) = (*begun + begin, *ended + end);
        Some(*begun - *ended)
    };
    begins.into_iter().zip(ends).take(count).scan((0, 0), add).collect()
}

/// Returns the bytes, or the most that there can be.
pub(super) fn clamped(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns whether an operation only writes a store, or only reduces into it.
pub(super) fn is_made_by(op: &Operation, store: StoreId) -> bool {
    op.accesses.iter().filter(|access| access.store == store).all(|access| access.mode != Mode::Read)
}
