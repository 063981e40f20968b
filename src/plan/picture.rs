//! Pieces that all pictures of time share: the document, the scale of time, its axis, lanes, labels.

use std::fmt::Write;

use super::time_unit::time;

/// The colours of phases and items.
pub(crate) const COLORS: [&str; 8] = ["#8ec9a6", "#f4c875", "#c3a6e0", "#8fbde0", "#f0a898", "#b9cc74", "#e6a9cd", "#86cfcf"];
/// The width of a character of the boxes' font, in pixels.
pub(crate) const CHAR: f64 = 6.3;
/// That of a capital.
const CAPITAL: f64 = 8.0;
/// Between these the time axis is as wide as the boxes want it, in pixels.
const WIDTH_MIN: f64 = 720.0;
const WIDTH_MAX: f64 = 2600.0;
/// A box of the common length is as wide as the common name wants it, between these, if there is room.
const BOX_MIN: f64 = 50.0;
const BOX_MAX: f64 = 110.0;

/// Begins a document of this size. `defs` are the pieces that it refers to.
pub(crate) fn draw_head((width, height): (f64, f64), defs: &str, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\" fill=\"#263238\">\n\
         <defs>{defs}</defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
    );
}

/// Returns the width of the time axis for boxes that want `wanted`.
pub(crate) fn chart_width(wanted: f64) -> f64 {
    wanted.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Returns the height of a lane; many lanes are drawn flatter.
pub(crate) fn lane_height(lanes: u32) -> f64 {
    (1400.0 / f64::from(lanes.max(1))).clamp(9.0, 32.0)
}

/// Returns how wide the time axis should be for the shorter boxes to be read: the times of all boxes, the
/// lengths of their labels, and the time that the axis shows.
pub(crate) fn width_wanted(mut times_us: Vec<f64>, mut labels: Vec<usize>, makespan_us: f64) -> f64 {
    times_us.retain(|&us| us > 0.0);
    times_us.sort_by(f64::total_cmp);
    labels.sort_unstable();
    let label = labels.get(labels.len() * 3 / 4).copied().unwrap_or(0) as f64;
    let width = (label * CHAR + 10.0).clamp(BOX_MIN, BOX_MAX);
    times_us.get(times_us.len() / 4).map_or(0.0, |us| makespan_us / us * width)
}

/// From microseconds to pixels.
pub(crate) struct Scale {
    pub(crate) left: f64,
    pub(crate) width: f64,
    pub(crate) makespan_us: f64,
}

impl Scale {
    pub(crate) fn x(&self, us: f64) -> f64 {
        self.left + us / self.makespan_us * self.width
    }

    /// Returns round distances for about ten ticks.
    fn tick_us(&self) -> f64 {
        let rough = self.makespan_us / (self.width / 110.0).clamp(2.0, 14.0);
        let power = 10f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&step| step >= rough).unwrap_or(10.0 * power)
    }

    /// Draws the axis below the lanes, and its lines through them.
    pub(crate) fn draw_axis(&self, top: f64, bottom: f64, out: &mut String) {
        let tick_us = self.tick_us();
        let ticks = (self.makespan_us / tick_us + 1e-9).floor() as u32;
        for tick in 0..=ticks {
            let us = f64::from(tick) * tick_us;
            let x = self.x(us);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {top:.1}V{:.1}\" stroke=\"#ccd5db\" stroke-width=\"0.7\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#60707c\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                time(us),
            );
        }
    }

    /// Draws a lane, with its name if there is one.
    pub(crate) fn draw_lane(&self, y: f64, height: f64, color: &str, name: Option<&str>, out: &mut String) {
        let (x, width) = (self.left, self.width);
        let _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>",);
        if let Some(name) = name {
            let (name, middle) = (escaped(name), y + height / 2.0 + 4.0);
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>", x - 8.0);
        }
    }
}

/// Rows with their names on the left and a time axis below, under a header.
pub(crate) struct Rows {
    names: Vec<String>,
    header: f64,
    /// The height of a row.
    pub(crate) lane: f64,
    pub(crate) scale: Scale,
}

