//! The camera: a ball that bounces over a noisy background, in packets of bytes.

use anabranch::BoxError;
use image::{GrayImage, Luma};

use super::tracker::Point;

const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;
const RADIUS: f32 = 6.0;

/// A frame, unpacked.
pub(crate) struct Frame {
    pub(crate) number: u32,
    pub(crate) grey: GrayImage,
}

/// A frame as bytes: each is the difference of a pixel to the one before.
pub(crate) struct Packet {
    number: u32,
    bytes: Vec<u8>,
}

/// Returns the packets of a video. The one of frame `cut` is cut off.
pub(crate) fn packets(frames: u32, cut: u32) -> impl Iterator<Item = Packet> {
    (0..frames).map(move |number| {
        let mut packet = Packet::encode(number, &shot(number));
        packet.bytes.truncate(if number == cut { packet.bytes.len() / 3 } else { usize::MAX });
        packet
    })
}

impl Packet {
    fn encode(number: u32, grey: &GrayImage) -> Self {
        let mut before = 0u8;
        let difference = |&tone: &u8| tone.wrapping_sub(std::mem::replace(&mut before, tone));
        Self { number, bytes: grey.as_raw().iter().map(difference).collect() }
    }

    pub(crate) fn decode(&self) -> Result<Frame, BoxError> {
        let mut tone = 0u8;
        let tones = self.bytes.iter().map(|difference| {
            tone = tone.wrapping_add(*difference);
            tone
        });
        let grey = GrayImage::from_raw(WIDTH, HEIGHT, tones.collect());
        let grey = grey.ok_or_else(|| format!("the packet ends after {} of {} bytes", self.bytes.len(), WIDTH * HEIGHT))?;
        Ok(Frame { number: self.number, grey })
    }
}

/// Returns where the ball is: to and fro between the walls, up and down on parabolas.
pub(crate) fn ball_at(frame: u32) -> Point {
    /// Frames from bounce to bounce.
    const HOP: f32 = 32.0;
    let (left, right, floor, rise) = (RADIUS + 2.0, WIDTH as f32 - RADIUS - 3.0, HEIGHT as f32 - RADIUS - 3.0, 70.0);
    let way = (frame as f32 * 3.4) % (2.0 * (right - left));
    let x = left + if way > right - left { 2.0 * (right - left) - way } else { way };
    let hop = (frame as f32 + 0.3 * HOP) % HOP / HOP;
    (x, floor - 4.0 * rise * hop * (1.0 - hop))
}

fn shot(frame: u32) -> GrayImage {
    let mut dice = fastrand::Rng::with_seed(frame.into());
    let (x, y) = ball_at(frame);
    GrayImage::from_fn(WIDTH, HEIGHT, |column, row| {
        let (column, row) = (column as f32, row as f32);
        let waves = 55.0 + 18.0 * (column / 23.0).sin() * (row / 17.0).cos() + row / 6.0;
        // One pixel in a hundred is as bright as the ball.
        let noise = if dice.u8(..100) == 0 { 150.0 } else { 50.0 * (dice.f32() - 0.5) };
        let ball = (RADIUS + 0.5 - (column - x).hypot(row - y)).clamp(0.0, 1.0);
        Luma([(waves + noise + 130.0 * ball) as u8])
    })
}
