//! The built-in kernels, on every executor of the host, against implementations that do the same in another way.

use std::fs;
use std::path::Path;

use anabranch::kernels::{self, Size};
use anabranch::{Buffer, DeviceStream, Element, Executor, Graph, HostBuffer, Inputs, Result};

use crate::support::{Dice, block_on, executors, plan, value_of};

/// Around a block of 256 threads, a chunk of 4096 elements, and a chunk of chunks.
pub(crate) const LENGTHS: [usize; 14] = [0, 1, 2, 3, 255, 256, 257, 1000, 4095, 4096, 4097, 8193, 100_000, 4096 * 256 + 3];

/// From and to: one pixel, up, down, by fractions, along one side, onto itself, to nothing, from nothing to nothing.
pub(crate) const SCALINGS: [([u32; 2], [u32; 2]); 16] = [
    ([1, 1], [1, 1]),
    ([1, 1], [5, 3]),
    ([5, 3], [1, 1]),
    ([2, 2], [4, 4]),
    ([4, 4], [2, 2]),
    ([7, 5], [7, 5]),
    ([7, 5], [13, 11]),
    ([13, 11], [7, 5]),
    ([17, 1], [3, 4]),
    ([1, 17], [4, 3]),
    ([31, 2], [2, 31]),
    ([40, 30], [17, 16]),
    ([40, 30], [16, 16]),
    ([3, 3], [257, 1]),
    ([2, 3], [0, 4]),
    ([0, 5], [7, 0]),
];

pub(crate) fn size([width, height]: [u32; 2]) -> Size {
    Size { width, height }
}

pub(crate) fn floats(seed: u64, len: usize) -> Vec<f32> {
    let mut dice = Dice::new(seed);
    // Of many magnitudes and both signs, so that each order of additions rounds in a way of its own.
    (0..len).map(|_| (dice.below(2_000_001) as f32 - 1e6) * 2.0_f32.powi(dice.below(40) as i32 - 30)).collect()
}

pub(crate) fn picture(seed: u64, size: Size) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..3 * size.pixels()).map(|_| dice.below(256) as u8).collect()
}

/// Checks that two results are the same, bit for bit, and else says where they differ.
pub(crate) fn assert_same_bits(got: &[f32], wanted: &[f32], which: &str) {
    assert_eq!(got.len(), wanted.len(), "{which}");
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.to_bits(), wanted.to_bits(), "{which}: element {at} is {got:e}, not {wanted:e}");
    }
}

/// Runs one kernel node, and returns the buffer that it makes.
pub(crate) fn run<T: Element>(
    exec: &Executor,
    work: impl Fn(&mut DeviceStream) -> Result<Buffer<T>> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let mut g = Graph::new();
    let made = g.try_kernel("work", (), move |s: &mut DeviceStream| Ok(work(s)?));
    let down = g.try_kernel("down", &made, |s: &mut DeviceStream, made: &Buffer<T>| Ok(s.download(made)?));
    let out = g.task("out", &down, |down: &HostBuffer<T>| down.to_vec());
    g.output("out", &out);
    let outputs = block_on(exec.run(&plan(&g), Inputs::new()))?;
    Ok(value_of::<Vec<T>>(Ok(outputs), "out").to_vec())
}

pub(crate) fn scale_add(exec: &Executor, a: f32, x: Vec<f32>, b: f32, y: Vec<f32>) -> Result<Vec<f32>> {
    run(exec, move |s| {
        let (x, y) = (s.upload(&x)?, s.upload(&y)?);
        kernels::scale_add(s, a, &x, b, &y)
    })
}

pub(crate) fn normalise(exec: &Executor, pixels: Vec<u8>, size: Size) -> Result<Vec<f32>> {
    run(exec, move |s| {
        let pixels = s.upload(&pixels)?;
        kernels::normalise(s, &pixels, size, SCALE, BIAS)
    })
}

pub(crate) fn resize(exec: &Executor, pixels: Vec<u8>, from: Size, to: Size) -> Result<Vec<u8>> {
    run(exec, move |s| {
        let pixels = s.upload(&pixels)?;
        kernels::resize(s, &pixels, from, to)
    })
}

pub(crate) fn sum(exec: &Executor, x: Vec<f32>) -> Result<Vec<f32>> {
    run(exec, move |s| {
        let x = s.upload(&x)?;
        kernels::sum(s, &x)
    })
}

