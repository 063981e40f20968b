//! Tiles and arrays as views of the crate `ndarray`, and arrays as its own.

use ndarray::{ArrayView, ArrayViewMut, Dim, Dimension};

use super::array::Array;
use super::tile::{Tile, TileMut};

/// A view of a tile. Its indices count from the first element of the tile, not of the store.
///
/// ```
/// use anabranch::scope::{Tile, TileMut};
/// use ndarray::{ArrayView2, ArrayViewMut2, Axis};
///
/// /// Divides each row of `u` by its sum.
/// fn normalise(u: Tile<f64, 2>, mut v: TileMut<f64, 2>) {
///     let (u, mut v) = (ArrayView2::from(u), ArrayViewMut2::from(&mut v));
///     v.assign(&(&u / &u.sum_axis(Axis(1)).insert_axis(Axis(1))));
/// }
/// ```
impl<'a, T, const N: usize> From<Tile<'a, T, N>> for ArrayView<'a, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(tile: Tile<'a, T, N>) -> Self {
        view(tile.place().shape, tile.into_slice())
    }
}

/// A view of a tile. Its indices count from the first element of the tile, not of the store.
impl<'a, T, const N: usize> From<&'a TileMut<'_, T, N>> for ArrayView<'a, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(tile: &'a TileMut<'_, T, N>) -> Self {
        view(tile.place().shape, tile.as_slice())
    }
}

/// A view of a tile. Its indices count from the first element of the tile, not of the store.
impl<'a, T, const N: usize> From<TileMut<'a, T, N>> for ArrayViewMut<'a, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(tile: TileMut<'a, T, N>) -> Self {
        view_mut(tile.place().shape, tile.into_mut_slice())
    }
}

/// A view of a tile. Its indices count from the first element of the tile, not of the store.
impl<'a, T, const N: usize> From<&'a mut TileMut<'_, T, N>> for ArrayViewMut<'a, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(tile: &'a mut TileMut<'_, T, N>) -> Self {
        view_mut(tile.place().shape, tile.as_mut_slice())
    }
}

/// A view of an array.
impl<'a, T, const N: usize> From<&'a Array<T, N>> for ArrayView<'a, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(array: &'a Array<T, N>) -> Self {
        view(array.shape(), array.as_slice())
    }
}

/// The same array, without a copy.
impl<T, const N: usize> From<Array<T, N>> for ndarray::Array<T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(array: Array<T, N>) -> Self {
        let shape = array.shape();
        Self::from_shape_vec(dim(shape), array.into_vec()).expect("an array has as many elements as its shape")
    }
}

/// The same array. It is copied if its elements are not in row-major order.
impl<T: Clone, const N: usize> From<ndarray::Array<T, Dim<[usize; N]>>> for Array<T, N>
where
    Dim<[usize; N]>: Dimension,
{
    fn from(array: ndarray::Array<T, Dim<[usize; N]>>) -> Self {
        let (shape, len) = (std::array::from_fn(|axis| array.shape()[axis]), array.len());
        let elements = if array.is_standard_layout() {
            // A part of an array keeps the elements around it.
            let (mut elements, first) = array.into_raw_vec_and_offset();
            let first = first.unwrap_or(0);
            elements.truncate(first + len);
            elements.drain(..first);
            elements
        } else {
            array.iter().cloned().collect()
        };
        Self::new(shape, elements).expect("an array has as many elements as its shape")
    }
}

fn view<T, const N: usize>(shape: [usize; N], elements: &[T]) -> ArrayView<'_, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    ArrayView::from_shape(dim(shape), elements).expect("there are as many elements as the shape has")
}

fn view_mut<T, const N: usize>(shape: [usize; N], elements: &mut [T]) -> ArrayViewMut<'_, T, Dim<[usize; N]>>
where
    Dim<[usize; N]>: Dimension,
{
    ArrayViewMut::from_shape(dim(shape), elements).expect("there are as many elements as the shape has")
}

fn dim<const N: usize>(shape: [usize; N]) -> Dim<[usize; N]>
where
    Dim<[usize; N]>: Dimension,
{
    let mut dim = <Dim<[usize; N]> as Dimension>::zeros(N);
    dim.slice_mut().copy_from_slice(&shape);
    dim
}
