//! The handles of a variable. They count themselves: the operation that frees a variable may still be behind
//! others in its queue when the last handle is dropped, and an `Arc` would free it there.

use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::access::Access;
use super::body::{Rest, Work};
use super::grant::Grant;
use super::mode::Mode;
use super::operation::{Operation, Unpushed};
use super::variable::{TypedVariable, VarPtr, drop_panicked};
use crate::error::{BoxError, shielded};
use crate::sync::{AtomicU64, Ordering, fence};

/// An engine, as handles of its variables have it.
pub(crate) trait Frees: Send + Sync + 'static {
    /// Pushes the operation that frees a variable, which has no handle any more.
    fn free(self: Arc<Self>, operation: Unpushed<'static>);
}

/// A counted pointer to a variable.
pub(crate) struct VarHandle<T: Send + Sync + 'static, E: Frees>(NonNull<Shared<T, E>>);

/// What the handles of a variable share.
struct Shared<T, E> {
    typed: TypedVariable<T>,
    handles: AtomicU64,
    /// Taken out by the last handle.
    engine: ManuallyDrop<Arc<E>>,
}

// SAFETY: shared references to what is Sync, and a count.
unsafe impl<T: Send + Sync, E: Frees> Send for VarHandle<T, E> {}
// SAFETY: shared references to what is Sync, and a count.
unsafe impl<T: Send + Sync, E: Frees> Sync for VarHandle<T, E> {}

impl<T: Send + Sync + 'static, E: Frees> VarHandle<T, E> {
    pub(crate) fn new(engine: Arc<E>, typed: TypedVariable<T>) -> Self {
        let shared = Box::new(Shared { typed, handles: AtomicU64::new(1), engine: ManuallyDrop::new(engine) });
        Self(NonNull::from(Box::leak(shared)))
    }

    #[inline]
    fn shared(&self) -> &Shared<T, E> {
        // SAFETY: this is one of the handles, so the shared memory is alive.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn typed(&self) -> &TypedVariable<T> {
        &self.shared().typed
    }

    pub(crate) fn engine(&self) -> &Arc<E> {
        &self.shared().engine
    }

    /// Returns an access to the variable, and the pointer to be kept in the body of the same operation.
    #[inline(always)]
    pub(crate) fn access(&self, mode: Mode) -> (Access, VarPtr<T>) {
        (Access::new(&self.typed().variable, mode), VarPtr::new(self.typed()))
    }

    #[cold]
    #[inline(never)]
    fn free(&self) {
        // SAFETY: this is the last handle, so no other thread takes the engine out, and the drop of `Shared`
        // leaves it alone.
        let engine = unsafe { ptr::read(&raw const self.shared().engine) };
        let access = Access::new(&self.typed().variable, Mode::EXCLUSIVE);
        ManuallyDrop::into_inner(engine).free(Unpushed::new(Operation::freeing(access, Free(self.0))));
    }
}

impl<T: Send + Sync + 'static, E: Frees> Clone for VarHandle<T, E> {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: this handle keeps the memory alive. A u64 does not overflow.
        self.shared().handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: Send + Sync + 'static, E: Frees> Drop for VarHandle<T, E> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release, and Acquire for the last: it sees what was done with all other handles.
        if self.shared().handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

/// The work that frees a variable. No box: operations ahead of it look at the variable meanwhile.
struct Free<T, E>(NonNull<Shared<T, E>>);

// SAFETY: there is no handle any more, and all other operations on the variable are ahead of this one.
unsafe impl<T: Send + Sync, E: Frees> Send for Free<T, E> {}

impl<T, E> Free<T, E> {
    /// Frees the variable. Returns the message of its value's drop if that panicked.
    fn free(&self) -> Result<(), String> {
        // SAFETY: `new` leaked a box; no handle is left, and this operation is alone with the variable, or
        // the engine is gone. Called once: by `run` or by the drop.
        shielded(|| drop(unsafe { Box::from_raw(self.0.as_ptr()) }))
    }
}

impl<T, E> Drop for Free<T, E> {
    fn drop(&mut self) {
        // There is no one to report a panic to.
        let _ = self.free();
    }
}

impl<T: Send + Sync + 'static, E: Frees> Work for Free<T, E> {
    fn run(self, _: Grant<'_>, _: &mut Rest) -> Result<(), BoxError> {
        // SAFETY: the variable is freed below.
        let variable = unsafe { &self.0.as_ref().typed.variable };
        // Only a type with a destructor can panic.
        let name = mem::needs_drop::<T>().then(|| variable.name.clone());
        match (ManuallyDrop::new(self).free(), name) {
            (Err(message), Some(name)) => Err(drop_panicked(&name, message).into()),
            _ => Ok(()),
        }
    }
}
