//! Buffers as tensors of DLPack, for other libraries.

use std::ffi::c_void;

use dlpark::DlpackElement;
use dlpark::ffi::DLDevice;
use dlpark::metadata::Fixed;
use dlpark::versioned::Dlpack;

use super::buffer::{Buffer, Element, HostBuffer};
use crate::error::{Kind, Refused};

/// A tensor with one axis, without a copy.
///
/// # Panics
/// As the first read of the buffer does.
impl<T: Element + DlpackElement> From<HostBuffer<T>> for Dlpack {
    fn from(buffer: HostBuffer<T>) -> Self {
        let (data, len) = (buffer.as_ptr(), buffer.len());
        // SAFETY: the elements lie one behind the other in the buffer, wherever the buffer itself is moved
        // to.
        unsafe { tensor::<T, 1>(Box::new(buffer), data.cast_mut(), [len], DLDevice::CPU) }
    }
}

/// A tensor with one axis, without a copy: in the host's memory, or in that of a GPU. The other library calls
/// the tensor's deleter when its work is done, as DLPack asks.
///
/// # Errors
/// If work on a device still uses the buffer, or a part of it is borrowed: export an output of a run that has
/// ended. The error returns the buffer.
impl<T: Element + DlpackElement> TryFrom<Buffer<T>> for Dlpack {
    type Error = Refused<Buffer<T>>;

    fn try_from(buffer: Buffer<T>) -> Result<Self, Refused<Buffer<T>>> {
        let Some((data, gpu)) = buffer.exported() else {
            return Err(Refused::new(Kind::BufferInUse { device: buffer.device_name() }.into(), buffer));
        };
        let (len, device) = (buffer.len(), gpu.map_or(DLDevice::CPU, |ordinal| DLDevice::cuda(ordinal as i32)));
        // SAFETY: the elements lie one behind the other in the buffer, wherever the buffer itself is moved
        // to. No work uses them.
        Ok(unsafe { tensor::<T, 1>(Box::new(buffer), data.cast(), [len], device) })
    }
}

/// Makes a tensor that owns `owner`.
///
/// # Safety
/// `data` has the elements of such a shape, in row-major order, on `device`. They are `owner`'s, stay where
/// they are while it lives, and only `owner` refers to them.
pub(crate) unsafe fn tensor<T: DlpackElement, const N: usize>(
    owner: Box<impl Send + 'static>,
    data: *mut T,
    shape: [usize; N],
    device: DLDevice,
) -> Dlpack {
    let along = shape.map(|along| along as i64);
    let strides: [i64; N] = std::array::from_fn(|axis| along[axis + 1..].iter().product());
    let mut tensor = Fixed::new(along, strides).initialize(owner).expect("a shape in memory has few elements");
    tensor.set_data(data.cast::<c_void>()).set_dtype(T::DTYPE).set_device(device);
    // SAFETY: the data and its layout are as described, by the contract of this function; the metadata is
    // copied.
    unsafe { tensor.finish() }
}
