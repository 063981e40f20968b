//! Graphs: captured or described, launched repeatedly, and ordered only by their own edges.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use anabranch_soft_cuda::{Code, ViolationKind, Which};
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtrMut, result};

use crate::support::{Bench, Said, code, scale};

/// Returns a bench with two streams and initialised data.
fn begin() -> (Bench, Arc<CudaStream>, Arc<CudaStream>, CudaSlice<f32>) {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    let data = first.clone_htod(&[1.0f32; 4]).unwrap();
    first.synchronize().unwrap();
    (bench, first, second, data)
}

#[test]
fn what_is_captured_is_not_executed_until_it_is_launched() {
    let (bench, stream, _, mut data) = begin();
    let function = bench.function("scale");
    let executed = bench.device.counters().executed;
    stream.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(stream.capture_status().unwrap(), sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    scale(&bench, &stream, &mut data);
    scale(&bench, &stream, &mut data);
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    assert_eq!(stream.capture_status().unwrap(), sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!(bench.device.counters().executed, executed);
    graph.launch().unwrap();
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [16.0; 4]);
    assert_eq!(bench.device.counters().executed, executed + 5);
    bench.assert_clean();
    drop((graph, function));
    assert_eq!((bench.device.counters().graphs, bench.device.counters().executable_graphs), (0, 0));
}

#[test]
fn a_capture_spreads_over_streams_and_keeps_their_waits() {
    let (bench, first, second, mut data) = begin();
    let (forked, joined) = (bench.context.new_event(None).unwrap(), bench.context.new_event(None).unwrap());
    let capture = |data: &mut CudaSlice<f32>, is_joined_early: bool| {
        first.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        forked.record(&first).unwrap();
        second.wait(&forked).unwrap();
        scale(&bench, &second, data);
        joined.record(&second).unwrap();
        if is_joined_early {
            first.wait(&joined).unwrap();
        }
        scale(&bench, &first, data);
        first.wait(&joined).unwrap();
        let graph = first.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        graph.launch().unwrap();
        first.synchronize().unwrap();
    };
    capture(&mut data, true);
    bench.assert_clean();
    capture(&mut data, false);
    assert_eq!(bench.kinds(), [ViolationKind::Race]);
    scale(&bench, &second, &mut data);
    second.synchronize().unwrap();
    assert_eq!(first.clone_dtoh(&data).unwrap(), [32.0; 4]);
}

#[test]
fn a_capture_whose_fork_is_not_joined_is_refused() {
    let (bench, first, second, mut data) = begin();
    first.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    second.wait(&first.record_event(None).unwrap()).unwrap();
    scale(&bench, &second, &mut data);
    assert_eq!(code(first.end_capture(CUgraphInstantiate_flags(0)).map(drop)), 904);
    second.synchronize().unwrap();
}

#[test]
fn a_synchronisation_spoils_a_capture() {
    let (bench, first, second, _data) = begin();
    first.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(code(first.synchronize()), 900);
    assert_eq!(code(first.end_capture(CUgraphInstantiate_flags(0)).map(drop)), 901);
    first.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(code(first.wait(&second.record_event(None).unwrap())), 905);
    assert_eq!(code(first.end_capture(CUgraphInstantiate_flags(0)).map(drop)), 901);
    // SAFETY: the stream is live. The default stream cannot be captured, and the driver refuses it.
    let begin = unsafe { result::stream::begin_capture(null_mut(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
    assert_eq!(code(begin), 900);
    bench.assert_clean();
}

#[test]
fn a_captured_host_function_is_called_at_every_launch() {
    unsafe extern "C" fn count(argument: *mut std::ffi::c_void) {
        // SAFETY: the test passes a pointer to an atomic that outlives the stream's work.
        let counter = unsafe { &*argument.cast::<std::sync::atomic::AtomicU32>() };
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let (bench, stream, _, _data) = begin();
    let counter = std::sync::atomic::AtomicU32::new(0);
    stream.begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: the counter outlives the launches, because the test waits for them.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), count, (&raw const counter).cast_mut().cast()) }.unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    graph.launch().unwrap();
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counter.load(std::sync::atomic::Ordering::Relaxed), 2);
    bench.assert_clean();
}

/// A graph that is described node by node.
struct Described {
    graph: sys::CUgraph,
    kernel: CudaFunction,
}

impl Described {
    fn new(bench: &Bench) -> Self {
        let mut graph = null_mut();
        // SAFETY: `graph` has room for the handle.
        assert_eq!(unsafe { sys::cuGraphCreate(&mut graph, 0) } as u32, 0);
        Self { graph, kernel: bench.function("scale") }
    }

    fn scale(&self, after: &[sys::CUgraphNode], address: u64, by: f32) -> sys::CUgraphNode {
        let (mut address, mut by, mut len) = (address, by, 4u32);
        let mut pointers = [(&raw mut address).cast(), (&raw mut by).cast(), (&raw mut len).cast()];
        let params = self.kernel_params(&mut pointers);
        let mut node = null_mut();
        // SAFETY: every argument is live and copied by the call.
        let code = unsafe { sys::cuGraphAddKernelNode_v2(&mut node, self.graph, after.as_ptr(), after.len(), &params) };
        assert_eq!(code as u32, 0);
        node
    }

    fn kernel_params(&self, pointers: &mut [*mut std::ffi::c_void; 3]) -> sys::CUDA_KERNEL_NODE_PARAMS {
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.kernel.cu_function(),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 4,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: pointers.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        }
    }

    fn fill(&self, after: &[sys::CUgraphNode], address: u64, value: u32) -> sys::CUgraphNode {
        let params = fill_params(address, value);
        let mut node = null_mut();
        // SAFETY: every argument is live and copied by the call.
        let code = unsafe { sys::cuGraphAddMemsetNode(&mut node, self.graph, after.as_ptr(), after.len(), &params, null_mut()) };
        assert_eq!(code as u32, 0);
        node
    }

    fn copy(&self, after: &[sys::CUgraphNode], from: u64, into: u64) -> sys::CUgraphNode {
        let params = copy_params(from, into);
        let mut node = null_mut();
        // SAFETY: every argument is live and copied by the call.
        let code = unsafe { sys::cuGraphAddMemcpyNode(&mut node, self.graph, after.as_ptr(), after.len(), &params, null_mut()) };
        assert_eq!(code as u32, 0);
        node
    }

    fn instantiate(&self) -> sys::CUgraphExec {
        // SAFETY: the graph is live.
        unsafe { result::graph::instantiate(self.graph, CUgraphInstantiate_flags(0)) }.unwrap()
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: the graph is live.
        let _ = unsafe { result::graph::destroy(self.graph) };
    }
}