pub(crate) fn mean(exec: &Executor, x: Vec<f32>) -> Result<Vec<f32>> {
    run(exec, move |s| {
        let x = s.upload(&x)?;
        kernels::mean(s, &x)
    })
}

pub(crate) const SCALE: [f32; 3] = [1.0 / 58.4, 1.0 / 57.1, 1.0 / 57.4];
pub(crate) const BIAS: [f32; 3] = [-2.1, -2.0, -1.8];

/// Element `i` of a normalised picture, found from where it goes.
pub(crate) fn normalised(pixels: &[u8], size: Size, i: usize) -> f32 {
    let (channel, pixel) = (i / size.pixels(), i % size.pixels());
    let product = f32::from(pixels[pixel * 3 + channel]) * SCALE[channel];
    product + BIAS[channel]
}

/// The weight of input `j` for output `i`, in parts of `2 * to`: a tent over each input, which is one high and ends at its neighbours.
fn tent(j: u32, i: u32, from: u32, to: u32) -> i128 {
    let [j, i, from, to] = [j, i, from, to].map(i128::from);
    let centre = ((2 * i + 1) * from - to).clamp(0, 2 * to * (from - 1));
    (2 * to - (centre - 2 * to * j).abs()).max(0)
}

/// A value of a resized picture: the sum of all pixels, almost all of which weigh nothing.
pub(crate) fn resized(pixels: &[u8], from: Size, to: Size, [x, y, channel]: [u32; 3]) -> u8 {
    let mut sum = 0;
    for row in 0..from.height {
        let weight = tent(row, y, from.height, to.height);
        for column in (0..from.width).filter(|_| weight > 0) {
            let at = (row * from.width + column) * 3 + channel;
            sum += weight * tent(column, x, from.width, to.width) * i128::from(pixels[at as usize]);
        }
    }
    // Halves go up: floor(2 s / w + 1) / 2.
    let weights = 4 * i128::from(to.width) * i128::from(to.height);
    ((2 * sum / weights + 1) / 2) as u8
}

/// The sum of the lanes that are `t` modulo `width`, of a chunk: a tree read from its root.
fn branch(chunk: &[f32], t: usize, width: usize) -> f32 {
    match width {
        256 => chunk.iter().skip(t).step_by(256).fold(0.0, |sum, x| sum + x),
        _ => branch(chunk, t, 2 * width) + branch(chunk, t + width, 2 * width),
    }
}

/// The sum of up to 4096 elements.
pub(crate) fn sum_of_chunk(chunk: &[f32]) -> f32 {
    branch(chunk, 0, 1)
}

fn sum_of(x: &[f32]) -> f32 {
    match x.len() {
        0..=4096 => sum_of_chunk(x),
        _ => sum_of(&x.chunks(4096).map(sum_of_chunk).collect::<Vec<f32>>()),
    }
}

#[test]
fn scale_add_rounds_each_product_and_the_sum() {
    // Seen to fail with `a.mul_add(*x, b * y)` in the twin.
    for exec in executors() {
        for len in LENGTHS {
            let (x, y) = (floats(1, len), floats(2, len));
            let wanted = (0..len).map(|i| {
                let (left, right) = (0.3 * x[i], -7.7 * y[i]);
                left + right
            });
            let wanted: Vec<f32> = wanted.collect();
            assert_same_bits(&scale_add(&exec, 0.3, x, -7.7, y).unwrap(), &wanted, &format!("{len} elements"));
        }
    }
}

#[test]
fn normalise_scales_shifts_and_separates_the_channels() {
    // Seen to fail with the channels of the twin in the order 2, 1, 0.
    for exec in executors() {
        for (from, to) in SCALINGS.into_iter().flat_map(|(from, to)| [(from, to), (to, from)]) {
            let size = Size { width: from[0] * to[0], height: from[1] };
            let pixels = picture(3, size);
            let wanted: Vec<f32> = (0..pixels.len()).map(|i| normalised(&pixels, size, i)).collect();
            assert_same_bits(&normalise(&exec, pixels, size).unwrap(), &wanted, &format!("{size:?}"));
        }
    }
}

