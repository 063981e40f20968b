//! Kernels in the test's own program. The driver calls them through this module, because a panic can only be
//! caught by the standard library that it came from.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::Code;
use crate::wire::{KernelCall, RawLaunch};

type Kernel = Box<dyn Fn(&Launch<'_>) + Send + Sync>;

/// One launch of a kernel: the number of threads that it stands for, and its parameters.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The number of blocks in each direction.
    pub grid: [u32; 3],
    /// The number of threads of a block in each direction.
    pub block: [u32; 3],
    /// The requested bytes of shared memory.
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
        // SAFETY: the parameter is a `T`: the contract of this function. The driver keeps the bytes during
        // the call.
        unsafe { self.params[index].cast::<T>().read() }
    }

    /// Returns a parameter that is a pointer to device memory. It is valid while the kernel runs.
    ///
    /// # Panics
    /// If the kernel has no such parameter.
    pub fn pointer<T>(&self, index: usize) -> *mut T {
        // SAFETY: every parameter takes at least 16 bytes. The address of a parameter that is no pointer has
        // no meaning, but making it is sound.
        let address = unsafe { self.params[index].cast::<u64>().read() };
        address as *mut T
    }

    /// Returns a parameter that is a pointer to device memory, as a slice.
    ///
    /// # Safety
    /// The parameter points to `len` values of type `T`, and no other code accesses them while the kernel
    /// runs.
    ///
    /// # Panics
    /// If the kernel has no such parameter.
    #[allow(clippy::mut_from_ref, reason = "the memory is the device's, not the launch's; the caller vouches for it")]
    pub unsafe fn slice<T>(&self, index: usize, len: usize) -> &mut [T] {
        // SAFETY: the pointer has `len` values that no other code accesses: the contract of this function.
        unsafe { std::slice::from_raw_parts_mut(self.pointer::<T>(index), len) }
    }

    /// Returns the number of threads that the launch stands for.
    pub fn threads(&self) -> usize {
        self.grid.iter().chain(&self.block).map(|&size| size as usize).product()
    }
}

/// Returns the kernel in the form that the driver takes. It is never freed, because a function may call it at
/// any time.
pub(super) fn leak(kernel: Kernel) -> (KernelCall, *const c_void) {
    (call, Box::into_raw(Box::new(kernel)).cast())
}

unsafe extern "C" fn call(user: *const c_void, launch: *const RawLaunch) -> u32 {
    // SAFETY: `leak` made the pointer, and the kernel is never freed.
    let kernel = unsafe { &*user.cast::<Kernel>() };
    // SAFETY: the driver passes a launch that lives as long as the call.
    let raw = unsafe { &*launch };
    // SAFETY: the launch has `count` pointers. They are a slice of a `Vec`, so the pointer is never null.
    let params = unsafe { std::slice::from_raw_parts(raw.params, raw.count as usize) };
    let RawLaunch { grid, block, shared_bytes, .. } = *raw;
    let launch = Launch { grid, block, shared_bytes, params, _borrowed: PhantomData };
    match catch_unwind(AssertUnwindSafe(|| kernel(&launch))) {
        Ok(()) => 0,
        Err(_) => Code::LAUNCH_FAILED.0,
    }
}
