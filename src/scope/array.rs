//! Whole arrays: what a scope keeps, and what it is given.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use super::memory::Block;
use crate::device::Element;
use crate::graph::Made;

/// A whole array of `N` axes, in row-major order.
///
/// ```
/// use anabranch::scope::Array;
///
/// let array = Array::new([2, 3], vec![1, 2, 3, 4, 5, 6]).expect("2 times 3 elements");
/// assert_eq!((array[[1, 0]], array.shape()), (4, [2, 3]));
/// ```
#[derive(Clone, PartialEq)]
pub struct Array<T, const N: usize> {
    elements: Vec<T>,
    shape: [usize; N],
}

impl<T, const N: usize> Array<T, N> {
    /// Returns an array of this shape; None if there are more or fewer elements.
    pub fn new(shape: [usize; N], elements: Vec<T>) -> Option<Self> {
        let len = shape.iter().try_fold(1_usize, |len, &along| len.checked_mul(along));
        (len == Some(elements.len())).then_some(Self { elements, shape })
    }

    /// Returns the array whose elements a block has.
    pub(super) fn of_block(block: Arc<Block>, extents: &[u64]) -> Made
    where
        T: Element,
    {
        let shape = std::array::from_fn(|axis| extents[axis] as usize);
        let elements = Arc::into_inner(block).expect("all steps have ended, and dropped what they had").into_vec();
        Box::new(Self { elements, shape })
    }

    /// Returns the number of elements along each axis.
    pub fn shape(&self) -> [usize; N] {
        self.shape
    }

    /// Returns the elements in row-major order.
    pub fn as_slice(&self) -> &[T] {
        &self.elements
    }

    /// Returns the elements in row-major order.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.elements
    }

    /// Returns the elements in row-major order.
    pub fn into_vec(self) -> Vec<T> {
        self.elements
    }

    /// Returns an element; None if there is none with these coordinates.
    pub fn get(&self, at: [usize; N]) -> Option<&T> {
        let mut offset = 0;
        for (at, along) in at.into_iter().zip(self.shape) {
            if at >= along {
                return None;
            }
            offset = offset * along + at;
        }
        self.elements.get(offset)
    }
}

impl<T, const N: usize> Index<[usize; N]> for Array<T, N> {
    type Output = T;

    fn index(&self, at: [usize; N]) -> &T {
        let shape = &self.shape;
        self.get(at).unwrap_or_else(|| panic!("the element {at:?} is outside of an array of {shape:?}"))
    }
}

impl<T, const N: usize> fmt::Debug for Array<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}
