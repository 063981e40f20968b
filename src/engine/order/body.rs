//! An operation's closure with its type erased. A small one lies in place, so that it needs no allocation; a
//! large one lies in a box.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::operation::Operation;
use super::tokens::{Grant, Runnable};
use crate::device::StreamMut;
use crate::error::{BoxError, shielded};
use crate::runtime::AsyncContext;

/// The body of an operation. If work is left, the [`Rest`] gets that. The result is two words, which come in
/// registers. A larger one would lie in memory, and each of its moves would wait for the stores of the one
/// before.
pub(crate) trait Work: FnOnce(Grant<'_>, &mut Rest) -> Outcome + Send + 'static {}

impl<F: FnOnce(Grant<'_>, &mut Rest) -> Outcome + Send + 'static> Work for F {}

/// Whether a body has failed.
pub(crate) type Outcome = Result<(), BoxError>;

/// The work that a body leaves.
pub(crate) enum Rest {
    Nothing,
    /// It returned a future, to be polled in this context.
    Future(OpFuture, AsyncContext),
    /// Its future is pending.
    Pending(Arc<dyn PendingFuture>),
    /// It consists of these operations, to be performed in order.
    Parts(Joined),
    /// It is a kernel, and needs a stream of a device.
    Kernel(Enqueue),
}

/// The future of an asynchronous operation.
pub(crate) type OpFuture = Pin<Box<dyn GrantedFuture>>;

/// A future that writes variables when it is ready.
pub(crate) trait GrantedFuture: Send {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, grant: Grant<'_>) -> Poll<Outcome>;
}

/// A pending future, which its wakers make ready again.
pub(crate) trait PendingFuture: Send + Sync {
    /// Parks it. When this returns, another thread may run its operation, or have ended it.
    fn park(self: Arc<Self>, operation: Runnable);

    /// Drops it, unless a thread polls it now, and makes its operation ready, so that it ends.
    fn abandon(self: Arc<Self>);
}

/// The operations of a joined one. Each is moved once, and dropped where it was run.
pub(crate) struct Joined(pub(super) Vec<Operation>);

impl Joined {
    /// Calls `run` with each, and drops it then. If `run` panics, the rest is leaked.
    pub(crate) fn run_each(self, mut run: impl FnMut(&mut Operation)) {
        let mut operations = ManuallyDrop::new(self.0);
        for operation in operations.iter_mut() {
            run(operation);
            if !operation.is_bare() {
                // SAFETY: it is not used after this: the vector forgets it below.
                let _ = shielded(|| unsafe { std::ptr::drop_in_place(operation) });
            }
        }
        // SAFETY: all were dropped, or have nothing to drop.
        unsafe { operations.set_len(0) };
        drop(ManuallyDrop::into_inner(operations));
    }
}

/// A kernel that needs a stream.
pub(crate) type Enqueue = Box<dyn FnOnce(Grant<'_>, StreamMut<'_>) -> Outcome + Send>;

/// The size of a body in place.
const WORDS: usize = 4;

type Space = MaybeUninit<[usize; WORDS]>;

#[repr(C)]
pub(crate) struct Body {
    actions: &'static Actions,
    space: Space,
}

/// The functions for one type of work. Each uses up the space, in which such a work or a box of one lies.
struct Actions {
    run: unsafe fn(*mut Space, Grant<'_>, &mut Rest) -> Outcome,
    /// None if there is nothing to drop.
    drop: Option<unsafe fn(*mut Space)>,
}

/// The actions of a space whose work was used up.
static NOTHING: Actions = Actions { run: |_, _, _| Ok(()), drop: None };

// SAFETY: a work is Send, and lies in the space, or in a box there.
unsafe impl Send for Body {}
// SAFETY: no method gives a shared reference to the work.
unsafe impl Sync for Body {}

impl Body {
    #[inline]
    pub(crate) fn new<W: Work>(work: W) -> Self {
        let mut space = Space::uninit();
        if fits::<W>() {
            // SAFETY: the work fits into the space, by size and alignment.
            unsafe { space.as_mut_ptr().cast::<W>().write(work) };
        } else {
            // SAFETY: a box is one word, so it fits into the space.
            unsafe { space.as_mut_ptr().cast::<Box<W>>().write(Box::new(work)) };
        }
        let actions = const {
            &Actions {
                // SAFETY: a call of an action shows that a `W` or its box lies there, and uses it up.
                run: |space, grant, rest| unsafe { take::<W>(space) }(grant, rest),
                drop: if std::mem::needs_drop::<W>() || !fits::<W>() {
                    // SAFETY: a call of an action shows that a `W` or its box lies there, and uses it up.
                    Some(|space| drop(unsafe { take::<W>(space) }))
                } else {
                    None
                },
            }
        };
        Self { actions, space }
    }

    /// Runs the work in its place, and leaves nothing there.
    #[inline(always)]
    pub(super) fn run(&mut self, grant: Grant<'_>, rest: &mut Rest) -> Outcome {
        let actions = std::mem::replace(&mut self.actions, &NOTHING);
        // SAFETY: the actions were made for the work in the space, which they use up, and were replaced.
        unsafe { (actions.run)(&raw mut self.space, grant, rest) }
    }

    /// Returns a number that bodies of the same type have.
    pub(super) fn site(&self) -> usize {
        std::ptr::from_ref(self.actions).addr()
    }

    pub(super) fn needs_drop(&self) -> bool {
        self.actions.drop.is_some()
    }

    /// Drops the work, and leaves nothing in its place.
    pub(super) fn discard(&mut self) {
        let actions = std::mem::replace(&mut self.actions, &NOTHING);
        if let Some(drop) = actions.drop {
            // SAFETY: the actions were made for the work in the space, which they use up, and were replaced.
            unsafe { drop(&raw mut self.space) }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Returns true if a work lies in place.
const fn fits<W>() -> bool {
    size_of::<W>() <= size_of::<Space>() && align_of::<W>() <= align_of::<Space>()
}

/// Moves the work out of the space.
///
/// # Safety
/// A `W`, or a box of one, lies in the space, and is not used again.
unsafe fn take<W: Work>(space: *mut Space) -> W {
    if fits::<W>() {
        // SAFETY: `Body::new` wrote a `W` there, because it fits; the caller does not use it again.
        return unsafe { space.cast::<W>().read() };
    }
    // SAFETY: `Body::new` wrote a box there, because a `W` does not fit; the caller does not use it again.
    *unsafe { space.cast::<Box<W>>().read() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn add<const N: usize>(total: &Arc<AtomicU64>, numbers: [u64; N]) -> Body {
        let total = total.clone();
        Body::new(move |_, _| {
            total.fetch_add(numbers.iter().sum(), Ordering::Relaxed);
            Ok(())
        })
    }

    /// Seen to fail (a leak) with a `run` that copies the work, and with a `discard` that drops nothing.
    #[test]
    fn small_and_large_ones_are_run_or_dropped_once() {
        let total = Arc::new(AtomicU64::new(0));
        for end in ["run", "discard", "drop"] {
            let bodies = [add(&total, [1]), add(&total, [2; 3]), add(&total, [3; 4]), add(&total, [4; 100])];
            for mut body in bodies {
                assert!(body.needs_drop());
                match end {
                    // SAFETY: the work uses no variable.
                    "run" => body.run(unsafe { Grant::new() }, &mut Rest::Nothing).expect("it cannot fail"),
                    "discard" => body.discard(),
                    _ => continue,
                }
                assert!(!body.needs_drop());
            }
            assert_eq!((total.load(Ordering::Relaxed), Arc::strong_count(&total)), (1 + 6 + 12 + 400, 1));
        }
    }
}
