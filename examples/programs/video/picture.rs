//! What is drawn: the pose on a frame, and the sheet of some frames.

use image::imageops::{FilterType, replace, resize};
use image::{DynamicImage, GrayImage, Rgb, RgbImage};

use super::tracker::{Point, Pose};

const CROSS: Rgb<u8> = Rgb([255, 70, 50]);
const TRAIL: [f32; 3] = [70.0, 220.0, 250.0];
const SHEET: Rgb<u8> = Rgb([245, 246, 248]);
const LOST: Rgb<u8> = Rgb([60, 30, 34]);

/// Returns the frame with a cross where the ball is, and the way that it came.
pub(crate) fn marked(grey: &GrayImage, pose: &Pose) -> RgbImage {
    let mut picture = DynamicImage::ImageLuma8(grey.clone()).into_rgb8();
    let older = pose.trail.len();
    for (age, step) in pose.trail.windows(2).enumerate() {
        let strength = 0.2 + 0.8 * (age + 1) as f32 / older as f32;
        line(&mut picture, step[0], step[1], |under| {
            Rgb(std::array::from_fn(|i| (f32::from(under.0[i]) * (1.0 - strength) + TRAIL[i] * strength) as u8))
        });
    }
    let (x, y) = pose.at;
    line(&mut picture, (x - 9.0, y), (x + 9.0, y), |_| CROSS);
    line(&mut picture, (x, y - 9.0), (x, y + 9.0), |_| CROSS);
    picture
}

/// Returns a sheet of 4 × 3 frames, from the first to the last. A frame that failed is a dark one with a
/// cross from corner to corner.
pub(crate) fn contact_sheet(frames: &[Option<&RgbImage>]) -> RgbImage {
    const COLUMNS: usize = 4;
    const ROWS: usize = 3;
    const GAP: u32 = 8;
    let (width, height) = frames.iter().flatten().next().map_or((1, 1), |first| first.dimensions());
    let (across, down) = (2 * width + GAP, 2 * height + GAP);
    let mut sheet = RgbImage::from_pixel(COLUMNS as u32 * across + GAP, ROWS as u32 * down + GAP, SHEET);
    for (place, frame) in frames.iter().step_by(frames.len().div_ceil(COLUMNS * ROWS).max(1)).enumerate() {
        let lost = || lost(width, height);
        let picture = resize(&frame.cloned().unwrap_or_else(lost), 2 * width, 2 * height, FilterType::Nearest);
        let (column, row) = ((place % COLUMNS) as u32, (place / COLUMNS) as u32);
        replace(&mut sheet, &picture, (GAP + column * across).into(), (GAP + row * down).into());
    }
    sheet
}

fn lost(width: u32, height: u32) -> RgbImage {
    let mut picture = RgbImage::from_pixel(width, height, LOST);
    let (right, bottom) = (width as f32 - 1.0, height as f32 - 1.0);
    line(&mut picture, (0.0, 0.0), (right, bottom), |_| CROSS);
    line(&mut picture, (0.0, bottom), (right, 0.0), |_| CROSS);
    picture
}

/// Paints the pixels of a line; those outside of the picture are left out.
fn line(picture: &mut RgbImage, from: Point, to: Point, paint: impl Fn(Rgb<u8>) -> Rgb<u8>) {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0) as u32;
    for step in 0..=steps {
        let along = step as f32 / steps as f32;
        let (x, y) = (from.0 + (to.0 - from.0) * along, from.1 + (to.1 - from.1) * along);
        if x > -0.5
            && y > -0.5
            && let Some(pixel) = picture.get_pixel_mut_checked(x.round() as u32, y.round() as u32)
        {
            *pixel = paint(*pixel);
        }
    }
}