fn fill_params(address: u64, value: u32) -> sys::CUDA_MEMSET_NODE_PARAMS {
    sys::CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: 4, height: 1 }
}

fn copy_params(from: u64, into: u64) -> sys::CUDA_MEMCPY3D {
    // SAFETY: all zeros are valid null pointers and numbers. The memory types are set below.
    let mut params: sys::CUDA_MEMCPY3D = unsafe {
        let mut params = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
        (*params.as_mut_ptr()).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (*params.as_mut_ptr()).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        params.assume_init()
    };
    (params.srcDevice, params.dstDevice) = (from, into);
    (params.WidthInBytes, params.Height, params.Depth) = (16, 1, 1);
    params
}

/// Launches the executable graph and waits for it.
fn run(exec: sys::CUgraphExec, stream: &CudaStream) {
    // SAFETY: the graph and the stream are live.
    unsafe { result::graph::launch(exec, stream.cu_stream()) }.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_described_graph_runs_along_its_edges() {
    let (bench, stream, _, mut data) = begin();
    let mut other = stream.alloc_zeros::<f32>(4).unwrap();
    let (from, into) = (data.device_ptr_mut(&stream).0, other.device_ptr_mut(&stream).0);
    let graph = Described::new(&bench);
    let filled = graph.fill(&[], from, 3.0f32.to_bits());
    let mut gathered = null_mut();
    // SAFETY: the node is live.
    assert_eq!(unsafe { sys::cuGraphAddEmptyNode(&mut gathered, graph.graph, [filled].as_ptr(), 1) } as u32, 0);
    let scaled = graph.scale(&[gathered], from, 2.0);
    graph.copy(&[scaled], from, into);
    let exec = graph.instantiate();
    run(exec, &stream);
    assert_eq!(stream.clone_dtoh(&other).unwrap(), [6.0; 4]);
    bench.assert_clean();
    // SAFETY: the executable graph is live.
    unsafe { result::graph::exec_destroy(exec) }.unwrap();
}

#[test]
fn a_missing_edge_is_a_race() {
    let (bench, stream, _, mut data) = begin();
    let address = data.device_ptr_mut(&stream).0;
    let graph = Described::new(&bench);
    graph.fill(&[], address, 0);
    graph.scale(&[], address, 2.0);
    let exec = graph.instantiate();
    run(exec, &stream);
    let violation = bench.violation();
    assert!(violation.text.contains("memset") && violation.text.contains("kernel `scale`"), "{}", violation.text);
    // SAFETY: the executable graph is live.
    unsafe { result::graph::exec_destroy(exec) }.unwrap();
}

#[test]
fn the_parameters_of_an_executable_graph_can_be_changed() {
    let (bench, stream, _, mut data) = begin();
    let mut other = stream.alloc_zeros::<f32>(4).unwrap();
    let (from, into) = (data.device_ptr_mut(&stream).0, other.device_ptr_mut(&stream).0);
    let graph = Described::new(&bench);
    let filled = graph.fill(&[], from, 0);
    let scaled = graph.scale(&[filled], from, 2.0);
    let copied = graph.copy(&[scaled], from, from);
    let exec = graph.instantiate();
    let (mut address, mut by, mut len) = (from, 5.0f32, 4u32);
    let mut pointers = [(&raw mut address).cast(), (&raw mut by).cast(), (&raw mut len).cast()];
    let kernel = graph.kernel_params(&mut pointers);
    // SAFETY: all arguments are live and copied by the calls.
    let codes = unsafe {
        [
            sys::cuGraphExecMemsetNodeSetParams(exec, filled, &fill_params(from, 2.0f32.to_bits()), null_mut()) as u32,
            sys::cuGraphExecKernelNodeSetParams_v2(exec, scaled, &kernel) as u32,
            sys::cuGraphExecMemcpyNodeSetParams(exec, copied, &copy_params(from, into), null_mut()) as u32,
            sys::cuGraphExecKernelNodeSetParams_v2(exec, filled, &kernel) as u32,
            sys::cuGraphExecKernelNodeSetParams_v2(exec, scaled, null()) as u32,
        ]
    };
    assert_eq!(codes, [0, 0, 0, 1, 1]);
    run(exec, &stream);
    assert_eq!(stream.clone_dtoh(&other).unwrap(), [10.0; 4]);
    bench.assert_clean();
    // SAFETY: the executable graph is live.
    unsafe { result::graph::exec_destroy(exec) }.unwrap();
}

#[test]
fn an_executable_graph_is_updated_from_a_graph_of_the_same_shape_only() {
    let (bench, stream, _, mut data) = begin();
    let address = data.device_ptr_mut(&stream).0;
    let (first, alike, unlike) = (Described::new(&bench), Described::new(&bench), Described::new(&bench));
    first.scale(&[], address, 2.0);
    alike.scale(&[], address, 3.0);
    unlike.fill(&[], address, 0);
    let exec = first.instantiate();
    // SAFETY: all zeros are a valid value of the result.
    let mut said: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
    // SAFETY: both graphs are live, and `said` has room for the result.
    assert_eq!(unsafe { sys::cuGraphExecUpdate_v2(exec, unlike.graph, &mut said) } as u32, 910);
    assert_eq!(said.result as u32, 2);
    // SAFETY: both graphs are live, and `said` has room for the result.
    assert_eq!(unsafe { sys::cuGraphExecUpdate_v2(exec, alike.graph, &mut said) } as u32, 0);
    run(exec, &stream);
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [3.0; 4]);
    // SAFETY: the executable graph is live.
    unsafe { result::graph::exec_destroy(exec) }.unwrap();
}

