//! Resizing with the triangle filter. Positions and weights are fractions with known denominators, so only
//! the result is rounded.

use std::sync::LazyLock;

use super::size::{CHANNELS, Size};
use crate::device::{Buffer, BufferSlice, DeviceStream, In, Kernel, Launch, Out};
use crate::error::{Kind, Result};

/// With longer sides, positions would not fit in 64 bits.
const SIDE_MAX: u32 = i32::MAX as u32;

/// The most threads that compute a pixel together: those of a warp.
const LANES_MAX: u32 = 32;

type Resize = Kernel<(In<u8>, Out<u8>, u32, u32, u32, u32, u32)>;

static RESIZE: LazyLock<Resize> = LazyLock::new(|| {
    // SAFETY: these are its parameters. The kernel reads only pixels of the picture, and writes each pixel of
    // the result once. `resize` passes buffers of both sizes, neither empty, and a power of two of lanes that
    // a warp has.
    unsafe { Resize::ptx("anabranch_resize", include_str!("resize.ptx")) }.twin(
        |_, (pixels, out, from_width, from_height, width, height, _)| {
            resize_on_host(pixels, out, Axis::new(from_width, width), Axis::new(from_height, height));
        },
    )
});

/// Returns a picture scaled to the size `to`, up or down, each side by itself, with the triangle filter.
///
/// A side that grows is interpolated between the two nearest pixels (OpenCV's `INTER_LINEAR`). For a side
/// that shrinks, the filter is as wide as two pixels of the result, so that every pixel counts and nothing
/// aliases: weights fall linearly from the centre of the new pixel to zero at the centres of its neighbours.
/// That is Pillow's `BILINEAR` and PyTorch's `bilinear` with `antialias` (after D. Schumacher, "General
/// Filtered Image Rescaling", Graphics Gems III, 1992), but exact: each value is rounded once, to nearest,
/// halves up.
///
/// Pixels are squares: the centre of the first one is half a pixel away from the edge. Positions beyond the
/// edges have no weight.
///
/// A pixel of the result costs as many multiplications as pixels contribute to it: four, or four times as
/// many as become one. A host needs fewer, because it resizes the height first; on a GPU up to 32 threads
/// share a pixel.
///
/// # Errors
/// If `pixels` is not a picture of the size `from` or is of another device; if `from` is empty and `to` is
/// not; if a side is over 2^31 - 1; if the reduction is so large that sums might not fit in 64 bits (one
/// pixel can be made of 94,906,265, four of twice as many, and so on with the square root); or as
/// [`DeviceStream::alloc`].
///
/// ```
/// use anabranch::device::kernels::{Size, resize};
/// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let small = g.try_kernel("small", (), |s: &mut DeviceStream| {
///     let picture = s.upload(&[100; 64 * 48 * 3])?;
///     let small = resize(s, &picture, Size::new(64, 48), Size::new(16, 12))?;
///     Ok(s.download(&small)?)
/// });
/// g.output("small", &small);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<u8>>("small")?[..], [100; 16 * 12 * 3]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn resize(s: &mut DeviceStream, pixels: &BufferSlice<u8>, from: Size, to: Size) -> Result<Buffer<u8>> {
    from.is_of("the picture to resize", pixels)?;
    check(from, to)?;
    let mut out = s.alloc(to.elements())?;
    if out.is_empty() {
        return Ok(out);
    }
    // As many lanes as columns to add: two for each column that becomes one.
    let lanes = (2 * (from.width / to.width)).min(LANES_MAX).next_power_of_two();
    let args = (pixels, &mut *out, from.width, from.height, to.width, to.height, lanes);
    s.launch(&RESIZE, Launch::for_len(to.pixels().saturating_mul(lanes as usize)), args)?;
    Ok(out)
}

fn check(from: Size, to: Size) -> Result<()> {
    for side in [from.width, from.height, to.width, to.height] {
        if side > SIDE_MAX {
            return Err(Kind::Limit { what: "a side of a picture".into(), got: side as usize, limit: SIDE_MAX as usize }.into());
        }
    }
    for (what, side) in [("the width of the picture to resize", from.width), ("the height of the picture to resize", from.height)]
    {
        if side == 0 && to.pixels() > 0 {
            return Err(Kind::Setting { what, must: "at least 1", got: 0 }.into());
        }
    }
    // The weights of an axis add up to at most 2.5 * longer^2 / to, where longer is the larger of `from` and
    // `to`: the sum over a triangle is largest with an input in its centre. For both axes the product is
    // below 8 * area^2 / pixels. Multiplied by a value of 8 bits it must fit in 64 bits.
    let area = Size::new(from.width.max(to.width), from.height.max(to.height)).pixels();
    let limit = ((to.pixels() as u128) << 53).isqrt() as usize;
    if to.pixels() > 0 && area > limit {
        let what = format!("the area that holds a picture before and after it is resized to {} x {}", to.width, to.height);
        return Err(Kind::Limit { what, got: area, limit }.into());
    }
    Ok(())
}

/// The sides of a picture in one direction. Lengths are in units of `1 / (2 * to)` of an input, so that all
/// are integers.
#[derive(Clone, Copy)]
struct Axis {
    from: u64,
    to: u64,
}

/// The inputs that make one output: one for each weight, from `first` on.
struct Taps {
    first: usize,
    weights: Vec<u64>,
    total: u64,
}

impl Axis {
    fn new(from: u32, to: u32) -> Self {
        Self { from: from.into(), to: to.into() }
    }

    /// Output `i` has its centre at `(i + 1/2) * from / to`, and input `j` at `j + 1/2`. The triangle is as
    /// wide as two inputs or, if those are closer together, two outputs. It is as high as half its width.
    fn taps(self, i: u64) -> Taps {
        let Self { from, to } = self;
        let (centre, reach) = ((2 * i + 1) * from, 2 * from.max(to));
        let first = (centre + to).saturating_sub(reach) / (2 * to);
        let at = (first..from).map(|j| (2 * j + 1) * to);
        let weights: Vec<u64> = at.take_while(|at| *at < centre + reach).map(|at| reach - at.abs_diff(centre)).collect();
        Taps { first: first as usize, total: weights.iter().sum(), weights }
    }

    fn all(self) -> impl Iterator<Item = Taps> {
        (0..self.to).map(move |i| self.taps(i))
    }
}

fn resize_on_host(pixels: &[u8], out: &mut [u8], width: Axis, height: Axis) {
    let columns: Vec<Taps> = width.all().collect();
    let row = CHANNELS * width.from as usize;
    let mut sums = vec![0; row];
    for (y, out) in height.all().zip(out.chunks_exact_mut(CHANNELS * columns.len())) {
        sums.fill(0);
        for (weight, pixels) in y.weights.iter().zip(pixels[y.first * row..].chunks_exact(row)) {
            sums.iter_mut().zip(pixels).for_each(|(sum, value)| *sum += weight * u64::from(*value));
        }
        for (x, out) in columns.iter().zip(out.chunks_exact_mut(CHANNELS)) {
            let (mut sum, total) = ([0; CHANNELS], x.total * y.total);
            for (weight, pixel) in x.weights.iter().zip(sums[CHANNELS * x.first..].chunks_exact(CHANNELS)) {
                sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += weight * value);
            }
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out = ((sum + total / 2) / total) as u8);
        }
    }
}
