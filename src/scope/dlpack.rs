//! Arrays as tensors of DLPack, for other libraries.

use dlpark::DlpackElement;
use dlpark::ffi::DLDevice;
use dlpark::versioned::Dlpack;

use super::array::Array;
use crate::device::tensor;

/// A tensor of the same shape, without a copy.
///
/// ```
/// use anabranch::scope::Array;
/// use dlpark::versioned::Dlpack;
///
/// let array = Array::new([2, 3], vec![1.0_f32; 6]).expect("2 times 3 elements");
/// let tensor = Dlpack::from(array);
/// assert_eq!(tensor.validate()?.shape(), &[2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<T: DlpackElement + Send, const N: usize> From<Array<T, N>> for Dlpack {
    fn from(array: Array<T, N>) -> Self {
        let mut array = Box::new(array);
        let (data, shape) = (array.as_mut_slice().as_mut_ptr(), array.shape());
        // SAFETY: a vector has the elements, in row-major order, and they do not move with the box.
        unsafe { tensor(array, data, shape, DLDevice::CPU) }
    }
}
