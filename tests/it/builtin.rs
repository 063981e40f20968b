//! The built-in kernels, on every executor of the host, against independent implementations.

use std::fs;
use std::path::Path;

use anabranch::device::Element;
use anabranch::device::kernels::{self, Size};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs, Result};

use crate::support::{Dice, block_on, executors, plan, value_of};

/// Lengths around a block of 256 threads, a chunk of 4096 elements, and a chunk of chunks.
pub(crate) const LENGTHS: [usize; 14] = [0, 1, 2, 3, 255, 256, 257, 1000, 4095, 4096, 4097, 8193, 100_000, 4096 * 256 + 3];

/// Sizes before and after: one pixel, up, down, by fractions, along one side, unchanged, by a large factor,
/// to an empty picture, from empty to empty.
pub(crate) const SCALINGS: [([u32; 2], [u32; 2]); 18] = [
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
    ([203, 9], [5, 2]),
    ([1, 3000], [2, 1]),
    ([2, 3], [0, 4]),
    ([0, 5], [7, 0]),
];

pub(crate) fn size([width, height]: [u32; 2]) -> Size {
    Size::new(width, height)
}

pub(crate) fn floats(seed: u64, len: usize) -> Vec<f32> {
    let mut dice = Dice::new(seed);
    // Numbers of many magnitudes and both signs, so that each order of additions rounds differently.
    (0..len).map(|_| (dice.below(2_000_001) as f32 - 1e6) * 2.0_f32.powi(dice.below(40) as i32 - 30)).collect()
}

pub(crate) fn picture(seed: u64, size: Size) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..3 * size.pixels()).map(|_| dice.below(256) as u8).collect()
}

/// Checks that two results are the same, bit for bit. If not, reports where they differ.
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

const SCALE: [f32; 3] = [1.0 / 58.4, 1.0 / 57.1, 1.0 / 57.4];
const BIAS: [f32; 3] = [-2.1, -2.0, -1.8];

/// Element `i` of a normalised picture, computed from its place in the output.
fn normalised(pixels: &[u8], size: Size, i: usize) -> f32 {
    let (channel, pixel) = (i / size.pixels(), i % size.pixels());
    let product = f32::from(pixels[pixel * 3 + channel]) * SCALE[channel];
    product + BIAS[channel]
}

/// The weight of input `j` for output `i`, in parts of `1 / (2 * to)` of an input: a tent over the output,
/// which ends two inputs apart, or two outputs if these are further apart.
pub(crate) fn tent(j: u32, i: u32, from: u32, to: u32) -> i128 {
    let [j, i, from, to] = [j, i, from, to].map(i128::from);
    (2 * from.max(to) - ((2 * j + 1) * to - (2 * i + 1) * from).abs()).max(0)
}

/// Rounds a fraction to the nearest number, halves up.
pub(crate) fn rounded(sum: i128, weights: i128) -> u8 {
    ((2 * sum / weights + 1) / 2) as u8
}

/// A value of a resized picture: the weighted mean of all pixels, most of which have weight 0.
fn resized(pixels: &[u8], from: Size, to: Size, [x, y, channel]: [u32; 3]) -> u8 {
    let (mut sum, mut weights) = (0, 0);
    for row in 0..from.height {
        let height = tent(row, y, from.height, to.height);
        for column in (0..from.width).filter(|_| height > 0) {
            let weight = height * tent(column, x, from.width, to.width);
            let at = (row * from.width + column) * 3 + channel;
            sum += weight * i128::from(pixels[at as usize]);
            weights += weight;
        }
    }
    rounded(sum, weights)
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
            let size = Size::new(from[0] * to[0], from[1]);
            let pixels = picture(3, size);
            let wanted: Vec<f32> = (0..pixels.len()).map(|i| normalised(&pixels, size, i)).collect();
            assert_same_bits(&normalise(&exec, pixels, size).unwrap(), &wanted, &format!("{size:?}"));
        }
    }
}

/// Checks a resize of noise on all executors, value by value.
fn check_resize(seed: u64, from: Size, to: Size) {
    let pixels = picture(seed, from);
    let places = (0..to.height).flat_map(|y| (0..to.width).flat_map(move |x| [[x, y, 0], [x, y, 1], [x, y, 2]]));
    let wanted: Vec<u8> = places.map(|place| resized(&pixels, from, to, place)).collect();
    for exec in executors() {
        assert_eq!(resize(&exec, pixels.clone(), from, to).unwrap(), wanted, "{from:?} {to:?}, seed {seed}");
    }
}

