//! Contexts: `cuCtx*`.

use std::ffi::{c_int, c_uint};

use super::Out;
use super::enter::{answer, on_context, on_object};
use crate::code::Code;
use crate::driver::calls::Api;
use crate::driver::context;
use crate::driver::device;
use crate::driver::table::{Handle, Kind};

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(into: Out<Handle>) -> u32 {
    answer(|| {
        let handle = context::current_handle();
        if let Ok(device) = context::live(handle) {
            device.calls.count(Api::cuCtxGetCurrent).map_or(Ok(()), Err)?;
        }
        into.put(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    answer(|| {
        if context != Handle::NULL {
            let device = context::live(context)?;
            device.calls.count(Api::cuCtxSetCurrent).map_or(Ok(()), Err)?;
        }
        context::set_current(context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> u32 {
    answer(|| {
        let device = context::live(context)?;
        device.calls.count(Api::cuCtxPushCurrent_v2).map_or(Ok(()), Err)?;
        context::push(context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(into: Out<Handle>) -> u32 {
    answer(|| {
        let popped = context::pop()?;
        if let Ok(device) = context::live(popped) {
            device.calls.count(Api::cuCtxPopCurrent_v2).map_or(Ok(()), Err)?;
        }
        if into.is_null() { Ok(()) } else { into.put(popped) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> u32 {
    on_context(Api::cuCtxGetDevice, |call| device.put(call.device.ordinal as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    on_context(Api::cuCtxSynchronize, |call| {
        let mut outcome = Ok(());
        for stream in call.device.live_streams() {
            outcome = outcome.and(stream.synchronize());
        }
        outcome
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) -> u32 {
    on_context(Api::cuCtxEnablePeerAccess, |call| {
        let peer = context::live(peer)?;
        if flags != 0 || peer.ordinal == call.device.ordinal {
            return Err(Code::INVALID_VALUE);
        }
        device::link(call.device, peer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> u32 {
    on_context(Api::cuCtxGetStreamPriorityRange, |_| {
        least.put(0)?;
        greatest.put(-2)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: Handle, _bytes: usize) -> u32 {
    on_object(Api::cuMemPoolTrimTo, pool, Kind::Pool, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: Handle, _attribute: u32, value: Out<u64>) -> u32 {
    on_object(Api::cuMemPoolSetAttribute, pool, Kind::Pool, |_| if value.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) })
}
