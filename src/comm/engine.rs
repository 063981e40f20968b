//! What carries operations from rank to rank.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "mpi")]
use std::task::Poll;

use super::health::Health;
use super::op::{Op, OpFault, OpFuture, Place};
use crate::error::{Result, WorldFault};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Its drop lets the operations behind one start.
pub(crate) type Issued = Box<dyn Send>;

/// An engine, as one rank has it. None of its methods blocks, except `duplicate`.
pub(crate) trait Engine: Send + Sync {
    /// Returns its name, for reports.
    fn name(&self) -> &'static str;

    fn place(&self) -> Place;

    fn health(&self) -> &Arc<Health>;

    /// Starts an operation that is encoded. Collectives are started in the same order on all ranks: the next
    /// one is started when this one is issued, so the engine completes `issuing` when the transport has all
    /// parts. If it does not, the caller breaks the world.
    fn start(&self, op: Op, issuing: Arc<Issuing>) -> OpFuture;

    /// Returns the channel on which ranks compare collectives. None if the engine compares each of them
    /// itself, or there is one rank.
    fn checks(&self) -> Option<Arc<dyn Checks>> {
        None
    }

    /// Returns the engine of a further world of the same ranks, whether this one is whole or not. The n-th
    /// calls of all ranks belong together. It may wait for the other ranks.
    fn duplicate(&self) -> Result<Box<dyn Engine>>;

    /// Waits until this rank has heard of the loss of another one, if that is why the transport has failed.
    /// Then the world is broken for that loss, which names the rank. Other faults have no such cause.
    fn cause(&self, _: &WorldFault) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }

    /// Breaks the world for all ranks.
    fn break_by(&self, fault: WorldFault);

    /// Leaves the world: the last handle of this rank is gone.
    fn leave(&self);
}

pub(crate) type CheckFuture<T> = Pin<Box<dyn Future<Output = Result<T, OpFault>> + Send>>;

/// What a comparison has found.
pub(crate) enum Answer {
    /// All numbers are the same. Here are the bytes of all ranks, if it carries some. The entry of this rank
    /// may be empty.
    Same(Vec<Vec<u8>>),
    Different,
}

/// The channel on which ranks compare what they are about to start. It is apart from the channel of the
/// operations: whatever these are, all ranks ask the same here, in the same order.
pub(crate) trait Checks: Send + Sync {
    /// Returns the most bytes that a comparison carries. It is the same on all ranks.
    fn room(&self) -> usize {
        0
    }

    /// Starts the comparison of a number with those of the other ranks, at this call, and carries bytes to
    /// all ranks. Ranks with the same number give equally many.
    fn compare(&self, number: u64, carried: &[u8]) -> CheckFuture<Answer>;

    /// Returns the bytes of all ranks. Ranks call it when a comparison has found a difference.
    fn gather(&self, bytes: Vec<u8>) -> CheckFuture<Vec<Vec<u8>>>;
}

/// Whether the transport has all parts of an operation. The other ranks wait for all of them. The engine
/// completes it; the owner of the operation breaks the world if that does not come (`steps`).
pub(crate) struct Issuing {
    issued: Mutex<Option<Issued>>,
    /// Whether all ranks have agreed on the operation, or need not.
    is_agreed: AtomicBool,
}

/// That of an operation for which nothing waits, and which all ranks start.
impl Default for Issuing {
    fn default() -> Self {
        Self { issued: Mutex::new(None), is_agreed: AtomicBool::new(true) }
    }
}

impl Issuing {
    pub(crate) fn new(issued: Issued) -> Self {
        Self { issued: Mutex::new(Some(issued)), is_agreed: AtomicBool::new(false) }
    }

    /// Notes that all ranks have agreed. The owner of the operation polls the engine's future next.
    pub(crate) fn agree(&self) {
        // ORDERING: Relaxed: the owner's task reads it too.
        self.is_agreed.store(true, Ordering::Relaxed);
    }

    /// Waits until all ranks have agreed. Before that, memory that other ranks fill may have a part that none
    /// has written.
    #[cfg(feature = "mpi")]
    pub(crate) async fn agreed(&self) {
        // ORDERING: Relaxed, as where it is written.
        let is_agreed = || self.is_agreed.load(Ordering::Relaxed);
        std::future::poll_fn(|_| if is_agreed() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Notes that the transport has all parts, or that all ranks leave the operation out, for the same
    /// mistake. The next operation may start.
    pub(crate) fn complete(&self) {
        // What starts then is code of the executor, so it is dropped outside of the lock.
        let issued = lock(&self.issued).take();
        drop(issued);
    }

    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.issued).is_none()
    }

    /// Lets what waits so far start. Others wait for the operation from now on.
    pub(crate) fn replace(&self, issued: Issued) {
        let last = lock(&self.issued).replace(issued);
        drop(last);
    }
}
