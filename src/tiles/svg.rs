//! The picture of a scope: operations × steps. Each operation has a row with its batches, and each store one
//! with its tiles, from the step that makes them to the last one that uses them.

use super::memory::{Place, Window};
use super::outline::{Mode, OpId, StoreId};
use super::streamed::{Group, Streamed};
use crate::draw::{Axis, Bar, Panel, Picture, Row};
use crate::plan::text::bytes_text;

/// The most steps that a picture shows of a group.
const STEPS_MAX: u64 = 24;
/// The most tiles of a store that have bars of their own.
const TILES_MAX: u64 = 8;

impl Streamed {
    /// Draws the groups as an SVG: a bar for each batch, in the step in which it runs with one batch in
    /// flight, and bars for the tiles that are in memory, in the colour of the operation that makes them. Of
    /// long groups it shows the first steps.
    pub fn to_svg(&self) -> String {
        let title = if self.is_one() { "streams".to_owned() } else { format!("{} groups", self.groups().len()) };
        let bytes = |count: u64| bytes_text(self.bytes(count));
        let title = format!("{title} by the {}: {} with one batch in flight", self.rule(), bytes(1));
        let note = format!("{} with two, {} if nothing streams", bytes(2), bytes_text(self.unstreamed_bytes()));
        let steps = self.groups().iter().map(|group| group.steps().min(STEPS_MAX)).max().unwrap_or(1);
        let panels = self.groups().iter().enumerate().map(|(number, group)| self.panel(number, group, steps));
        Picture { title, note, colored_by: Vec::new(), panels: panels.collect() }.draw()
    }

    /// Returns the panel of a group, whose axis has so many steps.
    fn panel(&self, number: usize, group: &Group, steps: u64) -> Panel {
        let shown = group.steps().min(STEPS_MAX);
        let (mut rows, mut bars) = (Vec::new(), Vec::new());
        for (op, place) in group.ops().zip(group.places()) {
            let name = self.outline().op_name(op.index()).unquoted();
            // What comes after the steps that are shown has no bar.
            let behind =
                if matches!(place, Place::Once { step } if *step >= shown) { format!(" ({place})") } else { String::new() };
            let row = rows.len();
            bars.extend(
                (0..shown).filter_map(|step| batch(*place, group.batches(), step).map(|label| (step, label))).map(
                    |(step, label)| Bar { colored_by: name.clone(), ..Bar::new(row, label, step as f64, step as f64 + 1.0) },
                ),
            );
            rows.push(Row { name: format!("{name}{behind}"), is_host: false });
        }
        for window in group.windows() {
            let color = self.maker(group, window.store);
            bars.extend(tiles(window, group.batches(), shown).into_iter().map(|(from, until, label)| {
                let until = until.min(shown) as f64;
                Bar { colored_by: color.clone(), ..Bar::new(rows.len(), label, from as f64, until) }
            }));
            rows.push(Row { name: format!("{}: {window}", self.outline().store_name(window.store)), is_host: true });
        }
        let reason = group.cut().first().map(|reason| {
            let others = if group.cut().len() > 1 { format!(" (and {} more)", group.cut().len() - 1) } else { String::new() };
            let (all, op) = (reason.to_string(), reason.op().to_string());
            (format!("cut before {op}: {}{others}", all.rsplit("; ").next().unwrap_or_default()), all.clone())
        });
        Panel {
            title: group_title(number, group, shown),
            rows,
            bars,
            until: steps as f64,
            axis: Axis::Steps,
            notes: reason.into_iter().collect(),
            ..Panel::default()
        }
    }

    /// Returns the name of the operation that makes a store.
    fn maker(&self, group: &Group, store: StoreId) -> String {
        let is_made =
            |op: OpId| self.outline().accesses(op).iter().any(|access| access.store == store && access.mode != Mode::Read);
        let maker = group.ops().find(|&op| is_made(op));
        maker.map_or_else(|| "stores of others".to_owned(), |op| self.outline().op_name(op.index()).unquoted())
    }
}

fn group_title(number: usize, group: &Group, shown: u64) -> String {
    let (batches, steps) = (group.batches(), group.steps());
    let more = if shown < steps { format!(", the first {shown} shown") } else { String::new() };
    let plural = |count: u64, ending| if count == 1 { "" } else { ending };
    format!("group {}: {batches} batch{} in {steps} step{}{more}", number + 1, plural(batches, "es"), plural(steps, "s"))
}

/// Returns the label of what an operation does in a step.
fn batch(place: Place, batches: u64, step: u64) -> Option<String> {
    match place {
        Place::Before if step == 0 => Some("once".to_owned()),
        Place::All if step == 0 => Some("all".to_owned()),
        Place::Once { step: at } if step == at => Some("once".to_owned()),
        Place::Batches { skew } if (skew..skew + batches).contains(&step) => Some((step - skew).to_string()),
        _ => None,
    }
}

/// Returns the tiles of a store, each with the steps in which it is in memory, and its label.
fn tiles(window: &Window, batches: u64, shown: u64) -> Vec<(u64, u64, String)> {
    let (Some(count), Some(from)) = (window.tiles.filter(|&tiles| tiles <= TILES_MAX), window.from_step) else {
        return vec![(0, shown, "all".to_owned())];
    };
    (from..shown).take(batches as usize).map(|begin| (begin, begin + count, (begin - from).to_string())).collect()
}
