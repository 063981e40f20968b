//! A pipeline over a video: while one frame is drawn, the next is searched, and the one after it is decoded.
//!
//! ```sh
//! cargo run --example video                   # or -- FOLDER, for the pictures
//! ```
//!
//! ```text
//!  packet ─▶ decode ─┬─▶ detect ──▶ track ─┬─▶ draw
//!                    │    (GPU)     ▲   └──┘    ▲      the pose goes to the next frame, too
//!                    └──────────────────────────┘
//! ```
//!
//! A bright ball bounces over a noisy background. One packet is cut off on its way: its frame is an error in
//! its place, and the later frames go on.

mod camera;
mod picture;

use std::path::PathBuf;
use std::time::Instant;

use anabranch::pipe::Phases;
use anabranch::{BoxError, Executor, Graph, HostStream, Pipeline, Ranked, Result, Value};
use camera::Packet;
use futures::{StreamExt, stream};
use image::{GrayImage, RgbImage};

const FRAMES: u32 = 48;
/// The frame whose packet is cut off.
const CUT: u32 = 20;

/// A position in pixels, or a velocity in pixels per frame.
type Point = (f32, f32);

struct Frame {
    number: u32,
    grey: GrayImage,
}

/// Where the ball is, and where it was in the frames before.
#[derive(Clone, Debug, Default)]
struct Pose {
    frame: u32,
    at: Point,
    trail: Vec<Point>,
}

/// What the tracker learns from frame to frame.
#[derive(Default)]
struct Tracker {
    velocity: Point,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("video"), PathBuf::from);
    let video = pipeline()?;
    println!("{}", video.phasing()?);

    let (exec, started) = (Executor::host()?, Instant::now());
    let frames: Vec<_> = exec.pipe(&video, stream::iter(camera::packets(FRAMES, CUT))).collect().await;
    println!("{FRAMES} frames, {:.0} per second", f64::from(FRAMES) / started.elapsed().as_secs_f64());
    for (number, frame) in frames.iter().enumerate() {
        if let Err(error) = frame {
            println!("frame {number}: {error}");
        }
    }

    std::fs::create_dir_all(&folder)?;
    let drawn: Vec<Option<&RgbImage>> = frames.iter().map(|frame| Some(&frame.as_ref().ok()?.0)).collect();
    picture::contact_sheet(&drawn).save(folder.join("frames.png"))?;
    std::fs::write(folder.join("phases.svg"), video.phasing()?.to_svg())?;
    println!("the pictures are frames.png and phases.svg in {}", folder.display());
    Ok(())
}

/// The costs are what the nodes take on a camera's computer. By them, `Auto` chooses the phases.
fn pipeline() -> Result<Pipeline<Packet, (RgbImage, Pose)>> {
    let build = |g: &mut Graph, packet: Value<Packet>| {
        let frame = g.try_task("decode", &packet, |packet: &Packet| Ok(packet.decode()?));
        let spot = g.kernel("detect", &frame, |stream: &mut HostStream, frame: &Frame| stream.launch(|| brightest(&frame.grey)));

        let mut tracker = g.state("tracker", Tracker::default);
        let before = g.feedback("pose before", Pose::default);
        let pose = g.task("track", (&mut tracker, &frame, &spot, &*before), Tracker::follow);
        g.feed(before, &pose);

        let drawn = g.task("draw", (&frame, &pose), |frame: &Frame, pose: &Pose| picture::marked(&frame.grey, pose));
        g.node(&frame).cost_us(350.0);
        g.node(&spot).cost_us(900.0);
        g.node(&pose).cost_us(50.0);
        g.node(&drawn).cost_us(450.0);
        (drawn, pose)
    };
    // One CPU lane: the GPU is to be busy all the time.
    Pipeline::new("video", &Ranked::default(), build)?.cpus(1)?.phases(Phases::Auto { depth: 3 })
}

/// Returns the centre of the brightest window: single bright pixels are noise.
fn brightest(grey: &GrayImage) -> Point {
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
    fn follow(&mut self, frame: &Frame, spot: &Point, before: &Pose) -> Pose {
        const TRAIL_MAX: usize = 16;
        const GAINS: (f32, f32) = (0.85, 0.6);
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

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn every_executor_tracks_the_ball_in_all_good_frames() -> Result<()> {
        let video = pipeline()?;
        let hosts = [0, 1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..4).map(|seed| Ok(Executor::sim(seed)))) {
            let frames: Vec<_> = block_on(exec?.pipe(&video, stream::iter(camera::packets(FRAMES, CUT))).collect());
            assert_eq!(frames.len(), FRAMES as usize);
            for (number, frame) in (0..).zip(frames) {
                let Ok((_, pose)) = frame else {
                    assert_eq!(number, CUT);
                    continue;
                };
                let (x, y) = camera::ball_at(number);
                let distance = (pose.at.0 - x).hypot(pose.at.1 - y);
                assert!(pose.frame == number && distance < 2.0, "frame {number}: {distance} pixels off");
            }
        }
        Ok(())
    }

    #[test]
    fn three_phases_keep_the_gpu_busy() -> Result<()> {
        let video = pipeline()?;
        let phases = ["decode", "detect", "track", "draw"].map(|node| video.phase_of(node));
        assert_eq!(phases, [Some(1), Some(2), Some(3), Some(3)]);
        assert_eq!(video.phasing()?.period_us(), 900.0);
        Ok(())
    }
}
