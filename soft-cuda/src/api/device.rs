//! Devices: `cuDevice*`.

use std::ffi::{c_char, c_int};

use super::Out;
use super::enter::{has_no_device, on_device, on_process};
use crate::code::{Code, Outcome};
use crate::driver::calls::Api;
use crate::driver::device::Device;
use crate::driver::lock;
use crate::driver::memory::TOTAL_BYTES;
use crate::driver::table::{Handle, Kind};
use crate::wire::DEVICES;

const CAN_USE_STREAM_MEM_OPS: u32 = 92;
const CAN_USE_64_BIT_STREAM_MEM_OPS: u32 = 122;
const MEMORY_POOLS_SUPPORTED: u32 = 115;

/// The attributes of a device, by the numbers of `CUdevice_attribute`. All others are 0.
const ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024), // threads per block
    (2, 1024), // block dimensions
    (3, 1024),
    (4, 64),
    (5, 0x7fff_ffff), // grid dimensions
    (6, 65535),
    (7, 65535),
    (8, 49152), // shared memory per block, bytes
    (10, 32),   // warp size
    (16, 8),    // multiprocessors
    (19, 1),    // can map host memory
    (31, 1),    // concurrent kernels
    (40, 2),    // copy engines
    (41, 1),    // unified addressing
    (75, 9),    // compute capability
    (76, 0),
    (78, 1), // stream priorities
    (CAN_USE_STREAM_MEM_OPS, 1),
    (93, 1), // 64-bit values, as numbered by older drivers
    (99, 1), // can register host memory
    (MEMORY_POOLS_SUPPORTED, 1),
    (CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
];

impl Device {
    fn attribute(&self, attribute: u32) -> i32 {
        if let Some(&value) = lock(&self.attributes).get(&attribute) {
            return value;
        }
        ATTRIBUTES.iter().find(|&&(known, _)| known == attribute).map_or(0, |&(_, value)| value)
    }

    /// Returns "not supported" if a test has switched the operation off.
    pub(super) fn check_values_supported(&self, is_64_bit: bool) -> Outcome {
        let attribute = if is_64_bit { CAN_USE_64_BIT_STREAM_MEM_OPS } else { CAN_USE_STREAM_MEM_OPS };
        if self.attribute(attribute) > 0 { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }

    pub(super) fn check_pools_supported(&self) -> Outcome {
        if self.attribute(MEMORY_POOLS_SUPPORTED) > 0 { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> u32 {
    on_process(Api::cuDeviceGetCount, || {
        if has_no_device() {
            count.put(0)?;
            return Err(Code::NO_DEVICE);
        }
        count.put(DEVICES as c_int)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) -> u32 {
    on_device(Api::cuDeviceGet, ordinal, |_| device.put(ordinal))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: Out<c_char>, len: c_int, device: c_int) -> u32 {
    on_device(Api::cuDeviceGetName, device, |device| {
        let text = format!("soft device {}", device.ordinal);
        let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
        if name.is_null() || len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for (at, byte) in text.bytes().take(len - 1).chain([0]).enumerate() {
            Out(name.0.wrapping_add(at)).put(byte as c_char)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<c_int>, attribute: u32, device: c_int) -> u32 {
    on_device(Api::cuDeviceGetAttribute, device, |device| value.put(device.attribute(attribute)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> u32 {
    on_device(Api::cuDeviceTotalMem_v2, device, |_| bytes.put(TOTAL_BYTES as usize))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) -> u32 {
    on_device(Api::cuDeviceGetUuid, device, |device| uuid.put(uuid_of(device)))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) -> u32 {
    on_device(Api::cuDeviceGetUuid_v2, device, |device| uuid.put(uuid_of(device)))
}

fn uuid_of(device: &Device) -> [u8; 16] {
    let mut uuid = *b"soft-cuda device";
    uuid[15] = device.ordinal as u8;
    uuid
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) -> u32 {
    on_device(Api::cuDeviceCanAccessPeer, device, |_| {
        if !(0..DEVICES as c_int).contains(&peer) {
            return Err(Code::INVALID_DEVICE);
        }
        can.put(c_int::from(peer != device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) -> u32 {
    on_device(Api::cuDeviceGetDefaultMemPool, device, |device| {
        device.check_pools_supported()?;
        pool.put(Handle::new(Kind::Pool, device.ordinal, 1))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) -> u32 {
    on_device(Api::cuDevicePrimaryCtxRetain, device, |device| {
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        context.put(device.retain()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    on_device(
        Api::cuDevicePrimaryCtxRelease_v2,
        device,
        |device| {
            if device.release() { Ok(()) } else { Err(Code::INVALID_CONTEXT) }
        },
    )
}
