//! The CUDA device over the software driver: every test has a GPU of its own, made of threads.

mod behaviours;
mod builtin;
mod devices;
mod drivers;
mod faults;
mod graphs;
mod launched;
mod order;
mod runs;
mod thumbnails;

use std::sync::LazyLock;

use anabranch::{Completion, Executor};
use anabranch_soft_cuda::{Client, Device, Param};

use self::graphs::{add_on_host, adding, download, upload};

/// The driver, with the kernels of these tests.
static DRIVER: LazyLock<Client> = LazyLock::new(|| {
    let client = Client::beside_this_test().unwrap();
    client.register_kernel("add", &[Param::READ, Param::READ, Param::WRITE, Param::scalar::<u32>()], |launch| {
        // SAFETY: as `add` below launches it.
        let n = unsafe { launch.scalar::<u32>(3) } as usize;
        let [a, b, y] = [0, 1, 2].map(|param| {
            // SAFETY: as above.
            unsafe { launch.slice::<f32>(param, n) }
        });
        add_on_host(a, b, y);
    });
    client
});

/// A GPU that nobody else uses. Checks at the end that nothing is left and nothing was wrong.
struct Gpu {
    device: Device,
}

impl Gpu {
    fn new() -> Self {
        Self { device: DRIVER.next_device() }
    }

    fn executor(&self, workers: usize) -> Executor {
        Executor::builder().workers(workers).cuda(&[self.device.ordinal() as u32]).build().unwrap()
    }

    /// An executor that makes every call.
    fn executor_of_calls(&self, workers: usize) -> Executor {
        Executor::builder().workers(workers).cuda(&[self.device.ordinal() as u32]).cuda_graphs(false).build().unwrap()
    }

    fn executor_by(&self, completion: Completion) -> Executor {
        let ordinal = self.device.ordinal() as u32;
        Executor::builder().workers(1).cuda(&[ordinal]).completion(completion).build().unwrap()
    }

    /// Checks that all that was made is gone.
    fn is_clean(&self) {
        crate::support::until(|| self.device.counters().retains == 0);
        let counters = self.device.counters();
        assert_eq!(self.device.violations(), [], "{counters:?}");
        let live = [counters.streams, counters.events, counters.allocations, counters.pinned_allocations, counters.modules];
        assert_eq!((live, counters.graphs, counters.executable_graphs), ([0; 5], 0, 0), "{counters:?}");
    }
}
