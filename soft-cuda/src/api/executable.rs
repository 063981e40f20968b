//! Executable graphs: `cuGraphExec*`.

use std::ffi::c_ulonglong;
use std::sync::Arc;

use super::enter::{on_object, on_stream, owner};
use super::graph::{CopyParams, FillParams, KernelParams, copy_command, fill_command, kernel_command};
use super::{In, Out};
use crate::code::Code;
use crate::driver::calls::Api;
use crate::driver::executable::Executable;
use crate::driver::table::{Handle, Kind};

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateResult {
    result: u32,
    error_node: Handle,
    error_from_node: Handle,
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(executable: Out<Handle>, graph: Handle, flags: c_ulonglong) -> u32 {
    /// Automatic free on launch, upload, use of node priorities. This driver does not support launches from
    /// the device.
    const KNOWN: u64 = 1 | 2 | 8;
    on_object(Api::cuGraphInstantiateWithFlags, graph, Kind::Graph, |call| {
        if flags & !KNOWN != 0 || executable.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let graph = call.device.graphs.get(graph)?;
        executable.put(call.device.executables.add(Arc::new(Executable::new(&graph))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: Handle) -> u32 {
    on_object(Api::cuGraphExecDestroy, executable, Kind::Executable, |call| call.device.executables.remove(executable).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecKernelNodeSetParams_v2(executable: Handle, node: Handle, params: In<KernelParams>) -> u32 {
    on_object(Api::cuGraphExecKernelNodeSetParams_v2, executable, Kind::Executable, |call| {
        call.device.executables.get(executable)?.set(node, kernel_command(call, params)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemcpyNodeSetParams(executable: Handle, node: Handle, params: In<CopyParams>, _context: Handle) -> u32 {
    on_object(Api::cuGraphExecMemcpyNodeSetParams, executable, Kind::Executable, |call| {
        call.device.executables.get(executable)?.set(node, copy_command(params)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecMemsetNodeSetParams(executable: Handle, node: Handle, params: In<FillParams>, _context: Handle) -> u32 {
    on_object(Api::cuGraphExecMemsetNodeSetParams, executable, Kind::Executable, |call| {
        call.device.executables.get(executable)?.set(node, fill_command(params)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecUpdate_v2(executable: Handle, graph: Handle, result: Out<UpdateResult>) -> u32 {
    /// `CUgraphExecUpdateResult`: the topology differs.
    const TOPOLOGY_CHANGED: u32 = 2;
    on_object(Api::cuGraphExecUpdate_v2, executable, Kind::Executable, |call| {
        let graph = owner(graph, Kind::Graph)?.graphs.get(graph)?;
        let outcome = call.device.executables.get(executable)?.update(&graph);
        let number = if outcome == Err(Code::GRAPH_UPDATE_FAILURE) { TOPOLOGY_CHANGED } else { 0 };
        result.put(UpdateResult { result: number, error_node: Handle::NULL, error_from_node: Handle::NULL })?;
        outcome
    })
}

/// Does nothing, because there is nothing to upload.
#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: Handle, _stream: Handle) -> u32 {
    on_object(Api::cuGraphUpload, executable, Kind::Executable, |call| call.device.executables.get(executable).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> u32 {
    on_stream(Api::cuGraphLaunch, stream, |call, stream| call.device.executables.get(executable)?.launch(stream))
}
