//! The functions of the driver. They are looked up one by one, so that the error for an old driver names the
//! functions that it lacks. Codes are plain numbers: a code that the bindings do not know would be undefined
//! behaviour as one of their enums.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS_v2_st as KernelNode, CUDA_MEMCPY3D_st as CopyNode, CUDA_MEMSET_NODE_PARAMS_st as FillNode,
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUstream,
};

use crate::device::queue::Fault;
use crate::error::{Error, Kind, Result};

/// A code returned by the driver: 0, or an error.
type Code = u32;

pub(super) const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
pub(super) const OUT_OF_MEMORY: Code = 2;
pub(super) const NOT_READY: Code = 600;

/// Codes after which no work runs in a context any more.
const FATAL: [Code; 13] = [226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];

macro_rules! driver {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The functions that are used.
        pub(super) struct Driver {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Driver {
            fn load() -> Result<Self> {
                Ok(Self { $($name: symbol($symbol)?,)* })
            }
        }
    };
}

driver! {
    init = "cuInit": fn(c_uint);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    error_name = "cuGetErrorName": fn(Code, *mut *const c_char);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut CUcontext, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    set_context = "cuCtxSetCurrent": fn(CUcontext);
    event_create = "cuEventCreate": fn(*mut CUevent, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(CUevent);
    event_record = "cuEventRecord": fn(CUevent, CUstream);
    event_query = "cuEventQuery": fn(CUevent);
    event_elapsed = "cuEventElapsedTime": fn(*mut f32, CUevent, CUevent);
    stream_create = "cuStreamCreate": fn(*mut CUstream, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(CUstream);
    stream_synchronize = "cuStreamSynchronize": fn(CUstream);
    stream_query = "cuStreamQuery": fn(CUstream);
    stream_wait = "cuStreamWaitEvent": fn(CUstream, CUevent, c_uint);
    write_64 = "cuStreamWriteValue64_v2": fn(CUstream, CUdeviceptr, u64, c_uint);
    write_32 = "cuStreamWriteValue32_v2": fn(CUstream, CUdeviceptr, u32, c_uint);
    host_function = "cuLaunchHostFunc": fn(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void);
    alloc = "cuMemAllocAsync": fn(*mut CUdeviceptr, usize, CUstream);
    free = "cuMemFreeAsync": fn(CUdeviceptr, CUstream);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    host_address = "cuMemHostGetDevicePointer_v2": fn(*mut CUdeviceptr, *mut c_void, c_uint);
    copy_up = "cuMemcpyHtoDAsync_v2": fn(CUdeviceptr, *const c_void, usize, CUstream);
    copy_down = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, CUdeviceptr, usize, CUstream);
    copy = "cuMemcpyDtoDAsync_v2": fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
    copy_peer = "cuMemcpyPeerAsync": fn(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
    fill_8 = "cuMemsetD8Async": fn(CUdeviceptr, c_uchar, usize, CUstream);
    fill_32 = "cuMemsetD32Async": fn(CUdeviceptr, c_uint, usize, CUstream);
    graph_create = "cuGraphCreate": fn(*mut CUgraph, c_uint);
    graph_destroy = "cuGraphDestroy": fn(CUgraph);
    /// Node, graph, predecessors and their number, parameters.
    graph_launch_node = "cuGraphAddKernelNode_v2": fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const KernelNode);
    graph_copy_node = "cuGraphAddMemcpyNode": fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CopyNode, CUcontext);
    graph_fill_node = "cuGraphAddMemsetNode": fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const FillNode, CUcontext);
    graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut CUgraphExec, CUgraph, u64);
    exec_set_launch = "cuGraphExecKernelNodeSetParams_v2": fn(CUgraphExec, CUgraphNode, *const KernelNode);
    exec_set_copy = "cuGraphExecMemcpyNodeSetParams": fn(CUgraphExec, CUgraphNode, *const CopyNode, CUcontext);
    exec_set_fill = "cuGraphExecMemsetNodeSetParams": fn(CUgraphExec, CUgraphNode, *const FillNode, CUcontext);
    exec_launch = "cuGraphLaunch": fn(CUgraphExec, CUstream);
    exec_destroy = "cuGraphExecDestroy": fn(CUgraphExec);
    module_load = "cuModuleLoadData": fn(*mut CUmodule, *const c_void);
    module_unload = "cuModuleUnload": fn(CUmodule);
    module_function = "cuModuleGetFunction": fn(*mut CUfunction, CUmodule, *const c_char);
    /// Function, grid, block, shared memory, stream, arguments, extra.
    launch = "cuLaunchKernel": fn(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
}

/// Looks up a function.
fn symbol<F: Copy>(name: &str) -> Result<F> {
    let missing =
        |cause: Box<dyn std::error::Error + Send + Sync>| Error::with_source(Kind::OldDriver { symbol: name.to_owned() }, cause);
    // SAFETY: `Driver::get` has found the library.
    let library = unsafe { sys::culib() };
    // SAFETY: `F` is the function's type in the bindings, with the code as a plain number.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|found| *found).map_err(|cause| missing(cause.into()))
}

impl Driver {
    /// Returns the driver, loaded and started on first use.
    ///
    /// # Errors
    /// If there is no driver, it lacks a function, or it does not start.
    pub(super) fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        // SAFETY: the call loads a library of a well-known name, as every program that uses CUDA does.
        if !unsafe { sys::is_culib_present() } {
            return Err(Kind::NoDriver { why: "libcuda was not found".into() }.into());
        }
        let driver = Self::load()?;
        // SAFETY: the driver's documentation demands 0 for the flags.
        let started = unsafe { (driver.init)(0) };
        if started != SUCCESS {
            return Err(Kind::NoDriver { why: driver.fault(started).name.to_string() }.into());
        }
        Ok(DRIVER.get_or_init(|| driver))
    }

    /// Returns the driver, if it has the GPU with this ordinal.
    ///
    /// # Errors
    /// If there is no driver, it is too old, or there is no such GPU.
    pub(super) fn with_device(ordinal: u32) -> Result<&'static Self> {
        let driver = Self::get()?;
        let count = driver.devices()?;
        if ordinal >= count {
            return Err(Kind::NoDevice { ordinal, count }.into());
        }
        Ok(driver)
    }

    /// Returns the number of GPUs.
    fn devices(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the call writes one number, and `count` outlives it.
        self.check(unsafe { (self.device_count)(&mut count) })?;
        Ok(count.max(0) as u32)
    }

    /// Returns a device's attribute, 0 if the driver does not know it.
    pub(super) fn attribute(&self, device: u32, attribute: sys::CUdevice_attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the call writes one number, and `value` outlives it.
        match unsafe { (self.device_attribute)(&mut value, attribute as c_int, device as c_int) } {
            INVALID_VALUE => Ok(0),
            code => self.check(code).map(|()| value),
        }
    }

    /// Turns a code into an error that names it.
    pub(super) fn check(&self, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let Fault { code, name, .. } = self.fault(code);
        Err(Kind::Driver { code, name }.into())
    }

    pub(super) fn fault(&self, code: Code) -> Fault {
        let mut name = std::ptr::null();
        // SAFETY: the call writes one pointer, and `name` outlives it.
        let known = unsafe { (self.error_name)(code, &mut name) };
        let name: Arc<str> = if known == SUCCESS && !name.is_null() {
            // SAFETY: the driver's documentation says that the string is static.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into()
        } else {
            "a code that this driver does not name".into()
        };
        Fault { code, name, is_fatal: FATAL.contains(&code) }
    }
}
