//! The picture of a scope: operations × steps. Each operation has a row with its batches, and each store one
//! with its tiles, from the step that makes them to the last one that uses them.

use std::fmt::Write;

use super::memory::{Place, Window};
use super::outline::{Mode, OpId, StoreId};
use super::streamed::{Group, Streamed};
use crate::plan::picture::{CHAR, COLORS, draw_head, draw_label, escaped};
use crate::plan::text::bytes_text;

/// The most steps that a picture shows of a group.
const STEPS_MAX: u64 = 24;
const STEP: f64 = 46.0;
const ROW: f64 = 26.0;
const LANE: f64 = 15.0;
/// The most tiles of a store that have a lane of their own.
const LANES_MAX: u64 = 8;
const HEADER: f64 = 58.0;
const GAP: f64 = 66.0;
const GREY: &str = "#60707c";

impl Streamed {
    /// Draws the groups as an SVG: a box for each batch, in the step in which it runs with one batch in
    /// flight, and bars for the tiles that are in memory. Of long groups it shows the first steps.
    pub fn to_svg(&self) -> String {
        let left = self.gutter();
        let steps = self.groups().iter().map(|group| group.steps().min(STEPS_MAX)).max().unwrap_or(1);
        let width = (left + steps as f64 * STEP + 40.0).max(640.0);
        let heights: Vec<f64> = self.groups().iter().map(height).collect();
        let mut out = String::new();
        draw_head((width, HEADER + heights.iter().sum::<f64>() + 16.0), "", &mut out);
        let title = if self.is_one() { "streams".to_owned() } else { format!("{} groups", self.groups().len()) };
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{title} by the {}: {} with one batch in flight</text>\n\
             <text x=\"16\" y=\"42\" fill=\"{GREY}\">{} with two, {} if nothing streams</text>",
            self.rule(),
            bytes_text(self.bytes(1)),
            bytes_text(self.bytes(2)),
            bytes_text(self.unstreamed_bytes()),
        );
        let mut top = HEADER;
        for (number, (group, height)) in self.groups().iter().zip(heights).enumerate() {
            self.draw_group(number, group, (left, top), &mut out);
            top += height;
        }
        out.push_str("</svg>\n");
        out
    }

    fn gutter(&self) -> f64 {
        let ops = self.outline().ops().map(|op| self.op_label(op).chars().count());
        let stores = self.groups().iter().flat_map(Group::windows).map(|window| self.store_label(window).chars().count());
        ops.chain(stores).max().unwrap_or(0).min(40) as f64 * CHAR + 32.0
    }

    fn op_label(&self, op: OpId) -> String {
        self.outline().op_name(op.index()).unquoted()
    }

    fn store_label(&self, window: &Window) -> String {
        format!("{}: {window}", self.outline().store_name(window.store))
    }

    fn draw_group(&self, number: usize, group: &Group, (left, top): (f64, f64), out: &mut String) {
        let shown = group.steps().min(STEPS_MAX);
        let more = if shown < group.steps() { format!(", the first {shown} shown") } else { String::new() };
        let (batches, steps) = (group.batches(), group.steps());
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"{:.0}\" font-weight=\"bold\">group {}: {batches} batch{} in {steps} step{}{more}</text>",
            top + 16.0,
            number + 1,
            if batches == 1 { "" } else { "es" },
            if steps == 1 { "" } else { "s" },
        );
        let mut y = top + 26.0;
        for (row, (op, place)) in group.ops().zip(group.places()).enumerate() {
            draw_row(&self.op_label(op), (left, y, shown, ROW), row, out);
            for step in 0..shown {
                draw_batch(*place, group.batches(), step, (left + step as f64 * STEP, y), COLORS[row % COLORS.len()], out);
            }
            if let Place::Once { step } = place
                && *step >= shown
            {
                let _ = writeln!(
                    out,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{GREY}\">{place}</text>",
                    left + 8.0,
                    y + ROW / 2.0 + 4.0
                );
            }
            y += ROW;
        }
        for (row, window) in group.windows().iter().enumerate() {
            let height = window_height(window);
            draw_row(&self.store_label(window), (left, y, shown, height), row + group.ops().len(), out);
            self.draw_window(group, window, (left, y, shown), out);
            y += height;
        }
        if let Some(reason) = group.cut().first() {
            let others = if group.cut().len() > 1 { format!(" (and {} more)", group.cut().len() - 1) } else { String::new() };
            let _ = writeln!(
                out,
                "<text x=\"16\" y=\"{:.0}\" fill=\"#a33b2e\"><title>{}</title>cut before {}: {}{others}</text>",
                y + 18.0,
                escaped(&reason.to_string()),
                escaped(&reason.op().to_string()),
                escaped(reason.to_string().rsplit("; ").next().unwrap_or_default()),
            );
        }
    }

    /// Draws the tiles of a store, each in the lane that it has in memory.
    fn draw_window(&self, group: &Group, window: &Window, (left, y, shown): (f64, f64, u64), out: &mut String) {
        let color = self.maker(group, window.store).map_or("#c9d2d8", |row| COLORS[row % COLORS.len()]);
        let mut bar = |lane: u64, from: u64, until: u64, label: &str| {
            let (x, width) = (left + from as f64 * STEP + 3.0, (until.min(shown) - from) as f64 * STEP - 6.0);
            let y = y + 3.0 + lane as f64 * LANE;
            let _ = write!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{color}\" fill-opacity=\"0.6\"/>",
                LANE - 3.0,
            );
            draw_label(label, "", (x, y - 1.0, width, LANE - 2.0), out);
            out.push('\n');
        };
        let (Some(tiles), Some(from)) = (window.tiles.filter(|&tiles| tiles <= LANES_MAX), window.from_step) else {
            return bar(0, 0, shown, "");
        };
        for begin in (from..shown).take(group.batches() as usize) {
            let tile = begin - from;
            bar(tile % tiles, begin, begin + tiles, &tile.to_string());
        }
    }

    /// Returns the row of the operation that makes a store.
    fn maker(&self, group: &Group, store: StoreId) -> Option<usize> {
        let is_made =
            |op: OpId| self.outline().accesses(op).iter().any(|access| access.store == store && access.mode != Mode::Read);
        group.ops().position(is_made)
    }
}

