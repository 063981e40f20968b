//! Modules, functions and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::enter::{on_context, on_object, on_stream, owner};
use super::{In, Out};
use crate::code::{Code, Outcome};
use crate::driver::calls::Api;
use crate::driver::command::{Command, Launch};
use crate::driver::function::{Function, Module};
use crate::driver::lock;
use crate::driver::table::{Handle, Kind};

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: Out<Handle>, image: In<u8>) -> u32 {
    load(Api::cuModuleLoadData, module, image)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: Out<Handle>,
    image: In<u8>,
    _count: c_uint,
    _options: *const c_uint,
    _values: *const *const c_void,
) -> u32 {
    load(Api::cuModuleLoadDataEx, module, image)
}

fn load(api: Api, module: Out<Handle>, image: In<u8>) -> u32 {
    on_context(api, |call| {
        if image.get()? == 0x7f {
            // A cubin is not text, and this driver cannot run it.
            return Err(Code::INVALID_IMAGE);
        }
        let text = text(image.0.cast())?;
        let read = Module::read(text)?;
        module.put(call.device.modules.add(Arc::new(read)))
    })
}

/// Reads text up to its zero byte.
fn text<'a>(start: *const c_char) -> Outcome<&'a str> {
    if start.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the pointer is not null. So it points to text that ends with a zero byte, by the contract of
    // the C function that took it.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_str().map_err(|_| Code::INVALID_IMAGE)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    on_object(Api::cuModuleUnload, module, Kind::Module, |call| {
        let unloaded = call.device.modules.remove(module)?;
        for function in unloaded.functions() {
            let _ = call.device.functions.remove(function);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: *const c_char) -> u32 {
    on_object(Api::cuModuleGetFunction, module, Kind::Module, |call| {
        let module = call.device.modules.get(module)?;
        let name = text(name)?;
        call.note(|| name.to_owned());
        let found = module.function(name)?;
        let handle = call.device.functions.add(Arc::new(found));
        module.remember(handle);
        function.put(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Handle) -> u32 {
    on_object(Api::cuFuncGetAttribute, function, Kind::Function, |call| {
        let function = call.device.functions.get(function)?;
        let set = lock(&function.attributes).get(&attribute).copied();
        // Attribute 0 is the maximum of threads of a block. All other attributes that a compiler would know
        // are 0.
        value.put(set.unwrap_or(if attribute == 0 { 1024 } else { 0 }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) -> u32 {
    on_object(Api::cuFuncSetAttribute, function, Kind::Function, |call| {
        let function = call.device.functions.get(function)?;
        lock(&function.attributes).insert(attribute, value);
        Ok(())
    })
}

/// The pointers to a function's parameters.
pub(super) type Params = *const *const c_void;

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: Handle,
    params: Params,
    extra: Params,
) -> u32 {
    on_stream(Api::cuLaunchKernel, stream, |call, stream| {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        let function = owner(function, Kind::Function)?.functions.get(function)?;
        call.note(|| format!("kernel={}", function.name));
        let launch = launch(&function, shape, params, extra)?;
        stream.submit(Command::Kernel(launch)).map(drop)
    })
}

pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
}

/// Copies the parameters, as CUDA does at the call.
pub(super) fn launch(function: &Arc<Function>, shape: Shape, params: Params, extra: Params) -> Outcome<Launch> {
    let Shape { grid, block, shared_bytes } = shape;
    let threads = block.iter().map(|&size| u64::from(size)).product::<u64>();
    if grid.contains(&0) || threads == 0 || threads > 1024 {
        return Err(Code::INVALID_VALUE);
    }
    if !extra.is_null() {
        return Err(Code::NOT_SUPPORTED);
    }
    let kernel = function.kernel()?.clone();
    // SAFETY: `params` has one pointer for each parameter of the kernel, by the contract of the C function
    // that took it.
    let arguments = unsafe { kernel.copy_arguments(params) }?;
    Ok(Launch { kernel, grid, block, shared_bytes, arguments })
}
