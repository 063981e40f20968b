//! The work of the graph's tasks as plain functions: picture in, picture or numbers out, no file and no
//! thread touched.

use std::io::Cursor;

use fast_image_resize::Resizer;
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage, Rgba, imageops};

/// Why a picture could not be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The bytes do not start like a JPEG or a PNG, whatever the name of the file says.
    #[error("not a JPEG or PNG picture ({0} bytes); convert it or take it out of the folder")]
    Unknown(usize),
    /// The bytes start like a picture and then contradict themselves, or say that it is too large to hold.
    #[error("cannot decode: {}; the file is damaged or too large, copy it again or take it out", .0.to_string().trim_end())]
    Broken(ImageError),
    /// A JPEG without its end, which the decoder alone would fill up with grey.
    #[error("the file breaks off before the end of the picture; copy it again")]
    CutShort,
}

/// Colour statistics of one picture, as fractions of full scale: 0 is black, 1 is 255.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stats {
    /// Mean of red, green and blue, each 0..=1.
    pub(crate) mean: [f32; 3],
    /// Population standard deviation of red, green and blue, each 0..=0.5.
    pub(crate) std_dev: [f32; 3],
    /// Mean luma (Rec. 709 weights on the stored, gamma-encoded values), 0..=1.
    pub(crate) luminance: f32,
}

/// Decodes a JPEG or PNG to 8-bit RGB, turned upright by its EXIF orientation; what is transparent becomes
/// white.
///
/// # Errors
/// When the bytes are neither format, or the picture is damaged, cut short or larger than 512 MiB when
/// decoded.
pub(crate) fn decode(bytes: &[u8]) -> Result<RgbImage, DecodeError> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().expect("reading from memory cannot fail");
    match reader.format() {
        Some(ImageFormat::Jpeg) if is_cut_short(bytes) => return Err(DecodeError::CutShort),
        Some(ImageFormat::Jpeg | ImageFormat::Png) => {}
        // Also what is recognised but not compiled in, a GIF for instance.
        _ => return Err(DecodeError::Unknown(bytes.len())),
    }
    let mut decoder = reader.into_decoder().map_err(DecodeError::Broken)?;
    Limits::default().reserve(decoder.total_bytes()).map_err(DecodeError::Broken)?;
    let orientation = decoder.orientation().map_err(DecodeError::Broken)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(DecodeError::Broken)?;
    image.apply_orientation(orientation);
    if image.color().has_alpha() { Ok(over_white(&image)) } else { Ok(image.into_rgb8()) }
}

/// Whether no end marker follows the first scan of a JPEG; an embedded preview, which has its own, lies
/// before that.
fn is_cut_short(jpeg: &[u8]) -> bool {
    let mut rest = jpeg.get(2..).unwrap_or_default();
    while let [0xff, marker, high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        rest = match marker {
            0xda => return !rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]),
            0xff => &rest[1..],
            _ => rest.get(2 + length..).unwrap_or_default(),
        };
    }
    // No scan to judge: the decoder knows better what is wrong.
    false
}

/// Returns the picture laid over white paper, as a browser shows it.
fn over_white(image: &DynamicImage) -> RgbImage {
    let pixels = image.to_rgba8();
    RgbImage::from_fn(pixels.width(), pixels.height(), |x, y| {
        let Rgba([r, g, b, alpha]) = *pixels.get_pixel(x, y);
        let blend = |c: u8| (u32::from(c) * u32::from(alpha) + 255 * (255 - u32::from(alpha)) + 127) / 255;
        Rgb([r, g, b].map(|c| blend(c) as u8))
    })
}

/// Returns the width and height of a picture whose longer side is made `side` pixels; the aspect is kept to
/// the nearest pixel.
pub(crate) fn fitted(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longer = width.max(height).max(1);
    let scaled = |length: u32| {
        let (length, side, longer) = (u64::from(length), u64::from(side), u64::from(longer));
        // A side of a very long and thin picture never vanishes.
        ((length * side + longer / 2) / longer).max(1) as u32
    };
    (scaled(width), scaled(height))
}

/// Scales a picture, up or down, so that its longer side is `side` pixels.
fn resize(image: &RgbImage, side: u32) -> RgbImage {
    let (width, height) = fitted(image.width(), image.height(), side);
    let mut fitted = RgbImage::new(width, height);
    Resizer::new().resize(image, &mut fitted, None).expect("both pictures are 8-bit RGB, and the whole of the source is taken");
    fitted
}

/// Computes the mean and deviation of each channel, exactly: all is integers until the last division.
pub(crate) fn stats(image: &RgbImage) -> Stats {
    let (mut sum, mut sum_of_squares) = ([0_u64; 3], [0_u64; 3]);
    for pixel in image.pixels() {
        for (channel, value) in pixel.0.iter().enumerate() {
            sum[channel] += u64::from(*value);
            sum_of_squares[channel] += u64::from(*value) * u64::from(*value);
        }
    }
    let pixels = image.pixels().len().max(1) as u64;
    let full_scale = pixels as f64 * 255.0;
    let mean = sum.map(|sum| sum as f64 / full_scale);
    let std_dev = [0, 1, 2].map(|channel| {
        // Never negative (Cauchy-Schwarz), and zero just when the channel is constant.
        let square = u128::from(pixels) * u128::from(sum_of_squares[channel]) - u128::from(sum[channel]).pow(2);
        ((square as f64).sqrt() / full_scale) as f32
    });
    let luminance = 0.2126 * mean[0] + 0.7152 * mean[1] + 0.0722 * mean[2];
    Stats { mean: mean.map(|mean| mean as f32), std_dev, luminance: luminance as f32 }
}

