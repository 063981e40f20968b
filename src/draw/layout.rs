//! Where the bars of a panel lie: lanes of rows, for bars that overlap; which part of the time the rows show;
//! which rows are left out.

#[cfg(test)]
use std::collections::BTreeMap;
use std::ops::Range;

use super::Panel;
use super::bar::{Bar, Place, Rim};
use super::scale::Scale;
use super::text::CHAR;

/// The rows that are drawn. If there are more, the busiest are, and one that stands for all others.
const ROWS_MAX: usize = 40;
/// The most lanes of a row, of bars and of flat bars.
const LANES_MAX: usize = 32;
/// The height that all lanes of a panel may take.
const HEIGHT_MAX: f64 = 1100.0;
const LANE_MAX: f64 = 26.0;
const LANE_MIN: f64 = 7.0;
const FLAT_MAX: f64 = 8.0;
const FLAT_MIN: f64 = 2.5;
const PAD: f64 = 3.0;
const GAP: f64 = 2.0;
/// The height of the row that stands for others.
const MORE: f64 = 34.0;
/// If the shorter quarter of the bars is narrower than this, the rows show a part of the time, in which it is
/// wider.
const NARROW: f64 = 1.5;
const WIDE: f64 = 6.0;
/// If they show a part, each row has about so many bars, even if they are narrow.
const BARS_MIN: f64 = 200.0;
/// The most bars that the rows show.
const BARS_MAX: usize = 6_000;
/// A bar of the common length is as wide as the common name wants it, between these, if there is room.
const BOX_MIN: f64 = 50.0;
const BOX_MAX: f64 = 110.0;

pub(super) struct Layout {
    pub(super) rows: Vec<RowAt>,
    /// The part of the axis that the rows show.
    pub(super) window: Range<f64>,
    /// The lane of each bar that is shown.
    lanes: Vec<Option<usize>>,
    /// The place of each row of the panel among `rows`; none if it is left out.
    place_of: Vec<Option<usize>>,
    rows_left_out: usize,
}

/// A row in its panel.
pub(super) struct RowAt {
    /// None for the row that stands for all others.
    pub(super) row: Option<usize>,
    pub(super) top: f64,
    pub(super) height: f64,
    /// Of low rows only some have their names.
    pub(super) is_named: bool,
    /// The lanes that are not shown.
    pub(super) left_out: usize,
    lane: f64,
    flat_lane: f64,
    flat_top: f64,
}

impl Layout {
    pub(super) fn new(panel: &Panel, width: f64) -> Self {
        let window = window(panel, width);
        let shown = |bar: &Bar| bar.end >= window.start && bar.start <= window.end;
        let rows_left_out = if panel.rows.len() > ROWS_MAX { panel.rows.len() + 1 - ROWS_MAX } else { 0 };
        let drawn = busiest(panel, panel.rows.len() - rows_left_out);
        let mut lanes: Vec<Option<usize>> = vec![None; panel.bars.len()];
        let mut free: Vec<[Vec<f64>; 2]> = vec![[Vec::new(), Vec::new()]; drawn.len()];
        let mut place_of: Vec<Option<usize>> = vec![None; panel.rows.len()];
        drawn.iter().enumerate().for_each(|(place, &row)| place_of[row] = Some(place));
        let mut by_start: Vec<usize> = (0..panel.bars.len()).filter(|&bar| shown(&panel.bars[bar])).collect();
        by_start.sort_by(|&one, &other| panel.bars[one].start.total_cmp(&panel.bars[other].start));
        for at in by_start {
            let bar = &panel.bars[at];
            let Some(place) = place_of[bar.row] else { continue };
            let free = &mut free[place][usize::from(bar.waits)];
            let lane = free.iter().position(|&free| free <= bar.start).unwrap_or(free.len());
            if lane == free.len() {
                free.push(0.0);
            }
            free[lane] = bar.end;
            lanes[at] = Some(lane).filter(|&lane| lane < LANES_MAX);
        }
        let counts: Vec<_> = drawn.into_iter().zip(&free).map(|(row, [bars, flat])| (row, [bars.len(), flat.len()])).collect();
        let mut rows = place_rows(&counts);
        if rows_left_out > 0 {
            let top = rows.last().map_or(0.0, |row| row.top + row.height + GAP);
            let (lane, flat_lane, flat_top) = (0.0, 0.0, 0.0);
            rows.push(RowAt { row: None, top, height: MORE, is_named: true, left_out: 0, lane, flat_lane, flat_top });
        }
        Self { rows, window, lanes, place_of, rows_left_out }
    }

