//! Shared parts of the tests: the loaded driver, a few kernels, and a bench to begin with.

use std::sync::{Arc, OnceLock, mpsc};

use anabranch_soft_cuda::{Client, Device, Param, Violation, ViolationKind};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, CudaViewMut, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// The text of a module with all the kernels below, and one that is never registered.
pub(crate) const PTX: &str = ".version 8.0\n.target sm_90\n.address_size 64
.visible .entry nothing()\n{ ret; }
.visible .entry scale(.param .u64 data, .param .f32 by, .param .u32 len)\n{ ret; }
.visible .entry scale_some(.param .u64 data, .param .f32 by, .param .u32 len)\n{ ret; }
.visible .entry add(.param .u64 from, .param .u64 into, .param .u32 len)\n{ ret; }
.visible .entry panics()\n{ ret; }
.visible .entry overruns(.param .u64 data, .param .u32 len)\n{ ret; }
.visible .entry nobody()\n{ ret; }";

/// Loads the driver once, and registers its kernels.
pub(crate) fn client() -> Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    *CLIENT.get_or_init(|| {
        let client = Client::beside_this_test().unwrap();
        register(&client);
        client
    })
}

fn register(client: &Client) {
    client.register_kernel("nothing", &[], |_| {});
    client.register_kernel("panics", &[], |_| panic!("on purpose"));
    let params = [Param::READ_WRITE, Param::scalar::<f32>(), Param::scalar::<u32>()];
    client.register_kernel("scale", &params, |launch| {
        // SAFETY: the kernel is registered with these parameters.
        let (by, len) = unsafe { (launch.scalar::<f32>(1), launch.scalar::<u32>(2)) };
        if len == 0 {
            return;
        }
        // SAFETY: the tests pass `len` elements, and only this kernel accesses them.
        unsafe { launch.slice::<f32>(0, len as usize) }.iter_mut().for_each(|value| *value *= by);
    });
    let params = [Param::READ_WRITE.counted_by::<f32>(2), Param::scalar::<f32>(), Param::scalar::<u32>()];
    client.register_kernel("scale_some", &params, |_| {});
    client.register_kernel("add", &[Param::READ, Param::READ_WRITE, Param::scalar::<u32>()], |launch| {
        // SAFETY: the kernel is registered with these parameters.
        let len = unsafe { launch.scalar::<u32>(2) } as usize;
        // SAFETY: the tests pass two buffers of `len` elements, and only this kernel accesses them.
        let (from, into) = unsafe { (launch.slice::<f32>(0, len), launch.slice::<f32>(1, len)) };
        into.iter_mut().zip(from).for_each(|(into, from)| *into += *from);
    });
    client.register_kernel("overruns", &[Param::WRITE, Param::scalar::<u32>()], |launch| {
        // SAFETY: the kernel is registered with these parameters.
        let len = unsafe { launch.scalar::<u32>(1) } as usize;
        // SAFETY: the byte behind the allocation is within the driver's guard, which is mapped.
        unsafe { launch.pointer::<u8>(0).add(len).write(0) };
    });
}

/// A device with a context, for tests that place the waits themselves.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) context: Arc<CudaContext>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let device = client().next_device();
        let context = CudaContext::new(device.ordinal()).unwrap();
        // SAFETY: the tests order accesses to shared memory, or race on purpose.
        unsafe { context.disable_event_tracking() };
        Self { device, context }
    }

    pub(crate) fn stream(&self) -> Arc<CudaStream> {
        self.context.new_stream().unwrap()
    }

    pub(crate) fn function(&self, name: &str) -> CudaFunction {
        self.context.load_module(Ptx::from_src(PTX)).unwrap().load_function(name).unwrap()
    }

    pub(crate) fn kinds(&self) -> Vec<ViolationKind> {
        self.device.violations().into_iter().map(|violation| violation.kind).collect()
    }

    /// Returns the only violation.
    pub(crate) fn violation(&self) -> Violation {
        let violations = self.device.violations();
        assert_eq!(violations.len(), 1, "{violations:?}");
        violations[0].clone()
    }

    /// Asserts that there are no violations so far.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.device.violations(), []);
    }
}

/// A launch of one thread.
pub(crate) fn one() -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }
}

/// Returns the number of a failed call's code.
#[track_caller]
pub(crate) fn code<T>(result: Result<T, DriverError>) -> u32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.0 as u32,
    }
}

/// A host function that reports its call.
pub(crate) struct Said(pub(crate) mpsc::Receiver<std::thread::ThreadId>, mpsc::Sender<std::thread::ThreadId>);

impl Said {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self(receiver, sender)
    }

    /// Issues the function to the stream. It must be called before the stream's context ends, or never.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), DriverError> {
        unsafe extern "C" fn say(argument: *mut std::ffi::c_void) {
            // SAFETY: `launch` passes such a box, and the driver calls a host function once.
            let sender = unsafe { Box::from_raw(argument.cast::<mpsc::Sender<std::thread::ThreadId>>()) };
            let _ = sender.send(std::thread::current().id());
        }
        let argument = Box::into_raw(Box::new(self.1.clone()));
        // SAFETY: the argument has the type that the function expects.
        unsafe { cudarc::driver::result::stream::launch_host_function(stream.cu_stream(), say, argument.cast()) }
    }
}

/// Launches `scale` by 2 over all of the data.
pub(crate) fn scale(bench: &Bench, stream: &CudaStream, data: &mut CudaSlice<f32>) {
    let function = bench.function("scale");
    let len = data.len() as u32;
    let mut launch = stream.launch_builder(&function);
    launch.arg(data).arg(&2.0f32).arg(&len);
    // SAFETY: the arguments match the kernel's parameters.
    unsafe { launch.launch(one()) }.unwrap();
}

/// Launches a kernel that declares the number of elements that it accesses.
pub(crate) fn scale_some(bench: &Bench, stream: &CudaStream, data: &mut CudaViewMut<'_, f32>) {
    let function = bench.function("scale_some");
    let len = data.len() as u32;
    let mut launch = stream.launch_builder(&function);
    launch.arg(data).arg(&2.0f32).arg(&len);
    // SAFETY: the arguments match the kernel's parameters.
    unsafe { launch.launch(one()) }.unwrap();
}

/// Launches a kernel that does nothing.
pub(crate) fn nothing(bench: &Bench, stream: &CudaStream) -> Result<(), DriverError> {
    let function = bench.context.load_module(Ptx::from_src(PTX))?.load_function("nothing")?;
    // SAFETY: the kernel takes no parameters.
    unsafe { cudarc::driver::result::launch_kernel(function.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []) }
}
