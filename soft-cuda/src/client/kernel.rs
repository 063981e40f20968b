//! Kernels in the test's own program. They are called by the driver, through here, because a panic can only
//! be caught by the standard library it came from.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::Code;
use crate::wire::{KernelCall, RawLaunch};

type Kernel = Box<dyn Fn(&Launch<'_>) + Send + Sync>;

/// One launch of a kernel: how many threads it stands for, and its parameters.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The number of blocks in each direction.
    pub grid: [u32; 3],
    /// The number of threads of a block in each direction.
    pub block: [u32; 3],
    /// The bytes of shared memory asked for.
    pub shared_bytes: u32,
    params: &'a [*const c_void],
    _borrowed: PhantomData<&'a c_void>,
}

impl Launch<'_> {
    /// Returns a parameter that was passed by value.
    ///
    /// # Safety
    /// The parameter was registered with the size of `T`, and its bytes are a `T`.
    ///
    /// # Panics
    /// If the kernel has no such parameter.
    pub unsafe fn scalar<T: Copy>(&self, index: usize) -> T {
        // SAFETY: the caller vouches for the type; the driver keeps the bytes for the length of the call.
        unsafe { self.params[index].cast::<T>().read() }
    }

    /// Returns a parameter that is a pointer to device memory. It is good for as long as the kernel runs.
    ///
    /// # Panics
    /// If the kernel has no such parameter.
    pub fn pointer<T>(&self, index: usize) -> *mut T {
        // SAFETY: every parameter takes at least 16 bytes; for one that is no pointer the address means
        // nothing, but to make it harms nobody.
        let address = unsafe { self.params[index].cast::<u64>().read() };
        address as *mut T
    }

    /// Returns a parameter that is a pointer to device memory, as a slice.
    ///
    /// # Safety
    /// The parameter points to `len` values of type `T`, and nobody else touches them while the kernel runs.
    ///
    /// # Panics
    /// If the kernel has no such parameter.
    #[allow(clippy::mut_from_ref, reason = "the memory is the device's, not the launch's; the caller vouches for it")]
    pub unsafe fn slice<T>(&self, index: usize, len: usize) -> &mut [T] {
        // SAFETY: the caller vouches for it.
        unsafe { std::slice::from_raw_parts_mut(self.pointer::<T>(index), len) }
    }

    /// Returns the number of threads that the launch stands for.
    pub fn threads(&self) -> usize {
        self.grid.iter().chain(&self.block).map(|&size| size as usize).product()
    }
}

/// Returns the kernel as the driver takes it. It is never freed: a function may call it at any time.
pub(super) fn leak(kernel: Kernel) -> (KernelCall, *const c_void) {
    (call, Box::into_raw(Box::new(kernel)).cast())
}

unsafe extern "C" fn call(user: *const c_void, launch: *const RawLaunch) -> u32 {
    // SAFETY: `leak` made it, and it lives for ever.
    let kernel = unsafe { &*user.cast::<Kernel>() };
    // SAFETY: the driver passes a launch that lives for the call.
    let raw = unsafe { &*launch };
    // SAFETY: and as many pointers in it as it says; a slice of a `Vec`, so never null.
    let params = unsafe { std::slice::from_raw_parts(raw.params, raw.count as usize) };
    let RawLaunch { grid, block, shared_bytes, .. } = *raw;
    let launch = Launch { grid, block, shared_bytes, params, _borrowed: PhantomData };
    match catch_unwind(AssertUnwindSafe(|| kernel(&launch))) {
        Ok(()) => 0,
        Err(_) => Code::LAUNCH_FAILED.0,
    }
}