#[test]
fn launches_of_one_executable_graph_follow_each_other_on_any_streams() {
    let (bench, first, second, mut data) = begin();
    let graph = Described::new(&bench);
    let address = data.device_ptr_mut(&first).0;
    let filled = graph.fill(&[], address, 5.0f32.to_bits());
    let exec = graph.instantiate();
    bench.device.delay_operation(Which::Memset, 1, std::time::Duration::from_millis(10));
    // SAFETY: the graph and the streams are live.
    unsafe {
        result::graph::launch(exec, first.cu_stream()).unwrap();
        sys::cuGraphExecMemsetNodeSetParams(exec, filled, &fill_params(address, 7.0f32.to_bits()), null_mut());
        result::graph::launch(exec, second.cu_stream()).unwrap();
    }
    bench.context.synchronize().unwrap();
    assert_eq!(first.clone_dtoh(&data).unwrap(), [7.0; 4]);
    bench.assert_clean();
    // SAFETY: the executable graph is live.
    unsafe { result::graph::exec_destroy(exec) }.unwrap();
}

#[test]
fn a_fault_hits_a_node_of_a_graph() {
    let (bench, stream, _, mut data) = begin();
    let address = data.device_ptr_mut(&stream).0;
    let graph = Described::new(&bench);
    let filled = graph.fill(&[], address, 0);
    graph.scale(&[filled], address, 2.0);
    let exec = graph.instantiate();
    let before = bench.device.counters().executed;
    bench.device.fail_operation(Which::Kernel, 1, Code::LAUNCH_FAILED);
    // SAFETY: the graph and the stream are live.
    unsafe { result::graph::launch(exec, stream.cu_stream()) }.unwrap();
    assert_eq!(code(stream.synchronize()), 719);
    assert_eq!(bench.device.counters().executed, before + 1);
    let said = Said::new();
    assert_eq!(code(said.launch(&stream)), 719);
}

#[test]
fn a_graph_after_the_host_has_freed_its_memory_is_a_use_after_free() {
    let (bench, stream, _, mut data) = begin();
    let graph = Described::new(&bench);
    graph.fill(&[], data.device_ptr_mut(&stream).0, 0);
    let exec = graph.instantiate();
    drop(data);
    // SAFETY: the graph and the stream are live, and the driver refuses the node's operation.
    unsafe { result::graph::launch(exec, stream.cu_stream()) }.unwrap();
    assert_eq!(bench.kinds(), [ViolationKind::UseAfterFree]);
    assert_eq!(code(stream.synchronize()), 700);
}
