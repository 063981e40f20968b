//! Draws a timeline: above, what computes over the whole run; below, one row for each stream with a box for
//! each node.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use crate::timeline::{NodeBox, Row, Timeline};

/// A timeline with its title; prints as an SVG document.
pub(crate) struct Drawing<'a> {
    pub(crate) title: String,
    pub(crate) timeline: &'a Timeline,
}

const WIDTH: f64 = 1600.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 1570.0;
const STRIP_TOP: f64 = 112.0;
const STRIP_HEIGHT: f64 = 56.0;
const LANE: f64 = 24.0;
const THIN_LANE: f64 = 7.0;
/// The most that the lanes of a row take, and its thin lanes; more lanes are thinner.
const LANES_MAX: f64 = 240.0;
const THIN_LANES_MAX: f64 = 110.0;
/// How many letters of the names of its nodes fit beside a row, and how high a line of them is.
const NAMES_WIDTH: usize = 18;
const NAMES_HEIGHT: f64 = 15.0;
/// Space in a row above and below its lanes, and between rows.
const PAD: f64 = 7.0;

/// Waiting in pale colours, computing in strong ones. One for each node, in the order of the plan.
const COLOURS: [&str; 11] =
    ["#9cc4e4", "#e07b39", "#5b6573", "#2f6db5", "#8c6d46", "#5f8f3e", "#d9a514", "#8d5aa8", "#a5cd9c", "#2a9d8f", "#c2578c"];
const FAILED: &str = "#c81e1e";

const STYLE: &str = "
text { font: 13px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2430 }
.title { font-size: 21px; font-weight: 600 }
.label { font-weight: 600 }
.muted { fill: #6b7280; font-size: 12px }
.name { fill: #fff; font-size: 11.5px; text-anchor: middle; pointer-events: none }
.end { text-anchor: end }
.middle { text-anchor: middle }
.runs:hover .run { opacity: .15 }
.runs:hover .run:hover { opacity: 1 }
";

impl Display for Drawing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows_at();
        let bottom = rows.last().map_or(self.rows_top(), |row| row.bottom);
        let height = bottom + 52.0;
        write!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}">"#
        )?;
        write!(f, "<style>{STYLE}</style>")?;
        write!(f, r##"<rect width="{WIDTH}" height="{height:.0}" fill="#fff"/>"##)?;
        write!(f, r#"<text class="title" x="28" y="42">{}</text>"#, self.title)?;
        self.legend(f)?;
        self.strip(f)?;
        if self.timeline.is_cut() {
            self.lens(f)?;
        }
        rows.iter().try_for_each(|row| self.row(row, f))?;
        axis(f, &self.timeline.window, self.rows_top(), bottom)?;
        self.boxes(&rows, f)?;
        text(f, "muted middle", (LEFT + RIGHT) / 2.0, bottom + 40.0, "time since the first node started, in ms")?;
        f.write_str("</svg>\n")
    }
}

/// Where a row lies.
struct RowAt<'a> {
    row: &'a Row,
    /// The names of its nodes, in lines.
    names: Vec<String>,
    top: f64,
    bottom: f64,
    lane: f64,
    thin_top: f64,
    thin_lane: f64,
}

