//! Built-in kernels: arithmetic on buffers, and the preparation of pictures for a network.
//!
//! All of them use a [`DeviceStream`], so they run on every device, and give the same bits on all of them:
//! each operation on `f32` is rounded to nearest by itself, sums have a fixed order, and resizing is exact
//! arithmetic on integers. Only the payload of a NaN may differ. To set or to copy elements, see
//! [`DeviceStream::fill`] and [`DeviceStream::copy`].
//!
//! Pictures have three interleaved channels of 8 bits, row after row (HWC): 3 * width * height elements.
//!
//! # Examples
//! A picture becomes the input of a network:
//! ```
//! use anabranch::device::kernels::{Size, normalise, resize};
//! use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, inputs};
//!
//! let (photo, small) = (Size::new(640, 480), Size::new(224, 224));
//! let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
//! let scale = deviation.map(|deviation| 1.0 / (255.0 * deviation));
//! let bias = [0, 1, 2].map(|channel| -mean[channel] / deviation[channel]);
//!
//! let mut g = Graph::new();
//! let pixels = g.input::<Vec<u8>>("pixels");
//! let tensor = g.try_kernel("prepare", &pixels, move |s: &mut DeviceStream, pixels: &Vec<u8>| {
//!     let pixels = s.upload(pixels)?;
//!     let pixels = resize(s, &pixels, photo, small)?;
//!     Ok(normalise(s, &pixels, small, scale, bias)?)
//! });
//! let tensor = g.try_kernel("fetch", &tensor, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
//! let white = g.task("look", &tensor, |tensor: &HostBuffer<f32>| tensor[0]);
//! g.output("white", &white);
//!
//! let exec = Executor::inline(); // or Executor::cuda(0)?
//! let run = exec.run(&g.compile()?, inputs! { "pixels" => vec![255_u8; 3 * 640 * 480] });
//! assert!((*futures::executor::block_on(run)?.take::<f32>("white")? - 0.515 / 0.229).abs() < 1e-5);
//! # Ok::<(), anabranch::Error>(())
//! ```
// Each kernel is a file of CUDA C, beside the PTX that `.ci/nvrtc` makes of it. Its twin does the same
// operations in the same order.

mod normalise;
mod reduce;
mod resize;
mod scale_add;
mod size;

pub use normalise::normalise;
pub use reduce::{mean, sum};
pub use resize::resize;
pub use scale_add::scale_add;
pub use size::Size;

#[cfg(doc)]
use super::DeviceStream;
