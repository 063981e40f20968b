//! Conversion from the bytes of a camera to the floats of a network.

use std::sync::LazyLock;

use super::size::{CHANNELS, Size};
use crate::device::queue::Arg;
use crate::device::{Buffer, BufferSlice, DeviceStream, In, Kernel, KernelParam, Launch, Out};
use crate::error::Result;

/// The scale and the bias of a channel. It has eight bytes, so that it is one parameter.
#[derive(Clone, Copy)]
struct Affine {
    scale: f32,
    bias: f32,
}

impl KernelParam for Affine {
    type Arg<'a> = Self;
    type Host<'a> = Self;

    fn host<'a>(arg: Self::Arg<'a>) -> Result<Self::Host<'a>> {
        Ok(arg)
    }

    fn device<'a>(arg: Self::Arg<'a>) -> Arg<'a> {
        let ([a, b, c, d], [e, f, g, h]) = (arg.scale.to_ne_bytes(), arg.bias.to_ne_bytes());
        Arg::Number([a, b, c, d, e, f, g, h])
    }
}

type Normalise = Kernel<(In<u8>, Out<f32>, u64, Affine, Affine, Affine)>;

static NORMALISE: LazyLock<Normalise> = LazyLock::new(|| {
    // SAFETY: these are its parameters, with eight bytes for an `Affine`. Each thread below `n` reads and
    // writes three elements of its own, and both buffers have `3 * n`.
    unsafe { Normalise::ptx("anabranch_normalise", include_str!("normalise.ptx")) }.twin(
        |_, (pixels, out, n, red, green, blue)| {
            for (channel, Affine { scale, bias }) in [red, green, blue].into_iter().enumerate() {
                let values = pixels.iter().skip(channel).step_by(CHANNELS);
                let plane = out.iter_mut().skip(channel * n as usize).take(n as usize);
                plane.zip(values).for_each(|(out, value)| *out = f32::from(*value) * scale + bias);
            }
        },
    )
});

/// Returns `pixels * scale[channel] + bias[channel]` with the channels one after the other: from HWC to CHW.
///
/// With `scale = 1 / (255 * deviation)` and `bias = -mean / deviation` this is torchvision's `ToTensor` and
/// `Normalize` in one. The product is rounded, then the sum.
///
/// # Errors
/// If `pixels` is not a picture of that size or is of another device; or as [`DeviceStream::alloc`].
///
/// ```
/// use anabranch::device::kernels::{Size, normalise};
/// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let planes = g.try_kernel("planes", (), |s: &mut DeviceStream| {
///     let pixels = s.upload(&[0, 2, 4, 0, 2, 4])?;                // two pixels of red, green and blue
///     let planes = normalise(s, &pixels, Size::new(2, 1), [0.5; 3], [1.0; 3])?;
///     Ok(s.download(&planes)?)
/// });
/// g.output("planes", &planes);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<f32>>("planes")?[..], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn normalise(
    s: &mut DeviceStream,
    pixels: &BufferSlice<u8>,
    size: Size,
    scale: [f32; 3],
    bias: [f32; 3],
) -> Result<Buffer<f32>> {
    size.is_of("the picture to normalise", pixels)?;
    let [red, green, blue] = [0, 1, 2].map(|channel| Affine { scale: scale[channel], bias: bias[channel] });
    let mut out = s.alloc(pixels.len())?;
    let launch = Launch::for_len(size.pixels());
    s.launch(&NORMALISE, launch, (pixels, &mut out, size.pixels() as u64, red, green, blue))?;
    Ok(out)
}
