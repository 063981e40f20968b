//! The picture of a simulation: what each engine did. A row for each core and each kernel or copy at once,
//! a box for each node, in the colour of its item.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use super::log::SimLog;
use super::simulation::{EngineId, EngineKind, engine_of};
use crate::graph::NodeId;
use crate::phases::COLORS;
use crate::plan::Span;
use crate::plan::picture::{Rows, draw_label, escaped, pad, time};

const HEADER: f64 = 56.0;
/// The rim of a node that failed.
const RED: &str = "#c2351f";

/// A node that ran, and its row.
struct Placed {
    span: Span,
    engine: EngineId,
    /// Among those of its engine.
    lane: usize,
}

impl SimLog {
    /// Draws what the machine did as an SVG: a row for each core and for each kernel or copy at once that had
    /// work, and a box for each node. The boxes of an item of a [`Pipeline`](crate::Pipeline) have one
    /// colour. Nodes that failed have a red rim, and those that were skipped are left out.
    ///
    /// [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws the same spans of a schedule on its streams.
    pub fn to_svg(&self) -> String {
        let placed = self.placed();
        let mut rows: Vec<(EngineId, usize)> = placed.iter().map(|placed| (placed.engine, placed.lane)).collect();
        rows.sort_unstable();
        rows.dedup();
        let names: Vec<String> = rows.iter().map(|&row| row_name(row, &rows)).collect();
        let times_us = placed.iter().map(|placed| placed.span.end_us - placed.span.start_us).collect();
        let labels = placed.iter().map(|placed| self.shape.name_of(placed.span.node).chars().count()).collect();
        let drawn = Rows::new(names, HEADER, self.makespan_us(), times_us, labels);
        let mut out = String::new();
        drawn.draw_head(&mut out);
        self.draw_header(placed.len(), &mut out);
        drawn.draw(&mut out);
        let failed: HashSet<NodeId> = self.failed().collect();
        for Placed { span, engine, lane } in &placed {
            let row = rows.binary_search(&(*engine, *lane)).unwrap_or(0);
            self.draw_box(span, failed.contains(&span.node), row, &drawn, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    /// Gives each span the first lane of its engine that is free.
    fn placed(&self) -> Vec<Placed> {
        let mut spans = self.spans();
        spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        let mut free_us: BTreeMap<EngineId, Vec<f64>> = BTreeMap::new();
        let place = |span: Span| {
            let engine = engine_of(self.kinds[span.stream as usize], &self.shape.nodes()[span.node.index()]);
            let lanes = free_us.entry(engine).or_default();
            let lane = lanes.iter().position(|&free_us| free_us <= span.start_us).unwrap_or(lanes.len());
            if lane == lanes.len() {
                lanes.push(0.0);
            }
            lanes[lane] = span.end_us;
            Placed { span, engine, lane }
        };
        spans.into_iter().map(place).collect()
    }

    fn draw_header(&self, ran: usize, out: &mut String) {
        let items = self.shape.nodes().len().checked_div(self.nodes_of_item as usize);
        let items = items.map(|items| format!("{items} item{} · ", if items == 1 { "" } else { "s" })).unwrap_or_default();
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
             <text x=\"16\" y=\"42\" fill=\"#60707c\">{items}{ran} node{} ran · takes {}</text>",
            escaped(self.shape.name().unwrap_or("simulation")),
            if ran == 1 { "" } else { "s" },
            time(self.makespan_us()),
        );
    }

    fn draw_box(&self, span: &Span, has_failed: bool, row: usize, rows: &Rows, out: &mut String) {
        let (lane, scale, pad) = (rows.lane, &rows.scale, pad(rows.lane));
        let (x, y) = (scale.x(span.start_us), rows.top(row) + pad);
        let (width, height) = ((scale.x(span.end_us) - x - 1.0).max(1.5), lane - 2.0 * pad);
        let item = span.node.index().checked_div(self.nodes_of_item as usize).unwrap_or(0);
        let (color, thick) = if has_failed { (RED, 2.0) } else { ("#00000033", 0.8) };
        let name = self.shape.name_of(span.node);
        let _ = write!(
            out,
            "<g><title>{} on {}: {} from {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"{:.1}\" fill=\"{}\" stroke=\"{color}\" stroke-width=\"{thick}\"/>",
            escaped(name),
            rows.name(row),
            time(span.end_us - span.start_us),
            time(span.start_us),
            (height / 5.0).min(4.0),
            COLORS[item % COLORS.len()],
        );
        // Nodes of a pipeline have the number of their item behind their name.
        let (name, item) = name.rsplit_once(' ').filter(|_| self.nodes_of_item > 0).unwrap_or((name, ""));
        draw_label(name, item, (x, y, width, height), out);
        out.push_str("</g>\n");
    }
}

/// Returns the name of a row. Rows of one engine have numbers.
fn row_name((engine, lane): (EngineId, usize), rows: &[(EngineId, usize)]) -> String {
    let (device, kind) = engine;
    let name = match kind {
        EngineKind::Compute => format!("GPU {device}"),
        EngineKind::CopyUp => format!("copies to GPU {device}"),
        EngineKind::CopyDown => format!("copies from GPU {device}"),
        EngineKind::Cores => return format!("core {lane}"),
    };
    let is_alone = !rows.contains(&(engine, 1));
    if is_alone { name } else { format!("{name} · {lane}") }
}
