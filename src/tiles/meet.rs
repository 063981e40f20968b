//! Which batches of an earlier operation have elements that a batch of a later one uses, too: how far ahead
//! the last of them is, and how far back the first.
//!
//! Along one axis of a store, the tiles that an interval meets are an interval. So of a batch of the later
//! operation, at point p of its launch, the batches that it meets are a box of points q of the earlier one:
//!
//! ```text
//!  axis of the store ── the later one's tile, by p[e], is an interval ── it meets tiles low..=high, by q[d]
//!  number of a batch = Σ stride[axis] · point[axis], so
//!  lag = max over p of  Σ stride[d] · high(p)[d] - Σ stride[e] · p[e]
//! ```
//! The sum is largest where each independent part of it is: those axes of the launches belong together that
//! an axis of the store joins. Mostly that is one axis of the later launch, and a part is a search along it;
//! along a long one only where the tiles may shift against each other. If two axes of the later launch bound
//! one of the earlier (a diagonal), all their points are tried.

use super::outline::{Operation, Outline};
use super::part::{AxisTiles, Part};
use crate::error::Result;

/// How the batches of two operations meet in a store.
///
/// ```
/// use anabranch::tiles::{Meeting, Part};
///
/// // Batch 2 of the later operation reads elements that batch 3 of the earlier one writes.
/// let (tiles, halo) = (Part::tiles([8]), Part::tiles([8]).halo([1], [1]));
/// let met = Meeting::of(&[64], (&[8], &tiles), (&[8], &halo))?;
/// assert_eq!(met.map(|met| (met.lag, met.reach)), Some((1, 1)));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// By how many batches the last batch that is met is ahead, at the most: over all batches of the later
    /// operation that meet one.
    pub lag: i64,
    /// By how many batches the first one that is met is behind, at the most.
    pub reach: i64,
    /// Whether both numbers were found. Along a diagonal with millions of batches they are as large as they
    /// could be: batches may need less, or share no element.
    pub is_exact: bool,
}

impl Meeting {
    /// Returns how two uses of a store meet: of an operation, and of a later one. Each has a launch, and the
    /// part of the store that each of its batches uses. None if they share no element.
    ///
    /// # Errors
    /// If a size is out of range, or a part does not fit the store.
    pub fn of(shape: &[u64], earlier: (&[u64], &Part), later: (&[u64], &Part)) -> Result<Option<Self>> {
        let mut outline = Outline::new();
        let store = outline.store("the store", shape, 1);
        for (name, (launch, part)) in [("the earlier", earlier), ("the later", later)] {
            outline.op(Operation::new(name, launch).read(store, part.clone()));
        }
        outline.check()?;
        let [earlier, later] = [earlier, later].map(|(launch, part)| Use { launch, part });
        Ok(meeting(shape, earlier, later))
    }
}

/// A launch, and the part of the store that each of its batches uses.
#[derive(Clone, Copy)]
pub(super) struct Use<'p> {
    pub(super) launch: &'p [u64],
    pub(super) part: &'p Part,
}

/// Up to so many points are all tried along an axis.
const ALL_MAX: i64 = 1 << 10;
/// More points are not tried.
const POINTS_MAX: i64 = 1 << 24;

/// Returns how two uses of a store meet; None if they share no element.
pub(super) fn meeting(extents: &[u64], earlier: Use<'_>, later: Use<'_>) -> Option<Meeting> {
    let pair = Pair::new(extents, earlier, later);
    let mut sum = Meeting { lag: 0, reach: 0, is_exact: true };
    for group in pair.groups() {
        let best = pair.best_of(&group)?;
        let is_exact = sum.is_exact && best.is_exact;
        sum = Meeting { lag: sum.lag + best.lag, reach: sum.reach + best.reach, is_exact };
    }
    Some(sum)
}

/// Returns the batches of the earlier use that a batch of the later one meets, from the first to the last.
/// Those between need not all be among them.
pub(super) fn met(extents: &[u64], earlier: Use<'_>, later: Use<'_>, batch: u64) -> Option<(u64, u64)> {
    let pair = Pair::new(extents, earlier, later);
    let point: Vec<i64> =
        pair.later.iter().zip(later.launch).map(|(stride, count)| batch as i64 / stride % *count as i64).collect();
    let (mut first, mut last) = (0, 0);
    for (axis, stride) in pair.earlier.iter().enumerate() {
        let (low, high) = pair.range(axis, |by| point[by])?;
        (first, last) = (first + stride * low, last + stride * high);
    }
    pair.joins.iter().all(|join| join.is_met(|by| point[by])).then_some((first as u64, last as u64))
}

