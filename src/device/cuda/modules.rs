//! The code of kernels on one GPU: compiled when it is first launched, and kept.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};
use cudarc::nvrtc;

use super::context::Context;
use super::driver::Driver;
use crate::device::code::{Code, Text};
use crate::error::{Error, Kind, Result};

#[derive(Default)]
pub(super) struct Modules {
    /// By the address of the code, which is kept so that no other code gets its address.
    loaded: HashMap<usize, Loaded>,
}

struct Loaded {
    _code: Arc<Code>,
    module: CUmodule,
    function: CUfunction,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Modules {}

impl Modules {
    pub(super) fn function(&mut self, context: &Context, arch: &str, code: &Arc<Code>) -> Result<CUfunction> {
        let key = Arc::as_ptr(code).addr();
        if let Some(loaded) = self.loaded.get(&key) {
            return Ok(loaded.function);
        }
        let loaded = load(context, arch, code)?;
        let function = loaded.function;
        self.loaded.insert(key, loaded);
        Ok(function)
    }

    pub(super) fn unload(&mut self, driver: &Driver) {
        for loaded in self.loaded.drain() {
            // SAFETY: the module is this device's own, and no launch of it is queued, because the streams
            // have ended.
            unsafe { (driver.module_unload)(loaded.1.module) };
        }
    }
}

fn load(context: &Context, arch: &str, code: &Arc<Code>) -> Result<Loaded> {
    let driver = context.driver;
    let failed = |cause: Error| match cause.is_device_lost() {
        true => cause,
        false => Error::with_source(Kind::KernelCode { kernel: code.name.clone() }, Box::new(cause)),
    };
    let ptx = match &code.text {
        Text::Ptx(ptx) => ptx.to_string(),
        Text::CudaC(source) => compile(source, arch).map_err(|why| failed(Kind::Compiler { why }.into()))?,
    };
    let nul = |_| failed(Kind::Compiler { why: "its name or its code contains a NUL".into() }.into());
    let (ptx, name) = (CString::new(ptx).map_err(nul)?, CString::new(&*code.name).map_err(nul)?);
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the call writes one handle. `ptx` is a C string, so the text ends with a NUL.
    context.check(unsafe { (driver.module_load)(&mut module, ptx.as_ptr().cast()) }).map_err(failed)?;
    // SAFETY: the call writes one handle. `module` was loaded above, and `name` is a C string.
    let found = context.check(unsafe { (driver.module_function)(&mut function, module, name.as_ptr()) });
    if let Err(cause) = found {
        // SAFETY: `module` was loaded above, and has no other owner.
        unsafe { (driver.module_unload)(module) };
        return Err(failed(cause));
    }
    Ok(Loaded { _code: code.clone(), module, function })
}

/// Compiles CUDA C to PTX. If that fails, returns NVRTC's message.
fn compile(source: &str, arch: &str) -> Result<String, String> {
    // SAFETY: the call loads a library of a well-known name.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("NVRTC was not found: install the CUDA toolkit's libnvrtc, or give the kernel as PTX".into());
    }
    let options = nvrtc::CompileOptions { options: vec![format!("--gpu-architecture={arch}")], ..Default::default() };
    match nvrtc::compile_ptx_with_opts(source, options) {
        Ok(ptx) => Ok(ptx.to_src()),
        Err(nvrtc::CompileError::CompileError { log, .. }) => Err(log.to_string_lossy().into_owned()),
        Err(other) => Err(other.to_string()),
    }
}
