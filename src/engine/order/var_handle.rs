//! The handles of a variable, with a count of their own: when the last handle is dropped, operations may
//! still use the variable. So an operation behind them frees it. An `Arc` would free it at once.

use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::access::{Access, Mode};
use super::body::Outcome;
use super::operation::{Operation, Role, Unpushed};
use super::variable::{TypedVariable, VarPtr, drop_panicked};
use crate::error::shielded;
use crate::sync::{AtomicU64, Ordering, fence};

/// The engine of a variable, to its handles.
pub(crate) trait Frees: Send + Sync + 'static {
    /// Pushes the operation that frees a variable, after the last handle was dropped.
    fn free(self: Arc<Self>, operation: Unpushed<'static>);
    /// Returns true if no operation is pending. It then waits until no inspection reads a variable, so the
    /// caller may free one.
    fn may_free_now(&self) -> bool;
}

/// A counted pointer to a variable.
pub(crate) struct VarHandle<T: Send + Sync + 'static, E: Frees>(NonNull<VarMemory<T, E>>);

/// The memory that the handles of a variable share.
struct VarMemory<T, E> {
    typed: TypedVariable<T>,
    /// The number of handles.
    handles: AtomicU64,
    /// Taken out by the last handle.
    engine: ManuallyDrop<Arc<E>>,
}

// SAFETY: a handle gives shared references to a variable and an engine, which are Sync; its count is atomic.
unsafe impl<T: Send + Sync, E: Frees> Send for VarHandle<T, E> {}
// SAFETY: a handle gives shared references to a variable and an engine, which are Sync; its count is atomic.
unsafe impl<T: Send + Sync, E: Frees> Sync for VarHandle<T, E> {}

impl<T: Send + Sync + 'static, E: Frees> VarHandle<T, E> {
    pub(crate) fn new(engine: Arc<E>, typed: TypedVariable<T>) -> Self {
        let shared = Box::new(VarMemory { typed, handles: AtomicU64::new(1), engine: ManuallyDrop::new(engine) });
        Self(NonNull::from(Box::leak(shared)))
    }

    #[inline]
    fn shared(&self) -> &VarMemory<T, E> {
        // SAFETY: `self` is one of the handles, so the count is not 0, and the shared memory is alive.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn typed(&self) -> &TypedVariable<T> {
        &self.shared().typed
    }

    pub(crate) fn engine(&self) -> &Arc<E> {
        &self.shared().engine
    }

    /// Returns an access to the variable, and the pointer for the body of the same operation.
    #[inline(always)]
    pub(crate) fn access(&self, mode: Mode) -> (Access, VarPtr<T>) {
        (Access::new(&self.typed().variable, mode), VarPtr::new(self.typed()))
    }

    #[inline(never)]
    fn free(&self) {
        // SAFETY: the count was 1, so this is the last handle, and no other thread takes the engine out; the
        // drop of `VarMemory` does not drop a `ManuallyDrop`.
        let engine = unsafe { ptr::read(&raw const self.shared().engine) };
        // A value without a destructor takes no time, and cannot panic.
        if !mem::needs_drop::<T>() && engine.may_free_now() {
            let _ = FreeBody(self.0).run();
            // This may be the last reference: dropping the engine drops foreign values.
            let _ = shielded(|| drop(ManuallyDrop::into_inner(engine)));
            return;
        }
        let access = Access::new(&self.typed().variable, Mode::EXCLUSIVE);
        let free = FreeBody(self.0);
        ManuallyDrop::into_inner(engine).free(Unpushed::new(Operation::own(Role::Frees, access, |_, _| free.run())));
    }
}

impl<T: Send + Sync + 'static, E: Frees> Clone for VarHandle<T, E> {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: `self` keeps the memory alive. A u64 does not overflow.
        self.shared().handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: Send + Sync + 'static, E: Frees> Drop for VarHandle<T, E> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire fence of the last handle, which sees the uses of all
        // others.
        if self.shared().handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

/// Frees a variable. It has a pointer and no box, because operations ahead of it use the variable meanwhile.
struct FreeBody<T, E>(NonNull<VarMemory<T, E>>);

// SAFETY: no handle is left, and all other operations on the variable are ahead of this one, so its thread
// is the only one that uses the variable; the value and the engine are Send.
unsafe impl<T: Send + Sync, E: Frees> Send for FreeBody<T, E> {}

impl<T, E> FreeBody<T, E> {
    fn run(self) -> Outcome {
        // SAFETY: only `free` frees the variable, and that is called below.
        let variable = unsafe { &self.0.as_ref().typed.variable };
        // Only a type with a destructor can panic.
        let name = mem::needs_drop::<T>().then(|| variable.name.clone());
        match (ManuallyDrop::new(self).free(), name) {
            (Err(message), Some(name)) => Err(drop_panicked(&name, message).into()),
            _ => Ok(()),
        }
    }

    /// Frees the variable. Returns the message of its value's drop if that panicked.
    fn free(&self) -> Result<(), String> {
        // SAFETY: `new` leaked a box. No handle is left, and either this operation has been granted the
        // variable exclusively, or the engine is dropped. `run` or the drop calls this, once.
        shielded(|| drop(unsafe { Box::from_raw(self.0.as_ptr()) }))
    }
}

impl<T, E> Drop for FreeBody<T, E> {
    fn drop(&mut self) {
        // The engine is dropped, so a panic is not reported.
        let _ = self.free();
    }
}
