//! Random array programs on a device: the results are those of the same program on whole arrays, bit for bit.
//! `SCOPE_ROUNDS` is their number, and `SCOPE_SEED` the first seed.

use std::sync::LazyLock;

use anabranch_soft_cuda::{Launch, Param};

use super::{DRIVER, Gpu};
use crate::dice::Dice;
use crate::scope::kernels::{elements, fold_leaves};
use crate::scope::random::{add_device, compile, draw_on_host, draw_streaming, rounds, run};
use crate::support::until;

/// Registers the kernels of the programs, once.
static KERNELS: LazyLock<()> = LazyLock::new(|| {
    let (read, number) = (Param::READ, Param::scalar::<u32>());
    let params = [
        read.counted_by::<u64>(4),
        read.counted_by::<u64>(5),
        Param::READ_WRITE.counted_by::<u64>(6),
        read.counted_by::<u64>(7),
        number,
        number,
        number,
        number,
    ];
    DRIVER.register_kernel("scope_elements", &params, |launch| {
        let len = |param| count(launch, param);
        // SAFETY: these parameters are pointers to as many elements as their length parameters say.
        let [one, other, to, words] = [0, 1, 2, 3].map(|param| unsafe { launch.slice::<u64>(param, len(param + 4)) });
        elements(one, other, to, words);
    });
    let params =
        [read.counted_by::<u64>(3), Param::WRITE.counted_by::<f64>(4), read.counted_by::<u64>(5), number, number, number];
    DRIVER.register_kernel("scope_fold", &params, |launch| {
        let len = |param| count(launch, param);
        // SAFETY: these parameters are pointers to as many elements as their length parameters say.
        let [from, words] = [0, 2].map(|param| unsafe { launch.slice::<u64>(param, len(param + 3)) });
        // SAFETY: parameter 1 is a pointer to as many elements as parameter 4 says.
        fold_leaves(from, unsafe { launch.slice::<f64>(1, len(4)) }, words);
    });
});

fn count(launch: &Launch<'_>, param: usize) -> usize {
    // SAFETY: the parameter is registered as a u32.
    unsafe { launch.scalar::<u32>(param) as usize }
}

fn check<const N: usize>(usual: u64) {
    LazyLock::force(&KERNELS);
    let (gpu, mut streamed) = (Gpu::new(), 0);
    for seed in rounds(usual) {
        let mut dice = Dice::new(seed * 8 + 4 + N as u64);
        let mut program = draw_on_host::<N>(&mut dice);
        add_device(&mut program, &mut dice);
        let exec = match dice.below(4) {
            0 => gpu.executor_of_calls(2),
            workers => gpu.executor([1, 2, 8][workers - 1]),
        };
        let streaming = draw_streaming(&mut dice);
        println!("axes {N}, SCOPE_SEED={seed} SCOPE_ROUNDS=1, {exec:?}, {streaming:?}");
        let (plan, saved) = match compile(&program, streaming) {
            Ok(compiled) => compiled,
            Err(error) if format!("{error}").contains("does not stream") => continue,
            Err(error) => panic!("{error:?}: {program:?}"),
        };
        let scope = plan.scope("program").unwrap();
        assert!(scope.device_bytes() > 0 && scope.device_bytes() <= scope.peak_bytes(), "{scope}");
        streamed += usize::from(scope.streamed().is_one());
        let results = run::<N>(&plan, &saved, &exec);
        assert!(results == program.results(), "{program:?}\n{scope}");
        until(|| exec.in_flight() == 0 && exec.in_limbo() == 0);
    }
    println!("{streamed} streamed as a whole");
    assert!(streamed > 0, "some programs stream as a whole");
    gpu.is_clean();
}

#[test]
fn programs_on_vectors_give_the_same_on_a_device() {
    check::<1>(20);
}

#[test]
fn programs_on_matrices_give_the_same_on_a_device() {
    check::<2>(20);
}

#[test]
fn programs_on_cubes_give_the_same_on_a_device() {
    check::<3>(20);
}
