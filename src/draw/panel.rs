//! A panel: rows of bars over one axis, with its title.

use std::fmt::Write;

use super::Bar;
use super::band::Band;
use super::bar::Place;
use super::key::Key;
use super::layout::{Layout, RowAt};
use super::scale::{Axis, Scale};
use super::text::{escaped, shortened};

/// Rows of bars.
#[derive(Default)]
pub(crate) struct Panel {
    /// Nothing, if it is that of the picture.
    pub(crate) title: String,
    /// A line below the title.
    pub(crate) counts: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) arrows: Vec<Arrow>,
    pub(crate) marks: Vec<Mark>,
    /// The end of the axis.
    pub(crate) until: f64,
    pub(crate) axis: Axis,
    /// Lines below, each with its text under the pointer.
    pub(crate) notes: Vec<(String, String)>,
}

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) is_host: bool,
}

/// A wait of a bar for another one, by their places.
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) is_critical: bool,
}

/// A line through all rows, and what follows it.
pub(crate) struct Mark {
    pub(crate) at: f64,
    /// Stands behind the line.
    pub(crate) text: String,
}

pub(super) const AXIS: f64 = 26.0;
const TITLE: f64 = 20.0;
const COUNTS: f64 = 18.0;
const MARKS: f64 = 16.0;
const NOTE: f64 = 18.0;
const BAND: f64 = 44.0;
/// From a band to the rows: its axis, and the lens.
const BELOW_BAND: f64 = 44.0;
/// With fewer bars, all are seen at once, and their load says nothing more.
const BAND_BARS_MIN: usize = 60;
/// With more arrows, only those of the bar under the pointer are shown.
const ARROWS_MAX: usize = 80;
const RED: &str = "#c2351f";
const GREY: &str = "#7a8794";

impl Panel {
    /// Returns how wide the chart should be for the labels to be read.
    pub(super) fn width_wanted(&self) -> f64 {
        super::layout::width_wanted(&self.bars, self.until)
    }

    pub(super) fn layout(&self, width: f64) -> Layout {
        Layout::new(self, width)
    }

    fn has_band(&self) -> bool {
        self.axis == Axis::Time && self.bars.len() >= BAND_BARS_MIN
    }

    fn rows_top(&self, layout: &Layout) -> f64 {
        let band = if self.has_band() { BAND + if layout.is_cut(self) { BELOW_BAND } else { 12.0 } } else { 0.0 };
        self.head() + band + if self.marks.is_empty() { 0.0 } else { MARKS }
    }

    fn head(&self) -> f64 {
        (if self.title.is_empty() { 0.0 } else { TITLE }) + (if self.counts.is_empty() { 0.0 } else { COUNTS }) + 6.0
    }

    pub(super) fn height(&self, layout: &Layout) -> f64 {
        self.rows_top(layout) + layout.height() + AXIS + NOTE * self.notes.len() as f64
    }

