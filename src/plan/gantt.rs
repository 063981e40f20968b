//! The picture of what ran: a row for each thing that an engine did at once, a box for each node, in the
//! colour of its item.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::picture::{COLORS, Rows, draw_label, escaped, pad};
use super::time_unit::time;

const HEADER: f64 = 56.0;
/// The rim of a node that failed.
const RED: &str = "#c2351f";

/// A node that ran.
pub(crate) struct Ran<E> {
    pub(crate) engine: E,
    pub(crate) start_us: f64,
    pub(crate) end_us: f64,
    pub(crate) name: String,
    /// What its label has behind the name, such as `#3`; or nothing.
    pub(crate) item: String,
    /// What has the same number has the same colour.
    pub(crate) group: usize,
    pub(crate) has_failed: bool,
}

/// What ran on engines, each of which does one thing or several at once.
pub(crate) struct Gantt<'a, E> {
    pub(crate) title: Cow<'a, str>,
    /// What the line below the title begins with.
    pub(crate) counts: String,
    pub(crate) makespan_us: f64,
    pub(crate) ran: Vec<Ran<E>>,
}

impl<E: Ord + Copy> Gantt<'_, E> {
    /// Draws it as an SVG. `name` is that of a row: of an engine, a number there, and whether it is the only
    /// one.
    pub(crate) fn draw(mut self, name: impl Fn(E, usize, bool) -> String) -> String {
        let lanes = self.lanes();
        let mut rows: Vec<(E, usize)> = self.ran.iter().zip(&lanes).map(|(ran, &lane)| (ran.engine, lane)).collect();
        rows.sort_unstable();
        rows.dedup();
        let names = rows.iter().map(|&(engine, lane)| name(engine, lane, !rows.contains(&(engine, 1)))).collect();
        let times_us = self.ran.iter().map(|ran| ran.end_us - ran.start_us).collect();
        let drawn = Rows::new(names, HEADER, self.makespan_us, times_us, self.ran.iter().map(Ran::characters).collect());
        let mut out = String::new();
        drawn.draw_head(&mut out);
        self.draw_header(&mut out);
        drawn.draw(&mut out);
        for (ran, &lane) in self.ran.iter().zip(&lanes) {
            ran.draw(rows.binary_search(&(ran.engine, lane)).unwrap_or(0), &drawn, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    /// Gives each node, in the order of their starts, the first lane of its engine that is free.
    fn lanes(&mut self) -> Vec<usize> {
        self.ran.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        let mut free_us: BTreeMap<E, Vec<f64>> = BTreeMap::new();
        let place = |ran: &Ran<E>| {
            let lanes = free_us.entry(ran.engine).or_default();
            let lane = lanes.iter().position(|&free_us| free_us <= ran.start_us).unwrap_or(lanes.len());
            if lane == lanes.len() {
                lanes.push(0.0);
            }
            lanes[lane] = ran.end_us;
            lane
        };
        self.ran.iter().map(place).collect()
    }

    fn draw_header(&self, out: &mut String) {
        let (ran, failed) = (self.ran.len(), self.ran.iter().filter(|ran| ran.has_failed).count());
        let failed = if failed == 0 { String::new() } else { format!(" · {failed} failed (red rim)") };
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
             <text x=\"16\" y=\"42\" fill=\"#60707c\">{}{ran} node{} ran{failed} · takes {}</text>",
            escaped(&self.title),
            self.counts,
            if ran == 1 { "" } else { "s" },
            time(self.makespan_us),
        );
    }
}

impl<E> Ran<E> {
    fn full_name(&self) -> String {
        if self.item.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.item) }
    }

    fn characters(&self) -> usize {
        self.full_name().chars().count()
    }

    fn draw(&self, row: usize, rows: &Rows, out: &mut String) {
        let (lane, scale, pad) = (rows.lane, &rows.scale, pad(rows.lane));
        let (x, y) = (scale.x(self.start_us), rows.top(row) + pad);
        let (width, height) = ((scale.x(self.end_us) - x - 1.0).max(1.5), lane - 2.0 * pad);
        let (color, thick) = if self.has_failed { (RED, 2.0) } else { ("#00000033", 0.8) };
        let _ = write!(
            out,
            "<g><title>{} on {}: {} from {}{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"{:.1}\" fill=\"{}\" stroke=\"{color}\" stroke-width=\"{thick}\"/>",
            escaped(&self.full_name()),
            rows.name(row),
            time(self.end_us - self.start_us),
            time(self.start_us),
            if self.has_failed { ", failed" } else { "" },
            (height / 5.0).min(4.0),
            COLORS[self.group % COLORS.len()],
        );
        draw_label(&self.name, &self.item, (x, y, width, height), out);
        out.push_str("</g>\n");
    }
}
