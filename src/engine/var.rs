//! Variables: handles to values that an engine's operations read and write.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::mem::{self, ManuallyDrop};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::body::{Nothing, Ran, Work};
use super::handle::Pushed;
use super::hub::Hub;
use super::op::Job;
use super::pace::poll_share;
use super::place::{Asked, Block, Held, How};
use super::uses::TakeVar;
use crate::error::shielded;
use crate::error::{BoxError, Error, Kind, Result};
use crate::graph::Takable;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// A value that operations of one engine read and write, in the order in which they were pushed. Made by
/// [`Engine::var`](super::Engine::var).
///
/// Cheap to clone; clones are the same variable. When the last is dropped, the value is freed behind
/// everything that was pushed before.
///
/// It counts its clones itself, in what it points to, which an `Arc` would free where the last one is
/// dropped.
pub struct Var<T: Send + Sync + 'static>(NonNull<Shared<T>>);

/// What the clones share.
struct Shared<T> {
    block: Block<T>,
    clones: AtomicU64,
    /// Taken out when there are no clones any more.
    hub: ManuallyDrop<Arc<Hub>>,
}

// SAFETY: shared references to what is Sync, and a count.
unsafe impl<T: Send + Sync> Send for Var<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Var<T> {}

impl<T: Send + Sync + 'static> Var<T> {
    pub(super) fn new(hub: Arc<Hub>, block: Block<T>) -> Self {
        let shared = Box::new(Shared { block, clones: AtomicU64::new(1), hub: ManuallyDrop::new(hub) });
        Self(NonNull::from(Box::leak(shared)))
    }

    #[inline]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: this is one of the clones, so what they share is there.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn block(&self) -> &Block<T> {
        &self.shared().block
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.shared().hub
    }

    /// Has the variable freed: there are no clones any more.
    fn free(&self) {
        // SAFETY: nobody takes it out again, or drops it there.
        let hub = unsafe { ptr::read(&raw const self.shared().hub) };
        if hub.is_forked() {
            return;
        }
        let job = Job::freeing(Asked::new(&self.block().place, How::ALONE), Free(self.0));
        let hub = ManuallyDrop::into_inner(hub);
        drop(hub.push_beyond(job));
        // Perhaps the last count: what it drops then is foreign.
        let _ = shielded(|| drop(hub));
    }

    /// Returns the variable's name.
    pub fn name(&self) -> &str {
        &self.block().place.name
    }

    /// Returns how often it was written: the number of operations that wrote it, or failed to, and have
    /// ended; of kernels for a device with queues, those that were submitted.
    pub fn version(&self) -> u64 {
        self.block().place.version()
    }

    /// Waits for everything that was pushed before and writes the variable, and returns the value as it is
    /// then.
    ///
    /// It takes its place among the operations when this is called, not when it is polled. So it cannot wait
    /// for room, and is not bounded: reads go beyond the engine's `max_pending`, and are to be awaited, or
    /// dropped, by who asks for many.
    ///
    /// # Errors
    /// Why the operation failed that should have written it; that it has no value; and, if it is not there at
    /// once, that this is awaited inside of an operation that is no future.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    #[inline]
    pub fn read(&self) -> VarRead<T> {
        VarRead(match self.read_now() {
            Some(Ok(value)) => Reading::There(value),
            Some(Err(error)) => Reading::Failed(error),
            None => self.read_later(),
        })
    }

    #[inline(never)]
    fn read_later(&self) -> Reading<T> {
        let found = Arc::new(Mutex::new(None));
        let work = Look { var: Held::new(self.block()), found: found.clone() };
        let asked = Asked::new(&self.block().place, How::READ);
        let job = Job::waiting(asked, work);
        match self.hub().push_beyond(job) {
            Ok(pushed) => Reading::Pushed(Box::new(Looking { pushed, found })),
            Err(refused) => Reading::Failed(refused),
        }
    }

    /// Returns the value, or why there is none, if nothing that is pending uses the variable. May say that
    /// something is when nothing is.
    pub(crate) fn read_now(&self) -> Option<Result<Arc<T>>> {
        let (hub, block) = (self.hub(), self.block());
        let look = || {
            block.place.device_uses.is_written().then(|| match block.place.poison() {
                Some(origin) => Err(origin),
                // SAFETY: whoever calls this has been granted to read.
                None => unsafe { block.cell.share() }.ok_or_else(|| block.place.empty()),
            })
        };
        hub.glance(&block.place, look).flatten()
    }

    /// Says that it will never have a value, and why. Nobody else has it.
    pub(crate) fn fail(&self, error: Error) {
        self.block().place.set_poison(Some(error));
    }

    /// Waits for everything that was pushed before and reads or writes the variable.
    ///
    /// # Errors
    /// If the executor is shut down.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn wait_writable(&self) -> VarWait {
        let asked = Asked::new(&self.block().place, How::ALONE);
        let job = Job::waiting(asked, Nothing);
        VarWait { pushed: self.hub().push_beyond(job) }
    }
}

