//! The software driver, as this library uses it: by its C functions, and a kernel that the test has
//! registered there.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

type Handle = *mut c_void;

/// The kernel of all operations: from, its bytes, to, its bytes, the number of the operation.
const MODULE: &[u8] = b".visible .entry anabranch_soft_nccl() { ret; }\0";
const NAME: &[u8] = b"anabranch_soft_nccl\0";

struct Calls {
    device: unsafe extern "C" fn(*mut c_int) -> u32,
    load: unsafe extern "C" fn(*mut Handle, *const c_void) -> u32,
    unload: unsafe extern "C" fn(Handle) -> u32,
    function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> u32,
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> u32,
}

static CALLS: OnceLock<Calls> = OnceLock::new();

impl Calls {
    /// Returns the functions of the driver that is loaded.
    fn get() -> Result<&'static Self, u32> {
        const NOT_INITIALIZED: u32 = 3;
        if let Some(calls) = CALLS.get() {
            return Ok(calls);
        }
        let calls = Self::find().ok_or(NOT_INITIALIZED)?;
        Ok(CALLS.get_or_init(|| calls))
    }

    fn find() -> Option<Self> {
        // SAFETY: the test has loaded the driver, which has this name.
        let library = unsafe { Library::new("libcuda.so") }.ok()?;
        let calls = Self {
            device: symbol(&library, "cuCtxGetDevice")?,
            load: symbol(&library, "cuModuleLoadData")?,
            unload: symbol(&library, "cuModuleUnload")?,
            function: symbol(&library, "cuModuleGetFunction")?,
            launch: symbol(&library, "cuLaunchKernel")?,
        };
        std::mem::forget(library);
        Some(calls)
    }
}

fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the fields of `Calls` have the types of CUDA's header.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
}

/// The kernel, loaded in the context of a GPU.
pub(crate) struct Module {
    pub(crate) ordinal: u32,
    module: usize,
    function: usize,
}

impl Module {
    /// Loads the kernel in the current context.
    pub(crate) fn load() -> Result<Self, u32> {
        let calls = Calls::get()?;
        let check = |code: u32| if code == 0 { Ok(()) } else { Err(code) };
        let (mut ordinal, mut module, mut function) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the call writes one number, which outlives it.
        check(unsafe { (calls.device)(&mut ordinal) })?;
        // SAFETY: the call writes one handle, and reads text that ends with a zero byte.
        check(unsafe { (calls.load)(&mut module, MODULE.as_ptr().cast()) })?;
        // SAFETY: the call writes one handle, and reads text that ends with a zero byte.
        check(unsafe { (calls.function)(&mut function, module, NAME.as_ptr().cast()) })?;
        Ok(Self { ordinal: ordinal as u32, module: module as usize, function: function as usize })
    }

    /// Launches the kernel on a stream.
    pub(crate) fn enqueue(&self, stream: usize, from: (u64, u64), to: (u64, u64), number: u64) -> Result<(), u32> {
        let calls = Calls::get()?;
        let mut words = [from.0, from.1, to.0, to.1, number];
        let mut params = words.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let none = std::ptr::null_mut();
        // SAFETY: the kernel has five parameters of eight bytes, which the call copies.
        let code =
            unsafe { (calls.launch)(self.function as Handle, 1, 1, 1, 1, 1, 1, 0, stream as Handle, params.as_mut_ptr(), none) };
        if code == 0 { Ok(()) } else { Err(code) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Some(calls) = CALLS.get() {
            // SAFETY: the module is loaded. Launched kernels keep what they need.
            let _ = unsafe { (calls.unload)(self.module as Handle) };
        }
    }
}
