//! The built-in kernels on a GPU: the same results as on the host, bit for bit, with a thread for every
//! element. The driver runs the tests' own code, thread by thread, so these tests check launches and
//! parameters. `.ci/nvrtc` compiles the CUDA C itself, which runs on real GPUs only.

use std::mem;
use std::sync::Once;

use anabranch::Executor;
use anabranch_soft_cuda::{Launch, Param};

use super::{DRIVER, Gpu};
use crate::builtin::{
    LENGTHS, SCALINGS, assert_same_bits, floats, mean, normalise, picture, resize, rounded, scale_add, size, sum, sum_of_chunk,
    tent,
};

/// Calls `thread` with the number of each thread of a one-dimensional launch. A superfluous thread would
/// access elements out of bounds.
fn each_thread(launch: &Launch<'_>, mut thread: impl FnMut(usize)) {
    let [blocks, threads] = [launch.grid, launch.block].map(|[x, y, z]| {
        assert_eq!([y, z], [1, 1]);
        x as usize
    });
    (0..blocks).for_each(|block| (0..threads).for_each(|lane| thread(block * threads + lane)));
}

const F32: Param = Param::scalar::<f32>();
const U32: Param = Param::scalar::<u32>();
const U64: Param = Param::scalar::<u64>();
const AFFINE: Param = Param::scalar::<[f32; 2]>();

/// Returns a parameter that is a length.
fn length(launch: &Launch<'_>, param: usize) -> usize {
    // SAFETY: the parameter is registered as a u64.
    unsafe { launch.scalar::<u64>(param) as usize }
}

/// Returns a parameter that is a number.
fn number(launch: &Launch<'_>, param: usize) -> usize {
    // SAFETY: the parameter is registered as a u32.
    unsafe { launch.scalar::<u32>(param) as usize }
}

fn float(launch: &Launch<'_>, param: usize) -> f32 {
    // SAFETY: the parameter is registered as an f32.
    unsafe { launch.scalar::<f32>(param) }
}

/// Returns a parameter that is a buffer. An empty buffer may have any address.
#[allow(clippy::mut_from_ref, reason = "the memory is the device's, not the launch's")]
fn buffer<'a, T>(launch: &'a Launch<'_>, param: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the launches of these tests pass buffers of these lengths. The comparison with the host checks
    // them.
    unsafe { launch.slice::<T>(param, len) }
}

/// Registers the kernels with the driver.
pub(super) fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_scale_add();
        register_normalise();
        register_resize();
        register_reduce();
    });
}

fn register_scale_add() {
    let params = [Param::READ, Param::READ, Param::WRITE, U64, F32, F32];
    DRIVER.register_kernel("anabranch_scale_add", &params, |launch| {
        let n = length(launch, 3);
        let [x, y, out] = [0, 1, 2].map(|param| buffer::<f32>(launch, param, n));
        each_thread(launch, |i| {
            if i < n {
                let (left, right) = (float(launch, 4) * x[i], float(launch, 5) * y[i]);
                out[i] = left + right;
            }
        });
    });
}

fn register_normalise() {
    let params = [Param::READ, Param::WRITE, U64, AFFINE, AFFINE, AFFINE];
    DRIVER.register_kernel("anabranch_normalise", &params, |launch| {
        let n = length(launch, 2);
        let (pixels, out) = (buffer::<u8>(launch, 0, 3 * n), buffer::<f32>(launch, 1, 3 * n));
        each_thread(launch, |i| {
            for channel in (0..3).filter(|_| i < n) {
                // SAFETY: the parameter is registered as two floats.
                let [scale, bias] = unsafe { launch.scalar::<[f32; 2]>(3 + channel) };
                let product = f32::from(pixels[3 * i + channel]) * scale;
                out[channel * n + i] = product + bias;
            }
        });
    });
}

/// The weights of all inputs for each output.
fn weights([from, to]: [usize; 2]) -> Vec<Vec<i128>> {
    let weight = |i, j: usize| tent(j as u32, i as u32, from as u32, to as u32);
    (0..to).map(|i| (0..from).map(|j| weight(i, j)).collect()).collect()
}

