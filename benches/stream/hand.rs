//! FILL, INC and SUM by hand: on whole arrays, in blocks, and with rayon.

use rayon::prelude::*;

use super::{THREADS, Way};

/// The elements of a block that fits into a core's L2 cache.
const BLOCK: usize = (256 << 10) / size_of::<f64>();

/// Adds numbers, in several sums at once. All ways use it.
pub(crate) fn sum(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; 16];
    let chunks = numbers.chunks_exact(sums.len());
    let rest: f64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, number)| *sum += number);
    }
    sums.iter().sum::<f64>() + rest
}

pub(crate) fn inc(numbers: &mut [f64]) {
    numbers.iter_mut().for_each(|number| *number += 1.0);
}

/// Returns the ways by hand.
pub(crate) fn ways(elements: usize, incs: usize) -> Vec<Way> {
    let bytes = elements * size_of::<f64>();
    let (mut whole, mut of_rayon) = (vec![1.0; elements], vec![1.0; elements]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().expect("there are threads");
    vec![
        Way { name: "whole by hand, warm", run: Box::new(move || on_whole(&mut whole, incs)), before_bytes: bytes },
        Way { name: "blocked by hand", run: Box::new(move || in_blocks(elements, incs)), before_bytes: 0 },
        Way {
            name: "rayon par_chunks_mut, warm",
            run: Box::new(move || pool.install(|| with_rayon(&mut of_rayon, incs))),
            before_bytes: bytes,
        },
    ]
}

/// Each operation on the whole array, with all threads.
fn on_whole(numbers: &mut [f64], incs: usize) -> f64 {
    let part = numbers.len().div_ceil(THREADS);
    let all = |numbers: &mut [f64], each: fn(&mut [f64])| {
        std::thread::scope(|scope| numbers.chunks_mut(part).for_each(|part| _ = scope.spawn(move || each(part))));
    };
    all(numbers, |numbers| numbers.fill(1.0));
    (0..incs).for_each(|_| all(numbers, inc));
    std::thread::scope(|scope| {
        let parts: Vec<_> = numbers.chunks(part).map(|part| scope.spawn(move || sum(part))).collect();
        parts.into_iter().map(|part| part.join().expect("it does not panic")).sum()
    })
}

/// All operations on each block, with a block for each thread.
fn in_blocks(elements: usize, incs: usize) -> f64 {
    let part = elements.div_ceil(THREADS);
    let on_part = move |start: usize| {
        let mut block = vec![0.0; BLOCK];
        let (mut total, mut at, end) = (0.0, start, (start + part).min(elements));
        while at < end {
            let block = &mut block[..BLOCK.min(end - at)];
            block.fill(1.0);
            (0..incs).for_each(|_| inc(block));
            total += sum(block);
            at += block.len();
        }
        total
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || on_part(thread * part))).collect();
        parts.into_iter().map(|part| part.join().expect("it does not panic")).sum()
    })
}

fn with_rayon(numbers: &mut [f64], incs: usize) -> f64 {
    numbers.par_chunks_mut(BLOCK).for_each(|block| block.fill(1.0));
    (0..incs).for_each(|_| numbers.par_chunks_mut(BLOCK).for_each(inc));
    numbers.par_chunks(BLOCK).map(sum).sum()
}
