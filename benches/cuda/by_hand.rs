//! A schedule as calls of cudarc, recorded once and repeated for every run: no checks, no futures, and no
//! memory except the driver's own.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anabranch::graph::NodeId;
use anabranch::plan::{Point, Schedule, Step};
use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS_v2_st as KernelNode, CUevent, CUevent_flags, CUevent_wait_flags, CUfunction, CUgraphExec,
    CUgraphNode, CUstream,
};
use cudarc::driver::{CudaContext, CudaStream, result};
use cudarc::nvrtc::Ptx;

use crate::{NOTHING, STAMPS, STREAMS};

pub(crate) struct ByHand {
    context: Arc<CudaContext>,
    _streams: Vec<Arc<CudaStream>>,
    _module: Arc<cudarc::driver::CudaModule>,
    function: CUfunction,
    calls: Vec<Call>,
    /// For each stream, the word that it writes at the end of a run: its address on the device and on the
    /// host.
    words: Vec<(CUstream, u64, &'static AtomicU64)>,
    runs: AtomicU64,
    graph: CUgraphExec,
}

enum Call {
    Launch(CUstream),
    Record(CUevent, CUstream),
    Wait(CUstream, CUevent),
}

impl ByHand {
    pub(crate) fn new(ordinal: u32, schedule: &Schedule) -> Self {
        let context = CudaContext::new(ordinal as usize).expect("the device opens");
        // SAFETY: no slice of cudarc's is used.
        unsafe { context.disable_event_tracking() };
        let streams: Vec<_> = (0..STREAMS).map(|_| context.new_stream().expect("a stream opens")).collect();
        let module = context.load_module(Ptx::from_src(NOTHING)).expect("the module loads");
        let name = std::ffi::CString::new("nothing").expect("no NUL");
        // SAFETY: the text is PTX that ends with a NUL. The module is never unloaded.
        let raw = unsafe { result::module::load_data(std::ffi::CString::new(NOTHING).expect("no NUL").as_ptr().cast()) };
        // SAFETY: the module is loaded, and never unloaded.
        let function = unsafe { result::module::get_function(raw.expect("the module loads"), name) };
        let calls = calls(schedule, &streams);
        let used = (0..schedule.streams().min(STREAMS)).map(|stream| streams[stream as usize].cu_stream());
        let words = used.map(word).collect();
        let function = function.expect("the function is there");
        let graph = graph(schedule, function);
        Self { context, _streams: streams, _module: module, function, calls, words, runs: AtomicU64::new(0), graph }
    }

    /// Launches a run as one graph, which was built before.
    pub(crate) fn submit_graph(&self) {
        self.context.bind_to_thread().expect("the context is alive");
        STAMPS.launched_all();
        let &(stream, address, _) = self.words.first().expect("a stream is in use");
        // SAFETY: both are of this context.
        unsafe { sys::cuGraphLaunch(self.graph, stream) }.result().expect("nothing fails");
        self.write_words(&[(stream, address)]);
    }

    /// Makes each stream write its word at the end of this run.
    fn write_words(&self, words: &[(CUstream, u64)]) {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        for &(stream, address) in words {
            // SAFETY: the word lives for ever.
            unsafe { sys::cuStreamWriteValue64_v2(stream, address, run, 0) }.result().expect("nothing fails");
        }
        STAMPS.submitted();
    }

