//! How much of each store is in memory while a group streams.
//!
//! At step s, an operation with a skew has its batch s - skew. A tile that the first writer makes at step s
//! stays until the last batch that meets it. So between writer and reader there are
//!
//! ```text
//!  skew of the reader + its reach - skew of the writer + 1     tiles: the window of the store
//! ```
//! With n batches in flight there are n - 1 more. A store with a window of one tile belongs to a batch; those
//! of one batch share memory, if they are not used at the same time.

use super::meet::{Use, meeting};
use super::outline::{Access, Mode, Operation, Outline, StoreId};

/// Where an operation of a group runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Before all batches.
    Before,
    /// With its batch b at step b + skew.
    Batches { skew: u64 },
    /// Once, at the end of this step.
    Once { step: u64 },
    /// It does not stream: all its batches at once, on whole stores.
    All,
}

/// An operation of a group, and where it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) op: usize,
    pub(super) place: Place,
}

/// The part of a store that is in memory while a group streams.
#[derive(Clone, Debug)]
pub struct Window {
    /// The store.
    pub store: StoreId,
    /// The most tiles that one batch in flight needs. None: the whole store.
    pub tiles: Option<u64>,
    /// The bytes of a tile.
    pub tile_bytes: u64,
    /// The bytes of the store.
    pub store_bytes: u64,
    /// The first and the last operation of the group that uses it, by their places in the group.
    pub(crate) used: (usize, usize),
    /// The step in which its first tile is made; None if that is before the batches.
    pub(crate) from_step: Option<u64>,
    /// Whether it is needed only before the batches of its group.
    pub(crate) is_before: bool,
}

impl Window {
    /// Returns the bytes with so many batches in flight.
    fn bytes(&self, in_flight: u64) -> u64 {
        let tiles = |tiles: u64| tiles.saturating_add(in_flight - 1).saturating_mul(self.tile_bytes).min(self.store_bytes);
        self.tiles.map_or(self.store_bytes, tiles)
    }

    fn is_of_a_batch(&self) -> bool {
        self.tiles == Some(1)
    }
}

/// The windows of all stores that a group uses.
#[derive(Clone, Debug)]
pub(super) struct Windows(pub(super) Vec<Window>);

impl Windows {
    /// `is_whole` has the stores that are whole while the group streams.
    pub(super) fn new(outline: &Outline, ops: &[Placed], is_whole: impl Fn(StoreId) -> bool) -> Self {
        let mut windows: Vec<Window> = Vec::new();
        for (at, placed) in ops.iter().enumerate() {
            for access in &outline.ops[placed.op].accesses {
                if let Some(window) = windows.iter_mut().find(|window| window.store == access.store) {
                    window.used.1 = at;
                    window.is_before &= placed.place == Place::Before;
                    continue;
                }
                windows.push(window(outline, ops, at, access, is_whole(access.store)));
            }
        }
        Self(windows)
    }

    /// Returns the most bytes with so many batches in flight.
    pub(super) fn bytes(&self, in_flight: u64) -> u64 {
        let (before, rest): (Vec<_>, Vec<_>) = self.0.iter().partition(|window| window.is_before);
        let before: Vec<_> = before.iter().map(|window| (window.used.0, window.used.1, window.store_bytes)).collect();
        let (own, others): (Vec<&Window>, Vec<&Window>) = rest.into_iter().partition(|window| window.is_of_a_batch());
        let others = others.iter().fold(0_u64, |sum, window| sum.saturating_add(window.bytes(in_flight)));
        let own: Vec<(usize, usize, u64)> = own.iter().map(|window| (window.used.0, window.used.1, window.tile_bytes)).collect();
        others.saturating_add(pack(&before).1).saturating_add(pack(&own).1.saturating_mul(in_flight))
    }
}

/// Returns the window of a store that the operation at a place of the group is the first to use.
fn window(outline: &Outline, ops: &[Placed], at: usize, first: &Access, is_whole: bool) -> Window {
    let (id, store) = (first.store, &outline.stores[first.store.index()]);
    let (launch, from_step) = (outline.ops[ops[at].op].axes(), first_step(ops[at].place));
    let tile = |(axis, &extent): (usize, &u64)| first.part.along(axis).map_or(extent, |tiles| tiles.size().min(extent));
    let tile_bytes = store.extents.iter().enumerate().map(tile).product::<u64>().saturating_mul(store.element_bytes);
    let is_before = ops[at].place == Place::Before && !is_whole && !store.is_kept;
    let mut window =
        Window { store: id, tiles: None, tile_bytes, store_bytes: store.bytes(), used: (at, at), from_step, is_before };
    // A store that is read first was made before, and one that is reduced stays until the end.
    let is_written = first.mode == Mode::Write && is_made_by(&outline.ops[ops[at].op], id);
    if is_whole || store.is_kept || !is_written || first.part.is_whole() {
        return window;
    }
    let is_once = matches!(ops[at].place, Place::Once { .. });
    let Some(from) = from_step.filter(|_| !is_once) else { return window };
    let mut tiles = 1;
    for placed in &ops[at..] {
        for access in outline.ops[placed.op].accesses.iter().filter(|access| access.store == id) {
            let Some(step) = first_step(placed.place) else { return window };
            // The first writer may have other elements.
            let is_other = access.part != first.part || outline.ops[placed.op].axes() != launch;
            if access.mode != Mode::Read && is_other {
                return window;
            }
            let later = Use { launch: outline.ops[placed.op].axes(), part: &access.part };
            let Some(met) = meeting(&store.extents, Use { launch, part: &first.part }, later) else { continue };
            tiles = tiles.max((step as i64 + met.reach - from as i64 + 1).max(1) as u64);
        }
    }
    window.tiles = Some(tiles).filter(|&tiles| tiles.saturating_mul(tile_bytes) < window.store_bytes || tiles == 1);
    window
}

