//! Random array programs: with all tiles, batches in flight and executors, the results are those of the same
//! program on whole arrays, bit for bit.

use anabranch::scope::{Array, Streaming};
use anabranch::sim::{Faults, Order};
use anabranch::{Executor, Graph, Plan, inputs};

use super::program::{Action, OnDevice, Program, Reach, Results, Saved};
use crate::dice::Dice;

pub(crate) fn rounds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = number("SCOPE_SEED").unwrap_or(0);
    first..first + number("SCOPE_ROUNDS").unwrap_or(usual)
}

fn draw_reach<const N: usize>(dice: &mut Dice, is_square: bool) -> Reach<N> {
    match dice.below(12) {
        0..=4 => Reach::Own,
        5..=7 => Reach::Halo(std::array::from_fn(|_| dice.below(3)), std::array::from_fn(|_| dice.below(3))),
        8 => Reach::Halo(std::array::from_fn(|axis| usize::from(axis == 0)), [0; N]),
        9 => Reach::Shifted(std::array::from_fn(|_| dice.below(5) as isize - 2)),
        10 if is_square => Reach::Transposed,
        10 => Reach::Own,
        _ => {
            if dice.below(3) == 0 {
                Reach::Whole
            } else {
                Reach::Own
            }
        }
    }
}

/// Draws a random program. One of three works on a device too.
pub(super) fn draw<const N: usize>(dice: &mut Dice) -> Program<N> {
    let mut program = draw_on_host(dice);
    if dice.below(3) == 0 {
        add_device(&mut program, dice);
    }
    program
}

/// Adds operations on a device to a program, after those on the host.
pub(crate) fn add_device<const N: usize>(program: &mut Program<N>, dice: &mut Dice) {
    let makes_store = |action: &&Action<N>| {
        !matches!(action, Action::Fold { .. } | Action::Half { .. } | Action::Save { .. }) // Maps have a new one.
    };
    let is_square = program.shape.iter().all(|&along| along == program.shape[0]) && N > 1;
    let mut hosts = program.actions.iter().filter(makes_store).count();
    let mut actions = vec![OnDevice::Upload { from: dice.below(hosts) }, OnDevice::Fill { seed: 3 }];
    let mut stores = 2;
    for number in 0..2 + dice.below(7) {
        let action = match dice.below(12) {
            0 => OnDevice::Fill { seed: number as u64 + 30 },
            1 | 2 => OnDevice::Upload { from: dice.below(hosts) },
            3 | 4 => OnDevice::Update { from: dice.below(stores), seed: number as u64 + 40 },
            5 | 6 => OnDevice::Download { from: dice.below(stores) },
            7 | 8 if program.tile.is_none() => OnDevice::Fold { from: dice.below(stores), halo: dice.below(3) == 0 },
            _ => {
                let from: Vec<_> = (0..1 + dice.below(2)).map(|_| (dice.below(stores), draw_reach(dice, is_square))).collect();
                OnDevice::Map { from, to: None }
            }
        };
        match action {
            OnDevice::Fold { .. } => {}
            OnDevice::Download { .. } => hosts += 1,
            _ => stores += 1,
        }
        actions.push(action);
    }
    actions.push(OnDevice::Download { from: stores - 1 });
    program.actions.extend(actions.into_iter().map(Action::Device));
    program.kept[1] = hosts;
}

pub(crate) fn draw_on_host<const N: usize>(dice: &mut Dice) -> Program<N> {
    let is_square = N > 1 && dice.below(3) == 0;
    let mut shape: [usize; N] = std::array::from_fn(|axis| match (N, axis) {
        (1, _) => [1 + dice.below(50), 4096 * dice.below(8) + dice.below(4096) + 1][dice.below(2)],
        (_, 0) => 1 + dice.below(70),
        _ => 1 + dice.below(9),
    });
    if is_square {
        shape = [1 + dice.below(20); N];
    }
    let tile = (dice.below(3) == 0).then(|| std::array::from_fn(|axis| 1 + dice.below(shape[axis])));
    let mut actions = vec![Action::Fill { seed: 1 }, Action::Load { seed: 2 }];
    let (mut stores, mut scalars) = (2, 0);
    for number in 0..2 + dice.below(9) {
        let action = match dice.below(16) {
            0 => Action::Fill { seed: number as u64 + 10 },
            1 => Action::Load { seed: number as u64 + 10 },
            2 | 3 => Action::Update { from: dice.below(stores), seed: number as u64 + 20 },
            4 | 5 if tile.is_none() => Action::Fold { from: dice.below(stores), halo: dice.below(3) == 0 },
            6 if scalars > 0 => Action::Half { scalar: dice.below(scalars) },
            7 if scalars > 0 => Action::Add { from: dice.below(stores), scalar: dice.below(scalars) },
            8 => Action::Save { from: dice.below(stores) },
            _ => {
                let from: Vec<_> = (0..1 + dice.below(2)).map(|_| (dice.below(stores), draw_reach(dice, is_square))).collect();
                Action::Map { from, to: None }
            }
        };
        match action {
            Action::Fold { .. } | Action::Half { .. } => scalars += 1,
            Action::Save { .. } => {}
            _ => stores += 1,
        }
        actions.push(action);
    }
    Program { shape, tile, actions, kept: [dice.below(stores), dice.below(stores)] }
}

