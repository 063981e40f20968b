//! Memory: a scope never uses more than its plan states, and its plan never states more than the bound.

use anabranch::scope::{ScopePlan, Streaming, Sum, Tile, TileMut, operator};
use anabranch::{Executor, Graph, Plan, Result, inputs};

use super::program::Program;
use super::random::{draw, rounds};
use crate::dice::Dice;

fn compile<const N: usize>(program: &Program<N>, streaming: Streaming) -> Result<Plan> {
    let mut g = Graph::new();
    let ((one, other, scalars), _) = program.scope(&mut g, streaming);
    g.output("one", &one);
    g.output("other", &other);
    g.output("scalars", &scalars);
    g.compile()
}

fn scope(plan: &Plan) -> &ScopePlan {
    plan.scope("program").unwrap()
}

/// Returns the least bound that an error names.
fn least(error: &anabranch::Error) -> u64 {
    let text = error.to_string();
    let (_, bytes) = text.rsplit_once("allow ").unwrap_or_else(|| panic!("{text}"));
    bytes.parse().unwrap()
}

#[test]
fn bounds_hold_from_the_least_to_the_whole_and_one_byte_less_is_refused() {
    let exec = Executor::builder().workers(2).build().unwrap();
    for seed in rounds(100) {
        println!("seed {seed}");
        let mut dice = Dice::new(seed + 1000);
        let program = draw::<2>(&mut dice);
        let streaming = Streaming::relaxed().over_decompose_factor(1 + dice.below(9)).workers(2);
        let whole = scope(&compile(&program, streaming).unwrap()).peak_bytes();
        let least = least(&compile(&program, streaming.memory_max(0)).unwrap_err());
        compile(&program, streaming.memory_max(least - 1)).unwrap_err();
        for bound in [least, least + (whole.max(least) - least) / 3, whole.max(least)] {
            let plan = compile(&program, streaming.memory_max(bound)).unwrap();
            assert!(scope(&plan).peak_bytes() <= bound, "{}", scope(&plan));
            futures::executor::block_on(exec.run(&plan, inputs! {})).unwrap();
        }
    }
}

/// A chain of stencils on `n` numbers.
fn chain(n: usize, steps: usize, streaming: Streaming) -> Result<Plan> {
    let mut g = Graph::new();
    let sum = g.scope("s", streaming, |s| {
        let first = s.store("u", [n]);
        s.write("fill", (), &first, |mut u: TileMut<f64, 1>| u.fill(1.0));
        let last = (0..steps).fold(first, |from, _| {
            let to = s.store("u", [n]);
            s.write("step", from.halo([1], [1]), &to, |u: Tile<f64, 1>, mut v: TileMut<f64, 1>| {
                v.range(0).for_each(|i| v[[i]] = u[[i]]);
            });
            to
        });
        s.fold("sum", &last, Sum, |u: Tile<f64, 1>| u.as_slice().iter().sum::<f64>())
    });
    g.output("sum", &sum);
    g.compile()
}

// Seen to fail when tiles of the default size were the only ones that were tried.
#[test]
fn strict_finds_tiles_for_data_of_any_size() {
    for steps in [3, 10, 40] {
        for n in (0..40).map(|power| 1.5_f64.powi(power) as usize) {
            chain(n, steps, Streaming::strict().workers(2)).unwrap_or_else(|error| panic!("{n}, {steps}: {error:#}"));
        }
    }
    for n in [40_000, 400_000, 4_000_000] {
        let plan = chain(n, 2, Streaming::strict().memory_max(700_000)).unwrap_or_else(|error| panic!("{n}: {error:#}"));
        assert!(plan.scope("s").unwrap().peak_bytes() <= 700_000);
    }
}

#[test]
fn the_bytes_that_a_strict_scope_asks_for_would_do() {
    let (mut asked, mut refused) = (0, 0);
    for seed in rounds(15) {
        println!("seed {seed}");
        let program = draw::<1>(&mut Dice::new(seed + 2000));
        let strict = Streaming::strict().workers(2);
        let error = compile(&program, strict.memory_max(0)).unwrap_err();
        if !error.to_string().contains("allow ") {
            refused += 1;
            continue;
        }
        asked += 1;
        let bytes = least(&error);
        for bound in [bytes, bytes + 1, bytes + bytes / 7, 2 * bytes, 8 * bytes] {
            let plan = compile(&program, strict.memory_max(bound));
            let plan = plan.unwrap_or_else(|error| panic!("{bound} of {bytes}: {error:#}"));
            assert!(scope(&plan).peak_bytes() <= bound);
        }
        if let Ok(plan) = compile(&program, strict.memory_max(bytes - 1)) {
            panic!("{bytes} is not the least: {}", scope(&plan));
        }
    }
    println!("{asked} asked, {refused} were refused");
}

/// A stencil within a memory bound. Returns its plan, and the batches in flight.
fn stencil(bound: u64) -> (Plan, u64) {
    let mut g = Graph::new();
    g.scope("program", Streaming::strict().workers(2).memory_max(bound), |s| {
        let (u, v) = (s.store("u", [40_000, 50]), s.store("v", [40_000, 50]));
        s.write("fill", (), &u, |mut u: TileMut<f64, 2>| u.fill(1.0));
        s.write("step", u.halo([1, 0], [1, 0]), &v, |u: Tile<f64, 2>, mut v: TileMut<f64, 2>| {
            v.range(0).for_each(|row| v.row_mut(row).copy_from_slice(u.row(row)));
        });
    });
    let plan = g.compile().unwrap();
    let in_flight = scope(&plan).in_flight();
    (plan, in_flight)
}

