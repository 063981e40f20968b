//! Sums and means. The order of the additions depends only on the length, so every device rounds alike.

use std::sync::LazyLock;

use crate::device::{Buffer, BufferSlice, DeviceStream, In, Kernel, Launch, Out};
use crate::error::Result;

/// The number of partial sums: the threads of a block.
const LANES: usize = 256;
/// The number of elements that each of them adds.
const ROWS: usize = 16;
/// The number of elements that one step reduces to one.
const CHUNK: usize = LANES * ROWS;

type Reduce = Kernel<(In<f32>, Out<f32>, u64, f32)>;

static REDUCE: LazyLock<Reduce> = LazyLock::new(|| {
    // SAFETY: these are its parameters. A block reads below `n`, writes one sum of its own, and waits for all
    // lanes before it reads their sums. `step` passes `n` elements, blocks of as many threads as the kernel
    // has lanes, and room for a sum of each block.
    unsafe { Reduce::ptx("anabranch_reduce", include_str!("reduce.ptx")) }.twin(|_, (x, out, _, divisor)| {
        // An empty buffer has no chunk, but it has a sum.
        let chunks = x.chunks(CHUNK).chain(std::iter::repeat(&[][..]));
        out.iter_mut().zip(chunks).for_each(|(out, chunk)| *out = sum_of_chunk(chunk) / divisor);
    })
});

/// Returns the sum of all elements, as a buffer of one; 0 if there are none.
///
/// The order is fixed by the length. 4096 elements become one, repeatedly, until one is left. Within 4096
/// elements, each of 256 lanes adds every 256th to 0 in order. Then the upper half of the lanes is added to
/// the lower half, eight times (M. Harris, "Optimizing Parallel Reduction in CUDA", 2007). So an element
/// takes part in at most 24 additions for every factor of 4096 in the length, and rounding errors stay small.
///
/// # Errors
/// If `x` is of another device, or as [`DeviceStream::alloc`].
///
/// # Examples
/// ```
/// use anabranch::device::kernels;
/// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let sum = g.try_kernel("sum", (), |s: &mut DeviceStream| {
///     let mut ones = s.alloc(1_000_000)?;
///     s.fill(&mut ones, 0.1_f32)?;
///     let sum = kernels::sum(s, &ones)?;
///     Ok(s.download(&sum)?)
/// });
/// g.output("sum", &sum);
/// let exec = Executor::inline(); // or Executor::cuda(0)?
/// let run = exec.run(&g.compile()?, Inputs::new());
/// let sum = futures::executor::block_on(run)?.take::<HostBuffer<f32>>("sum")?;
/// assert!((sum[0] - 100_000.0).abs() < 0.1); // One after the other they would make 100958.34.
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn sum(s: &mut DeviceStream, x: &BufferSlice<f32>) -> Result<Buffer<f32>> {
    reduce(s, x, 1.0)
}

/// Returns the [`sum`] of all elements divided by their number, as a buffer of one; NaN if there are none.
///
/// # Errors
/// As [`sum`].
///
/// ```
/// use anabranch::device::kernels::mean;
/// use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0, 2.0, 6.0])?));
/// let y = g.try_kernel("mean", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
///     let mean = mean(s, x)?;
///     Ok(s.download(&mean)?)
/// });
/// g.output("mean", &y);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<f32>>("mean")?[0], 3.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn mean(s: &mut DeviceStream, x: &BufferSlice<f32>) -> Result<Buffer<f32>> {
    reduce(s, x, x.len() as f32)
}

fn reduce(s: &mut DeviceStream, x: &BufferSlice<f32>, divisor: f32) -> Result<Buffer<f32>> {
    let mut sums = step(s, x, divisor)?;
    while sums.len() > 1 {
        sums = step(s, &sums, divisor)?;
    }
    Ok(sums)
}

/// Adds each chunk. The last step divides the sum.
fn step(s: &mut DeviceStream, x: &BufferSlice<f32>, divisor: f32) -> Result<Buffer<f32>> {
    let chunks = x.len().div_ceil(CHUNK).max(1);
    let mut sums = s.alloc(chunks)?;
    // A grid has up to 2^31 blocks. No memory has that many chunks, which would take 32 TiB.
    let launch = Launch::new([chunks as u32, 1, 1], [LANES as u32, 1, 1]);
    let divisor = if chunks == 1 { divisor } else { 1.0 };
    s.launch(&REDUCE, launch, (x, &mut sums, x.len() as u64, divisor))?;
    Ok(sums)
}

fn sum_of_chunk(chunk: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for row in chunk.chunks(LANES) {
        lanes.iter_mut().zip(row).for_each(|(lane, x)| *lane += x);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        let (lower, upper) = lanes.split_at_mut(width);
        lower.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += *upper);
    }
    lanes[0]
}
