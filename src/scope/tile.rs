//! What operations get of stores: tiles.

use std::fmt;
use std::ops::{Index, IndexMut, Range};

/// Elements of a store that a batch reads: a box of it, in row-major order. It is indexed by the coordinates
/// of the store, so the tiles of one batch go together. Elements outside of the store are not there
/// ([`get`](Tile::get) returns None). Elements of the store that the tile does not have are a mistake, which
/// would let results depend on the size of tiles: all methods panic.
///
/// ```
/// # use anabranch::scope::{Tile, TileMut};
/// /// The mean of each element and its neighbours in the row; `u` has a halo of one.
/// fn blur(u: Tile<f64, 1>, mut v: TileMut<f64, 1>) {
///     for i in v.range(0) {
///         let near = i.saturating_sub(1).max(u.range(0).start)..(i + 2).min(u.range(0).end);
///         v[[i]] = near.clone().map(|i| u[[i]]).sum::<f64>() / near.len() as f64;
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Tile<'a, T, const N: usize> {
    elements: &'a [T],
    place: TilePlace<N>,
    /// The shape of the store.
    store: [usize; N],
}

/// A tile that a batch writes. As [`Tile`], it is indexed by the coordinates of the store. If the
/// operation updates the store, it holds the elements. Otherwise they are not defined before they are
/// written. In debug builds all their bytes are `0xA5`, in release builds 0 or left from another tile.
///
/// ```
/// # use anabranch::scope::TileMut;
/// /// Fills a store of two axes with the sums of the coordinates.
/// fn coordinates(mut a: TileMut<usize, 2>) {
///     for i in a.range(0) {
///         let first = a.range(1).start;
///         a.row_mut(i).iter_mut().enumerate().for_each(|(j, a)| *a = i + first + j);
///     }
/// }
/// ```
pub struct TileMut<'a, T, const N: usize> {
    elements: &'a mut [T],
    place: TilePlace<N>,
    /// The shape of the store.
    store: [usize; N],
}

/// Where a tile lies in its store.
///
/// ```
/// # use anabranch::scope::Tile;
/// /// Which part of its store a tile is.
/// fn describe(a: Tile<f32, 2>) -> String {
///     let place = a.place();
///     format!("batch {}: rows {:?}, columns {:?}, {} elements", place.batch, place.range(0), place.range(1), place.len())
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TilePlace<const N: usize> {
    /// The number of the batch, from 0 on.
    pub batch: u64,
    /// The coordinates of its first element.
    pub start: [usize; N],
    /// The number of elements along each axis.
    pub shape: [usize; N],
}

impl<const N: usize> TilePlace<N> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the coordinates along an axis.
    ///
    /// # Panics
    /// If there is no such axis.
    pub fn range(&self, axis: usize) -> Range<usize> {
        self.start[axis]..self.start[axis] + self.shape[axis]
    }

    /// Returns the place of an element among those of the tile.
    #[inline]
    fn offset(&self, at: [usize; N]) -> Option<usize> {
        let mut offset = 0;
        for (at, (start, along)) in at.into_iter().zip(self.start.into_iter().zip(self.shape)) {
            let at = at.wrapping_sub(start);
            if at >= along {
                return None;
            }
            offset = offset * along + at;
        }
        Some(offset)
    }

    /// Returns the places of the elements of a row: those with these coordinates along all axes but the last.
    #[inline]
    fn row(&self, at: usize) -> Option<Range<usize>> {
        let along = at.wrapping_sub(self.start[0]);
        let width: usize = self.shape[1..].iter().product();
        (along < self.shape[0]).then(|| along * width..(along + 1) * width)
    }
}

/// Returns None for elements that the store does not have.
///
/// # Panics
/// For others: the tile should have them.
#[cold]
fn missing<P, const N: usize>(what: &str, at: &[usize], place: &TilePlace<N>, store: [usize; N], how: &str) -> Option<P> {
    if at.iter().zip(store).any(|(&at, along)| at >= along) {
        return None;
    }
    let ranges: Vec<_> = (0..N).map(|axis| place.range(axis)).collect();
    panic!("the {what} {at:?} is outside of a tile of {ranges:?}: {how}")
}

