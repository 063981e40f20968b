//! The graph of one picture. What does not wait for something else goes on beside it: the plan knows what
//! waits for what.
//!
//! ```text
//!  source ─▶ read ─▶ decode ─▶ upload ═▶ resize ═╦═══════════════════════════════▶ normalise ═▶ tensor
//!                                                ║                  ┌─▶ stats ─────┘
//!                                                ╚═▶ download ─▶ thumbnail ─▶ encode ─▶ write ◀─ target
//! ```
//!
//! Along double lines goes memory of the device: a GPU's, or the host's. The graph is the same for both.

use std::path::PathBuf;
use std::sync::Arc;

use anabranch::{Buffer, DeviceStream, Graph, HostBuffer, Plan, take};
use image::RgbImage;

use super::device_ops::{Picture, download, normalise, resize, to_image, upload};
use super::files::{read, write};
use super::image_ops::{Stats, decode, encode_jpeg, stats};

/// A picture on its way between kernels.
type OnDevice = Picture<Buffer<u8>>;

/// JPEG quality of the thumbnails: at this size no artefact is seen.
const QUALITY: u8 = 88;

/// Returns the plan that every picture runs: inputs `source` and `target`, outputs `thumbnail`, `stats` and
/// `tensor`.
///
/// # Errors
/// If the graph is wrong; then it is the same for every picture.
pub(crate) fn thumbnail_plan(side: u32) -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    let source = g.input::<PathBuf>("source");
    let target = g.input::<PathBuf>("target");

    // An async node is polled where the run is awaited, so it can use tokio. The others run on the executor's
    // workers.
    let bytes = g.future("read", &source, async |path: Arc<PathBuf>| Ok(read(&path).await?));
    let picture = g.try_task("decode", take(&bytes), |bytes: Vec<u8>| Ok(decode(&bytes)?));

    // Kernels work on the device. Taking the large picture frees it as soon as the small one is made.
    let large = g.try_kernel("upload", take(&picture), |s: &mut DeviceStream, picture: RgbImage| Ok(upload(s, &picture)?));
    let small = g.try_kernel("resize", take(&large), move |s: &mut DeviceStream, large: OnDevice| Ok(resize(s, &large, side)?));
    let copy = g.try_kernel("download", &small, |s: &mut DeviceStream, small: &OnDevice| Ok(download(s, small)?));

    // A task starts when the device has made what it reads; until then no thread waits for it.
    let thumbnail = g.task("thumbnail", &copy, |copy: &Picture<HostBuffer<u8>>| to_image(copy));
    let colours = g.task("stats", &thumbnail, |small: &RgbImage| stats(small));
    let jpeg = g.try_task("encode", &thumbnail, |small: &RgbImage| Ok(encode_jpeg(small, QUALITY)?));
    g.future("write", (take(&jpeg), &target), async |jpeg: Vec<u8>, path: Arc<PathBuf>| Ok(write(&path, &jpeg).await?));

    // The small picture is still on the device, so only the numbers go there again.
    let scaled = g.try_kernel("normalise", (&small, &colours), |s: &mut DeviceStream, small: &OnDevice, colours: &Stats| {
        Ok(normalise(s, small, colours)?)
    });
    let tensor = g.try_kernel("tensor", &scaled, |s: &mut DeviceStream, scaled: &Picture<Buffer<f32>>| Ok(download(s, scaled)?));

    g.output("thumbnail", &thumbnail);
    g.output("stats", &colours);
    g.output("tensor", &tensor);
    g.compile()
}
