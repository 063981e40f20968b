//! What kernels get of stores on the device: tiles, and the parts of reductions.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use super::tile::TilePlace;
use crate::device::{BufferSlice, BufferView, BufferViewMut};

/// Elements of a store on the device that a batch reads: a box of it, in row-major order. It dereferences to
/// a [`BufferSlice`], which kernels take.
///
/// ```
/// use anabranch::DeviceStream;
/// use anabranch::device::kernels::mean;
/// use anabranch::scope::DeviceTile;
///
/// /// The mean of a tile, on the device. A tile is a [`BufferSlice`], as kernels take it.
/// fn mean_of(s: &mut DeviceStream, u: DeviceTile<f32, 1>) -> anabranch::Result<anabranch::Buffer<f32>> {
///     mean(s, &u)
/// }
/// ```
pub struct DeviceTile<'a, T, const N: usize> {
    elements: BufferView<'a, T>,
    place: TilePlace<N>,
}

/// A tile of a store on the device that a batch writes. It dereferences to a [`BufferSlice`], which kernels
/// take. What it holds before it is written is not defined, unless the operation updates it.
///
/// ```
/// use anabranch::scope::{Array, DeviceTileMut, Streaming};
/// use anabranch::{DeviceStream, Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let (u, a) = (s.device_store("u", [1000]), s.store("a", [1000]));
///     s.write_kernel("fill", (), &u, |s: &mut DeviceStream, mut u: DeviceTileMut<f32, 1>| Ok(s.fill(&mut u, 1.0)?));
///     s.download("down", &u, &a);
///     s.keep(&a)
/// });
/// g.output("x", &x);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<Array<f32, 1>>("x")?[[999]], 1.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct DeviceTileMut<'a, T, const N: usize> {
    elements: BufferViewMut<'a, T>,
    place: TilePlace<N>,
}

macro_rules! tiles {
    ($Tile:ident, $View:ident) => {
        impl<'a, T, const N: usize> $Tile<'a, T, N> {
            pub(super) fn new(elements: $View<'a, T>, place: TilePlace<N>) -> Self {
                Self { elements, place }
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
        }

        impl<T, const N: usize> Deref for $Tile<'_, T, N> {
            type Target = BufferSlice<T>;

            fn deref(&self) -> &BufferSlice<T> {
                &self.elements
            }
        }

        impl<T, const N: usize> fmt::Debug for $Tile<'_, T, N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Tile)).field("place", &self.place).finish_non_exhaustive()
            }
        }
    };
}

tiles!(DeviceTile, BufferView);
tiles!(DeviceTileMut, BufferViewMut);

impl<T, const N: usize> DerefMut for DeviceTileMut<'_, T, N> {
    fn deref_mut(&mut self) -> &mut BufferSlice<T> {
        &mut self.elements
    }
}

/// The parts that a kernel makes of a tile for a reduction, one for each leaf. It dereferences to a
/// [`BufferSlice`], which kernels take.
///
/// ```
/// use anabranch::DeviceStream;
/// use anabranch::scope::{DeviceTile, Parts};
///
/// /// The last element of each leaf: a part of a reduction that keeps the last one.
/// fn last(s: &mut DeviceStream, u: DeviceTile<f32, 1>, mut parts: Parts<f32>) -> anabranch::Result<()> {
///     let (rows, len) = (parts.leaf_rows(), u.len());
///     for leaf in 0..parts.len() {
///         let at = ((leaf + 1) * rows).min(len) - 1;
///         s.copy(&u.slice(at..=at), &mut parts.slice_mut(leaf..=leaf))?;
///     }
///     Ok(())
/// }
/// ```
pub struct Parts<'a, A> {
    values: BufferViewMut<'a, A>,
    leaf_rows: usize,
}

impl<'a, A> Parts<'a, A> {
    pub(super) fn new(values: BufferViewMut<'a, A>, leaf_rows: usize) -> Self {
        Self { values, leaf_rows }
    }

    /// Returns how many rows of the tile a leaf has. The last one may have fewer. Of a store with one axis, a
    /// row is an element.
    pub fn leaf_rows(&self) -> usize {
        self.leaf_rows
    }
}

impl<A> Deref for Parts<'_, A> {
    type Target = BufferSlice<A>;

    fn deref(&self) -> &BufferSlice<A> {
        &self.values
    }
}

impl<A> DerefMut for Parts<'_, A> {
    fn deref_mut(&mut self) -> &mut BufferSlice<A> {
        &mut self.values
    }
}

impl<A> fmt::Debug for Parts<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("parts", &self.len()).field("leaf_rows", &self.leaf_rows).finish()
    }
}
