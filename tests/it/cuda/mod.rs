//! The CUDA device over the software driver: every test has a GPU of its own, made of threads.

mod builtin;
mod devices;
mod drivers;
mod faults;
mod order;
mod runs;

use std::sync::LazyLock;

use anabranch::{Buffer, Completion, DeviceStream, Executor, HostBuffer, In, Kernel, Launch, Out};
use anabranch_soft_cuda::{Client, Device, Param};

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

fn add_on_host(a: &[f32], b: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = a + b);
}

type Add = (In<f32>, In<f32>, Out<f32>, u32);

/// `y = a + b`.
fn add() -> Kernel<Add> {
    Kernel::<Add>::ptx("add", ".visible .entry add(").twin(|_, (a, b, y, _)| add_on_host(a, b, y))
}

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
        assert_eq!(live, [0; 5], "{counters:?}");
    }
}

fn upload(s: &mut DeviceStream, x: &Vec<f32>) -> anabranch::Result<Buffer<f32>, anabranch::BoxError> {
    Ok(s.upload(x)?)
}

fn download(s: &mut DeviceStream, x: &Buffer<f32>) -> anabranch::Result<HostBuffer<f32>, anabranch::BoxError> {
    Ok(s.download(x)?)
}

/// The body of a node that adds two buffers.
fn adding() -> impl Fn(&mut DeviceStream, &Buffer<f32>, &Buffer<f32>) -> Result<Buffer<f32>, anabranch::BoxError> {
    let add = add();
    move |s, a, b| {
        let mut y = s.alloc(a.len())?;
        s.launch(&add, Launch::for_len(a.len()), (a, b, &mut y, a.len() as u32))?;
        Ok(y)
    }
}
