//! The stream that a body gets: of a host or of a device. The kernel's type says which.

use super::host::HostStream;
use super::stream::DeviceStream;

/// A stream of one of the two kinds, borrowed for the call of a body. No other crate can name this type, so
/// none can implement [`KernelStream`].
#[derive(Debug)]
pub enum StreamMut<'s> {
    /// A stream of the host device.
    Host(&'s mut HostStream),
    /// A stream of a device that queues work.
    Device(&'s mut DeviceStream),
}

/// A type of streams that kernels can be written for: [`HostStream`] and [`DeviceStream`]. No other type can
/// implement it.
///
/// ```
/// use anabranch::device::KernelStream;
/// use anabranch::{DeviceStream, Graph, HostStream, Value};
///
/// /// Adds a node that does nothing, on a stream of either kind.
/// fn nothing<S: KernelStream>(g: &mut Graph) -> Value<()> {
///     g.kernel("nothing", (), |_: &mut S| ())
/// }
/// # let mut g = Graph::new();
/// nothing::<HostStream>(&mut g);
/// # let mut g = Graph::new();
/// nothing::<DeviceStream>(&mut g);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no stream that kernels can be written for",
    label = "the first argument is `&mut HostStream` for work on the host, or `&mut DeviceStream` for work on any device"
)]
pub trait KernelStream: 'static {
    /// Whether the body may only enqueue its work, so that the end of the node comes after that of the body.
    #[doc(hidden)]
    const IS_QUEUE: bool;
    /// Calls `body` with the given stream, unless a body for this type cannot use it.
    #[doc(hidden)]
    fn with<R>(given: StreamMut<'_>, body: impl FnOnce(&mut Self) -> R) -> Option<R>;
}

impl KernelStream for DeviceStream {
    const IS_QUEUE: bool = true;

    #[inline]
    fn with<R>(given: StreamMut<'_>, body: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match given {
            StreamMut::Host(_) => Some(body(&mut Self::host())),
            StreamMut::Device(stream) => Some(body(stream)),
        }
    }
}

impl KernelStream for HostStream {
    const IS_QUEUE: bool = false;

    #[inline]
    fn with<R>(given: StreamMut<'_>, body: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match given {
            StreamMut::Host(stream) => Some(body(stream)),
            StreamMut::Device(_) => None,
        }
    }
}
