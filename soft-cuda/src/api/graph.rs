//! Graph definitions: `cuGraph*`.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::enter::{Call, on_context, on_object};
use super::function::{Params, Shape, launch};
use super::{In, Out};
use crate::code::{Code, Outcome};
use crate::driver::callback::{HostCall, HostFunction};
use crate::driver::calls::Api;
use crate::driver::command::{Command, Copy, End, Fill};
use crate::driver::graph::Graph;
use crate::driver::table::{Handle, Kind};

/// `CUDA_KERNEL_NODE_PARAMS`, up to the last field that is read.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct KernelParams {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    params: Params,
    extra: Params,
}

/// One side of a `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    x_bytes: usize,
    y: usize,
    z: usize,
    level: usize,
    memory_type: c_uint,
    host: u64,
    device: u64,
    array: *const c_void,
    reserved: *const c_void,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CopyParams {
    from: Side,
    into: Side,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct FillParams {
    into: u64,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct HostParams {
    function: Option<HostFunction>,
    argument: u64,
}

pub(super) fn kernel_command(call: &Call, params: In<KernelParams>) -> Outcome<Command> {
    let params = params.get()?;
    let function = call.device.functions.get(params.function)?;
    let shape = Shape { grid: params.grid, block: params.block, shared_bytes: params.shared_bytes };
    Ok(Command::Kernel(launch(&function, shape, params.params, params.extra)?))
}

pub(super) fn copy_command(params: In<CopyParams>) -> Outcome<Command> {
    let params = params.get()?;
    if params.height > 1 || params.depth > 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(Command::Copy(Copy { name: "copy", into: params.into.end()?, from: params.from.end()?, len: params.width_bytes }))
}

impl Side {
    fn end(&self) -> Outcome<End> {
        const HOST: c_uint = 1;
        const DEVICE: c_uint = 2;
        const UNIFIED: c_uint = 4;
        if self.y != 0 || self.z != 0 || self.level != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        match self.memory_type {
            HOST => Ok(End::Host(self.host as usize + self.x_bytes)),
            DEVICE => Ok(End::Device(self.device as usize + self.x_bytes)),
            UNIFIED => Ok(End::Host(self.device as usize + self.x_bytes)),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

pub(super) fn fill_command(params: In<FillParams>) -> Outcome<Command> {
    let params = params.get()?;
    let width = params.element_bytes as usize;
    let into = params.into as usize;
    if !matches!(width, 1 | 2 | 4) || !into.is_multiple_of(width) || params.width.checked_mul(width).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    if params.height > 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(Command::Fill(Fill { into, value: params.value, width, count: params.width }))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphCreate(graph: Out<Handle>, flags: c_uint) -> u32 {
    on_context(Api::cuGraphCreate, |call| {
        if flags != 0 || graph.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let device = call.device;
        graph.put(device.graphs.add(Arc::new(Graph::new(device))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: Handle) -> u32 {
    on_object(Api::cuGraphDestroy, graph, Kind::Graph, |call| call.device.graphs.remove(graph).map(drop))
}

/// The predecessors of a new node.
struct After {
    nodes: In<Handle>,
    count: usize,
}

fn add(api: Api, node: Out<Handle>, graph: Handle, after: After, command: impl FnOnce(&Call) -> Outcome<Command>) -> u32 {
    on_object(api, graph, Kind::Graph, |call| {
        let graph = call.device.graphs.get(graph)?;
        let command = command(call)?;
        node.put(graph.add(command, &after.nodes.list(after.count)?)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddKernelNode_v2(
    node: Out<Handle>,
    graph: Handle,
    nodes: In<Handle>,
    count: usize,
    params: In<KernelParams>,
) -> u32 {
    add(Api::cuGraphAddKernelNode_v2, node, graph, After { nodes, count }, |call| kernel_command(call, params))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddMemcpyNode(
    node: Out<Handle>,
    graph: Handle,
    nodes: In<Handle>,
    count: usize,
    params: In<CopyParams>,
    _context: Handle,
) -> u32 {
    add(Api::cuGraphAddMemcpyNode, node, graph, After { nodes, count }, |_| copy_command(params))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddMemsetNode(
    node: Out<Handle>,
    graph: Handle,
    nodes: In<Handle>,
    count: usize,
    params: In<FillParams>,
    _context: Handle,
) -> u32 {
    add(Api::cuGraphAddMemsetNode, node, graph, After { nodes, count }, |_| fill_command(params))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, nodes: In<Handle>, count: usize) -> u32 {
    add(Api::cuGraphAddEmptyNode, node, graph, After { nodes, count }, |_| Ok(Command::Nothing))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphAddHostNode(
    node: Out<Handle>,
    graph: Handle,
    nodes: In<Handle>,
    count: usize,
    params: In<HostParams>,
) -> u32 {
    add(Api::cuGraphAddHostNode, node, graph, After { nodes, count }, |_| {
        let HostParams { function, argument } = params.get()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        Ok(Command::Call(HostCall { function, argument: argument as usize }))
    })
}
