//! The grid: its blocks of rows, and what a rank computes by itself.

use std::iter::once;
use std::ops::Range;

use anabranch::BoxError;
use anabranch::comm::World;

/// The blocks of the grid, for any number of ranks.
const BLOCKS: u32 = 8;

/// The solvers stop when the residual has fallen to this part of the first one.
pub(crate) const TOLERANCE: f64 = 1e-10;

/// A number for each point of some rows, row by row.
pub(crate) type Field = Vec<f64>;

/// A number for each of some blocks.
pub(crate) type Sums = Vec<f64>;

/// What came of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Solution {
    /// |r| before the first iteration and after each.
    pub(crate) residuals: Vec<f64>,
    /// The largest x.
    pub(crate) largest: f64,
}

/// A rank's part of the grid: some of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The points of a row.
    size: usize,
    first_block: u32,
    blocks: u32,
}

impl Part {
    /// Returns the part of this rank, of a grid of `size` x `size` points.
    ///
    /// # Errors
    /// If the blocks cannot be divided equally among the ranks.
    pub(crate) fn new(size: u32, world: &World) -> Result<Self, BoxError> {
        let ranks = world.size();
        if !BLOCKS.is_multiple_of(ranks) {
            return Err(format!("{ranks} ranks cannot share {BLOCKS} blocks of rows equally: use 1, 2, 4 or 8 ranks").into());
        }
        let blocks = BLOCKS / ranks;
        Ok(Self { size: size as usize, first_block: world.rank() * blocks, blocks })
    }

    /// Returns the points of each block, as places in a field.
    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        let row = move |block: u32| self.size * block as usize / BLOCKS as usize;
        let place = move |block: u32| (row(block) - row(self.first_block)) * self.size;
        (self.first_block..self.first_block + self.blocks).map(move |block| place(block)..place(block + 1))
    }

    fn points(self) -> usize {
        self.blocks().map(|points| points.len()).sum()
    }

    pub(crate) fn zeros(self) -> Field {
        vec![0.0; self.points()]
    }

    /// Returns the right-hand side: the same load for each point.
    pub(crate) fn load(self) -> Field {
        vec![1.0 / (self.size as f64 + 1.0).powi(2); self.points()]
    }

    pub(crate) fn first_row(self, p: &Field) -> Field {
        p[..self.size].to_vec()
    }

    pub(crate) fn last_row(self, p: &Field) -> Field {
        p[p.len() - self.size..].to_vec()
    }

    /// Returns A p: each point four times, less its four neighbours. `above` and `below` are the rows next to
    /// this part. They are empty on the frame, where p is zero.
    pub(crate) fn stencil(self, p: &Field, above: &[f64], below: &[f64]) -> Field {
        let at = |row: &[f64], column: usize| row.get(column).copied().unwrap_or(0.0);
        let rows: Vec<&[f64]> = once(above).chain(p.chunks(self.size)).chain(once(below)).collect();
        let mut q = Vec::with_capacity(p.len());
        for rows in rows.windows(3) {
            let (above, row, below) = (rows[0], rows[1], rows[2]);
            let left = |column: usize| column.checked_sub(1).map_or(0.0, |left| row[left]);
            let sides = |column| at(above, column) + at(below, column) + left(column) + at(row, column + 1);
            q.extend((0..self.size).map(|column| 4.0 * row[column] - sides(column)));
        }
        q
    }

    /// Returns the sum of a · b for each block.
    ///
    /// A sum of floats depends on the order of its terms, so sums of ranks would have other bits for another
    /// number of ranks, and MPI may add them in any order. The blocks are always the same. So all ranks
    /// gather the sums of all blocks, and add them in one order, that of the blocks, with [`total`].
    pub(crate) fn sums(self, a: &Field, b: &Field) -> Sums {
        self.blocks().map(|points| a[points.clone()].iter().zip(&b[points]).map(|(a, b)| a * b).sum()).collect()
    }
}

pub(crate) fn total(sums: &Sums) -> f64 {
    sums.iter().sum()
}

pub(crate) fn ratio(above: &f64, below: &f64) -> f64 {
    above / below
}

/// y + a x.
pub(crate) fn plus(mut y: Field, a: &f64, x: &Field) -> Field {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
    y
}

/// y - a x.
pub(crate) fn minus(mut y: Field, a: &f64, x: &Field) -> Field {
    y.iter_mut().zip(x).for_each(|(y, x)| *y -= a * x);
    y
}

/// x + b p.
pub(crate) fn turned(mut p: Field, b: &f64, x: &Field) -> Field {
    p.iter_mut().zip(x).for_each(|(p, x)| *p = x + b * *p);
    p
}

pub(crate) fn largest(x: &Field) -> f64 {
    x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