#[test]
fn resize_is_exact_bilinear_interpolation() {
    // Seen to fail without the half pixel, with the last pixel mirrored at the far edge, and without `all / 2`.
    for exec in executors() {
        for (from, to) in SCALINGS.map(|(from, to)| (size(from), size(to))) {
            let pixels = picture(4, from);
            let places = (0..to.height).flat_map(|y| (0..to.width).flat_map(move |x| [[x, y, 0], [x, y, 1], [x, y, 2]]));
            let wanted: Vec<u8> = places.map(|place| resized(&pixels, from, to, place)).collect();
            assert_eq!(resize(&exec, pixels, from, to).unwrap(), wanted, "{from:?} {to:?}");
        }
    }
}

#[test]
fn a_picture_resized_by_hand() {
    let (from, to) = (size([2, 1]), size([4, 1]));
    let pixels = vec![0, 10, 255, 100, 20, 0];
    // The centres are at -1/4 (clamped), 1/4, 3/4 and 5/4 (clamped).
    let wanted = [0, 10, 255, 25, 13, 191, 75, 18, 64, 100, 20, 0];
    assert_eq!(resize(&Executor::inline(), pixels, from, to).unwrap(), wanted);
}

#[test]
fn sums_and_means_have_one_order() {
    // Seen to fail with neighbours added in the tree, with chunks of 2048, and with the divisor in every step.
    for exec in executors() {
        for len in LENGTHS {
            let x = floats(5, len);
            let exact: f64 = x.iter().map(|x| f64::from(*x)).sum();
            let size: f64 = x.iter().map(|x| f64::from(x.abs())).sum();
            let wanted = sum_of(&x);
            assert!((f64::from(wanted) - exact).abs() <= size * 48.0 * f64::from(f32::EPSILON), "{len}: {wanted} {exact}");
            assert_same_bits(&sum(&exec, x.clone()).unwrap(), &[wanted], &format!("{len} elements"));
            let mean = mean(&exec, x).unwrap();
            match len {
                0 => assert!(mean.len() == 1 && mean[0].is_nan()),
                _ => assert_same_bits(&mean, &[wanted / len as f32], &format!("{len} elements")),
            }
        }
    }
}

/// Says why a run of one kernel failed.
fn fault<T>(result: Result<Vec<T>>) -> String {
    std::error::Error::source(&result.err().unwrap()).unwrap().to_string()
}

#[test]
fn wrong_sizes_are_errors_that_say_what_and_how_many() {
    // Seen to fail without the checks of scale_add and of normalise.
    let exec = Executor::inline();
    let lengths = fault(scale_add(&exec, 1.0, floats(6, 3), 1.0, floats(7, 4)));
    assert_eq!(lengths, "the second buffer of scale_add has 4 elements, not 3");
    assert_eq!(fault(normalise(&exec, vec![0; 11], size([2, 2]))), "the picture to normalise has 11 elements, not 12");
    assert_eq!(fault(resize(&exec, vec![0; 13], size([2, 2]), size([1, 1]))), "the picture to resize has 13 elements, not 12");
    let nothing = fault(resize(&exec, vec![], size([0, 2]), size([1, 1])));
    assert_eq!(nothing, "the width of the picture to resize must be at least 1, not 0");
    let nothing = fault(resize(&exec, vec![], size([2, 0]), size([1, 1])));
    assert_eq!(nothing, "the height of the picture to resize must be at least 1, not 0");
    let long = fault(resize(&exec, vec![0; 3], size([1, 1]), size([1, 1 << 31])));
    assert_eq!(long, "a side of a picture is 2147483648, the limit is 2147483647");
    let side = i32::MAX as u32;
    let huge = resize(&exec, vec![0; 3], size([1, 1]), size([side, side])).unwrap_err();
    assert!(huge.is_out_of_memory());
    let most = size([u32::MAX, u32::MAX]);
    let wanted = format!("the picture to normalise has 0 elements, not {}", usize::MAX);
    assert_eq!(fault(normalise(&exec, vec![], most)), wanted);
}

#[test]
fn the_code_for_gpus_rounds_every_operation_and_suits_old_drivers() {
    // Seen to fail with PTX made without --fmad=false, and with the version that NVRTC writes.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/device/kernels");
    let mut count = 0;
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "cu") {
            let ptx = fs::read_to_string(path.with_extension("ptx")).unwrap();
            assert!(ptx.contains(".version 6.0\n.target sm_52\n"), "{}", path.display());
            for operation in ["fma.", "mad.f", "mul.f", "add.f", "sub.f", "div.f", "div.approx", "div.full", ".ftz"] {
                assert!(!ptx.contains(operation), "{} has {operation}", path.display());
            }
            count += 1;
        }
    }
    assert_eq!(count, 4);
}