    /// Returns the number of rows that one row stands for.
    pub(super) fn rows_left_out(&self) -> usize {
        self.rows_left_out
    }

    pub(super) fn is_cut(&self, panel: &Panel) -> bool {
        self.window.end - self.window.start < panel.until
    }

    pub(super) fn height(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.top + row.height)
    }

    /// Returns whether a row of the panel is among those that one row stands for.
    pub(super) fn is_left_out(&self, row: usize) -> bool {
        self.place_of[row].is_none()
    }

    /// Returns the places of the bars that are shown.
    pub(super) fn places<'p>(&self, panel: &'p Panel, scale: &Scale, top: f64) -> Vec<Option<Place<'p>>> {
        let place = |(bar, lane): (&'p Bar, &Option<usize>)| {
            let (lane, at) = ((*lane)? as f64, &self.rows[self.place_of[bar.row]?]);
            let (first, lane_height) = if bar.waits { (at.flat_top, at.flat_lane) } else { (PAD, at.lane) };
            let pad = (lane_height * 0.08).min(2.0);
            let (x, x_ready) = (scale.x(bar.start), scale.x(bar.ready));
            let width = (scale.x(bar.end) - x - 1.0).max(1.2);
            let y = top + at.top + first + lane * lane_height + pad;
            let height = (lane_height - 2.0 * pad).max(1.0);
            Some(Place { row: &panel.rows[bar.row].name, x, y, width, height, x_ready, axis: panel.axis })
        };
        panel.bars.iter().zip(&self.lanes).map(place).collect()
    }
}

/// Returns so many rows, those with the most work, in their order.
fn busiest(panel: &Panel, count: usize) -> Vec<usize> {
    let mut work = vec![0.0; panel.rows.len()];
    for bar in &panel.bars {
        // What held up the end is worth a row.
        work[bar.row] += (bar.end - bar.start) * if bar.rim == Rim::None { 1.0 } else { 4.0 };
    }
    let mut rows: Vec<usize> = (0..panel.rows.len()).collect();
    rows.sort_by(|&one, &other| work[other].total_cmp(&work[one]));
    rows.truncate(count);
    rows.sort_unstable();
    rows
}

/// Places rows one below the other: each has lanes for bars, and lanes for flat ones.
fn place_rows(counts: &[(usize, [usize; 2])]) -> Vec<RowAt> {
    let all: usize = counts.iter().map(|(_, [bars, _])| (*bars).clamp(1, LANES_MAX)).sum();
    let flat: usize = counts.iter().map(|(_, [_, flat])| (*flat).min(LANES_MAX)).sum();
    let lane = (HEIGHT_MAX / all.max(1) as f64).clamp(LANE_MIN, LANE_MAX);
    let flat_lane = (HEIGHT_MAX / 3.0 / flat.max(1) as f64).clamp(FLAT_MIN, FLAT_MAX);
    let mut top = 0.0;
    let mut named_until = f64::NEG_INFINITY;
    let place = |&(row, [bars, flat]): &(usize, [usize; 2])| {
        let least = usize::from(flat == 0);
        let flat_top = PAD + lane * bars.clamp(least, LANES_MAX) as f64 + if bars > 0 && flat > 0 { 2.0 } else { 0.0 };
        let height = flat_top + flat_lane * flat.min(LANES_MAX) as f64 + PAD;
        let left_out = bars.saturating_sub(LANES_MAX) + flat.saturating_sub(LANES_MAX);
        let is_named = top >= named_until;
        if is_named {
            named_until = top + 12.0;
        }
        let at = RowAt { row: Some(row), top, height, is_named, left_out, lane, flat_lane, flat_top };
        top += height + GAP;
        at
    };
    counts.iter().map(place).collect()
}