/// Returns the step of the first batch; None if there are no batches yet.
fn first_step(place: Place) -> Option<u64> {
    match place {
        Place::Before | Place::All => None,
        Place::Batches { skew } => Some(skew),
        Place::Once { step } => Some(step),
    }
}

/// Lays blocks out: each is used from its first to its last time, and those that are used at the same time do
/// not overlap. Returns where each begins, and the size of all. Each takes the first gap that is large
/// enough.
pub(crate) fn pack(blocks: &[(usize, usize, u64)]) -> (Vec<u64>, u64) {
    let mut starts: Vec<u64> = Vec::with_capacity(blocks.len());
    for (number, &(first, last, bytes)) in blocks.iter().enumerate() {
        let together = |&other: &usize| blocks[other].0 <= last && first <= blocks[other].1;
        let mut taken: Vec<(u64, u64)> =
            (0..number).filter(together).map(|other| (starts[other], starts[other].saturating_add(blocks[other].2))).collect();
        taken.sort_unstable();
        let mut start = 0_u64;
        for (begin, end) in taken {
            if start.saturating_add(bytes) <= begin {
                break;
            }
            start = start.max(end);
        }
        starts.push(start);
    }
    let size = starts.iter().zip(blocks).map(|(start, block)| start.saturating_add(block.2)).max().unwrap_or(0);
    (starts, size)
}

/// From which operation to which other each store is in memory, if nothing streams. -1 is before the first
/// one, and the number of operations is behind the last.
pub(super) struct Lifetimes(Vec<Option<(i64, i64)>>);

impl Lifetimes {
    pub(super) fn new(outline: &Outline) -> Self {
        let mut of: Vec<Option<(i64, i64)>> = vec![None; outline.stores.len()];
        for (op, number) in outline.ops.iter().zip(0..) {
            for access in &op.accesses {
                // A store that is read first was there before.
                let from = if is_made_by(op, access.store) { number } else { -1 };
                let is_kept = outline.stores[access.store.index()].is_kept;
                let until = if is_kept { outline.ops.len() as i64 } else { number };
                let known = of[access.store.index()].get_or_insert((from, until));
                known.1 = known.1.max(until);
            }
        }
        Self(of)
    }

    /// Returns whether a store is in memory before or behind these operations, too.
    pub(super) fn is_beyond(&self, store: StoreId, (first, last): (usize, usize)) -> bool {
        self.0[store.index()].is_some_and(|(from, until)| from < first as i64 || until > last as i64)
    }

    /// Returns the bytes of the stores in memory of which these operations use none.
    pub(super) fn idle_bytes(&self, outline: &Outline, windows: &Windows, (first, last): (usize, usize)) -> u64 {
        let is_idle = |store: StoreId| {
            let is_used = windows.0.iter().any(|window| window.store == store);
            !is_used && self.0[store.index()].is_some_and(|(from, until)| from < first as i64 && until > last as i64)
        };
        self.sum(outline, is_idle)
    }

    /// Returns the most bytes of the operations one after the other, with whole stores.
    pub(super) fn unstreamed_bytes(&self, outline: &Outline) -> u64 {
        let is_live =
            |store: StoreId, number: i64| self.0[store.index()].is_some_and(|(from, until)| (from..=until).contains(&number));
        (0..outline.ops.len() as i64).map(|number| self.sum(outline, |store| is_live(store, number))).max().unwrap_or(0)
    }

    fn sum(&self, outline: &Outline, is_counted: impl Fn(StoreId) -> bool) -> u64 {
        let stores = (0..self.0.len() as u32).map(StoreId).filter(|&store| is_counted(store));
        stores.fold(0, |sum, store| sum.saturating_add(outline.stores[store.index()].bytes()))
    }
}

/// Returns whether an operation only writes a store, or only reduces into it.
fn is_made_by(op: &Operation, store: StoreId) -> bool {
    op.accesses.iter().filter(|access| access.store == store).all(|access| access.mode != Mode::Read)
}
