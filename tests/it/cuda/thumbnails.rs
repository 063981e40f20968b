//! The graph of the example `thumbnails`, on the host and on a GPU: one graph, the same bits. Also the device
//! that the example chooses.

#[path = "../../../examples/programs/thumbnails/device.rs"]
mod device;
#[path = "../../../examples/programs/thumbnails/device_ops.rs"]
mod device_ops;
#[path = "../../../examples/programs/thumbnails/files.rs"]
#[allow(dead_code)]
mod files;
#[path = "../../../examples/programs/thumbnails/graph.rs"]
#[allow(dead_code)]
mod graph;
#[path = "../../../examples/programs/thumbnails/image_ops.rs"]
#[allow(dead_code)]
mod image_ops;

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anabranch::{Executor, HostBuffer, inputs};
use image::RgbImage;

pub(super) use self::device::Device;
use self::device_ops::Picture;
use self::graph::thumbnail_plan;
use self::image_ops::Stats;
use super::Gpu;
use super::builtin::register;
use crate::builtin::{assert_same_bits, picture, size};

/// The results of the graph for a picture.
struct Made {
    thumbnail: RgbImage,
    stats: Stats,
    tensor: Vec<f32>,
    file: Vec<u8>,
}

/// Makes thumbnails of all pictures at once, as the example does.
fn thumbnails(exec: &Executor, side: u32, pictures: &[PathBuf], out: &Path) -> Vec<Made> {
    let (plan, tokio) = (thumbnail_plan(side).unwrap(), tokio::runtime::Builder::new_current_thread().build().unwrap());
    let runs = pictures.iter().enumerate().map(async |(index, source)| {
        let target = out.join(format!("{index}.jpg"));
        let inputs = inputs! { "source" => source.clone(), "target" => target.clone() };
        let mut outputs = exec.run(&plan, inputs).await.unwrap();
        let tensor = outputs.take::<Picture<HostBuffer<f32>>>("tensor").unwrap();
        let thumbnail = outputs.take::<RgbImage>("thumbnail").unwrap();
        assert_eq!([tensor.size.width, tensor.size.height], [thumbnail.width(), thumbnail.height()]);
        let stats = *outputs.take::<Stats>("stats").unwrap();
        Made { thumbnail: RgbImage::clone(&thumbnail), stats, tensor: tensor.values.to_vec(), file: fs::read(target).unwrap() }
    });
    tokio.block_on(futures::future::join_all(runs))
}

/// Pictures that shrink by a large and by a small factor, that grow, and that are one pixel wide; and a
/// photograph.
fn pictures(folder: &Path) -> Vec<PathBuf> {
    let noise = [[97, 61], [25, 30], [20, 7], [1, 50], [24, 24]].into_iter().enumerate().map(|(seed, sides)| {
        let (path, size) = (folder.join(format!("{seed}.png")), size(sides));
        let image = RgbImage::from_raw(size.width, size.height, picture(seed as u64, size)).unwrap();
        image.save(&path).unwrap();
        path
    });
    let photo = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/programs/thumbnails/photos/chelsea.jpg");
    noise.chain([photo]).collect()
}

#[test]
fn thumbnails_and_tensors_have_the_same_bits_on_host_and_gpu() {
    // Seen to fail with a twin of resize that rounds down, with one of normalise that fuses multiplication
    // and addition, and with a kernel node that mixes up the channels on a host.
    register();
    let folder = env::temp_dir().join(format!("anabranch-one-graph-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (gpu, pictures) = (Gpu::new(), pictures(&folder));
    let host = thumbnails(&Executor::inline(), 24, &pictures, &folder);
    for workers in [1, 2] {
        let made = thumbnails(&gpu.executor(workers), 24, &pictures, &folder);
        for ((gpu, host), path) in made.iter().zip(&host).zip(&pictures) {
            let which = path.display().to_string();
            assert_eq!(gpu.thumbnail.dimensions(), host.thumbnail.dimensions(), "{which}");
            assert_eq!(gpu.thumbnail.as_raw(), host.thumbnail.as_raw(), "{which}");
            assert_eq!(gpu.stats, host.stats, "{which}");
            assert_same_bits(&gpu.tensor, &host.tensor, &which);
            assert_eq!(gpu.file, host.file, "{which}");
        }
    }
    let [kernels, graphs] = ["cuLaunchKernel", "cuGraphLaunch"].map(|call| gpu.device.calls_of(call));
    assert!(kernels >= 2 * 2 && graphs >= pictures.len() as u64, "the GPU did the work: {kernels} kernels, {graphs} graphs");
    fs::remove_dir_all(folder).unwrap();
    gpu.is_clean();
}