/// Encodes a picture as JPEG; `quality` is 1 (smallest) to 100 (best), and others are brought into that
/// range.
///
/// # Errors
/// When a side is longer than the 65535 pixels that JPEG can state.
pub(crate) fn encode_jpeg(image: &RgbImage, quality: u8) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality.clamp(1, 100)).encode_image(image)?;
    Ok(bytes)
}

/// Lays named thumbnails out in a grid on a dark ground, ordered by name whatever order they were finished
/// in.
///
/// Thousands of them are made smaller, so that a side of the sheet stays near [`Grid::SIDE_MAX`] pixels.
pub(crate) fn contact_sheet(thumbnails: &[(String, RgbImage)]) -> RgbImage {
    let mut ordered: Vec<&(String, RgbImage)> = thumbnails.iter().collect();
    ordered.sort_by(|a, b| a.0.cmp(&b.0));
    let grid = Grid::new(ordered.iter().map(|(_, image)| image.dimensions()));
    let mut sheet = RgbImage::from_pixel(grid.length(grid.columns), grid.length(grid.rows), Grid::GROUND);
    for (index, (_, image)) in (0..).zip(ordered) {
        let longer = image.width().max(image.height());
        let small = (longer > grid.cell).then(|| resize(image, grid.cell));
        let image = small.as_ref().unwrap_or(image);
        let (x, y) = (grid.length(index % grid.columns), grid.length(index / grid.columns));
        let mount = RgbImage::from_pixel(grid.mount(), grid.mount(), Grid::MOUNT);
        imageops::replace(&mut sheet, &mount, i64::from(x), i64::from(y));
        let (dx, dy) = ((grid.mount() - image.width()) / 2, (grid.mount() - image.height()) / 2);
        imageops::replace(&mut sheet, image, i64::from(x + dx), i64::from(y + dy));
    }
    sheet
}

/// Where the cells of a contact sheet lie: square mounts, a picture centred in each.
struct Grid {
    columns: u32,
    rows: u32,
    /// The longest side that a picture may have, in pixels.
    cell: u32,
}

impl Grid {
    const GROUND: Rgb<u8> = Rgb([18, 19, 22]);
    const MOUNT: Rgb<u8> = Rgb([32, 34, 39]);
    const SIDE_MAX: u32 = 8192;

    fn new(sizes: impl ExactSizeIterator<Item = (u32, u32)>) -> Self {
        let count = sizes.len() as u32;
        let longest = sizes.map(|(width, height)| width.max(height)).max().unwrap_or(1);
        // A little wider than tall, as screens are; of the near candidates the one with the fewest empty
        // cells.
        let root = f64::from(count).sqrt();
        let (least, most) = (root.ceil() as u32, (root * 1.5).ceil() as u32);
        let empty = |columns: &u32| count.div_ceil(*columns) * columns - count;
        let columns = (least.max(1)..=most.max(1)).min_by_key(empty).unwrap_or(1);
        let cell = longest.min((Self::SIDE_MAX / columns * 4 / 5).max(8));
        Self { columns, rows: count.div_ceil(columns).max(1), cell }
    }

    /// Space between mounts, and around the sheet.
    fn gap(&self) -> u32 {
        (self.cell / 16).max(1)
    }

    /// Side of a mount: the picture with a border.
    fn mount(&self) -> u32 {
        self.cell + 2 * (self.cell / 20)
    }

    fn length(&self, cells: u32) -> u32 {
        self.gap() + cells * (self.mount() + self.gap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_becomes_the_side_asked_for() {
        assert_eq!(fitted(1000, 500, 224), (224, 112));
        assert_eq!(fitted(30, 60, 224), (112, 224));
        assert_eq!(fitted(5000, 1, 224), (224, 1));
    }

    #[test]
    fn what_is_no_whole_picture_says_why() {
        let jpeg = encode_jpeg(&RgbImage::new(64, 64), 85).expect("it is small");
        let reason = |bytes: &[u8]| decode(bytes).map_or_else(|error| error.to_string(), |_| "decoded".to_owned());
        assert_eq!(reason(&jpeg), "decoded");
        assert!(reason(&jpeg[..jpeg.len() - 2]).contains("breaks off"));
        assert!(reason(&jpeg[..5]).contains("cannot decode"));
        assert!(reason(b"GIF89a").contains("not a JPEG or PNG"));
        assert!(reason(b"").contains("not a JPEG or PNG"));
    }

    #[test]
    fn a_sheet_of_any_count_has_a_bounded_side_and_room_for_each() {
        for count in [0, 1, 2, 5, 16, 17, 2000, 20_000] {
            let grid = Grid::new(vec![(224, 150); count].into_iter());
            assert!(grid.columns as usize * grid.rows as usize >= count);
            let (width, height) = (grid.length(grid.columns), grid.length(grid.rows));
            assert!(width <= Grid::SIDE_MAX && height <= Grid::SIDE_MAX, "{count}: {width} x {height}");
        }
    }
}