fn register_resize() {
    DRIVER.register_kernel("anabranch_resize", &[Param::READ, Param::WRITE, U32, U32, U32, U32, U32], |launch| {
        let [from_width, from_height, width, height, lanes] = [2, 3, 4, 5, 6].map(|param| number(launch, param));
        assert!(lanes.is_power_of_two() && lanes <= 32 && launch.block[0].is_multiple_of(32), "{lanes} lanes are not of a warp");
        let pixels = buffer::<u8>(launch, 0, 3 * from_width * from_height);
        let out = buffer::<u8>(launch, 1, 3 * width * height);
        let [columns, rows] = [[from_width, width], [from_height, height]].map(weights);
        let mut sums = [(0, 0); 3];
        each_thread(launch, |thread| {
            let (i, lane) = (thread / lanes, thread % lanes);
            for (channel, (sum, total)) in sums.iter_mut().enumerate().filter(|_| i < width * height) {
                for (row, height) in rows[i / width].iter().enumerate().filter(|(_, weight)| **weight > 0) {
                    for (column, width) in columns[i % width].iter().enumerate().skip(lane).step_by(lanes) {
                        *sum += height * width * i128::from(pixels[3 * (row * from_width + column) + channel]);
                        *total += height * width;
                    }
                }
                if lane == lanes - 1 {
                    out[3 * i + channel] = rounded(mem::take(sum), mem::take(total));
                }
            }
        });
    });
}

fn register_reduce() {
    DRIVER.register_kernel("anabranch_reduce", &[Param::READ, Param::WRITE, U64, F32], |launch| {
        assert_eq!(launch.block, [256, 1, 1]);
        let (n, blocks) = (length(launch, 2), launch.grid[0] as usize);
        let (x, out) = (buffer::<f32>(launch, 0, n), buffer::<f32>(launch, 1, blocks));
        for (block, out) in out.iter_mut().enumerate() {
            let rest = &x[(block * 4096).min(n)..];
            *out = sum_of_chunk(&rest[..rest.len().min(4096)]) / float(launch, 3);
        }
    });
}

/// Runs `check` with an executor of the host, and with one of a GPU.
fn beside_the_host(check: impl Fn(&Executor, &Executor)) {
    register();
    let gpu = Gpu::new();
    for workers in [1, 2] {
        check(&Executor::inline(), &gpu.executor(workers));
    }
    gpu.is_clean();
}

#[test]
fn scale_add_gives_what_the_host_gives() {
    // Seen to fail with a launch for one element less.
    beside_the_host(|host, gpu| {
        for len in LENGTHS {
            let [host, gpu] = [host, gpu].map(|exec| scale_add(exec, 0.3, floats(1, len), -7.7, floats(2, len)).unwrap());
            assert_same_bits(&gpu, &host, &format!("{len} elements"));
        }
    });
}

#[test]
fn normalise_gives_what_the_host_gives() {
    // Seen to fail with a launch for one pixel less, and with scale and bias exchanged on their way to the
    // device.
    beside_the_host(|host, gpu| {
        for size in [[0, 0], [1, 1], [3, 5], [255, 1], [16, 16], [1, 257], [100, 41]].map(size) {
            let [host, gpu] = [host, gpu].map(|exec| normalise(exec, picture(3, size), size).unwrap());
            assert_same_bits(&gpu, &host, &format!("{size:?}"));
        }
    });
}

#[test]
fn resize_gives_what_the_host_gives() {
    // Seen to fail with a launch for a thread for each pixel, and with more threads for one than a warp has.
    beside_the_host(|host, gpu| {
        for (from, to) in SCALINGS.map(|(from, to)| (size(from), size(to))) {
            let [host, gpu] = [host, gpu].map(|exec| resize(exec, picture(4, from), from, to).unwrap());
            assert_eq!(gpu, host, "{from:?} {to:?}");
        }
    });
}

#[test]
fn sums_and_means_give_what_the_host_gives() {
    // Seen to fail with one block less.
    beside_the_host(|host, gpu| {
        for len in LENGTHS {
            let sums = [host, gpu].map(|exec| sum(exec, floats(5, len)).unwrap());
            let means = [host, gpu].map(|exec| mean(exec, floats(5, len)).unwrap());
            assert_same_bits(&sums[1], &sums[0], &format!("the sum of {len} elements"));
            match len {
                0 => assert!(means[1][0].is_nan()),
                _ => assert_same_bits(&means[1], &means[0], &format!("the mean of {len} elements")),
            }
        }
    });
}
