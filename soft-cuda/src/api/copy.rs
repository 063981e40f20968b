//! Copies and memsets.

use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::enter::{Call, on_context, on_stream};
use super::{Address, In};
use crate::code::{Code, Outcome};
use crate::driver::calls::Api;
use crate::driver::command::{Command, Copy, End, Fill};
use crate::driver::context;
use crate::driver::device::{self, Device};
use crate::driver::memory;
use crate::driver::stream::Stream;
use crate::driver::table::Handle;

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(into: u64, from: In<u8>, len: usize, stream: Handle) -> u32 {
    on_stream(Api::cuMemcpyHtoDAsync_v2, stream, |call, stream| {
        let from = host_source(call.device, from, len, true)?;
        copy(call, stream, "copy to the device", End::Device(into as usize), from, len)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(into: Address, from: u64, len: usize, stream: Handle) -> u32 {
    on_stream(Api::cuMemcpyDtoHAsync_v2, stream, |call, stream| {
        copy(call, stream, "copy to the host", End::Host(into as usize), End::Device(from as usize), len)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(into: u64, from: u64, len: usize, stream: Handle) -> u32 {
    on_stream(Api::cuMemcpyDtoDAsync_v2, stream, |call, stream| {
        copy(call, stream, "copy on the device", End::Device(into as usize), End::Device(from as usize), len)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    into: u64,
    into_context: Handle,
    from: u64,
    from_context: Handle,
    len: usize,
    stream: Handle,
) -> u32 {
    on_stream(Api::cuMemcpyPeerAsync, stream, |call, stream| {
        device::link(context::live(into_context)?, context::live(from_context)?);
        copy(call, stream, "copy between devices", End::Device(into as usize), End::Device(from as usize), len)
    })
}

/// The addresses tell whether each end is on the device or on the host.
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(into: u64, from: u64, len: usize, stream: Handle) -> u32 {
    on_stream(Api::cuMemcpyAsync, stream, |call, stream| {
        let from = host_source(call.device, In(from as *const u8), len, true)?;
        copy(call, stream, "copy", End::Host(into as usize), from, len)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(into: u64, from: In<u8>, len: usize) -> u32 {
    on_context(Api::cuMemcpyHtoD_v2, |call| {
        let stream = call.device.default_stream();
        let from = host_source(call.device, from, len, false)?;
        copy(call, &stream, "copy to the device", End::Device(into as usize), from, len)?;
        stream.synchronize()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(into: Address, from: u64, len: usize) -> u32 {
    on_context(Api::cuMemcpyDtoH_v2, |call| {
        let stream = call.device.default_stream();
        let command = Copy { name: "copy to the host", into: End::Host(into as usize), from: End::Device(from as usize), len };
        stream.submit(Command::Copy(command))?;
        stream.see_through()?;
        stream.take_pending()
    })
}

/// Returns where a copy from the host reads. The caller may reuse pageable memory once the call returns, so
/// it is copied now.
fn host_source(device: &Device, from: In<u8>, len: usize, is_counted: bool) -> Outcome<End> {
    let address = from.0 as usize;
    if memory::find(device, address).is_some() {
        return Ok(End::Host(address));
    }
    if is_counted {
        // ORDERING: Relaxed: a statistic that guards no other data.
        device.numbers.pageable_copies.fetch_add(1, Ordering::Relaxed);
    }
    let bytes: Arc<[u8]> = from.list(len)?.into();
    Ok(End::Staged(bytes))
}

fn copy(call: &mut Call, stream: &Arc<Stream>, name: &'static str, into: End, from: End, len: usize) -> Outcome {
    call.note(|| format!("bytes={len}"));
    let is_pageable = matches!(into, End::Host(address) if memory::find(call.device, address).is_none());
    if is_pageable && stream.is_capturing() {
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    stream.submit(Command::Copy(Copy { name, into, from, len }))?;
    if is_pageable {
        // As in CUDA, the caller's memory is written when the call returns.
        // ORDERING: Relaxed: a statistic that guards no other data.
        call.device.numbers.pageable_copies.fetch_add(1, Ordering::Relaxed);
        return stream.see_through();
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(into: u64, value: u8, count: usize, stream: Handle) -> u32 {
    fill(Api::cuMemsetD8Async, into, u32::from(value), 1, count, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(into: u64, value: c_uint, count: usize, stream: Handle) -> u32 {
    fill(Api::cuMemsetD32Async, into, value, 4, count, stream)
}

fn fill(api: Api, into: u64, value: u32, width: usize, count: usize, stream: Handle) -> u32 {
    on_stream(api, stream, |call, stream| {
        let into = into as usize;
        if !into.is_multiple_of(width) || count.checked_mul(width).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        call.note(|| format!("bytes={}", width * count));
        stream.submit(Command::Fill(Fill { into, value, width, count })).map(drop)
    })
}
