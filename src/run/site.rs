//! Where a node ran, for its errors.

use crate::error::{BoxError, Error, Kind};
use crate::name::Name;

/// A node, with its stream and its device, for errors.
pub(super) struct Site {
    pub(super) node: Name,
    pub(super) stream: String,
    pub(super) device: String,
}

impl Site {
    pub(super) fn failed(self, cause: BoxError) -> Error {
        // The next submission gets the error of a lost device, whichever work caused the loss.
        if let Some(lost) = cause.downcast_ref::<Error>().filter(|cause| cause.is_device_lost()) {
            return lost.clone();
        }
        let Self { node, stream, device } = self;
        Error::with_source(Kind::Failed { node, stream, device }, cause)
    }

    pub(super) fn panicked(self, message: String) -> Error {
        let Self { node, stream, device } = self;
        Kind::Panicked { node, stream, device, message }.into()
    }
}
