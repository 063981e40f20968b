//! The heuristic for phases: cuts the schedule of a single phase at equal times, and the graph where paths
//! become too long; then moves units to neighbouring phases while that helps.

use std::collections::HashSet;

use super::auto::{Found, Problem};
use super::iteration::load_floor;

/// The name of the heuristic.
pub(super) const NAME: &str = "cuts and moves";
/// How many longest paths are tried, between the shortest possible and that of the whole graph.
const PATHS: u64 = 12;
/// Schedules are tried until they have placed this many nodes.
const PLACED_NODES_MAX: usize = 1 << 18;
/// The most depths that are tried.
const DEPTHS_MAX: u32 = 32;

/// Returns good phases.
pub(super) fn cut(problem: &Problem<'_>) -> Found {
    let units = problem.units;
    let single = units.legal(|_| 1);
    let mut seen = HashSet::from([single.clone()]);
    let mut best = (problem.listed(&single), single);
    let mut consider = |phases: Vec<u32>| {
        if !seen.insert(phases.clone()) {
            return;
        }
        let found = problem.listed(&phases);
        if found.score < best.0.score {
            best = (found, phases);
        }
    };
    for phases in by_time(problem) {
        consider(phases);
    }
    for phases in by_path(problem) {
        consider(units.legal(|unit| phases[unit]));
    }
    let (found, phases) = best;
    moved(problem, found, phases)
}

/// Cuts the schedule of a single phase at equal times, into each number of phases.
fn by_time<'p>(problem: &'p Problem<'p>) -> impl Iterator<Item = Vec<u32>> + 'p {
    let single = problem.listed(&vec![1; problem.units.nodes.len()]);
    let mut starts = vec![0; problem.checked.nodes.len()];
    single.timetable.placed.iter().for_each(|placed| starts[placed.node] = placed.start);
    let period = u128::from(single.timetable.period.max(1));
    let depth = problem.depth.min(DEPTHS_MAX);
    (2..=depth).map(move |depth| {
        problem.units.legal(|unit| {
            let start = problem.units.nodes[unit].iter().map(|&node| starts[node]).max().unwrap_or(0);
            1 + (u128::from(start) * u128::from(depth) / period) as u32
        })
    })
}

/// Lets a phase end where the path through it would become too long, for several longest paths. The phases
/// need not be legal.
fn by_path<'p>(problem: &'p Problem<'p>) -> impl Iterator<Item = Vec<u32>> + 'p {
    let (mut low, whole) = (load_floor(problem.checked), dearest_path(problem));
    let mut high = whole.max(low);
    // The shortest one that needs no more than the depth.
    while low < high {
        let middle = low + (high - low) / 2;
        match greedy(problem, middle).1 {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    let step = (whole.max(low) - low) / PATHS;
    let paths = (0..PATHS).map(move |number| low + step * number);
    paths.map(|path| greedy(problem, path).0)
}

fn dearest_path(problem: &Problem<'_>) -> u64 {
    let checked = problem.checked;
    let mut heads = vec![0; checked.nodes.len()];
    for &node in &checked.order {
        let longest = checked.sources[node].iter().map(|&source| heads[source]).max().unwrap_or(0);
        heads[node] = longest + checked.nodes[node].cost;
    }
    heads.into_iter().max().unwrap_or(0)
}

/// Gives each unit the first phase in which no path to it costs more than `path`. Returns whether the depth
/// was enough.
fn greedy(problem: &Problem<'_>, path: u64) -> (Vec<u32>, bool) {
    let (checked, units) = (problem.checked, problem.units);
    let (mut phase_of, mut heads) = (vec![0; checked.nodes.len()], vec![0; checked.nodes.len()]);
    let (mut phases, mut is_enough): (Vec<u32>, bool) = (Vec::new(), true);
    for (unit, nodes) in units.nodes.iter().enumerate() {
        let before = units.before[unit].iter().map(|&unit| phases[unit]).max().unwrap_or(1);
        let (low, high) = units.bounds[unit];
        let mut phase = before.clamp(low, high);
        loop {
            nodes.iter().for_each(|&node| phase_of[node] = phase);
            let mut dearest = 0;
            for &node in nodes {
                let same = checked.sources[node].iter().filter(|&&source| phase_of[source] == phase);
                heads[node] = same.map(|&source| heads[source]).max().unwrap_or(0) + checked.nodes[node].cost;
                dearest = dearest.max(heads[node]);
            }
            // A phase of its own is the best for a unit.
            if dearest <= path || phase > before {
                break;
            }
            if phase >= high {
                is_enough = false;
                break;
            }
            phase += 1;
        }
        phases.push(phase);
    }
    (phases, is_enough)
}

/// Moves units to the phase before or behind, as long as that is better.
fn moved(problem: &Problem<'_>, mut best: Found, mut phases: Vec<u32>) -> Found {
    let units = problem.units;
    let mut tries = PLACED_NODES_MAX / problem.checked.nodes.len().max(1);
    loop {
        let before = best.score;
        for unit in 0..phases.len() {
            for by in [-1, 1] {
                let Some(phase) = phases[unit].checked_add_signed(by) else { continue };
                let earliest = units.before[unit].iter().map(|&unit| phases[unit]).max().unwrap_or(1);
                let latest = units.after[unit].iter().map(|&unit| phases[unit]).min().unwrap_or(problem.depth);
                let (low, high) = units.bounds[unit];
                if !(earliest.max(low)..=latest.min(high)).contains(&phase) {
                    continue;
                }
                if tries == 0 {
                    return best;
                }
                tries -= 1;
                let tried = units.legal(|other| if other == unit { phase } else { phases[other] });
                let found = problem.listed(&tried);
                if found.score < best.score {
                    (best, phases) = (found, tried);
                }
            }
        }
        if best.score == before {
            return best;
        }
    }
}