fn height(group: &Group) -> f64 {
    let windows: f64 = group.windows().iter().map(window_height).sum();
    group.ops().len() as f64 * ROW + windows + GAP
}

fn window_height(window: &Window) -> f64 {
    let lanes = window.tiles.filter(|&tiles| tiles <= LANES_MAX && window.from_step.is_some()).unwrap_or(1);
    lanes as f64 * LANE + 5.0
}

fn draw_row(name: &str, (left, y, steps, height): (f64, f64, u64, f64), row: usize, out: &mut String) {
    let color = if row.is_multiple_of(2) { "#f5f7f9" } else { "#edf1f4" };
    let _ = writeln!(
        out,
        "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        steps as f64 * STEP,
        left - 8.0,
        y + height / 2.0 + 4.0,
        escaped(&shortened(name)),
    );
}

/// Returns at most 40 characters of a label. It keeps the end, which has the place of an operation.
fn shortened(label: &str) -> String {
    let count = label.chars().count();
    match count > 40 {
        true => label.chars().take(29).chain(['…']).chain(label.chars().skip(count - 10)).collect(),
        false => label.to_owned(),
    }
}

/// Draws what an operation does in a step.
fn draw_batch(place: Place, batches: u64, step: u64, (x, y): (f64, f64), color: &str, out: &mut String) {
    let label = match place {
        Place::Before if step == 0 => "once".to_owned(),
        Place::All if step == 0 => "all".to_owned(),
        Place::Once { step: at } if step == at => "once".to_owned(),
        Place::Batches { skew } if (skew..skew + batches).contains(&step) => (step - skew).to_string(),
        _ => return,
    };
    let (x, y, width, height) = (x + 2.0, y + 3.0, STEP - 4.0, ROW - 6.0);
    let _ = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\" fill=\"{color}\" stroke=\"#00000033\" stroke-width=\"0.8\"/>",
    );
    draw_label(&label, "", (x, y, width, height), out);
    out.push('\n');
}