/// Returns the part of the axis in which bars are wide enough to be told apart: all of it, or a part around
/// the middle bar.
fn window(panel: &Panel, width: f64) -> Range<f64> {
    let whole = 0.0..panel.until;
    let mut lengths: Vec<f64> = panel.bars.iter().map(|bar| bar.end - bar.start).filter(|&length| length > 0.0).collect();
    lengths.sort_by(f64::total_cmp);
    let Some(&short) = lengths.get(lengths.len() / 4) else { return whole };
    let share = |pixels: f64| (short * width / pixels / panel.until).min(BARS_MAX as f64 / panel.bars.len() as f64);
    if share(NARROW) >= 1.0 {
        return whole;
    }
    let rows = panel.rows.len().min(ROWS_MAX) as f64;
    let many = BARS_MIN * rows / panel.bars.len() as f64;
    let share = share(WIDE).max(many).min(1.0);
    let mut starts: Vec<f64> = panel.bars.iter().map(|bar| bar.start).collect();
    starts.sort_by(f64::total_cmp);
    let half = panel.until * share / 2.0;
    let middle = starts[starts.len() / 2].clamp(half, panel.until - half);
    middle - half..middle + half
}

/// Returns how wide the axis should be for the shorter bars to be read.
pub(super) fn width_wanted(bars: &[Bar], until: f64) -> f64 {
    let mut lengths: Vec<f64> = bars.iter().map(|bar| bar.end - bar.start).filter(|&length| length > 0.0).collect();
    lengths.sort_by(f64::total_cmp);
    let mut labels: Vec<usize> = bars.iter().map(|bar| bar.full_name().chars().count()).collect();
    labels.sort_unstable();
    let label = labels.get(labels.len() * 3 / 4).copied().unwrap_or(0) as f64;
    let wide = (label * CHAR + 10.0).clamp(BOX_MIN, BOX_MAX);
    lengths.get(lengths.len() / 4).map_or(0.0, |length| until / length * wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Row;

    fn panel(rows: usize, bars: Vec<Bar>) -> Panel {
        let row = |row| Row { name: format!("row {row}"), is_host: true };
        let until = bars.iter().map(|bar| bar.end).fold(0.0, f64::max);
        Panel { rows: (0..rows).map(row).collect(), bars, until, ..Panel::default() }
    }

    #[test]
    fn bars_that_overlap_lie_in_lanes_of_their_row() {
        // Seen to fail with one lane.
        let bars = (0..200).map(|at| Bar::new(at % 3, "a", at as f64, at as f64 + 1.0 + (at % 7) as f64));
        let panel = panel(3, bars.collect());
        let layout = panel.layout(1000.0);
        let mut free: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (bar, lane) in panel.bars.iter().zip(&layout.lanes) {
            let end = free.entry((bar.row, lane.expect("all are shown"))).or_insert(0.0);
            assert!(*end <= bar.start, "{bar:?} covers another one");
            *end = bar.end;
        }
    }

    #[test]
    fn many_bars_are_shown_in_part_and_few_as_a_whole() {
        // Seen to fail with a part in which bars are 6 pixels wide, which has hardly any.
        let bars = |count: usize| (0..count).map(|at| Bar::new(0, "a", at as f64 * 50.0, at as f64 * 50.0 + 1.0)).collect();
        let few = panel(1, bars(20));
        assert!(!few.layout(1000.0).is_cut(&few));
        let many = panel(1, bars(100_000));
        let layout = many.layout(1000.0);
        let shown = layout.lanes.iter().flatten().count();
        assert!(layout.is_cut(&many) && (150..=250).contains(&shown), "{shown}");
    }

    #[test]
    fn of_many_rows_the_busiest_are_drawn() {
        // Seen to fail with the first rows.
        let length = |row: usize| if row.is_multiple_of(3) { 10.0 } else { 1.0 };
        let panel = panel(100, (0..100).map(|row| Bar::new(row, "a", 0.0, length(row))).collect());
        let layout = panel.layout(1000.0);
        let drawn: Vec<usize> = layout.rows.iter().filter_map(|at| at.row).collect();
        assert_eq!((drawn.len(), layout.rows.len(), layout.rows_left_out()), (ROWS_MAX - 1, ROWS_MAX, 100 + 1 - ROWS_MAX));
        assert!((0..100).step_by(3).all(|row| drawn.contains(&row) && !layout.is_left_out(row)));
        assert!(drawn.is_sorted());
    }
}
