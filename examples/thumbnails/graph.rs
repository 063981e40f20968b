//! The graph of one picture. What does not wait for something else goes on beside it: the plan knows what waits for what.
//!
//! ```text
//!  source ─▶ read ─▶ decode ─▶ resize ─┬─▶ stats ─┐
//!                                      ├──────────┴─▶ normalise ─▶ tensor
//!                                      └─▶ encode ─▶ write ◀─ target
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use anabranch::{Graph, HostStream, PerOperator, Plan, take};
use image::RgbImage;

use crate::files::{read, write};
use crate::image_ops::{Stats, decode, encode_jpeg, normalise, resize, stats};

/// The nodes that wait for files. All others compute.
pub(crate) const AWAITED: [&str; 2] = ["read", "write"];

/// JPEG quality of the thumbnails: at this size no artefact is seen.
const QUALITY: u8 = 88;

/// Returns the plan that every picture runs: inputs `source` and `target`, outputs `thumbnail`, `stats` and `tensor`.
///
/// # Errors
/// If the graph is wrong; then it is the same for every picture.
pub(crate) fn thumbnail_plan(side: u32) -> anabranch::Result<Plan> {
    let mut g = Graph::new();
    let source = g.input::<PathBuf>("source");
    let target = g.input::<PathBuf>("target");

    // An async node is polled where the run is awaited, so it can use tokio. The others run on the executor's workers.
    let bytes = g.future("read", &source, async |path: Arc<PathBuf>| Ok(read(&path).await?));
    let picture = g.try_task("decode", take(&bytes), |bytes: Vec<u8>| Ok(decode(&bytes)?));

    // Kernels launch onto a device stream: these two can move to a GPU. Taking the large picture frees it at once.
    let small = g.kernel("resize", take(&picture), move |stream: &mut HostStream, picture: RgbImage| {
        stream.launch(|| resize(&picture, side))
    });
    let colours = g.task("stats", &small, |small: &RgbImage| stats(small));
    let tensor = g.kernel("normalise", (&small, &colours), |stream: &mut HostStream, small: &RgbImage, colours: &Stats| {
        stream.launch(|| normalise(small, colours))
    });

    let jpeg = g.try_task("encode", &small, |small: &RgbImage| Ok(encode_jpeg(small, QUALITY)?));
    g.future("write", (take(&jpeg), &target), async |jpeg: Vec<u8>, path: Arc<PathBuf>| Ok(write(&path, &jpeg).await?));

    g.output("thumbnail", &small);
    g.output("stats", &colours);
    g.output("tensor", &tensor);
    g.compile(&PerOperator)
}
