//! A picture: its title, what the colours mean, and its panels.

use std::fmt::Write;

use super::Panel;
use super::key::{Key, LINE};
use super::layout::Layout;
use super::text::{escaped, shortened, width};

/// What happens when.
pub(crate) struct Picture {
    pub(crate) title: String,
    /// A line below the title, about all panels; or nothing.
    pub(crate) note: String,
    /// What the colours mean that come first, in this order.
    pub(crate) colored_by: Vec<String>,
    pub(crate) panels: Vec<Panel>,
}

/// The chart is as wide as its bars want it, between these.
const WIDTH_MIN: f64 = 720.0;
const WIDTH_MAX: f64 = 1400.0;
/// The widest names of rows.
const GUTTER_MAX: f64 = 240.0;
const GUTTER_MIN: f64 = 60.0;
const MARGIN: f64 = 24.0;
const TITLE: f64 = 34.0;
const NOTE: f64 = 18.0;
const GAP: f64 = 16.0;

const STYLE: &str = "\
text{font:11px Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#1f2430}\
.head{font-size:16px;font-weight:bold}.title{font-size:13px;font-weight:bold}\
.muted{fill:#60707c}.note{fill:#a33b2e}.end{text-anchor:end}.middle,.name{text-anchor:middle}\
.name{pointer-events:none}.wait{opacity:0;pointer-events:none}.arrow{opacity:.75;pointer-events:none}\
.bar:hover .wait,.bar:hover .arrow{opacity:1}\
.groups:hover .group{opacity:.25}.groups:hover .group:hover{opacity:1}";

impl Picture {
    pub(crate) fn new(title: impl Into<String>, panel: Panel) -> Self {
        Self { title: title.into(), note: String::new(), colored_by: Vec::new(), panels: vec![panel] }
    }

    /// Draws it as an SVG.
    pub(crate) fn draw(&self) -> String {
        let bars = || self.panels.iter().flat_map(|panel| &panel.bars);
        let key = Key::of(bars(), &self.colored_by);
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        let left = rows.map(|row| width(&row.name) + 26.0).fold(GUTTER_MIN, f64::max).min(GUTTER_MAX);
        let wanted = self.panels.iter().map(Panel::width_wanted).fold(0.0, f64::max);
        let chart = wanted.clamp(WIDTH_MIN, WIDTH_MAX);
        let layouts: Vec<Layout> = self.panels.iter().map(|panel| panel.layout(chart)).collect();
        let whole = left + chart + MARGIN;
        let note = if self.note.is_empty() { 0.0 } else { NOTE };
        let head = TITLE + note + LINE * key.lines(whole - 2.0 * MARGIN) as f64 + 8.0;
        let heights: Vec<f64> = self.panels.iter().zip(&layouts).map(|(panel, layout)| panel.height(layout)).collect();
        let height = head + heights.iter().map(|height| height + GAP).sum::<f64>();
        let mut out = String::new();
        self.draw_head((whole, height), &mut out);
        if !self.note.is_empty() {
            let _ = writeln!(out, "<text class=\"muted\" x=\"16\" y=\"42\">{}</text>", escaped(&self.note));
        }
        key.draw((16.0, TITLE + note), whole - 2.0 * MARGIN, &mut out);
        let mut top = head;
        for ((panel, layout), height) in self.panels.iter().zip(&layouts).zip(heights) {
            panel.draw(layout, (left, chart), top, &key, &mut out);
            top += height + GAP;
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_head(&self, (width, height): (f64, f64), out: &mut String) {
        let marker = |id: &str, color: &str| {
            format!(
                "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
                 markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0.8 8 4 0 7.2z\" fill=\"{color}\"/></marker>"
            )
        };
        let has_arrows = self.panels.iter().any(|panel| !panel.arrows.is_empty());
        let markers = if has_arrows { marker("tip", "#7a8794") + &marker("hot", "#c2351f") } else { String::new() };
        let title = shortened(&self.title, (width - 32.0) / 1.5).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
             <style>{STYLE}</style><defs>{markers}</defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text class=\"head\" x=\"16\" y=\"24\">{}</text>",
            escaped(&title),
        );
    }
}
