//! The picture of a phasing: two schedule iterations, lanes on the left, boxes in the colour of their phase.
//! The label of a box is its node and its item; the boxes of one item have a dark rim, so that the item can
//! be followed.

use std::fmt::Write;

use super::phasing::{PhaseSpan, Phasing};
use crate::plan::picture::{CHAR, COLORS, Rows, Scale, draw_key_box, draw_label, escaped, pad};
use crate::plan::time_unit::time;

const UNPIPELINED: &str = "#d5dbdf";
/// The rim of the item that is followed.
const DARK: &str = "#263238";
const HEADER: f64 = 92.0;
/// Periods in the picture.
const PERIODS: u32 = 2;
/// The most phases that the key names.
const KEY_MAX: usize = 16;

impl Phasing {
    /// Draws two periods as an SVG: a row for each lane that has work, a box for each node, in the colour of
    /// its phase. In the first one, phase 1 works on item k, phase 2 on item k - 1, and so on. The boxes of
    /// item k have a dark rim.
    pub fn to_svg(&self) -> String {
        let rows = self.rows();
        let names: Vec<String> = rows.iter().map(|&row| self.row_name(row)).collect();
        let times_us = self.iteration().iter().map(|span| span.end_us - span.start_us).collect();
        let labels = self.iteration().iter().map(|span| self.label(span, 0).chars().count()).collect();
        let drawn = Rows::new(names, HEADER, f64::from(PERIODS) * self.period_us(), times_us, labels);
        let mut out = String::new();
        drawn.draw_head(&mut out);
        self.draw_header(&drawn.scale, &mut out);
        drawn.draw(&mut out);
        for period in 0..PERIODS {
            for span in self.iteration() {
                let row = rows.binary_search(&(span.resource, span.lane)).unwrap_or(0);
                self.draw_box(span, period, (drawn.top(row), drawn.lane), &drawn.scale, &mut out);
            }
        }
        draw_periods(self.period_us(), &drawn.scale, drawn.bottom(), &mut out);
        out.push_str("</svg>\n");
        out
    }

    /// Returns the lanes that have work, in the order of the resources.
    fn rows(&self) -> Vec<(super::Resource, u32)> {
        let mut rows: Vec<_> = self.iteration().iter().map(|span| (span.resource, span.lane)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn row_name(&self, (resource, lane): (super::Resource, u32)) -> String {
        let (name, capacity) = &self.checked.resources[resource.index()];
        if *capacity == 1 { name.to_string() } else { format!("{name} {lane}") }
    }

    /// Returns how far the item of a box is from item k: a box of phase 2 in the first period has item k - 1.
    fn item(&self, span: &PhaseSpan, period: u32) -> i64 {
        i64::from(period) - i64::from(self.phase_of(span.node).saturating_sub(1))
    }

    fn label(&self, span: &PhaseSpan, period: u32) -> String {
        let name = self.name_of(span.node).map_or("", |name| name);
        format!("{name} {}", item_text(self.item(span, period)))
    }

    fn draw_header(&self, scale: &Scale, out: &mut String) {
        let depth = self.depth();
        let loads = self.loads().map(|load| format!("{} {:.0} %", load.name, 100.0 * load.share));
        let mut loads: Vec<String> = loads.take(8).collect();
        if self.loads().count() > loads.len() {
            loads.push("…".into());
        }
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{depth} phase{}: period {}, latency {}</text>\n\
             <text x=\"16\" y=\"42\" fill=\"#60707c\">{} node{} · {} · {}</text>",
            if depth == 1 { "" } else { "s" },
            time(self.period_us()),
            time(self.latency_us()),
            self.phases.len(),
            if self.phases.len() == 1 { "" } else { "s" },
            escaped(&loads.join(", ")),
            self.method_text(),
        );
        self.draw_key(scale, out);
    }

    /// What the colours mean: as many phases as there is room for.
    fn draw_key(&self, scale: &Scale, out: &mut String) {
        let mut phases = self.phases.clone();
        phases.sort_unstable();
        phases.dedup();
        let mut x = 16.0;
        let mut piece = |fill: &str, name: &str, out: &mut String| {
            if x + 60.0 < scale.left + scale.width {
                draw_key_box(x, 52.0, fill, name, out);
                x += 15.0 + CHAR * name.chars().count() as f64 + 14.0;
            }
        };
        piece(&format!("none\" stroke=\"{DARK}\" stroke-width=\"2"), "item k", out);
        for &phase in phases.iter().take(KEY_MAX) {
            let name = if phase == 0 { "unpipelined".into() } else { format!("phase {phase}") };
            piece(fill(phase), &name, out);
        }
        if phases.len() > KEY_MAX {
            piece("none", "… and so on", out);
        }
    }

    fn draw_box(&self, span: &PhaseSpan, period: u32, (top, lane): (f64, f64), scale: &Scale, out: &mut String) {
        let begin_us = f64::from(period) * self.period_us();
        let pad = pad(lane);
        let (x, y) = (scale.x(begin_us + span.start_us), top + pad);
        let (width, height) = ((scale.x(begin_us + span.end_us) - x - 1.0).max(1.5), lane - 2.0 * pad);
        let label = self.label(span, period);
        let (color, thick) = if self.item(span, period) == 0 { (DARK, 2.0) } else { ("#00000033", 0.8) };
        let _ = write!(
            out,
            "<g><title>{} in phase {} on {}: {} from {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"{:.1}\" fill=\"{}\" stroke=\"{color}\" stroke-width=\"{thick}\"/>",
            escaped(&label),
            self.phase_of(span.node),
            escaped(&self.row_name((span.resource, span.lane))),
            time(span.end_us - span.start_us),
            time(span.start_us),
            (height / 5.0).min(4.0),
            fill(self.phase_of(span.node)),
        );
        let name = self.name_of(span.node).map_or("", |name| name);
        draw_label(name, &item_text(self.item(span, period)), (x, y, width, height), out);
        out.push_str("</g>\n");
    }
}

/// Draws where periods begin and end, and a title for each.
fn draw_periods(period_us: f64, scale: &Scale, bottom: f64, out: &mut String) {
    for period in 0..=PERIODS {
        let x = scale.x(f64::from(period) * period_us);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{DARK}\" stroke-width=\"1.2\" stroke-dasharray=\"5 3\"/>",
            HEADER - 16.0,
            bottom + 4.0,
        );
        if period < PERIODS {
            let x = scale.x((f64::from(period) + 0.5) * period_us);
            let item = item_text(i64::from(period));
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#60707c\">phase 1 on item {item}</text>",
                HEADER - 6.0,
            );
        }
    }
}

fn fill(phase: u32) -> &'static str {
    match phase {
        0 => UNPIPELINED,
        phase => COLORS[(phase as usize - 1) % COLORS.len()],
    }
}

fn item_text(item: i64) -> String {
    match item {
        0 => "k".into(),
        item if item > 0 => format!("k+{item}"),
        item => format!("k{item}"),
    }
}
