//! The body of an operation, with its types erased.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::batch::{Batch, Step};
use crate::error::BoxError;
use crate::graph::Shared;

/// The body of an operation.
pub(super) enum Body {
    /// A function of each batch, or one that is done once.
    Task(Box<dyn Task>),
    Fold(Box<dyn Fold>),
    Transfer(Box<dyn Transfer>),
}

pub(super) trait Task: Send + Sync {
    fn run(&self, batch: Batch<'_>) -> Result<(), BoxError>;
}

/// A reduction. Its state has the parts of the batches in flight, and all parts before, combined.
pub(super) trait Fold: Send + Sync {
    fn state(&self, slots: usize) -> Box<dyn Any + Send + Sync>;
    /// Makes the parts of a batch.
    fn run(&self, batch: Batch<'_>, state: &(dyn Any + Send + Sync)) -> Result<(), BoxError>;
    /// Combines the parts of a batch with those before. Batches come in order.
    fn combine(&self, slot: usize, state: &(dyn Any + Send + Sync));
    /// Returns what all parts give.
    fn result(&self, state: &(dyn Any + Send + Sync)) -> Shared;
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
