//! Values that are combined or divided element by element.

use bytemuck::Pod;

use super::wire::Wire;
use crate::error::BoxError;

/// A value of elements, for reductions and gathers: a number, which is one element, or a `Vec`.
///
/// The bytes of your own type ([`Wire::to_wire`]) may be others than those of its elements. But values of
/// equally many elements must have equally many bytes: over MPI, ranks that reduce compare these numbers.
///
/// ```
/// use anabranch::comm::Elements;
///
/// fn largest<V: Elements<Item = f64>>(value: &V) -> f64 {
///     value.elements().iter().copied().fold(f64::NEG_INFINITY, f64::max)
/// }
/// assert_eq!((largest(&1.5), largest(&vec![1.0, 4.0])), (1.5, 4.0));
/// ```
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` has no elements to combine",
    label = "a number, or a `Vec` of plain old data"
)]
pub trait Elements: Wire {
    /// The type of an element.
    type Item: Pod + Send + Sync;

    /// Returns the elements.
    fn elements(&self) -> &[Self::Item];

    /// Returns the value of these elements.
    ///
    /// # Errors
    /// If the number of elements is wrong.
    fn from_elements(elements: Vec<Self::Item>) -> Result<Self, BoxError>;

    /// Returns the elements, in the memory of the value if that can be.
    #[doc(hidden)]
    fn into_elements(self) -> Vec<Self::Item> {
        self.elements().to_vec()
    }
}

impl<T: Pod + Send + Sync> Elements for Vec<T> {
    type Item = T;

    fn elements(&self) -> &[T] {
        self
    }

    fn from_elements(elements: Vec<T>) -> Result<Self, BoxError> {
        Ok(elements)
    }

    fn into_elements(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Elements for $number {
            type Item = Self;

            fn elements(&self) -> &[Self] {
                std::slice::from_ref(self)
            }

            fn from_elements(elements: Vec<Self>) -> Result<Self, BoxError> {
                match elements[..] {
                    [element] => Ok(element),
                    _ => Err(format!("{} elements are no number", elements.len()).into()),
                }
            }
        }
    )* };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);
