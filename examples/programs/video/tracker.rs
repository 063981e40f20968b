//! Where the ball is: found in a frame, and followed from frame to frame.

use image::GrayImage;

use super::camera::Frame;

/// A position in pixels, or a velocity in pixels per frame.
pub(crate) type Point = (f32, f32);

/// Where the ball is, and where it was in the frames before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pose {
    pub(crate) frame: u32,
    pub(crate) at: Point,
    pub(crate) trail: Vec<Point>,
}

/// What the tracker learns from frame to frame.
#[derive(Default)]
pub(crate) struct Tracker {
    velocity: Point,
}

/// Returns the centre of the brightest window: single bright pixels are noise.
pub(crate) fn brightest(grey: &GrayImage) -> Point {
    const SIDE: u32 = 11;
    let (width, height) = grey.dimensions();
    let stride = width as usize + 1;
    // sums[y][x]: of all pixels above y and left of x (Crow, "Summed-area tables", 1984).
    let mut sums = vec![0u32; stride * (height as usize + 1)];
    for (y, row) in grey.as_raw().chunks_exact(width as usize).enumerate() {
        let mut sum = 0;
        for (x, &tone) in row.iter().enumerate() {
            sum += u32::from(tone);
            sums[(y + 1) * stride + x + 1] = sums[y * stride + x + 1] + sum;
        }
    }
    let sum = |x: u32, y: u32| sums[y as usize * stride + x as usize];
    let window = |x, y| sum(x + SIDE, y + SIDE) + sum(x, y) - sum(x + SIDE, y) - sum(x, y + SIDE);
    let corners = (0..=height - SIDE).flat_map(|y| (0..=width - SIDE).map(move |x| (x, y)));
    let (left, top) = corners.max_by_key(|&(x, y)| window(x, y)).unwrap_or_default();
    let centre = |from: u32| from as f32 + (SIDE - 1) as f32 / 2.0;
    (centre(left), centre(top))
}

impl Tracker {
    /// Returns the pose between the predicted one and the spot, nearer to the spot (an α-β filter).
    pub(crate) fn follow(&mut self, frame: &Frame, spot: &Point, before: &Pose) -> Pose {
        const TRAIL_MAX: usize = 16;
        const GAINS: (f32, f32) = (0.93, 0.6);
        // More than one frame if a packet between was lost.
        let frames = (frame.number - before.frame).max(1) as f32;
        let axis = |at: f32, velocity: &mut f32, spot: f32| {
            let predicted = at + *velocity * frames;
            *velocity += GAINS.1 * (spot - predicted) / frames;
            predicted + GAINS.0 * (spot - predicted)
        };
        let is_first = before.trail.is_empty();
        let from = if is_first { *spot } else { before.at };
        let at = (axis(from.0, &mut self.velocity.0, spot.0), axis(from.1, &mut self.velocity.1, spot.1));
        let mut trail = before.trail.clone();
        trail.push(at);
        trail.drain(..trail.len().saturating_sub(TRAIL_MAX));
        Pose { frame: frame.number, at, trail }
    }
}
