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
/// # Errors
/// If the copy from the device is not done: export it in a node of the host, or after the run. The error
/// returns the buffer.
impl<T: Element + DlpackElement> TryFrom<HostBuffer<T>> for Dlpack {
    type Error = Refused<HostBuffer<T>>;

    fn try_from(buffer: HostBuffer<T>) -> Result<Self, Refused<HostBuffer<T>>> {
        let mut buffer = Box::new(buffer);
        match buffer.export() {
            // SAFETY: the copy is done, so the elements are there; they do not move with the box.
            Some((data, len)) => Ok(unsafe { tensor(buffer, data, [len], DLDevice::CPU) }),
            None => Err(Refused::new(Kind::BufferInUse { device: "the host".into() }.into(), *buffer)),
        }
    }
}

/// A tensor with one axis, without a copy: in the host's memory, or in that of a GPU.
///
/// The memory of a GPU is free for other work once the tensor is dropped. So let the other library finish its
/// work before: synchronize its stream.
///
/// # Errors
/// If work on a device still uses the buffer, or a part of it is borrowed: export an output of a run that has
/// ended. If the device is simulated. The error returns the buffer.
impl<T: Element + DlpackElement> TryFrom<Buffer<T>> for Dlpack {
    type Error = Refused<Buffer<T>>;

    fn try_from(buffer: Buffer<T>) -> Result<Self, Refused<Buffer<T>>> {
        let mut buffer = Box::new(buffer);
        let (data, gpu) = match buffer.export() {
            Ok(at) => at,
            Err(kind) => return Err(Refused::new(kind.into(), *buffer)),
        };
        let (len, device) = (buffer.len(), gpu.map_or(DLDevice::CPU, |ordinal| DLDevice::cuda(ordinal as i32)));
        // SAFETY: no work uses the elements, and they do not move with the box.
        Ok(unsafe { tensor(buffer, data, [len], device) })
    }
}

/// Makes a tensor that owns `owner`.
///
/// # Safety
/// `data` has the elements of such a shape, in row-major order, on `device`. They are `owner`'s, stay where
/// they are while it lives, and may be read and written through `data`.
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
