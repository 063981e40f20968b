//! A bar: one piece of work in its row.

use std::fmt::Write;

use super::key::{Key, family};
use super::scale::Axis;
use super::text::{escaped, label};
use super::time_unit::time;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Its row, by place among those of the panel.
    pub(crate) row: usize,
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// When it could have begun; not after `start`.
    pub(crate) ready: f64,
    pub(crate) name: String,
    /// What its label has behind the name, such as `#3`; or nothing.
    pub(crate) item: String,
    /// What its colour means. At first its name, without numbers.
    pub(crate) colored_by: String,
    /// Bars of one number are shown together when the pointer is on one of them. 0: this one alone.
    pub(crate) group: u64,
    pub(crate) rim: Rim,
    /// Further lines of its text under the pointer.
    pub(crate) told: String,
    /// Of a loop or a branch: the number of iterations, at least 1.
    pub(crate) iterations: Option<u64>,
    /// It may take longer.
    pub(crate) is_bounded: bool,
    /// It waits, and does not compute: drawn flat, in lanes below the others.
    pub(crate) waits: bool,
}

/// The rim of a bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub(crate) enum Rim {
    #[default]
    None,
    /// It held up the end.
    Critical,
    Failed,
    Cancelled,
    /// It is of the item that the picture follows.
    Followed,
}

impl Rim {
    pub(super) const ALL: [Self; 4] = [Self::Critical, Self::Failed, Self::Cancelled, Self::Followed];

    /// Returns its colour, and its width.
    pub(super) fn stroke(self) -> (&'static str, f64) {
        match self {
            Self::None => ("#00000033", 0.8),
            Self::Critical => ("#c2351f", 2.0),
            Self::Failed => ("#9b0f0f", 2.6),
            Self::Cancelled => ("#6b7280", 2.0),
            Self::Followed => ("#263238", 2.0),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Critical => "critical path",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Followed => "item k",
        }
    }
}

impl Bar {
    pub(crate) fn new(row: usize, name: impl Into<String>, start: f64, end: f64) -> Self {
        let name = name.into();
        Self {
            row,
            start,
            end,
            ready: start,
            colored_by: family(&name),
            name,
            item: String::new(),
            group: 0,
            rim: Rim::None,
            told: String::new(),
            iterations: None,
            is_bounded: false,
            waits: false,
        }
    }

    pub(super) fn full_name(&self) -> String {
        if self.item.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.item) }
    }

    /// Returns its text under the pointer.
    fn title(&self, row: &str, axis: Axis) -> String {
        let mut title = format!("{} on {row}: ", self.full_name());
        // Writing to a string cannot fail.
        let _ = match axis {
            Axis::Time => {
                let at_least = if self.is_bounded { "≥ " } else { "" };
                write!(title, "{at_least}{} from {}", time(self.end - self.start), time(self.start))
            }
            Axis::Steps if self.end - self.start > 1.0 => write!(title, "steps {} to {}", self.start, self.end - 1.0),
            Axis::Steps => write!(title, "step {}", self.start),
        };
        if self.ready < self.start && axis == Axis::Time {
            let _ = write!(title, ", waited {}", time(self.start - self.ready));
        }
        if matches!(self.rim, Rim::Failed | Rim::Cancelled) {
            let _ = write!(title, ", {}", self.rim.name());
        }
        if !self.told.is_empty() {
            let _ = write!(title, "\n{}", self.told);
        }
        escaped_lines(&title)
    }

    /// Draws it: what it waited for, the bar, its label. `x_ready` is the place of `ready`; `arrows` are
    /// drawn already.
    pub(super) fn draw(&self, at: &Place<'_>, arrows: &str, key: &Key, out: &mut String) {
        let Place { row, x, y, width, height, x_ready, axis } = *at;
        let (stroke, thick) = self.rim.stroke();
        // A narrow bar keeps its colour.
        let thick = thick.min((width / 4.0).max(0.8));
        let _ = write!(out, "<g class=\"bar\"><title>{}</title>{arrows}", self.title(row, axis));
        if x - x_ready > 0.5 {
            let (middle, thin) = (y + height / 2.0, (height / 4.0).max(1.0));
            let _ = write!(
                out,
                "<path class=\"wait\" d=\"M{x_ready:.1} {middle:.1}H{x:.1}\" stroke=\"#5b6573\" stroke-width=\"{thin:.1}\"/>"
            );
        }
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{:.1}\" fill=\"{}\" \
             stroke=\"{stroke}\" stroke-width=\"{thick:.1}\"/>",
            (height / 5.0).min(4.0),
            key.color_of(&self.colored_by),
        );
        if let Some(iterations) = self.iterations {
            draw_iterations(iterations, (x, y, width, height), out);
        }
        if let Some(label) = label(&self.name, &self.item, width - 6.0).filter(|_| height >= 11.0) {
            let (x, y) = (x + width / 2.0, y + height / 2.0 + 4.0);
            let _ = write!(out, "<text class=\"name\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(&label));
        }
        out.push_str("</g>\n");
    }
}

/// Where a bar is drawn.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) row: &'a str,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x_ready: f64,
    pub(super) axis: Axis,
}

fn escaped_lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("&#10;")
}

/// Gives a loop or a branch a second rim, and a loop a line between two iterations, if there is room.
fn draw_iterations(iterations: u64, (x, y, width, height): (f64, f64, f64, f64), out: &mut String) {
    if width > 8.0 && height > 8.0 {
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"none\" stroke=\"#00000066\" \
             stroke-width=\"0.8\"/>",
            x + 2.0,
            y + 2.0,
            width - 4.0,
            height - 4.0,
        );
    }
    let each = width / iterations as f64;
    if each < 4.0 {
        return;
    }
    for iteration in 1..iterations {
        let x = x + each * iteration as f64;
        let (from, to) = (y + height - 6.0, y + height - 2.0);
        let _ = write!(out, "<path d=\"M{x:.1} {from:.1}V{to:.1}\" stroke=\"#00000088\" stroke-width=\"0.8\"/>");
    }
}
