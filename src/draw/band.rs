//! The load over time: how many bars of each colour there are at once.

use std::fmt::Write;

use super::bar::Bar;
use super::key::Key;
use super::scale::Scale;

const BINS: usize = 480;

pub(super) struct Band {
    /// By colour, and then by time.
    loads: Vec<(&'static str, Vec<f64>)>,
    most: f64,
}

impl Band {
    pub(super) fn new<'b>(bars: impl Iterator<Item = &'b Bar>, scale: &Scale, key: &Key) -> Self {
        let mut loads: Vec<(&'static str, Vec<f64>)> = key.colors().map(|color| (color, vec![0.0; BINS])).collect();
        let grey = loads.len() - 1;
        let bin = (scale.until - scale.from).max(f64::MIN_POSITIVE) / BINS as f64;
        for bar in bars.filter(|bar| !bar.waits && bar.end > scale.from && bar.start < scale.until) {
            let load = &mut loads[key.place_of(&bar.colored_by).unwrap_or(grey)].1;
            let (start, end) = ((bar.start - scale.from).max(0.0), (bar.end - scale.from).min(bin * BINS as f64));
            let (first, last) = ((start / bin) as usize, ((end / bin) as usize).min(BINS - 1));
            for (at, load) in load.iter_mut().enumerate().take(last + 1).skip(first) {
                let (from, until) = (at as f64 * bin, (at + 1) as f64 * bin);
                *load += (end.min(until) - start.max(from)).max(0.0) / bin;
            }
        }
        let together = (0..BINS).map(|at| loads.iter().map(|(_, load)| load[at]).sum::<f64>());
        let most = together.fold(1.0, f64::max);
        Self { loads, most }
    }

    /// Returns the most that there is at once.
    pub(super) fn most(&self) -> f64 {
        self.most.round()
    }

    /// Draws it between two heights.
    pub(super) fn draw(&self, scale: &Scale, (top, base): (f64, f64), out: &mut String) {
        let mut below = vec![0.0; BINS];
        for (color, load) in self.loads.iter().filter(|(_, load)| load.iter().any(|&load| load > 0.0)) {
            let above: Vec<f64> = below.iter().zip(load).map(|(below, load)| below + load).collect();
            let point = |(at, count): (usize, &f64)| {
                let x = scale.left + scale.width * (at as f64 + 0.5) / BINS as f64;
                format!("{x:.0},{:.1} ", base - (base - top) * count / self.most)
            };
            let points: String = above.iter().enumerate().map(point).chain(below.iter().enumerate().rev().map(point)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "<polygon fill=\"{color}\" points=\"{}\"/>", points.trim_end());
            below = above;
        }
        let (left, right) = (scale.left, scale.right());
        let _ = writeln!(out, "<path d=\"M{left:.1} {base:.1}H{right:.1}\" stroke=\"#c3c8d1\"/>");
    }
}