pub(crate) fn compile<const N: usize>(program: &Program<N>, streaming: Streaming) -> anabranch::Result<(Plan, Saved)> {
    let mut g = Graph::new();
    let ((one, other, scalars), saved) = program.scope(&mut g, streaming);
    g.output("one", &one);
    g.output("other", &other);
    g.output("scalars", &scalars);
    Ok((g.compile()?, saved))
}

pub(crate) fn run<const N: usize>(plan: &Plan, saved: &Saved, exec: &Executor) -> Results {
    let mut outputs = futures::executor::block_on(exec.run(plan, inputs! {})).unwrap();
    let mut array = |name: &str| outputs.take::<Array<u64, N>>(name).unwrap().as_slice().to_vec();
    let kept = [array("one"), array("other")];
    Results { kept, scalars: outputs.take::<Vec<u64>>("scalars").unwrap().to_vec(), saved: saved.lock().unwrap().clone() }
}

fn executors(seed: u64) -> Vec<(&'static str, Executor)> {
    let workers = |workers| Executor::builder().workers(workers).build().unwrap();
    vec![
        ("inline", Executor::inline()),
        ("one worker", workers(1)),
        ("two workers", workers(2)),
        ("eight workers", workers(8)),
        ("simulated", Executor::builder().simulated(Order::Seeded(seed), Faults::new(0)).build().unwrap()),
    ]
}

pub(crate) fn draw_streaming(dice: &mut Dice) -> Streaming {
    let streaming = match dice.below(8) {
        0 => Streaming::off(),
        1 => Streaming::strict(),
        _ => Streaming::relaxed(),
    };
    let streaming = streaming.workers([1, 2, 8][dice.below(3)]).in_flight(1 + dice.below(6));
    match dice.below(6) {
        0 => streaming,
        _ => streaming.over_decompose_factor([1, 2, 3, 4, 7, 16, 64][dice.below(7)]),
    }
}

fn check<const N: usize>(seeds: impl Iterator<Item = u64>) {
    let (mut streamed, mut refused) = (0, 0);
    for seed in seeds {
        println!("axes {N}, seed {seed}");
        let mut dice = Dice::new(seed * 8 + N as u64);
        let program = draw::<N>(&mut dice);
        let expected = program.results();
        for (name, exec) in executors(seed) {
            let streaming = draw_streaming(&mut dice);
            let (plan, saved) = match compile(&program, streaming) {
                Ok(compiled) => compiled,
                Err(error) if format!("{error}").contains("does not stream") => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error:?}: {program:?}"),
            };
            streamed += usize::from(plan.scope("program").unwrap().streamed().is_one());
            let results = run::<N>(&plan, &saved, &exec);
            assert!(results == expected, "{name}, {streaming:?}: {program:?}\n{}", plan.scope("program").unwrap());
        }
    }
    println!("{streamed} streamed as a whole, {refused} were refused");
    assert!(streamed > 0, "some programs stream as a whole");
}

#[test]
fn programs_on_vectors_give_the_same_for_all_tiles_and_executors() {
    check::<1>(rounds(60));
}

#[test]
fn programs_on_matrices_give_the_same_for_all_tiles_and_executors() {
    check::<2>(rounds(60));
}

#[test]
fn programs_on_cubes_give_the_same_for_all_tiles_and_executors() {
    check::<3>(rounds(60));
}

// Seen to fail with claims of no elements.
#[test]
fn an_empty_read_beside_a_batch_that_writes_is_no_clash() {
    use anabranch::scope::{Tile, TileMut};
    let mut g = Graph::new();
    let (there, is_there) = std::sync::mpsc::channel();
    let is_there = std::sync::Mutex::new(is_there);
    let sums = g.scope("s", Streaming::strict().in_flight(2).workers(2), |s| {
        let [x, a, d] = ["x", "a", "d"].map(|name| {
            let store = s.store(name, [40]);
            s.tiles(&store, [8]);
            store
        });
        let c = s.store("c", [40, 2]);
        s.tiles(&c, [8, 2]);
        s.write("0", (), &x, |mut x: TileMut<f64, 1>| x.fill(1.0));
        s.write("1", &x, &a, |_: Tile<f64, 1>, mut a: TileMut<f64, 1>| a.fill(1.0));
        s.write("2", a.shifted([8]), &d, move |a: Tile<f64, 1>, mut d: TileMut<f64, 1>| {
            if a.as_slice().is_empty() {
                let _ = there.send(());
            }
            d.fill(1.0);
        });
        s.write("3", (), &c, move |mut c: TileMut<f64, 2>| {
            if c.place().batch == 4 {
                // Without a timeout, a conflict would be a hang.
                let _ = is_there.lock().unwrap().recv_timeout(std::time::Duration::from_secs(5));
            }
            c.fill(1.0);
        });
    });
    g.output("sums", &sums);
    let exec = Executor::builder().workers(2).build().unwrap();
    futures::executor::block_on(exec.run(&g.compile().unwrap(), inputs! {})).unwrap();
}