#[cold]
fn beyond<const N: usize>(at: [usize; N], store: [usize; N]) -> ! {
    panic!("the element {at:?} is outside of a store of {store:?}")
}

/// What to do about an element that a tile lacks which is written.
const OWN: &str = "an operation writes its own tile only";

macro_rules! reads {
    ($Tile:ident, $how:expr) => {
        impl<T, const N: usize> $Tile<'_, T, N> {
            /// Returns the elements in row-major order.
            #[inline]
            pub fn as_slice(&self) -> &[T] {
                &self.elements
            }

            /// Returns where the tile lies in its store.
            pub fn place(&self) -> TilePlace<N> {
                self.place
            }

            /// Returns the coordinates along an axis.
            ///
            /// # Panics
            /// If there is no such axis.
            pub fn range(&self, axis: usize) -> Range<usize> {
                self.place.range(axis)
            }

            /// Returns the element with these coordinates; None if the store does not have it.
            ///
            /// # Panics
            /// If the store has it, and the tile does not.
            #[inline]
            pub fn get(&self, at: [usize; N]) -> Option<&T> {
                let offset = self.place.offset(at).or_else(|| missing("element", &at, &self.place, self.store, $how));
                self.elements.get(offset?)
            }

            /// Returns the elements with this coordinate along the first axis, in row-major order; none if
            /// the store does not have it.
            ///
            /// # Panics
            /// If the store has it, and the tile does not.
            #[inline]
            pub fn row(&self, at: usize) -> &[T] {
                let row = self.place.row(at).or_else(|| missing("row", &[at], &self.place, self.store, $how));
                row.map_or(&[], |row| &self.elements[row])
            }
        }

        impl<T, const N: usize> Index<[usize; N]> for $Tile<'_, T, N> {
            type Output = T;

            #[inline]
            fn index(&self, at: [usize; N]) -> &T {
                self.get(at).unwrap_or_else(|| beyond(at, self.store))
            }
        }

        impl<T, const N: usize> fmt::Debug for $Tile<'_, T, N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Tile)).field("place", &self.place).finish_non_exhaustive()
            }
        }
    };
}

reads!(Tile, "read the store with a larger `halo`, or `whole`");
reads!(TileMut, OWN);

impl<'a, T, const N: usize> Tile<'a, T, N> {
    pub(super) fn new(elements: &'a [T], place: TilePlace<N>, store: [usize; N]) -> Self {
        Self { elements, place, store }
    }

    #[cfg(feature = "ndarray")]
    pub(super) fn into_slice(self) -> &'a [T] {
        self.elements
    }
}

impl<'a, T, const N: usize> TileMut<'a, T, N> {
    pub(super) fn new(elements: &'a mut [T], place: TilePlace<N>, store: [usize; N]) -> Self {
        Self { elements, place, store }
    }

    #[cfg(feature = "ndarray")]
    pub(super) fn into_mut_slice(self) -> &'a mut [T] {
        self.elements
    }

    /// Returns the elements in row-major order.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.elements
    }

    /// Returns the element with these coordinates; None if the store does not have it.
    ///
    /// # Panics
    /// If the store has it, and the tile does not.
    #[inline]
    pub fn get_mut(&mut self, at: [usize; N]) -> Option<&mut T> {
        let offset = self.place.offset(at).or_else(|| missing("element", &at, &self.place, self.store, OWN));
        self.elements.get_mut(offset?)
    }

    /// Returns the elements with this coordinate along the first axis; none if the store does not have it.
    ///
    /// # Panics
    /// If the store has it, and the tile does not.
    #[inline]
    pub fn row_mut(&mut self, at: usize) -> &mut [T] {
        match self.place.row(at).or_else(|| missing("row", &[at], &self.place, self.store, OWN)) {
            Some(row) => &mut self.elements[row],
            None => &mut [],
        }
    }
}

impl<T: Copy, const N: usize> TileMut<'_, T, N> {
    /// Sets all elements.
    pub fn fill(&mut self, value: T) {
        self.elements.fill(value);
    }
}

impl<T, const N: usize> IndexMut<[usize; N]> for TileMut<'_, T, N> {
    #[inline]
    fn index_mut(&mut self, at: [usize; N]) -> &mut T {
        let store = self.store;
        self.get_mut(at).unwrap_or_else(|| beyond(at, store))
    }
}