/// Both uses along one axis of the store.
struct Join {
    extent: i64,
    earlier: Option<AxisTiles>,
    later: Option<AxisTiles>,
}

impl Join {
    /// Returns the interval that the later use has, cut to the store.
    fn interval(&self, point: impl Fn(usize) -> i64) -> (i64, i64) {
        self.later.map_or((0, self.extent), |tiles| tiles.interval(point(tiles.by), self.extent))
    }

    fn is_met(&self, point: impl Fn(usize) -> i64) -> bool {
        let (start, end) = self.interval(point);
        start < end
    }

    /// Returns the tiles of the earlier use that share elements with an interval of the store.
    fn tiles(&self, (start, end): (i64, i64)) -> (i64, i64) {
        self.earlier.map_or((0, 0), |tiles| {
            let low = (start - tiles.offset - tiles.behind).div_euclid(tiles.tile);
            let high = (end - 1 - tiles.offset + tiles.before).div_euclid(tiles.tile);
            (low, high)
        })
    }
}

/// Two uses of one store.
struct Pair<'p> {
    /// By axis of the launch: how many batches lie between neighbours.
    earlier: Vec<i64>,
    later: Vec<i64>,
    launches: (&'p [u64], &'p [u64]),
    joins: Vec<Join>,
}

/// Axes of the launches that depend on each other, and on no others.
struct Group {
    earlier: Vec<usize>,
    later: Vec<usize>,
    /// The axes of the store between them.
    joins: Vec<usize>,
}

impl<'p> Pair<'p> {
    fn new(extents: &[u64], earlier: Use<'p>, later: Use<'p>) -> Self {
        let join = |(axis, &extent): (usize, &u64)| Join {
            extent: extent as i64,
            earlier: earlier.part.along(axis),
            later: later.part.along(axis),
        };
        Self {
            earlier: strides(earlier.launch),
            later: strides(later.launch),
            launches: (earlier.launch, later.launch),
            joins: extents.iter().enumerate().map(join).collect(),
        }
    }

    fn groups(&self) -> Vec<Group> {
        let (earlier, later) = (self.earlier.len(), self.later.len());
        // Axes of the earlier launch, of the later one, and of the store.
        let mut of: Vec<usize> = (0..earlier + later + self.joins.len()).collect();
        let mut unite = |one: usize, other: usize| {
            let (from, to) = (of[one].max(of[other]), of[one].min(of[other]));
            of.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
        };
        for (number, join) in self.joins.iter().enumerate() {
            let own = earlier + later + number;
            join.earlier.iter().for_each(|tiles| unite(own, tiles.by));
            join.later.iter().for_each(|tiles| unite(own, earlier + tiles.by));
        }
        let mut roots = of.clone();
        roots.sort_unstable();
        roots.dedup();
        let members = |root: usize, from: usize, count: usize| (0..count).filter(|at| of[from + at] == root).collect();
        let group = |root: usize| Group {
            earlier: members(root, 0, earlier),
            later: members(root, earlier, later),
            joins: members(root, earlier + later, self.joins.len()),
        };
        roots.into_iter().map(group).collect()
    }

    /// Returns the largest lag and reach of a group of axes; None if no points of it meet. If there are too
    /// many points to try, both are as large as they could be.
    fn best_of(&self, group: &Group) -> Option<Meeting> {
        let counts: Vec<i64> = group.later.iter().map(|&axis| self.launches.1[axis] as i64).collect();
        let along = if let [count] = counts[..] { self.candidates(group, count) } else { None };
        let points = along
            .as_ref()
            .map_or_else(|| counts.iter().fold(1_i64, |sum, &count| sum.saturating_mul(count)), |along| along.len() as i64);
        if points > POINTS_MAX {
            let span = |strides: &[i64], axes: &[usize], launch: &[u64]| {
                axes.iter().map(|&axis| strides[axis] * (launch[axis] as i64 - 1)).sum::<i64>()
            };
            let lag = span(&self.earlier, &group.earlier, self.launches.0);
            let reach = span(&self.later, &group.later, self.launches.1);
            return Some(Meeting { lag, reach, is_exact: false });
        }
        let mut best: Option<Meeting> = None;
        let mut consider = |point: &[i64]| {
            if let Some((lag, reach)) = self.at(group, point) {
                let known = best.map_or((lag, reach), |best| (best.lag, best.reach));
                best = Some(Meeting { lag: known.0.max(lag), reach: known.1.max(reach), is_exact: true });
            }
        };
        if let Some(along) = along {
            along.into_iter().for_each(|at| consider(&[at]));
            return best;
        }
        let mut point = vec![0; counts.len()];
        loop {
            consider(&point);
            let Some(next) = (0..counts.len()).find(|&axis| point[axis] + 1 < counts[axis]) else { return best };
            point[..next].fill(0);
            point[next] += 1;
        }
    }

