//! The body of an operation, with its types erased.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::batch::{Batch, Step};
use crate::device::DeviceStream;
use crate::error::BoxError;
use crate::graph::Made;

/// The body of an operation.
pub(super) enum Body {
    /// A function of each batch, or one that is done once.
    Task(Box<dyn Task>),
    /// A kernel of each batch.
    Kernel(Box<dyn Kernel>),
    /// A reduction, and what makes its parts.
    Fold(Box<dyn Fold>, PartMaker),
    /// A transfer, and whether its tiles go one after the other.
    Transfer(Box<dyn Transfer>, bool),
}

impl Body {
    /// Returns the kernel of an operation that has one.
    pub(super) fn kernel(&self) -> Option<&dyn Kernel> {
        match self {
            Self::Kernel(kernel) | Self::Fold(_, PartMaker::Kernel(kernel)) => Some(&**kernel),
            Self::Fold(_, PartMaker::Closure(_)) | Self::Task(_) | Self::Transfer(..) => None,
        }
    }

    /// Returns whether it is a closure on tiles of the host, which is over when it returns.
    pub(super) fn is_closure(&self) -> bool {
        matches!(self, Self::Task(_) | Self::Fold(_, PartMaker::Closure(_)))
    }
}

/// What makes the parts of a reduction.
pub(super) enum PartMaker {
    Closure(Box<dyn MakeParts>),
    Kernel(Box<dyn Kernel>),
}

pub(super) trait MakeParts: Send + Sync {
    /// Makes the parts of a batch.
    fn make(&self, batch: Batch<'_>, state: &FoldState);
}

pub(super) trait Task: Send + Sync {
    fn run(&self, batch: Batch<'_>) -> Result<(), BoxError>;
}

/// What a kernel has asked to be copied to the host.
pub(super) type Landing = Box<dyn Any + Send + Sync>;

/// The state of a reduction.
pub(super) type FoldState = dyn Any + Send + Sync;

/// What enqueues work on a device.
pub(super) trait Kernel: Send + Sync {
    /// Enqueues the work of a batch. Returns the copy to the host, if there is one.
    fn enqueue(&self, s: &mut DeviceStream, batch: Batch<'_>) -> Result<Option<Landing>, BoxError>;

    /// Whether something is copied to the host.
    fn lands(&self) -> bool {
        false
    }

    /// Brings what was copied to where it belongs.
    fn land(&self, _: &Landing, _: Batch<'_>, _: Option<&FoldState>) {}
}

/// A reduction. Its state has the parts of the batches in flight, and all parts before, combined.
pub(super) trait Fold: Send + Sync {
    fn state(&self, slots: usize) -> Box<FoldState>;
    /// Combines the parts of a batch with those before. Batches come in order.
    fn combine(&self, slot: usize, state: &FoldState);
    /// Returns what all parts give.
    fn result(&self, state: &FoldState) -> Made;
    fn part_bytes(&self) -> u64;
    /// The number of the value that it makes.
    fn scalar(&self) -> u32;
}

/// A transfer that is under way.
pub(super) type Transferring = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// What comes from outside, or goes there.
pub(super) trait Transfer: Send + Sync {
    fn start(&self, step: Arc<Step>, op: usize) -> Transferring;
}
