//! How much of each store is in memory while a group streams.
//!
//! At step s, an operation with a skew has its batch s - skew. A tile that the first writer makes at step s
//! stays until the last batch that meets it. So between writer and reader there are
//!
//! ```text
//!  skew of the reader + its reach - skew of the writer + 1     tiles: the window of the store
//! ```
//! A store of which elements are read that nothing wrote comes from outside, and is whole.
//! With n batches in flight there are n - 1 more. A store with a window of one tile belongs to a batch; those
//! of one batch share memory, if they are not used at the same time.

use super::index::{Index, UseId};
use super::lifetimes::is_made_by;
use super::outline::{Mode, StoreId};

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
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Rule};
///
/// # let mut outline = Outline::new();
/// # let (a, b) = (outline.store("a", [64], 8), outline.store("b", [64], 8));
/// # outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// # let halo = Part::tiles([8]).halo([1], [1]);
/// # outline.op(Operation::new("blur", [8]).read(a, halo).write(b, Part::tiles([8])));
/// // A blur reads a tile of `a` with its neighbours.
/// let streamed = outline.stream(Rule::Exact)?;
/// let window = &streamed.groups()[0].windows()[0];
/// assert_eq!((window.store, window.tiles), (a, Some(3)));
/// assert_eq!((window.tile_bytes, window.store_bytes), (64, 512));
/// # Ok::<(), anabranch::Error>(())
/// ```
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
    pub(super) fn bytes(&self, in_flight: u64) -> u64 {
        let tiles = |tiles: u64| tiles.saturating_add(in_flight - 1).saturating_mul(self.tile_bytes).min(self.store_bytes);
        self.tiles.map_or(self.store_bytes, tiles)
    }

    pub(super) fn is_of_a_batch(&self) -> bool {
        self.tiles == Some(1)
    }
}

/// The windows of all stores that a group uses.
#[derive(Clone, Debug)]
pub(super) struct Windows(pub(super) Vec<Window>);

impl Windows {
    pub(super) fn new(index: &Index<'_>, ops: &[Placed]) -> Self {
        let ends = (ops[0].op, ops[ops.len() - 1].op);
        let mut windows = Vec::new();
        for op in ends.0..=ends.1 {
            for access in 0..index.outline.ops[op].accesses.len() {
                let used = UseId { op, access };
                if index.is_first(used, ends.0) {
                    windows.push(window(index, ops, index.access(used).store));
                }
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

/// Returns the window of a store that a group uses.
pub(super) fn window(index: &Index<'_>, ops: &[Placed], id: StoreId) -> Window {
    let (start, ends) = (ops[0].op, (ops[0].op, ops[ops.len() - 1].op));
    let uses = index.uses(id, ends);
    let (store, first, place) = (&index.outline.stores[id.index()], index.access(uses[0]), ops[uses[0].op - start].place);
    let tile = |(axis, &extent): (usize, &u64)| first.part.along(axis).map_or(extent, |tiles| tiles.size().min(extent));
    let tile_bytes = store.extents.iter().enumerate().map(tile).product::<u64>().saturating_mul(store.element_bytes);
    let is_whole = store.is_kept || index.lifetimes.is_beyond(id, ends);
    let is_before = !is_whole && uses.iter().all(|used| ops[used.op - start].place == Place::Before);
    let used = (uses[0].op - start, uses[uses.len() - 1].op - start);
    let tiles = if is_whole { None } else { tiles_of(index, ops, uses) };
    // A window is no larger than the store.
    let tiles = tiles.filter(|&tiles| tiles.saturating_mul(tile_bytes) < store.bytes() || tiles == 1);
    let from_step = first_step(place);
    Window { store: id, tiles, tile_bytes, store_bytes: store.bytes(), used, from_step, is_before }
}

/// Returns the tiles of a store that a batch in flight needs, if a group has all uses of it; None if it needs
/// the whole store.
fn tiles_of(index: &Index<'_>, ops: &[Placed], uses: &[UseId]) -> Option<u64> {
    let place = |used: UseId| ops[used.op - ops[0].op].place;
    let (made, first) = (index.form(uses[0]), index.access(uses[0]));
    // A store that is read first was made before, and one that is reduced stays until the end.
    let is_written = first.mode == Mode::Write && is_made_by(&index.outline.ops[uses[0].op], first.store);
    let is_once = matches!(place(uses[0]), Place::Once { .. });
    if !is_written || is_once || first.part.is_whole() {
        return None;
    }
    let from = first_step(place(uses[0]))?;
    let mut tiles = 1;
    for &used in uses {
        let step = first_step(place(used))?;
        // The first writer may have other elements.
        if index.access(used).mode != Mode::Read && index.form(used) != made {
            return None;
        }
        let Some(met) = index.meeting(made, index.form(used)) else { continue };
        tiles = tiles.max((step as i64 + met.reach - from as i64 + 1).max(1) as u64);
    }
    Some(tiles)
}

/// Returns the step of the first batch; None if there are no batches yet.
fn first_step(place: Place) -> Option<u64> {
    match place {
        Place::Before | Place::All => None,
        Place::Batches { skew } => Some(skew),
        Place::Once { step } => Some(step),
    }
}

/// Lays blocks out, in the order of their first times: each is used from its first to its last time, and
/// those that are used at the same time do not overlap. Returns where each begins, and the size of all. Each
/// takes the first gap that is large enough.
pub(crate) fn pack(blocks: &[(usize, usize, u64)]) -> (Vec<u64>, u64) {
    debug_assert!(blocks.is_sorted_by_key(|block| block.0));
    let mut starts: Vec<u64> = Vec::with_capacity(blocks.len());
    // Where those in use begin and end, and until when they are in use.
    let mut taken: Vec<(u64, u64, usize)> = Vec::new();
    let mut size = 0;
    for &(first, last, bytes) in blocks {
        taken.retain(|&(_, _, last)| last >= first);
        let mut start = 0_u64;
        for &(begin, end, _) in &taken {
            if start.saturating_add(bytes) <= begin {
                break;
            }
            start = start.max(end);
        }
        let block = (start, start.saturating_add(bytes), last);
        taken.insert(taken.partition_point(|other| *other < block), block);
        size = size.max(block.1);
        starts.push(start);
    }
    (starts, size)
}