// Seen to fail (one batch in flight) when the first tiles that fit were taken.
#[test]
fn tiles_become_smaller_before_a_worker_has_no_batch() {
    for bound in [50_000, 150_000, 250_000, 1_000_000] {
        let (plan, in_flight) = stencil(bound);
        assert!(scope(&plan).peak_bytes() <= bound);
        assert!(in_flight >= 2, "{bound}: {}", scope(&plan));
    }
    // Tiny tiles cost more than a second worker gains.
    let (plan, in_flight) = stencil(6_000);
    assert_eq!(in_flight, 1, "{}", scope(&plan));
}

/// The sum of the sums of long rows, planned with `streaming`.
fn rows(streaming: Streaming) -> (Plan, f64) {
    let mut g = Graph::new();
    let sum = g.scope("program", streaming, |s| {
        let (wide, sums) = (s.store("wide", [10_000, 512]), s.store("sums", [10_000]));
        s.write("fill", (), &wide, |mut wide: TileMut<f32, 2>| {
            let columns = wide.range(1);
            for row in wide.range(0) {
                columns.clone().for_each(|column| wide[[row, column]] = 1.0 / (1 + row + column) as f32);
            }
        });
        s.write("sums", &wide, &sums, |wide: Tile<f32, 2>, mut sums: TileMut<f32, 1>| {
            sums.range(0).for_each(|row| sums[[row]] = wide.range(1).map(|column| wide[[row, column]]).sum());
        });
        s.fold("sum", &sums, Sum, |sums: Tile<f32, 1>| f64::from(sums.as_slice().iter().sum::<f32>()))
    });
    g.output("sum", &sum);
    let plan = g.compile().unwrap();
    let mut outputs = futures::executor::block_on(Executor::inline().run(&plan, inputs! {})).unwrap();
    let sum = *outputs.take::<f64>("sum").unwrap();
    (plan, sum)
}

// Seen to fail when a leaf had 4096 elements of the reduced store: tiles of `wide` had 8 MiB, four in flight.
#[test]
fn tiles_of_long_rows_stay_small_beside_a_reduction_of_short_ones() {
    let (plan, sum) = rows(Streaming::strict().workers(2));
    // Four batches in flight, of at most half of an L2 cache of 2 MiB.
    assert!(scope(&plan).peak_bytes() < 5 << 20, "{}", scope(&plan));
    for streaming in [Streaming::off(), Streaming::relaxed().over_decompose_factor(7), Streaming::strict().memory_max(1 << 18)] {
        assert_eq!(rows(streaming).1.to_bits(), sum.to_bits(), "{streaming:?}");
    }
}

// Seen to fail (four tiles in flight are more than all numbers) when only a bound made tiles smaller.
#[test]
fn without_a_bound_less_is_in_memory_than_whole_stores() {
    for n in (4..30).map(|power| 2_usize.pow(power) / 8 + 3_001) {
        let mut g = Graph::new();
        let sum = g.scope("program", Streaming::relaxed().workers(2), |s| {
            let (a, b) = (s.store("a", [n]), s.store("b", [n]));
            s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
            s.write("near", a.halo([1], [1]), &b, |_: Tile<f64, 1>, mut b: TileMut<f64, 1>| b.fill(2.0));
            s.fold("sum", &b, Sum, |b: Tile<f64, 1>| b.as_slice().iter().sum::<f64>())
        });
        g.output("sum", &sum);
        let plan = g.compile().unwrap();
        let (peak, whole) = (scope(&plan).peak_bytes(), scope(&plan).unstreamed_bytes());
        // Little data has one tile, and some parts of the reduction.
        let has_one = scope(&plan).streamed().groups()[0].batches() == 1;
        assert!(peak <= whole || has_one && peak < whole + (1 << 10), "{n}: {peak} of {whole}");
        assert!(n < 100_000 || scope(&plan).in_flight() >= 2, "{n}: {}", scope(&plan));
    }
}

// Seen to fail (202 MB without a bound, of 268 MB) when the parts did not count in the number of rounds.
#[test]
fn parts_of_reductions_count_where_steps_have_several_rounds() {
    let peak = |streaming: Streaming| {
        let mut g = Graph::new();
        let bins = g.scope("program", streaming.workers(2), |s| {
            let a = s.store("a", [1 << 26]);
            s.write("fill", (), &a, |mut a: TileMut<f32, 1>| a.fill(1.0));
            let add = operator("add", || [0_u64; 1 << 14], |bins, _| bins);
            s.fold("bins", &a, add, |_: Tile<f32, 1>| [0_u64; 1 << 14])
        });
        g.output("bins", &bins);
        scope(&g.compile().unwrap()).peak_bytes()
    };
    let (free, bounded) = (peak(Streaming::strict()), peak(Streaming::strict().memory_max(1 << 28)));
    assert!(free <= 2 * bounded, "{free} bytes without a bound, {bounded} with one");
}
