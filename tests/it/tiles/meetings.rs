//! The distances, ahead and back, to the batches that a batch needs, compared with a count of all elements.

use anabranch::tiles::{Meeting, Part};

use super::brute::{Axis, Uses, meeting};
use crate::dice::Dice;

fn part(uses: &Uses) -> Part {
    let Some(axes) = &uses.axes else { return Part::whole() };
    let list = |of: &dyn Fn(&Axis) -> u64| axes.iter().map(of).collect::<Vec<_>>();
    Part::tiles(list(&|axis| axis.tile))
        .offset(axes.iter().map(|axis| axis.offset).collect::<Vec<_>>())
        .halo(list(&|axis| axis.halo.0), list(&|axis| axis.halo.1))
        .by(axes.iter().map(|axis| axis.by).collect::<Vec<_>>())
}

/// Draws a use of a store with `axes` axes.
fn draw(dice: &mut Dice, axes: usize, launch: &[u64]) -> Uses {
    match dice.below(12) {
        0 => Uses { launch: launch.to_vec(), axes: None },
        _ => draw_tiles(dice, axes, launch),
    }
}

fn draw_tiles(dice: &mut Dice, axes: usize, launch: &[u64]) -> Uses {
    let mut by: Vec<usize> = (0..axes).map(|axis| axis % launch.len()).collect();
    match dice.below(6) {
        // Transposed, a diagonal, or arbitrary.
        0 => by.reverse(),
        1 => by = vec![dice.below(launch.len()); axes],
        2 => by.iter_mut().for_each(|by| *by = dice.below(launch.len())),
        _ => {}
    }
    let axis = |by: usize, dice: &mut Dice| Axis {
        tile: 1 + dice.below(4) as u64,
        offset: if dice.below(2) == 0 { 0 } else { dice.below(9) as i64 - 4 },
        halo: if dice.below(2) == 0 { (0, 0) } else { (dice.below(3) as u64, dice.below(3) as u64) },
        by,
    };
    let drawn = by.into_iter().map(|by| axis(by, dice)).collect();
    Uses { launch: launch.to_vec(), axes: Some(drawn) }
}

fn check(seed: u64) {
    let mut dice = Dice::new(seed);
    let axes = 1 + dice.below(3);
    let extents: Vec<u64> = (0..axes).map(|_| (1 + dice.below([0, 16, 8, 5][axes])) as u64).collect();
    let mut launch = || (0..1 + dice.below(3)).map(|_| 1 + dice.below(4) as u64).collect::<Vec<u64>>();
    let (one, other) = (launch(), launch());
    let other = if seed.is_multiple_of(4) { other } else { one.clone() };
    let (earlier, later) = (draw(&mut dice, axes, &one), draw(&mut dice, axes, &other));
    let found = Meeting::of(&extents, (&earlier.launch, &part(&earlier)), (&later.launch, &part(&later)));
    let found = found.unwrap().map(|met| (met.lag, met.reach));
    assert_eq!(found, meeting(&extents, &earlier, &later), "seed {seed}: {extents:?}, {earlier:?}, {later:?}");
}

#[test]
fn batches_meet_as_their_elements_do() {
    // Seen to fail with a halo that counts on one side only, and with axes of a diagonal one by one.
    let seeds = std::env::var("TILE_SEEDS").map_or(20_000, |seeds| seeds.parse().expect("a number"));
    (0..seeds).for_each(check);
}

#[test]
fn long_axes_meet_as_short_ones_do() {
    // Seen to fail without the places where a range is cut.
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let launch = [1030 + dice.below(500) as u64];
        let extents = [1 + dice.below(2000) as u64];
        let (earlier, later) = (draw_tiles(&mut dice, 1, &launch), draw_tiles(&mut dice, 1, &launch));
        let found = Meeting::of(&extents, (&launch, &part(&earlier)), (&launch, &part(&later))).unwrap();
        let found = found.map(|met| (met.lag, met.reach));
        assert_eq!(found, meeting(&extents, &earlier, &later), "seed {seed}: {extents:?}, {earlier:?}, {later:?}");
    }
}

#[test]
fn long_diagonals_meet_where_their_ranges_cross() {
    // Seen to fail with the ends of ranges alone: then they met nowhere.
    let (shape, launch) = ([16_000, 16_000], [8_000]);
    let earlier = Part::tiles([1, 1]).by([0, 0]);
    let later = Part::tiles([2, 1]).offset([0, 2_000]).by([0, 0]);
    let met = Meeting::of(&shape, (&launch, &earlier), (&launch, &later)).unwrap();
    // Batch 2,000 of the later one has row 4,000 and column 4,000.
    assert_eq!(met, Some(Meeting { lag: 2_000, reach: -2_000, is_exact: true }));
}