    pub(super) fn draw(&self, layout: &Layout, (left, width): (f64, f64), top: f64, key: &Key, out: &mut String) {
        self.draw_head(top, out);
        let rows_top = top + self.rows_top(layout);
        let scale = Scale { axis: self.axis, left, width, from: layout.window.start, until: layout.window.end };
        if self.has_band() {
            self.draw_band(layout, &scale, top + self.head(), rows_top, key, out);
        }
        let bottom = rows_top + layout.height();
        for row in &layout.rows {
            self.draw_row(row, layout, &scale, rows_top, key, out);
        }
        scale.draw(rows_top, bottom, out);
        self.draw_marks(&scale, rows_top, bottom, out);
        self.draw_bars(layout, &scale, rows_top, key, out);
        for ((text, told), at) in self.notes.iter().zip(0..) {
            let y = bottom + AXIS + NOTE * f64::from(at) + 10.0;
            let (text, told) = (escaped(text), escaped(told));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "<text class=\"note\" x=\"16\" y=\"{y:.1}\"><title>{told}</title>{text}</text>");
        }
    }

    fn draw_head(&self, top: f64, out: &mut String) {
        let mut y = top;
        if !self.title.is_empty() {
            y += TITLE;
            let _ = writeln!(out, "<text class=\"title\" x=\"16\" y=\"{:.1}\">{}</text>", y - 4.0, escaped(&self.title));
        }
        if !self.counts.is_empty() {
            let _ = writeln!(out, "<text class=\"muted\" x=\"16\" y=\"{:.1}\">{}</text>", y + 12.0, escaped(&self.counts));
        }
    }

    /// Draws the load over the whole time, and which part of it the rows show.
    fn draw_band(&self, layout: &Layout, scale: &Scale, top: f64, rows_top: f64, key: &Key, out: &mut String) {
        let whole = Scale { from: 0.0, until: self.until, ..scale.clone() };
        let base = top + BAND;
        let band = Band::new(self.bars.iter(), &whole, key);
        band.draw(&whole, (top, base), out);
        let (x, y, most) = (scale.left - 8.0, top + 8.0, band.most());
        let _ = writeln!(
            out,
            "<text class=\"muted end\" x=\"{x:.1}\" y=\"{y:.1}\">{most:.0}</text>\
             <text class=\"muted end\" x=\"{x:.1}\" y=\"{:.1}\">at once</text>",
            y + 15.0,
        );
        if !layout.is_cut(self) {
            return;
        }
        let (from, until) = (whole.x(layout.window.start), whole.x(layout.window.end));
        let (left, right, lens) = (scale.left, scale.right(), rows_top - 4.0);
        let _ = writeln!(
            out,
            "<path d=\"M{from:.1} {base:.1}H{until:.1}L{right:.1} {lens:.1}H{left:.1}Z\" fill=\"#1f2430\" fill-opacity=\"0.07\"/>\
             <rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"#1f2430\" stroke-width=\"1.4\"/>",
            top - 3.0,
            (until - from).max(2.0),
            BAND + 3.0,
        );
        whole.draw(base, base, out);
    }

    fn draw_row(&self, at: &RowAt, layout: &Layout, scale: &Scale, rows_top: f64, key: &Key, out: &mut String) {
        let (y, height) = (rows_top + at.top, at.height);
        let row = at.row.map(|row| &self.rows[row]);
        let fill = match row {
            Some(row) if row.is_host => "#faf7ef",
            _ => "#f2f4f7",
        };
        let (left, width) = (scale.left, scale.width);
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" fill=\"{fill}\"/>"
        );
        if !at.is_named {
            return;
        }
        let name = row.map_or_else(|| format!("… and {} more", layout.rows_left_out()), |row| row.name.clone());
        let (name, x, y) = (shortened(&name, left - 24.0).unwrap_or_default(), left - 8.0, y + (height / 2.0).min(14.0) + 4.0);
        let _ = writeln!(out, "<text class=\"end\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(&name));
        if at.left_out > 0 {
            let more = format!("… and {} more at once", at.left_out);
            let _ = writeln!(out, "<text class=\"muted end\" x=\"{x:.1}\" y=\"{:.1}\">{more}</text>", y + 15.0);
        }
        if at.row.is_none() {
            let bars = self.bars.iter().filter(|bar| layout.is_left_out(bar.row));
            Band::new(bars, scale, key).draw(scale, (rows_top + at.top + 2.0, rows_top + at.top + height - 2.0), out);
        }
    }

    fn draw_marks(&self, scale: &Scale, top: f64, bottom: f64, out: &mut String) {
        for mark in &self.marks {
            let x = scale.x(mark.at);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"#263238\" stroke-width=\"1.2\" stroke-dasharray=\"5 3\"/>\
                 <text class=\"muted\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                top - 14.0,
                bottom + 4.0,
                x + 6.0,
                top - 4.0,
                escaped(&mark.text),
            );
        }
    }

    /// Draws the bars, those of a group together, so that the style sheet can show them together.
    fn draw_bars(&self, layout: &Layout, scale: &Scale, rows_top: f64, key: &Key, out: &mut String) {
        let places = layout.places(self, scale, rows_top);
        // Shown with the bar that waits, unless they are shown always.
        let mut arrows = vec![String::new(); self.bars.len()];
        for arrow in &self.arrows {
            if let (Some(from), Some(to)) = (&places[arrow.from], &places[arrow.to]) {
                let is_shown = arrow.is_critical || self.arrows.len() <= ARROWS_MAX;
                write_arrow(arrow, from, to, is_shown, if is_shown { &mut *out } else { &mut arrows[arrow.to] });
            }
        }
        let mut shown: Vec<usize> = (0..self.bars.len()).filter(|&bar| places[bar].is_some()).collect();
        shown.sort_by_key(|&bar| self.bars[bar].group);
        out.push_str("<g class=\"groups\">\n");
        for group in shown.chunk_by(|&one, &other| self.bars[one].group != 0 && self.bars[one].group == self.bars[other].group) {
            out.push_str("<g class=\"group\">\n");
            for &bar in group {
                let place = places[bar].as_ref().expect("it is shown");
                self.bars[bar].draw(place, &arrows[bar].replace('\n', ""), key, out);
            }
            out.push_str("</g>\n");
        }
        out.push_str("</g>\n");
    }
}

/// Writes the arrow of a wait: from the edge of one bar to that of the other, so that both ends are seen
/// wherever other bars lie between.
fn write_arrow(arrow: &Arrow, from: &Place<'_>, to: &Place<'_>, is_shown: bool, out: &mut String) {
    let is_down = to.y > from.y;
    let (x1, x2) = (from.x + from.width - 4.0, to.x + 4.0);
    let (y1, y2) = if is_down { (from.y + from.height, to.y - 1.0) } else { (from.y, to.y + to.height + 1.0) };
    let bend = ((y2 - y1).abs() / 2.0).clamp(8.0, 60.0) * if is_down { 1.0 } else { -1.0 };
    let (color, width, tip) = if arrow.is_critical { (RED, 1.6, "hot") } else { (GREY, 0.9, "tip") };
    let class = if is_shown { "arrow" } else { "wait" };
    let _ = writeln!(
        out,
        "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\" fill=\"none\" \
         stroke=\"{color}\" stroke-width=\"{width}\" marker-end=\"url(#{tip})\"/>",
        y1 + bend,
        y2 - bend,
    );
}
