//! The weighted sum of two buffers.

use std::sync::LazyLock;

use crate::device::{Buffer, BufferSlice, DeviceStream, In, Kernel, Launch, Out};
use crate::error::{Kind, Result};

type ScaleAdd = Kernel<(In<f32>, In<f32>, Out<f32>, u64, f32, f32)>;

static SCALE_ADD: LazyLock<ScaleAdd> = LazyLock::new(|| {
    // SAFETY: these are its parameters. Each thread below `n` reads and writes one element of its own, and
    // `n` is the length of all three buffers.
    unsafe { ScaleAdd::ptx("anabranch_scale_add", include_str!("scale_add.ptx")) }.twin(|_, (x, y, out, _, a, b)| {
        let terms = x.iter().zip(y).map(|(x, y)| a * x + b * y);
        out.iter_mut().zip(terms).for_each(|(out, term)| *out = term);
    })
});

/// Returns `a * x + b * y`, element by element. The products are rounded, then the sum: there is no fused
/// multiply-add.
///
/// # Errors
/// If `x` and `y` differ in length or are of another device; or as [`DeviceStream::alloc`].
///
/// # Examples
/// ```
/// use anabranch::device::kernels;
/// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let blend = g.try_kernel("blend", (), |s: &mut DeviceStream| {
///     let (x, y) = (s.upload(&[1.0, 2.0])?, s.upload(&[10.0, 20.0])?);
///     let blend = kernels::scale_add(s, 0.5, &x, 2.0, &y)?;
///     Ok(s.download(&blend)?)
/// });
/// g.output("blend", &blend);
/// let exec = Executor::inline(); // or Executor::cuda(0)?
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<f32>>("blend")?[..], [20.5, 41.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn scale_add(s: &mut DeviceStream, a: f32, x: &BufferSlice<f32>, b: f32, y: &BufferSlice<f32>) -> Result<Buffer<f32>> {
    if y.len() != x.len() {
        return Err(Kind::BufferLength { what: "the second buffer of scale_add", got: y.len(), wanted: x.len() }.into());
    }
    let mut out = s.alloc(x.len())?;
    s.launch(&SCALE_ADD, Launch::for_len(x.len()), (x, y, &mut out, x.len() as u64, a, b))?;
    Ok(out)
}
