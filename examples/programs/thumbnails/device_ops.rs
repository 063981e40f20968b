//! The work of the graph's kernels: what a stream of any device is told to do with one picture.

use anabranch::device::Element;
use anabranch::device::kernels::{self, Size};
use anabranch::{Buffer, DeviceStream, HostBuffer, Result};
use image::RgbImage;

use super::image_ops::{Stats, fitted};

/// A picture whose values are in the memory of the device, or in the host's once they were downloaded.
pub(crate) struct Picture<B> {
    pub(crate) size: Size,
    /// Three for each pixel.
    pub(crate) values: B,
}

/// Copies a picture to the device.
pub(crate) fn upload(s: &mut DeviceStream, image: &RgbImage) -> Result<Picture<Buffer<u8>>> {
    let size = Size::new(image.width(), image.height());
    Ok(Picture { size, values: s.upload(image.as_raw())? })
}

/// Scales a picture, up or down, so that its longer side is `side` pixels.
pub(crate) fn resize(s: &mut DeviceStream, picture: &Picture<Buffer<u8>>, side: u32) -> Result<Picture<Buffer<u8>>> {
    let (width, height) = fitted(picture.size.width, picture.size.height, side);
    let size = Size::new(width, height);
    Ok(Picture { size, values: kernels::resize(s, &picture.values, picture.size, size)? })
}

/// Makes of every value `(x / 255 - mean) / std_dev`, and of a picture what a network takes: channels first,
/// then rows, then columns. A constant channel becomes zeros.
pub(crate) fn normalise(s: &mut DeviceStream, picture: &Picture<Buffer<u8>>, stats: &Stats) -> Result<Picture<Buffer<f32>>> {
    let per_channel = |of: fn(f32, f32) -> f32| {
        [0, 1, 2].map(|channel| match stats.std_dev[channel] {
            0.0 => 0.0,
            std_dev => of(stats.mean[channel], std_dev),
        })
    };
    let scale = per_channel(|_, std_dev| 1.0 / (255.0 * std_dev));
    let bias = per_channel(|mean, std_dev| -mean / std_dev);
    Ok(Picture { size: picture.size, values: kernels::normalise(s, &picture.values, picture.size, scale, bias)? })
}

/// Copies a picture to the host, where later nodes can look at it.
pub(crate) fn download<T: Element>(s: &mut DeviceStream, picture: &Picture<Buffer<T>>) -> Result<Picture<HostBuffer<T>>> {
    Ok(Picture { size: picture.size, values: s.download(&picture.values)? })
}

/// Returns what was downloaded as a picture like any other.
pub(crate) fn to_image(picture: &Picture<HostBuffer<u8>>) -> RgbImage {
    let Picture { size, values } = picture;
    RgbImage::from_raw(size.width, size.height, values.to_vec()).expect("a picture has three values for each pixel")
}

#[cfg(test)]
mod tests {
    use anabranch::{Executor, Graph, inputs};
    use image::Rgb;

    use super::super::image_ops::stats;
    use super::*;

    #[test]
    fn a_constant_channel_becomes_zeros() {
        let image = RgbImage::from_fn(4, 2, |x, _| Rgb([200, 7, x as u8 * 80]));
        let mut g = Graph::new();
        let image_in = g.input::<RgbImage>("image");
        let scaled = g.try_kernel("normalise", &image_in, |s: &mut DeviceStream, image: &RgbImage| {
            let picture = upload(s, image)?;
            let scaled = normalise(s, &picture, &stats(image))?;
            Ok(download(s, &scaled)?)
        });
        g.output("tensor", &scaled);
        let (plan, exec) = (g.compile().expect("one node"), Executor::inline());
        let outputs = futures::executor::block_on(exec.run(&plan, inputs! { "image" => image }));
        let tensor = outputs.and_then(|mut outputs| outputs.take::<Picture<HostBuffer<f32>>>("tensor")).expect("it is small");
        assert!(tensor.values[..16].iter().all(|value| *value == 0.0));
        let blue = &tensor.values[16..];
        assert!(blue.iter().sum::<f32>().abs() < 1e-5);
        assert!((blue.iter().map(|value| value * value).sum::<f32>() / 8.0 - 1.0).abs() < 1e-5);
    }
}
