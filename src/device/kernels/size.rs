//! The size of a picture. The count of its elements saturates for any sides.

use crate::device::{BufferSlice, Element};
use crate::error::{Kind, Result};

/// The elements of a pixel.
pub(super) const CHANNELS: usize = 3;

/// The size of a picture in pixels.
///
/// ```
/// use anabranch::device::kernels::Size;
///
/// let size = Size::new(640, 480);
/// assert_eq!((size.width, size.height, size.pixels()), (640, 480, 307_200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Size {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// Returns the size of a picture of `height` rows with `width` pixels each.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Returns the number of pixels.
    pub fn pixels(self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Returns the number of elements of all pixels, at most `usize::MAX`. No buffer has that many, so a
    /// saturated count matches none.
    pub(super) fn elements(self) -> usize {
        self.pixels().saturating_mul(CHANNELS)
    }

    pub(super) fn is_of<T: Element>(self, what: &'static str, pixels: &BufferSlice<T>) -> Result<()> {
        let (got, wanted) = (pixels.len(), self.elements());
        if got == wanted { Ok(()) } else { Err(Kind::BufferLength { what, got, wanted }.into()) }
    }
}