/// Keeps what a variable is.
struct Look<T> {
    var: Held<T>,
    found: Arc<Mutex<Option<Arc<T>>>>,
}

impl<T: Send + Sync + 'static> Work for Look<T> {
    unsafe fn run(self) -> Result<Ran, BoxError> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.var.block() };
        // SAFETY: granted to read.
        let value = unsafe { block.cell.share() };
        *lock(&self.found) = Some(value.ok_or_else(|| block.place.empty())?);
        Ok(Ran::Over)
    }
}

/// Frees a variable. No box: those ahead of it look at the variable meanwhile.
struct Free<T>(NonNull<Shared<T>>);

// SAFETY: nobody else has it when this is done with it.
unsafe impl<T: Send + Sync> Send for Free<T> {}

impl<T> Drop for Free<T> {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.free();
    }
}

impl<T> Free<T> {
    /// Frees it. Returns what the drop of its value said if it panicked.
    fn free(&self) -> Result<(), String> {
        // SAFETY: made by a box; all that used it was ahead of this in its queue, and there are no clones.
        // Done once: by the drop, or in its place.
        shielded(|| drop(unsafe { Box::from_raw(self.0.as_ptr()) }))
    }
}

impl<T: Send + Sync + 'static> Work for Free<T> {
    unsafe fn run(self) -> Result<Ran, BoxError> {
        // Only what has a drop of its own can fail.
        // SAFETY: it is freed below.
        let place = unsafe { &self.0.as_ref().block.place };
        let name = mem::needs_drop::<T>().then(|| place.name.to_cow());
        match ManuallyDrop::new(self).free() {
            Ok(()) => Ok(Ran::Over),
            Err(message) => Err(drop_panicked(name.unwrap_or_default(), message).into()),
        }
    }
}

/// Returns the error for a value whose drop panicked.
#[cold]
#[inline(never)]
pub(super) fn drop_panicked(variable: Cow<'static, str>, message: String) -> Error {
    Kind::DropPanicked { variable, message }.into()
}

impl<T: Send + Sync + 'static> Drop for Var<T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release, and Acquire for the last: it sees what was done with all the others.
        if self.shared().clones.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

impl<T: Send + Sync + 'static> Clone for Var<T> {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: this clone keeps it alive. In a u64 it cannot run over.
        self.shared().clones.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Var").field("name", &self.name()).field("version", &self.version()).finish()
    }
}

impl<'v, T: Send + Sync + 'static> Takable for &'v Var<T> {
    type Take = TakeVar<'v, T>;

    fn take(self) -> TakeVar<'v, T> {
        TakeVar(self)
    }
}

/// A variable's value, when it is there; made by [`Var::read`].
#[must_use = "futures do nothing unless awaited"]
pub struct VarRead<T>(Reading<T>);

/// Of two words, which come in registers: see [`Push`](super::Push).
enum Reading<T> {
    /// The value was there when it was asked for.
    There(Arc<T>),
    Failed(Error),
    Pushed(Box<Looking<T>>),
    Told,
}

/// A read that waits for its turn.
struct Looking<T> {
    pushed: Pushed,
    found: Arc<Mutex<Option<Arc<T>>>>,
}

impl<T> fmt::Debug for VarRead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VarRead").finish_non_exhaustive()
    }
}

impl<T> Future for VarRead<T> {
    type Output = Result<Arc<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Arc<T>>> {
        if let Reading::Pushed(looking) = &mut self.0 {
            return looking.poll(cx);
        }
        ready!(poll_share(cx)).used();
        Poll::Ready(match mem::replace(&mut self.0, Reading::Told) {
            Reading::There(value) => Ok(value),
            Reading::Failed(error) => Err(error).inspect_err(Error::note_told),
            Reading::Pushed(_) | Reading::Told => Err(Kind::Spent.into()),
        })
    }
}

impl<T> Looking<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<T>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.pushed).poll(cx)) {
            Ok(()) => lock(&self.found).take().ok_or_else(|| Kind::Spent.into()),
            Err(error) => Err(error.origin().clone()),
        })
    }
}

/// The turn to write a variable; made by [`Var::wait_writable`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct VarWait {
    pushed: Result<Pushed>,
}

impl Future for VarWait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.pushed {
            Ok(pushed) => Pin::new(pushed).poll(cx),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}