impl Rows {
    const AXIS: f64 = 34.0;

    /// `times_us` and `labels` are those of the boxes: how long they are, and the characters of their labels.
    pub(crate) fn new(names: Vec<String>, header: f64, makespan_us: f64, times_us: Vec<f64>, labels: Vec<usize>) -> Self {
        let makespan_us = makespan_us.max(f64::MIN_POSITIVE);
        let gutter = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * CHAR + 26.0;
        let width = chart_width(width_wanted(times_us, labels, makespan_us));
        let scale = Scale { left: gutter.max(60.0), width, makespan_us };
        Self { lane: lane_height(names.len() as u32), names, header, scale }
    }

    pub(crate) fn name(&self, row: usize) -> &str {
        &self.names[row]
    }

    pub(crate) fn top(&self, row: usize) -> f64 {
        self.header + self.lane * row as f64
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top(self.names.len())
    }

    /// Opens the picture.
    pub(crate) fn draw_head(&self, out: &mut String) {
        draw_head((self.scale.left + self.scale.width + 24.0, self.bottom() + Self::AXIS), "", out);
    }

    /// Draws the rows and the axis. Of low rows only some have their names.
    pub(crate) fn draw(&self, out: &mut String) {
        let step = (11.0 / self.lane).ceil() as usize;
        for (row, name) in self.names.iter().enumerate() {
            let color = if row % 2 == 0 { "#f5f7f9" } else { "#edf1f4" };
            let name = (row % step == 0).then_some(&**name);
            self.scale.draw_lane(self.top(row), self.lane, color, name, out);
        }
        self.scale.draw_axis(self.header, self.bottom(), out);
    }
}

/// Draws a piece of a key: a box, and what it means.
pub(crate) fn draw_key_box(x: f64, y: f64, fill: &str, name: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{fill}\"/><text x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
        x + 15.0,
        y + 9.5,
    );
}

/// Returns how far a box stays from the edges of its lane.
pub(crate) fn pad(lane: f64) -> f64 {
    (lane * 0.14).min(5.0)
}

/// Draws the label of a box, if there is room: a name, and the item behind it, if it has one. The name is cut
/// to the width of the box.
pub(crate) fn draw_label(name: &str, item: &str, (x, y, width, height): (f64, f64, f64, f64), out: &mut String) {
    if let Some(label) = fitted(name, item, width - 6.0).filter(|_| height >= 11.0) {
        let (x, y) = (x + width / 2.0, y + height / 2.0 + 4.0);
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escaped(&label));
    }
}

/// Returns a label that is at most `room` pixels wide: the name, cut if it is too long, and the item, which
/// is not cut. Of a path, such as `top.filter.RUN`, the end stays: others begin alike. If hardly anything is
/// left of the name, it is the item alone; none if there is no room for that.
fn fitted(name: &str, item: &str, room: f64) -> Option<String> {
    let behind = if item.is_empty() { String::new() } else { format!(" {item}") };
    if width(name) + width(&behind) <= room {
        return Some(format!("{name}{behind}"));
    }
    let (mut left, is_path) = (room - width("…") - width(&behind), name.contains(['.', '/']));
    let fits = |char: &char| {
        left -= char_width(*char);
        left >= 0.0
    };
    let kept: Vec<char> =
        if is_path { name.chars().rev().take_while(fits).collect() } else { name.chars().take_while(fits).collect() };
    match kept.len() {
        0..2 => Some(item.to_owned()).filter(|item| !item.is_empty() && width(item) <= room),
        _ if is_path => Some(format!("…{}{behind}", kept.into_iter().rev().collect::<String>())),
        _ => Some(format!("{}…{behind}", kept.into_iter().collect::<String>())),
    }
}

fn width(text: &str) -> f64 {
    text.chars().map(char_width).sum()
}

fn char_width(char: char) -> f64 {
    if char.is_uppercase() { CAPITAL } else { CHAR }
}

/// Returns text with what XML would read as its own escaped. Control characters become spaces: XML has no
/// form for them.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.replace(|char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}'), " ")
}
