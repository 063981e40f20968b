//! What errors say of a node.

use std::sync::Arc;

use crate::error::{BoxError, Error, Kind};

/// A node, and where it was done.
pub(super) struct Blame {
    pub(super) node: Arc<str>,
    pub(super) stream: String,
    pub(super) device: String,
}

impl Blame {
    pub(super) fn failed(self, cause: BoxError) -> Error {
        // Whoever submits next hears of a loss: it need not be the work that did it.
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
