//! The ranks of these tests, their GPUs, and the check that both leave nothing behind.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anabranch::comm::World;
use anabranch::device::Element;
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Result, Value, inputs};
use anabranch_soft_cuda::{Client, Device, Param};
use anabranch_soft_nccl::Nccl;
use futures::executor::block_on;

/// How long a test waits for an event before it reports a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver.
static DRIVER: LazyLock<Client> = LazyLock::new(|| Client::beside_this_test().unwrap());

/// The library, with its kernel.
pub(crate) static NCCL: LazyLock<Nccl> = LazyLock::new(|| {
    let (nccl, word) = (Nccl::beside_this_test().unwrap(), Param::scalar::<u64>());
    let (from, to) = (Param::READ.counted_by::<u8>(1), Param::WRITE.counted_by::<u8>(3));
    DRIVER.register_kernel(Nccl::KERNEL, &[from, word, to, word, word], move |launch| {
        // SAFETY: the kernel is registered with these parameters.
        let [reads, writes, number] = [1, 3, 4].map(|param| unsafe { launch.scalar::<u64>(param) });
        let (from, to) = (launch.pointer::<u8>(0).cast_const(), launch.pointer::<u8>(2));
        // SAFETY: the arguments are those of the kernel.
        unsafe { nccl.run(number, (from, reads), (to, writes)) };
    });
    nccl
});

/// One rank.
pub(crate) struct Rank {
    pub(crate) world: World,
    pub(crate) device: Device,
    pub(crate) exec: Executor,
}

impl Rank {
    pub(crate) fn new(world: World, device: Device) -> Self {
        let exec = Executor::builder().workers(1).cuda(&[device.ordinal() as u32]).build().unwrap();
        Self { world, device, exec }
    }

    pub(crate) fn gpu(&self) -> u32 {
        self.device.ordinal() as u32
    }
}

/// Waits until the condition is true because of another thread. Panics if it hangs.
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "it did not happen in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Calls `rank` on a thread for each rank. Then checks that nothing is left on any GPU, and that there were
/// no violations.
pub(crate) fn each_rank<R: Send>(ranks: u32, rank: impl Fn(Rank) -> R + Sync) -> Vec<R> {
    let (results, devices) = each_rank_and_device(ranks, rank);
    devices.iter().for_each(|device| assert_eq!(device.violations(), [], "{:?}", device.counters()));
    results
}

/// As [`each_rank`], without the check of violations. Returns the devices.
pub(crate) fn each_rank_and_device<R: Send>(ranks: u32, rank: impl Fn(Rank) -> R + Sync) -> (Vec<R>, Vec<Device>) {
    let devices: Vec<Device> = (0..ranks).map(|_| next_device()).collect();
    let worlds = World::local(ranks).unwrap().into_iter().zip(devices.clone());
    let results = std::thread::scope(|scope| {
        let rank = &rank;
        let start = |(world, device)| scope.spawn(move || rank(Rank::new(world, device)));
        let threads: Vec<_> = worlds.map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    devices.iter().for_each(is_clean);
    (results, devices)
}

/// As [`each_rank`], in a world that has NCCL.
pub(crate) fn with_nccl<R: Send>(ranks: u32, rank: impl Fn(Rank) -> R + Sync) -> Vec<R> {
    each_rank(ranks, |one| {
        block_on(one.world.use_nccl(one.gpu())).unwrap();
        rank(one)
    })
}

/// Returns a GPU that no other rank has. All ranks of a test have NCCL.
pub(crate) fn next_device() -> Device {
    LazyLock::force(&NCCL);
    DRIVER.next_device()
}

/// Waits until nothing is left on a GPU.
pub(crate) fn is_clean(device: &Device) {
    until(|| NCCL.live(device.ordinal() as u32) == 0 && device.counters().retains == 0);
    let counters = device.counters();
    let live = [counters.streams, counters.events, counters.allocations, counters.pinned_allocations, counters.modules];
    assert_eq!((live, counters.graphs, counters.executable_graphs), ([0; 5], 0, 0), "{counters:?}");
}

/// A graph whose node `up` uploads its input `x`, and the value of that node.
pub(crate) fn uploaded<T: Element>() -> (Graph, Value<Buffer<T>>) {
    let mut g = Graph::new();
    let x = g.input::<Vec<T>>("x");
    let up = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<T>| Ok(s.upload(x)?));
    (g, up)
}

/// Adds an output `out` with the elements of a buffer.
pub(crate) fn output<T: Element>(g: &mut Graph, buffer: &Value<Buffer<T>>) {
    let down = g.try_kernel("down", buffer, |s: &mut DeviceStream, x: &Buffer<T>| Ok(s.download(x)?));
    let out = g.task("out", &down, |x: &HostBuffer<T>| x.to_vec());
    g.output("out", &out);
}

/// Runs a graph with the output `out`.
pub(crate) fn run_graph<T: Element, R: Element>(rank: &Rank, g: &Graph, x: Vec<T>) -> Result<Vec<R>> {
    let plan = g.compile_for(&rank.world)?;
    let mut outputs = block_on(rank.exec.run(&plan, inputs! { "x" => x }))?;
    Ok(outputs.take::<Vec<R>>("out")?.to_vec())
}

/// Uploads `x`, does what `build` adds, and returns the elements of the result.
pub(crate) fn run<T: Element, R: Element>(
    rank: &Rank,
    x: Vec<T>,
    build: impl Fn(&mut Graph, &Value<Buffer<T>>) -> Value<Buffer<R>>,
) -> Result<Vec<R>> {
    let (mut g, up) = uploaded::<T>();
    let made = build(&mut g, &up);
    output(&mut g, &made);
    run_graph(rank, &g, x)
}
