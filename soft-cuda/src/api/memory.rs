//! Allocation of device memory, in stream order or not, and of pinned host memory.

use std::ffi::c_uint;
use std::sync::Arc;

use super::enter::{Call, on_context, on_stream};
use super::{Address, Out};
use crate::code::{Code, Outcome};
use crate::driver::allocation::{Allocation, Residence};
use crate::driver::calls::Api;
use crate::driver::command::Command;
use crate::driver::host;
use crate::driver::lock;
use crate::driver::memory::{self, TOTAL_BYTES};
use crate::driver::table::Handle;
use crate::wire::ViolationKind;

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> u32 {
    on_context(Api::cuMemAlloc_v2, |call| {
        let allocation = allocate(call, Residence::Device, bytes)?;
        allocation.poison_fresh();
        address.put(allocation.start() as u64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) -> u32 {
    on_stream(Api::cuMemAllocAsync, stream, |call, stream| {
        call.device.check_pools_supported()?;
        if stream.is_capturing() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if bytes == 0 {
            return address.put(0);
        }
        let allocation = allocate(call, Residence::Device, bytes)?;
        address.put(allocation.start() as u64)?;
        stream.submit(Command::Allocate(allocation)).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(address: Out<u64>, bytes: usize, _flags: c_uint) -> u32 {
    on_context(Api::cuMemHostAlloc, |call| allocate_pinned(call, address, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) -> u32 {
    on_context(Api::cuMemAllocHost_v2, |call| allocate_pinned(call, address, bytes))
}

fn allocate_pinned(call: &mut Call, address: Out<u64>, bytes: usize) -> Outcome {
    let allocation = allocate(call, Residence::Pinned, bytes)?;
    allocation.poison_fresh();
    address.put(allocation.start() as u64)
}

fn allocate(call: &mut Call, residence: Residence, bytes: usize) -> Outcome<Arc<Allocation>> {
    let device = call.device;
    call.note(|| format!("bytes={bytes}"));
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if device.faults.fails_allocation() {
        return Err(Code::OUT_OF_MEMORY);
    }
    device.memory.allocate(device, residence, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    on_context(Api::cuMemFree_v2, |call| free_now(call, Residence::Device, address as usize))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: Address) -> u32 {
    on_context(Api::cuMemFreeHost, |call| free_now(call, Residence::Pinned, address as usize))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> u32 {
    on_stream(Api::cuMemFreeAsync, stream, |call, stream| {
        call.device.check_pools_supported()?;
        if stream.is_capturing() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if address == 0 {
            return Ok(());
        }
        let allocation = freeable(call, Residence::Device, address as usize)?;
        stream.submit(Command::Free(allocation.clone()))?;
        allocation.device.memory.retire(&allocation);
        Ok(())
    })
}

/// Frees memory as an access of the host, without a wait: work that still uses the memory races with it.
fn free_now(call: &mut Call, residence: Residence, address: usize) -> Outcome {
    if address == 0 {
        return Ok(());
    }
    let allocation = freeable(call, residence, address)?;
    let label = host::touches(call.device, allocation.start(), allocation.len(), true, "free");
    lock(&allocation.history).free(label);
    if !allocation.poison_freed() {
        let text = format!("somebody wrote behind an allocation of {} bytes", allocation.len());
        call.device.violations.add(ViolationKind::Overrun, text);
    }
    allocation.device.memory.retire(&allocation);
    Ok(())
}

/// Returns the live allocation that starts at the address.
fn freeable(call: &mut Call, residence: Residence, address: usize) -> Outcome<Arc<Allocation>> {
    let complaint = match memory::find(call.device, address) {
        Some(allocation) if allocation.start() == address && allocation.residence == residence => {
            let freed_by = lock(&allocation.history).freed_by().cloned();
            match freed_by {
                None => return Ok(allocation),
                Some(freed_by) => format!("memory freed by {freed_by} was freed again"),
            }
        }
        _ => format!("{address:#x} was freed, where no {residence:?} memory was allocated"),
    };
    call.device.violations.add(ViolationKind::DoubleFree, complaint);
    Err(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(address: Out<u64>, host: Address, _flags: c_uint) -> u32 {
    on_context(Api::cuMemHostGetDevicePointer_v2, |call| {
        let found = memory::find(call.device, host as usize);
        match found.filter(|allocation| allocation.residence == Residence::Pinned) {
            Some(_) => address.put(host as u64),
            None => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> u32 {
    on_context(Api::cuMemGetInfo_v2, |call| {
        let memory = &call.device.memory;
        free.put(memory.limit_bytes().saturating_sub(memory.tally().bytes) as usize)?;
        total.put(TOTAL_BYTES as usize)
    })
}