impl Drawing<'_> {
    fn rows_top(&self) -> f64 {
        STRIP_TOP + STRIP_HEIGHT + if self.timeline.is_cut() { 64.0 } else { 18.0 }
    }

    fn rows_at(&self) -> Vec<RowAt<'_>> {
        let mut top = self.rows_top();
        let mut rows = Vec::new();
        for row in &self.timeline.rows {
            let (computed, awaited) = (row.computed_lanes as f64, row.awaited_lanes as f64);
            let (lane, thin_lane) = (LANE.min(LANES_MAX / computed.max(1.0)), THIN_LANE.min(THIN_LANES_MAX / awaited.max(1.0)));
            let gap = if computed > 0.0 && awaited > 0.0 { PAD / 2.0 } else { 0.0 };
            let thin_top = top + PAD + lane * computed + gap;
            let names = in_lines(row.nodes.iter().map(|&node| &*self.timeline.nodes[node].name));
            // Room for the label and the names, however few the lanes.
            let bottom = (thin_top + thin_lane * awaited + PAD).max(top + 29.0 + NAMES_HEIGHT * names.len().max(1) as f64);
            rows.push(RowAt { row, names, top, bottom, lane, thin_top, thin_lane });
            top = bottom + PAD;
        }
        rows
    }

    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut x = 28.0;
        let has_failed = self.timeline.boxes.iter().any(|place| !place.is_ok);
        let names = self.timeline.nodes.iter().enumerate().map(|(index, node)| (colour(index), &*node.name));
        for (fill, name) in names.chain(has_failed.then_some((FAILED, "failed"))) {
            write!(f, r#"<rect x="{x}" y="62" width="14" height="14" rx="3" fill="{fill}"/>"#)?;
            text(f, "", x + 20.0, 74.0, name)?;
            x += 20.0 + 8.0 * name.chars().count() as f64 + 22.0;
        }
        text(
            f,
            "muted end",
            RIGHT,
            74.0,
            "Runs that overlap lie in lanes. Thin bars wait for files. Point at a box to follow its image.",
        )
    }

    /// Draws how many nodes compute at once, over the whole run.
    fn strip(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loads = Loads::new(self.timeline);
        let base = STRIP_TOP + STRIP_HEIGHT;
        text(f, "label", 28.0, STRIP_TOP + 18.0, "computing")?;
        text(f, "muted", 28.0, STRIP_TOP + 36.0, "nodes at once")?;
        let mut below = vec![0.0; Loads::BINS];
        for (node, load) in loads.of.iter().enumerate().filter(|(_, load)| load.iter().any(|&count| count > 0.0)) {
            let above: Vec<f64> = below.iter().zip(load).map(|(below, count)| below + count).collect();
            let point = |(bin, count): (usize, &f64)| {
                let x = LEFT + (RIGHT - LEFT) * (bin as f64 + 0.5) / Loads::BINS as f64;
                format!("{x:.1},{:.1} ", base - STRIP_HEIGHT * count / loads.most)
            };
            let points: String = above.iter().enumerate().map(point).chain(below.iter().enumerate().rev().map(point)).collect();
            write!(f, r#"<polygon fill="{}" points="{points}"/>"#, colour(node))?;
            below = above;
        }
        text(f, "muted end", LEFT - 8.0, STRIP_TOP + 5.0, &format!("{:.0}", loads.most))?;
        text(f, "muted end", LEFT - 8.0, base + 4.0, "0")?;
        line(f, LEFT, base, RIGHT, base, "#c3c8d1")
    }

    /// Marks the window on the strip, and leads from there to the rows.
    fn lens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = 0.0..self.timeline.end_ms;
        let (left, right) = (x_of(&whole, self.timeline.window.start), x_of(&whole, self.timeline.window.end));
        let (top, base, rows) = (STRIP_TOP - 4.0, STRIP_TOP + STRIP_HEIGHT, self.rows_top());
        write!(f, r##"<path d="M{left:.1} {base} H{right:.1} L{RIGHT} {rows} H{LEFT} Z" fill="#1f2430" fill-opacity=".07"/>"##)?;
        write!(
            f,
            r##"<rect x="{left:.1}" y="{top}" width="{:.1}" height="{}" fill="none" stroke="#1f2430" stroke-width="1.5"/>"##,
            right - left,
            base - top
        )?;
        axis(f, &whole, base, base)
    }

    fn row(&self, at: &RowAt<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = (RIGHT - LEFT, at.bottom - at.top);
        write!(f, r##"<rect x="{LEFT}" y="{:.1}" width="{width}" height="{height:.1}" rx="4" fill="#f2f4f7"/>"##, at.top)?;
        text(f, "label", 28.0, at.top + 18.0, &at.row.label)?;
        at.names
            .iter()
            .enumerate()
            .try_for_each(|(index, names)| text(f, "muted", 28.0, at.top + 36.0 + NAMES_HEIGHT * index as f64, names))
    }

    /// Draws the boxes, those of a run in a group, so that the style sheet can show them together.
    fn boxes(&self, rows: &[RowAt<'_>], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<&NodeBox> = self.timeline.in_window().collect();
        shown.sort_by_key(|place| place.run);
        f.write_str(r#"<g class="runs">"#)?;
        for run in shown.chunk_by(|a, b| a.run == b.run) {
            f.write_str("\n<g class=\"run\">")?;
            run.iter().try_for_each(|place| self.node_box(place, &rows[place.row], f))?;
            f.write_str("</g>")?;
        }
        f.write_str("</g>\n")
    }

    fn node_box(&self, place: &NodeBox, at: &RowAt<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.timeline.nodes[place.node];
        let (top, lane) = match node.is_awaited {
            true => (at.thin_top + place.lane as f64 * at.thin_lane, at.thin_lane),
            false => (at.top + PAD + place.lane as f64 * at.lane, at.lane),
        };
        let x = |ms: f64| x_of(&self.timeline.window, ms.clamp(self.timeline.window.start, self.timeline.window.end));
        let (left, right) = (x(place.start_ms), x(place.end_ms));
        let (width, height) = ((right - left - 0.5).max(0.7), lane * 0.88);
        let fill = if place.is_ok { colour(place.node) } else { FAILED };
        write!(f, r#"<rect x="{left:.2}" y="{top:.1}" width="{width:.2}" height="{height:.1}" rx="2" fill="{fill}">"#)?;
        write!(f, "<title>{}, image {}: {:.2} ms</title></rect>", node.name, place.run + 1, place.end_ms - place.start_ms)?;
        if height > 14.0 && width > 7.0 * node.name.len() as f64 + 6.0 {
            text(f, "name", left + width / 2.0, top + height / 2.0 + 4.0, &node.name)?;
        }
        Ok(())
    }
}

/// How many nodes of each kind compute at once, on average over each of many short times.
struct Loads {
    of: Vec<Vec<f64>>,
    /// The most of all kinds together.
    most: f64,
}

impl Loads {
    const BINS: usize = 710;

    fn new(timeline: &Timeline) -> Self {
        let mut of = vec![vec![0.0; Self::BINS]; timeline.nodes.len()];
        let bin_ms = timeline.end_ms / Self::BINS as f64;
        for place in timeline.boxes.iter().filter(|place| !timeline.nodes[place.node].is_awaited) {
            let (first, last) = ((place.start_ms / bin_ms) as usize, (place.end_ms / bin_ms) as usize);
            for (bin, load) in of[place.node].iter_mut().enumerate().take(last + 1).skip(first) {
                let (start, end) = (bin as f64 * bin_ms, (bin + 1) as f64 * bin_ms);
                *load += (place.end_ms.min(end) - place.start_ms.max(start)) / bin_ms;
            }
        }
        let together = (0..Self::BINS).map(|bin| of.iter().map(|load| load[bin]).sum());
        Self { most: together.fold(1.0, f64::max).round(), of }
    }
}

/// Returns names in lines that fit beside a row.
fn in_lines<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + name.len() <= NAMES_WIDTH => line.extend([", ", name]),
            Some(line) => {
                line.push(',');
                lines.push(name.to_owned());
            }
            None => lines.push(name.to_owned()),
        }
    }
    lines
}

fn colour(node: usize) -> &'static str {
    COLOURS[node % COLOURS.len()]
}

fn x_of(time: &Range<f64>, ms: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * (ms - time.start) / (time.end - time.start).max(1e-9)
}

/// Draws a line at each round time from `top` to `bottom`, and the times below.
fn axis(f: &mut impl Write, time: &Range<f64>, top: f64, bottom: f64) -> fmt::Result {
    let rough = (time.end - time.start) / 12.0;
    let power = 10_f64.powf(rough.max(1e-6).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|nice| nice * power).into_iter().find(|&step| step >= rough).unwrap_or(rough);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let (first, last) = ((time.start / step).ceil() as u64, (time.end / step).floor() as u64);
    for tick in first..=last {
        let ms = tick as f64 * step;
        line(f, x_of(time, ms), top, x_of(time, ms), bottom + 5.0, "#d5d9e0")?;
        text(f, "muted middle", x_of(time, ms), bottom + 20.0, &format!("{ms:.digits$}"))?;
    }
    Ok(())
}

fn line(f: &mut impl Write, x1: f64, y1: f64, x2: f64, y2: f64, stroke: &str) -> fmt::Result {
    write!(f, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}"/>"#)
}

fn text(f: &mut impl Write, class: &str, x: f64, y: f64, text: &str) -> fmt::Result {
    write!(f, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#)
}
