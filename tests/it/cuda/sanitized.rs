//! The stream sanitizer on a CUDA device.

use super::Gpu;
use crate::sanitizing::random::Tally;
use crate::sanitizing::sharing::shared;

#[test]
fn a_cuda_device_finds_every_race_of_random_kernels_and_no_other() {
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(1);
    let (mut tally, buffers) = (Tally::default(), shared(&exec));
    for seed in 0..500 {
        tally.run_both(seed, false, 2, &exec, &buffers);
    }
    println!("{tally:?}");
    assert_eq!(tally.found, tally.racing);
    assert!(tally.racing >= 100 && tally.right >= 500, "{tally:?}");
}

#[test]
fn random_graphs_with_host_nodes_have_no_false_races_on_a_cuda_device() {
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(2);
    let (mut tally, buffers) = (Tally::default(), shared(&exec));
    for seed in 0..500 {
        tally.run_both(seed, true, 1, &exec, &buffers);
    }
    println!("{tally:?}");
}