#[test]
fn resize_is_the_exact_mean_under_a_triangle() {
    // Seen to fail without the half pixel, with a triangle as wide as four pixels when it shrinks, with a tap
    // less, and without `total / 2`.
    for (from, to) in SCALINGS {
        check_resize(4, size(from), size(to));
    }
}

#[test]
fn resize_is_exact_for_random_sizes() {
    // Seen to fail without the half pixel, with a triangle as wide as four pixels when it shrinks, with a tap
    // less, and without `total / 2`.
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let [from, to] = [60, 20].map(|most| size([0, 1].map(|_| 1 + dice.below(most) as u32)));
        check_resize(seed, from, to);
        check_resize(seed, to, from);
    }
}

/// Resizes a row of grey pixels.
fn row_resized(row: &[u8], to: u32) -> Vec<u8> {
    let pixels = row.iter().flat_map(|value| [*value; 3]).collect();
    let out = resize(&Executor::inline(), pixels, size([row.len() as u32, 1]), size([to, 1])).unwrap();
    out.chunks(3).map(|pixel| pixel[0]).collect()
}

#[test]
fn pictures_resized_by_hand() {
    let (from, to) = (size([2, 1]), size([4, 1]));
    let pixels = vec![0, 10, 255, 100, 20, 0];
    // The centres are at -1/4, where only the first pixel counts, 1/4, 3/4 and 5/4.
    let wanted = [0, 10, 255, 25, 13, 191, 75, 18, 64, 100, 20, 0];
    assert_eq!(resize(&Executor::inline(), pixels, from, to).unwrap(), wanted);
    // The weights are 5, 7, 7 and 5 of 24: 53.125.
    assert_eq!(row_resized(&[0, 0, 0, 255], 1), [53]);
    // And 3, 3 of 6: a half goes up.
    assert_eq!(row_resized(&[0, 1], 1), [1]);
}

#[test]
fn rows_resized_by_another_library() {
    // Computed with Pillow 13.0, `resize((n, 1), Image.Resampling.BILINEAR)`. It rounds a single row once,
    // too.
    let row = [255, 0, 0, 0, 10, 20, 255, 0, 100, 30];
    assert_eq!(row_resized(&row, 1), [62]);
    assert_eq!(row_resized(&row, 3), [57, 50, 79]);
    assert_eq!(row_resized(&row, 7), [167, 0, 2, 15, 161, 50, 54]);
    assert_eq!(row_resized(&row, 12), [255, 64, 0, 0, 3, 11, 19, 196, 106, 42, 83, 30]);
}

#[test]
fn a_fine_pattern_becomes_grey() {
    // Seen to fail with the two nearest pixels alone: each is white or black.
    let columns: Vec<u8> = (0..900).map(|x| if x % 2 == 0 { 255 } else { 0 }).collect();
    let grey = row_resized(&columns, 100);
    assert!(grey.iter().all(|value| (120..=135).contains(value)), "{grey:?}");
}

#[test]
fn the_largest_sums_do_not_overflow() {
    // Seen to fail with sums of 32 bits.
    let (from, to) = (size([1, 1 << 20]), size([8192, 1]));
    let white = resize(&Executor::inline(), vec![255; 3 << 20], from, to).unwrap();
    assert!(white.iter().all(|value| *value == 255));
}

#[test]
fn sums_and_means_have_one_order() {
    // Seen to fail with neighbours added in the tree, with chunks of 2048, and with the divisor in every
    // step.
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

/// Returns the reason why a run of one kernel failed.
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
    let shrunk = fault(resize(&exec, vec![0; 3 << 20], size([1 << 20, 1]), size([1, 1 << 20])));
    let wanted =
        "the area that holds a picture before and after it is resized to 1 x 1048576 is 1099511627776, the limit is 97184015999";
    assert_eq!(shrunk, wanted);
    let huge = resize(&exec, vec![0; 3], size([1, 1]), size([i32::MAX as u32, 1 << 16])).unwrap_err();
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
