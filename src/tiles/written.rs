//! Which elements of a store have been written, as boxes: an interval along each axis of the store.

use super::part::Part;

/// An interval along each axis: its first element, and one behind its last.
type Block = Vec<(i64, i64)>;

/// The elements of a store that operations have written so far.
#[derive(Clone, Default)]
pub(super) struct Written<'o> {
    blocks: Vec<Block>,
    /// Writes along a diagonal are no box: they count for reads of the same part by the same launch.
    diagonals: Vec<(&'o [u64], &'o Part)>,
}

/// A read that is cut into more pieces than these counts as one of elements that nothing wrote.
const PIECES_MAX: usize = 1 << 10;

impl<'o> Written<'o> {
    /// Adds what all batches of a launch write.
    pub(super) fn add(&mut self, extents: &[u64], launch: &'o [u64], part: &'o Part) {
        if self.has(extents, launch, part) {
            return;
        }
        let mut by: Vec<usize> = (0..extents.len()).filter_map(|axis| Some(part.along(axis)?.by)).collect();
        by.sort_unstable();
        match by.windows(2).any(|pair| pair[0] == pair[1]) {
            true => self.diagonals.push((launch, part)),
            false => self.blocks.push(block(extents, launch, part)),
        }
    }

    /// Returns whether all elements have been written that the batches of a launch use.
    pub(super) fn has(&self, extents: &[u64], launch: &[u64], part: &Part) -> bool {
        if self.diagonals.contains(&(launch, part)) {
            return true;
        }
        let whole = block(extents, launch, part);
        let mut rest = if whole.iter().all(|(start, end)| start < end) { vec![whole] } else { Vec::new() };
        for written in &self.blocks {
            rest = rest.into_iter().flat_map(|piece| without(piece, written)).collect();
            if rest.is_empty() || rest.len() > PIECES_MAX {
                break;
            }
        }
        rest.is_empty()
    }
}

/// Returns the smallest box that has the elements of all batches.
fn block(extents: &[u64], launch: &[u64], part: &Part) -> Block {
    let interval = |(axis, &extent): (usize, &u64)| {
        let Some(tiles) = part.along(axis) else { return (0, extent as i64) };
        let last = tiles.interval(launch[tiles.by] as i64 - 1, extent as i64);
        (tiles.interval(0, extent as i64).0, last.1)
    };
    extents.iter().enumerate().map(interval).collect()
}

/// Returns the pieces of a box that are not in another one.
fn without(mut piece: Block, hole: &Block) -> Vec<Block> {
    let mut pieces = Vec::new();
    if piece.iter().zip(hole).any(|(own, other)| own.0.max(other.0) >= own.1.min(other.1)) {
        return vec![piece];
    }
    for (axis, &(start, end)) in hole.iter().enumerate() {
        let (first, last) = piece[axis];
        for cut in [(first, start.min(last)), (end.max(first), last)] {
            if cut.0 < cut.1 {
                let mut other = piece.clone();
                other[axis] = cut;
                pieces.push(other);
            }
        }
        piece[axis] = (first.max(start), last.min(end));
    }
    pieces
}
