//! One operation as the node of a CUDA graph.

use std::ffi::c_void;
use std::mem::discriminant;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS_v2_st as KernelNode, CUDA_MEMCPY3D_st as CopyNode, CUDA_MEMSET_NODE_PARAMS_st as FillNode,
    CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmemorytype,
};

use super::device::Device;
use super::ops::{Op, Ops, Pattern, Way};
use crate::device::code::{Launch, PARAMS_MAX};
use crate::error::Result;

/// Returns true if the operation cannot be a node, because it involves two devices.
pub(super) fn is_foreign(op: &Op) -> bool {
    matches!(op, Op::Fetch { .. })
}

/// Returns true if the node of one operation can be set to do the other.
pub(super) fn is_like(one: &Op, other: &Op) -> bool {
    match (one, other) {
        (Op::Launch { function: one, .. }, Op::Launch { function: other, .. }) => one == other,
        (Op::Copy { way: one, .. }, Op::Copy { way: other, .. }) => one == other,
        (Op::Fill { pattern: one, .. }, Op::Fill { pattern: other, .. }) => discriminant(one) == discriminant(other),
        _ => discriminant(one) == discriminant(other),
    }
}

/// Adds a node after others.
pub(super) fn add(device: &Device, graph: CUgraph, front: &[CUgraphNode], ops: &Ops, at: usize) -> Result<CUgraphNode> {
    let (driver, context, mut node) = (device.driver, device.context.handle(), std::ptr::null_mut());
    let (first, len) = (front.as_ptr(), front.len());
    let code = match Params::of(ops, at) {
        Params::Kernel(function, launch, mut words) => {
            let params = kernel(function, &launch, &mut words);
            // SAFETY: the call writes one handle, and the driver copies the data that the parameters point
            // to.
            unsafe { (driver.graph_launch_node)(&mut node, graph, first, len, &params) }
        }
        // SAFETY: the call writes one handle, and the driver copies the parameters.
        Params::Copy(params) => unsafe { (driver.graph_copy_node)(&mut node, graph, first, len, &params, context) },
        // SAFETY: the call writes one handle, and the driver copies the parameters.
        Params::Fill(params) => unsafe { (driver.graph_fill_node)(&mut node, graph, first, len, &params, context) },
    };
    device.context.check(code).map(|()| node)
}

/// Sets the operation of a node, from the next launch on.
pub(super) fn set(device: &Device, exec: CUgraphExec, node: CUgraphNode, ops: &Ops, at: usize) -> Result<()> {
    let (driver, context) = (device.driver, device.context.handle());
    device.context.check(match Params::of(ops, at) {
        Params::Kernel(function, launch, mut words) => {
            let params = kernel(function, &launch, &mut words);
            // SAFETY: the node is of the instance's graph, and the driver copies the data that the parameters
            // point to.
            unsafe { (driver.exec_set_launch)(exec, node, &params) }
        }
        // SAFETY: the node is of the instance's graph.
        Params::Copy(params) => unsafe { (driver.exec_set_copy)(exec, node, &params, context) },
        // SAFETY: the node is of the instance's graph.
        Params::Fill(params) => unsafe { (driver.exec_set_fill)(exec, node, &params, context) },
    })
}

/// An operation in the form that the driver's graphs take.
enum Params {
    Kernel(CUfunction, Launch, [*mut c_void; PARAMS_MAX]),
    Copy(CopyNode),
    Fill(FillNode),
}

impl Params {
    fn of(ops: &Ops, at: usize) -> Self {
        match ops.list()[at] {
            Op::Launch { function, launch, .. } => Self::Kernel(function, launch, ops.pointers(at)),
            Op::Copy { way, from, to, bytes } => Self::Copy(copy(way, from, to, bytes)),
            Op::Fill { to, pattern, count } => Self::Fill(fill(to, pattern, count)),
            Op::Fetch { .. } => unreachable!("what is of two devices is no node"),
        }
    }
}

fn copy(way: Way, from: u64, to: u64, bytes: usize) -> CopyNode {
    // The kind of memory, its address on the host, and its address on the device.
    let on_host = |address| (CUmemorytype::CU_MEMORYTYPE_HOST, std::ptr::with_exposed_provenance_mut(address as usize), 0);
    let on_device = |address| (CUmemorytype::CU_MEMORYTYPE_DEVICE, std::ptr::null_mut(), address);
    let (from_type, from_host, from_device) = if way == Way::Up { on_host(from) } else { on_device(from) };
    let (to_type, to_host, to_device) = if way == Way::Down { on_host(to) } else { on_device(to) };
    CopyNode {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from_type,
        srcHost: from_host,
        srcDevice: from_device,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to_type,
        dstHost: to_host,
        dstDevice: to_device,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

fn fill(to: CUdeviceptr, pattern: Pattern, count: usize) -> FillNode {
    let (value, bytes) = match pattern {
        Pattern::Byte(byte) => (u32::from(byte), 1),
        Pattern::Word(word) => (word, 4),
    };
    FillNode { dst: to, pitch: 0, value, elementSize: bytes, width: count, height: 1 }
}

fn kernel(function: CUfunction, launch: &Launch, words: &mut [*mut c_void; PARAMS_MAX]) -> KernelNode {
    let ([x, y, z], [i, j, k]) = (launch.grid, launch.block);
    KernelNode {
        func: function,
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: i,
        blockDimY: j,
        blockDimZ: k,
        sharedMemBytes: launch.shared_bytes,
        kernelParams: words.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}
