//! Bilinear resizing in integers: positions and weights are fractions whose denominators are known, so nothing is rounded but the result.

use std::sync::LazyLock;

use super::size::{CHANNELS, Size};
use crate::device::{Buffer, DeviceStream, In, Kernel, Launch, Out};
use crate::error::{Kind, Result};

/// With longer sides positions would not fit 64 bits.
const SIDE_MAX: u32 = i32::MAX as u32;

type Resize = Kernel<(In<u8>, Out<u8>, u32, u32, u32, u32)>;

static RESIZE: LazyLock<Resize> = LazyLock::new(|| {
    Resize::ptx("anabranch_resize", include_str!("resize.ptx")).twin(
        |_, (pixels, out, from_width, from_height, width, height)| {
            resize_on_host(pixels, Size { width: from_width, height: from_height }, out, Size { width, height });
        },
    )
});

/// Returns a picture scaled to the size `to`, up or down, by bilinear interpolation.
///
/// Pixels are squares: the centre of the first is half a pixel away from the edge (OpenCV's `INTER_LINEAR`, PyTorch's `bilinear` without
/// `align_corners`). Beyond the outer centres the picture goes on as it is there. Each value is exact, rounded to nearest, halves up. Always
/// four pixels make one: when a side shrinks to less than half, some pixels count for nothing.
///
/// # Errors
/// If `pixels` is not a picture of the size `from` or is of another device; if `from` is empty and `to` is not; if a side is over 2^31 - 1; or as
/// [`DeviceStream::alloc`].
pub fn resize(s: &mut DeviceStream, pixels: &Buffer<u8>, from: Size, to: Size) -> Result<Buffer<u8>> {
    from.is_of("the picture to resize", pixels)?;
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
    let mut out = s.alloc(to.elements())?;
    let args = (pixels, &mut out, from.width, from.height, to.width, to.height);
    s.launch(&RESIZE, Launch::for_len(to.pixels()), args)?;
    Ok(out)
}

/// The two inputs beside an output, and the weight of the second out of `2 * to`.
#[derive(Clone, Copy)]
struct Taps {
    near: usize,
    far: usize,
    weight: u64,
}

/// Output `i` has its centre at `(i + 1/2) * from / to - 1/2 = ((2 i + 1) * from - to) / (2 to)` of the inputs. Before the first, it is at the
/// first; after the last, that one is both of its neighbours.
fn taps(i: u32, from: u32, to: u32) -> Taps {
    let (i, from, to) = (u64::from(i), u64::from(from), u64::from(to));
    let at = ((2 * i + 1) * from).saturating_sub(to);
    let near = at / (2 * to);
    Taps { near: near as usize, far: (near + 1).min(from - 1) as usize, weight: at % (2 * to) }
}

fn resize_on_host(pixels: &[u8], from: Size, out: &mut [u8], to: Size) {
    if out.is_empty() {
        return;
    }
    let columns: Vec<Taps> = (0..to.width).map(|x| taps(x, from.width, to.width)).collect();
    let (twice_width, twice_height) = (2 * u64::from(to.width), 2 * u64::from(to.height));
    let all = twice_width * twice_height;
    let row = CHANNELS * from.width as usize;
    for (y, out) in (0..to.height).zip(out.chunks_exact_mut(CHANNELS * columns.len())) {
        let y = taps(y, from.height, to.height);
        let (upper, lower) = (&pixels[y.near * row..][..row], &pixels[y.far * row..][..row]);
        for (x, out) in columns.iter().zip(out.chunks_exact_mut(CHANNELS)) {
            let between = |line: &[u8], channel: usize| {
                let [near, far] = [x.near, x.far].map(|x| u64::from(line[CHANNELS * x + channel]));
                near * (twice_width - x.weight) + far * x.weight
            };
            for (channel, out) in out.iter_mut().enumerate() {
                let sum = between(upper, channel) * (twice_height - y.weight) + between(lower, channel) * y.weight;
                *out = ((sum + all / 2) / all) as u8;
            }
        }
    }
}