    /// Returns the lag and the reach that a group of axes adds, at a point of its axes of the later launch.
    fn at(&self, group: &Group, point: &[i64]) -> Option<(i64, i64)> {
        let at = |by: usize| point[group.later.iter().position(|&axis| axis == by).unwrap_or(0)];
        if !group.joins.iter().all(|&join| self.joins[join].is_met(at)) {
            return None;
        }
        let own: i64 = group.later.iter().zip(point).map(|(&axis, at)| self.later[axis] * at).sum();
        let (mut first, mut last) = (0, 0);
        for &axis in &group.earlier {
            let (low, high) = self.range(axis, at)?;
            (first, last) = (first + self.earlier[axis] * low, last + self.earlier[axis] * high);
        }
        Some((last - own, own - first))
    }

    /// Returns the coordinates along an axis of the earlier launch whose tiles are met.
    fn range(&self, axis: usize, point: impl Fn(usize) -> i64 + Copy) -> Option<(i64, i64)> {
        let (mut low, mut high) = (0, self.launches.0[axis] as i64 - 1);
        for join in self.joins.iter().filter(|join| join.earlier.is_some_and(|tiles| tiles.by == axis)) {
            let tiles = join.tiles(join.interval(point));
            (low, high) = (low.max(tiles.0), high.min(tiles.1));
        }
        (low <= high).then_some((low, high))
    }

    /// Returns the points along the only axis of a group at which its lag or its reach can be largest; None
    /// if these are all.
    ///
    /// Between two places where an interval or a range is cut, both are a linear function plus one that
    /// repeats: so the largest is in the first or the last repetition.
    fn candidates(&self, group: &Group, count: i64) -> Option<Vec<i64>> {
        let joins = || group.joins.iter().map(|&join| &self.joins[join]);
        // Two ranges along one axis cross elsewhere.
        let is_bound_twice =
            |axis: &usize| joins().filter(|join| join.earlier.is_some_and(|tiles| tiles.by == *axis)).count() > 1;
        if count <= ALL_MAX || group.earlier.iter().any(is_bound_twice) {
            return None;
        }
        let repeats = joins().filter_map(|join| Some(join.earlier?.tile / gcd(join.earlier?.tile, join.later?.tile)));
        let repeat = repeats.fold(1, |one: i64, other| (one / gcd(one, other)).saturating_mul(other)).min(count);
        let mut cuts = vec![0, count];
        for join in joins() {
            let Some(later) = join.later else { continue };
            let edges = join.earlier.map(|tiles| {
                let (start, end) = (tiles.offset, tiles.offset + tiles.tile * self.launches.0[tiles.by] as i64);
                [start - tiles.before, start + tiles.behind, end - tiles.before, end + tiles.behind]
            });
            for edge in edges.into_iter().flatten().chain([0, join.extent]) {
                // Where the later tile's start, or its end, comes to the edge.
                cuts.push((edge - later.offset + later.before).div_euclid(later.tile));
                cuts.push((edge - later.offset - later.behind).div_euclid(later.tile) - 1);
            }
        }
        let width = 2 * repeat + 2;
        let tried = width.saturating_mul(2 * cuts.len() as i64);
        if tried >= count || tried > POINTS_MAX {
            return None;
        }
        let around = |cut: i64| (cut - width).max(0)..(cut + width).min(count);
        let mut points: Vec<i64> = cuts.into_iter().flat_map(around).collect();
        points.sort_unstable();
        points.dedup();
        Some(points)
    }
}

fn gcd(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Returns how many batches lie between neighbours along each axis.
fn strides(launch: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; launch.len()];
    for axis in (1..launch.len()).rev() {
        strides[axis - 1] = strides[axis] * launch[axis] as i64;
    }
    strides
}
