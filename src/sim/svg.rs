//! The picture of a simulation: what each engine did.

use std::collections::HashSet;

use super::log::SimLog;
use super::simulation::{EngineId, EngineKind, engine_of};
use crate::graph::NodeId;
use crate::plan::Span;
use crate::plan::gantt::{Gantt, Ran};

impl SimLog {
    /// Draws what the machine did as an SVG: a row for each core and for each kernel or copy at once that had
    /// work, and a box for each node. The boxes of an item of a [`Pipeline`](crate::Pipeline) have one
    /// colour. Nodes that failed have a red rim, and those that were skipped are left out.
    ///
    /// [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws the same spans of a schedule on its streams,
    /// and [`Timeline::to_svg`](crate::Timeline::to_svg) what really ran.
    pub fn to_svg(&self) -> String {
        let items = self.shape.nodes().len().checked_div(self.nodes_of_item as usize);
        let counts = items.map(|items| format!("{items} item{} · ", if items == 1 { "" } else { "s" }));
        let failed: HashSet<NodeId> = self.failed().collect();
        let gantt = Gantt {
            title: self.shape.name().map_or("simulation", |name| name).into(),
            counts: counts.unwrap_or_default(),
            makespan_us: self.makespan_us(),
            ran: self.spans().into_iter().map(|span| self.ran(span, failed.contains(&span.node))).collect(),
        };
        gantt.draw(row_name)
    }

    fn ran(&self, span: Span, has_failed: bool) -> Ran<EngineId> {
        let name = self.shape.name_of(span.node);
        // Nodes of a pipeline have the number of their item behind their name.
        let (name, item) = name.rsplit_once(' ').filter(|_| self.nodes_of_item > 0).unwrap_or((name, ""));
        Ran {
            engine: engine_of(self.kinds[span.stream as usize], &self.shape.nodes()[span.node.index()]),
            start_us: span.start_us,
            end_us: span.end_us,
            name: name.to_owned(),
            item: item.to_owned(),
            group: span.node.index().checked_div(self.nodes_of_item as usize).unwrap_or(0),
            has_failed,
        }
    }
}

/// Returns the name of a row. Rows of one engine have numbers.
fn row_name((device, kind): EngineId, lane: usize, is_alone: bool) -> String {
    let name = match kind {
        EngineKind::Compute => format!("GPU {device}"),
        EngineKind::CopyUp => format!("copies to GPU {device}"),
        EngineKind::CopyDown => format!("copies from GPU {device}"),
        EngineKind::Cores => return format!("core {lane}"),
    };
    if is_alone { name } else { format!("{name} · {lane}") }
}