    /// Makes all calls of a run.
    pub(crate) fn submit(&self) {
        self.context.bind_to_thread().expect("the context is alive");
        let mut parameter = 7_u32;
        for call in &self.calls {
            let called = match *call {
                Call::Launch(stream) => {
                    STAMPS.launched();
                    let mut parameters = [(&raw mut parameter).cast::<c_void>()];
                    // SAFETY: the kernel has one parameter, of four bytes.
                    unsafe { result::launch_kernel(self.function, (1, 1, 1), (256, 1, 1), 0, stream, &mut parameters) }
                }
                // SAFETY: both are of this context.
                Call::Record(event, stream) => unsafe { result::event::record(event, stream) },
                // SAFETY: both are of this context.
                Call::Wait(stream, event) => unsafe {
                    result::stream::wait_event(stream, event, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                },
            };
            called.expect("nothing fails");
        }
        let words: Vec<_> = self.words.iter().map(|&(stream, address, _)| (stream, address)).collect();
        self.write_words(&words);
    }

    /// Waits until the last submitted run has ended on the first `streams` streams.
    pub(crate) fn wait(&self, streams: usize) {
        let run = self.runs.load(Ordering::Relaxed);
        for (_, _, word) in self.words.iter().take(streams) {
            while word.load(Ordering::Acquire) < run {
                std::thread::yield_now();
            }
        }
    }
}

/// A word in the host's memory that the device writes.
fn word(stream: CUstream) -> (CUstream, u64, &'static AtomicU64) {
    let (mut memory, mut address) = (std::ptr::null_mut(), 0);
    // SAFETY: it writes one pointer.
    unsafe { sys::cuMemHostAlloc(&mut memory, 8, 3) }.result().expect("there is memory");
    // SAFETY: it writes one address.
    unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, memory, 0) }.result().expect("the memory is mapped");
    // SAFETY: the memory is new, and never freed.
    let word = unsafe { &*memory.cast::<AtomicU64>() };
    word.store(0, Ordering::Release);
    (stream, address, word)
}

/// The steps of all programs, in issue order.
fn calls(schedule: &Schedule, streams: &[Arc<CudaStream>]) -> Vec<Call> {
    let of = |stream: u32| streams[(stream % STREAMS) as usize].cu_stream();
    let mut places = vec![0; schedule.streams() as usize];
    let mut events: Vec<Vec<CUevent>> = vec![Vec::new(); places.len()];
    let mut calls = Vec::new();
    for &node in schedule.order() {
        let stream = schedule.stream_of(node);
        for step in until_after(node, &schedule.steps(stream)[places[stream as usize]..]) {
            places[stream as usize] += 1;
            match *step {
                Step::Wait(Point { stream: other, seq, .. }) => {
                    calls.push(Call::Wait(of(stream), events[other as usize][seq as usize - 1]));
                }
                Step::Run(_) => calls.push(Call::Launch(of(stream))),
                Step::Record(_) => {
                    let event = result::event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).expect("an event is made");
                    events[stream as usize].push(event);
                    calls.push(Call::Record(event, of(stream)));
                }
                Step::Release(_) => {}
            }
        }
    }
    calls
}

/// The steps up to a node, and the records after it.
fn until_after(node: NodeId, steps: &[Step]) -> &[Step] {
    let run = steps.iter().position(|step| *step == Step::Run(node)).expect("a node is on its stream");
    let is_after = |step: &&Step| matches!(step, Step::Record(_) | Step::Release(_));
    &steps[..run + 1 + steps[run + 1..].iter().take_while(is_after).count()]
}

/// The schedule as one graph: each node after the previous one on its stream, and after the nodes that it
/// waits for.
fn graph(schedule: &Schedule, function: CUfunction) -> CUgraphExec {
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: it writes one handle.
    unsafe { sys::cuGraphCreate(&mut graph, 0) }.result().expect("a graph is made");
    let mut parameter = 7_u32;
    let mut parameters = [(&raw mut parameter).cast::<c_void>()];
    let params = KernelNode {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 256,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: parameters.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    let mut places = vec![0; schedule.streams() as usize];
    let mut recorded: Vec<Vec<CUgraphNode>> = vec![Vec::new(); places.len()];
    let mut last: Vec<Option<CUgraphNode>> = vec![None; places.len()];
    for &node in schedule.order() {
        let stream = schedule.stream_of(node) as usize;
        let mut after: Vec<CUgraphNode> = last[stream].into_iter().collect();
        for step in until_after(node, &schedule.steps(stream as u32)[places[stream]..]) {
            places[stream] += 1;
            match *step {
                Step::Wait(Point { stream: other, seq, .. }) => after.push(recorded[other as usize][seq as usize - 1]),
                Step::Run(_) => {
                    let mut made = std::ptr::null_mut();
                    // SAFETY: it writes one handle, and copies the parameters.
                    let added = unsafe { sys::cuGraphAddKernelNode_v2(&mut made, graph, after.as_ptr(), after.len(), &params) };
                    added.result().expect("a node is added");
                    last[stream] = Some(made);
                }
                Step::Record(_) => recorded[stream].extend(last[stream]),
                Step::Release(_) => {}
            }
        }
    }
    // SAFETY: it writes one handle.
    unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }.result().expect("the graph is in order");
    exec
}
