//! The CUDA device over the software driver: every test has a GPU of its own, made of threads.

mod behaviours;
mod builtin;
mod control;
mod devices;
mod drivers;
mod faults;
mod flows;
mod graphs;
mod launched;
mod order;
mod passing;
mod pipes;
mod pipes_random;
mod runs;
mod sanitized;
mod scopes;
mod scopes_random;
mod self_test;
mod solver;
#[cfg(feature = "dlpack")]
mod tensors;
mod thumbnails;
mod times;
mod times_told;
mod vars;
mod vars_faults;
mod vars_streams;
mod views;

use std::sync::LazyLock;

use anabranch::cuda::{self, Completion};
use anabranch::{BoxError, Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs, Value};
use anabranch_soft_cuda::{Client, Device, Param};

use self::graphs::{add_on_host, adding, download, upload};
use crate::support::{block_on, plan, until};

/// The driver, with the kernels of these tests.
static DRIVER: LazyLock<Client> = LazyLock::new(|| {
    let client = Client::beside_this_test().unwrap();
    client.register_kernel("add", &[Param::READ, Param::READ, Param::WRITE, Param::scalar::<u32>()], |launch| {
        // SAFETY: `graphs::add` has these parameters, and the kernel is registered with them.
        let n = unsafe { launch.scalar::<u32>(3) } as usize;
        let [a, b, y] = [0, 1, 2].map(|param| {
            // SAFETY: `graphs::add` is launched with three buffers of `n` elements.
            unsafe { launch.slice::<f32>(param, n) }
        });
        add_on_host(a, b, y);
    });
    client
});

/// A GPU of one test. At the end it checks that nothing is left, and that there were no violations.
pub(crate) struct Gpu {
    device: Device,
}

impl Gpu {
    /// The device is already tested, so an executor on it makes no calls of the self-test, and faults count
    /// from the executor's first call.
    pub(crate) fn new() -> Self {
        let device = DRIVER.next_device();
        cuda::self_test(device.ordinal() as u32).unwrap();
        device.reset();
        Self { device }
    }

    pub(crate) fn executor(&self, workers: usize) -> Executor {
        Executor::builder().workers(workers).cuda(&[self.device.ordinal() as u32]).build().unwrap()
    }

    /// An executor that makes every call.
    fn executor_of_calls(&self, workers: usize) -> Executor {
        Executor::builder().workers(workers).cuda(&[self.device.ordinal() as u32]).cuda_graphs(false).build().unwrap()
    }

    /// An executor that checks the order of its streams.
    fn executor_that_checks(&self, workers: usize) -> Executor {
        Executor::builder().workers(workers).cuda(&[self.device.ordinal() as u32]).sanitize(true).build().unwrap()
    }

    fn executor_by(&self, completion: Completion) -> Executor {
        let ordinal = self.device.ordinal() as u32;
        Executor::builder().workers(1).cuda(&[ordinal]).completion(completion).build().unwrap()
    }

    /// Checks that all objects that were made are freed.
    fn is_clean(&self) {
        until(|| self.device.counters().retains == 0);
        let counters = self.device.counters();
        assert_eq!(self.device.violations(), [], "{counters:?}");
        let live = [counters.streams, counters.events, counters.allocations, counters.pinned_allocations, counters.modules];
        assert_eq!((live, counters.graphs, counters.executable_graphs), ([0; 5], 0, 0), "{counters:?}");
    }
}

/// A new graph, its input `x`, and the buffer to which the node `up` uploads it.
fn uploaded(up: &'static str) -> (Graph, Value<Vec<f32>>, Value<Buffer<f32>>) {
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let up = g.try_kernel(up, &x, upload);
    (g, x, up)
}

/// The body of a node that takes a buffer and fills it.
fn filling(value: f32) -> impl Fn(&mut DeviceStream, Buffer<f32>) -> Result<Buffer<f32>, BoxError> {
    move |s, mut x| {
        s.fill(&mut x, value)?;
        Ok(x)
    }
}

/// Downloads `last` in a node `down`. A host node `out` makes the output `out` from it.
fn output_by_host<T: Send + Sync + 'static>(
    g: &mut Graph,
    last: &Value<Buffer<f32>>,
    out: impl Fn(&HostBuffer<f32>) -> T + Send + Sync + 'static,
) {
    let down = g.try_kernel("down", last, download);
    let out = g.task("out", &down, out);
    g.output("out", &out);
}

/// Returns after a worker of the executor has run a host node. If there is one worker, it has then ended its
/// previous work.
fn wait_for_worker(exec: &Executor) {
    let mut g = Graph::new();
    let one = g.task("one", (), || 1);
    g.output("one", &one);
    block_on(exec.run(&plan(&g), Inputs::new())).unwrap();
}
