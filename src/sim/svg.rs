//! The picture of a simulation: what each engine did.

use std::collections::HashSet;

use super::log::SimLog;
use super::simulation::{EngineId, EngineKind, engine_of, on};
use crate::draw::{Axis, Bar, Panel, Picture, Rim, Row, counted, time};
use crate::graph::NodeId;
use crate::plan::Span;
use crate::ranks::On;

/// The most ranks that are drawn.
const RANKS_DRAWN_MAX: u32 = 16;

impl SimLog {
    /// Draws what the machine did as an SVG: a row for the cores, for each GPU, and for the copies to it and
    /// from it, with a lane for each thing that it did at once, and a bar for each node. With the pointer on
    /// a bar, a viewer shows the bars of its item of a [`Pipeline`](crate::Pipeline). Nodes that failed
    /// have a red rim, and those that were skipped are left out. Over several ranks, each has its rows, with
    /// what it sends, and collectives have a row of their own; nodes that take no time are left out. Of more
    /// than 16 ranks, the first 16 are drawn. The graphs inside of loops and branches that communicate are
    /// drawn below, each once and with its own time scale.
    ///
    /// [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws the same spans of a schedule on its streams,
    /// and [`Timeline::to_svg`](crate::Timeline::to_svg) what really ran.
    pub fn to_svg(&self) -> String {
        let inside = self.inside.iter().map(|(path, log)| Panel { title: format!("in {path}"), ..log.panel() });
        let panels = std::iter::once(self.panel()).chain(inside).collect();
        let title = self.shape.name().unwrap_or("simulation").to_owned();
        Picture { title, note: String::new(), colored_by: Vec::new(), panels }.draw()
    }

    fn panel(&self) -> Panel {
        let failed: HashSet<NodeId> = self.failed().collect();
        let mut spans = self.spans();
        if self.ranks() > 0 {
            // On ranks, the starts and the ends of exchanges take no time.
            let is_shown = |rank: u32| rank < RANKS_DRAWN_MAX || rank == u32::MAX;
            spans.retain(|span| span.end_us > span.start_us && is_shown(self.engine_of(span).rank));
        }
        let mut engines: Vec<EngineId> = spans.iter().map(|span| self.engine_of(span)).collect();
        engines.sort_unstable();
        engines.dedup();
        let bars: Vec<Bar> = spans.iter().map(|span| self.bar(span, &engines, failed.contains(&span.node))).collect();
        Panel {
            counts: self.counts(&bars),
            rows: engines.iter().map(|&engine| row(engine, self.ranks() > 0)).collect(),
            bars,
            until: self.makespan_us().max(f64::MIN_POSITIVE),
            axis: Axis::Time,
            ..Panel::default()
        }
    }

    fn counts(&self, bars: &[Bar]) -> String {
        let items = self.shape.nodes().len().checked_div(self.nodes_of_item as usize);
        let items = items.map_or_else(String::new, |items| format!("{} · ", counted(items, "item")));
        let failed = bars.iter().filter(|bar| bar.rim == Rim::Failed).count();
        let ranks = match self.ranks() {
            0 => String::new(),
            ranks if ranks > RANKS_DRAWN_MAX => format!("the first {RANKS_DRAWN_MAX} of {ranks} ranks · "),
            ranks => format!("{} · ", counted(ranks as usize, "rank")),
        };
        let failed = if failed == 0 { String::new() } else { format!(" · {failed} failed") };
        format!("{ranks}{items}{} ran{failed} · takes {}", counted(bars.len(), "node"), time(self.makespan_us()))
    }

    /// Returns the number of ranks. 0 if the simulation is not one over ranks.
    fn ranks(&self) -> u32 {
        let rank = |on: &On| if let On::Rank(rank) = on { Some(rank + 1) } else { None };
        self.on.iter().filter_map(rank).max().unwrap_or(0)
    }

    fn engine_of(&self, span: &Span) -> EngineId {
        engine_of(on(&self.on, span.stream), self.kinds[span.stream as usize], &self.shape.nodes()[span.node.index()])
    }

    fn bar(&self, span: &Span, engines: &[EngineId], has_failed: bool) -> Bar {
        let name = self.shape.name_of(span.node);
        // Nodes of a pipeline have the number of their item behind their name.
        let (name, item) = name.rsplit_once(' ').filter(|_| self.nodes_of_item > 0).unwrap_or((name, ""));
        let group = (span.node.index() as u64).checked_div(u64::from(self.nodes_of_item)).map_or(0, |item| item + 1);
        let row = engines.binary_search(&self.engine_of(span)).unwrap_or(0);
        Bar {
            item: item.to_owned(),
            group,
            rim: if has_failed { Rim::Failed } else { Rim::None },
            ..Bar::new(row, name, span.start_us, span.end_us)
        }
    }
}

fn row(EngineId { rank, device, kind }: EngineId, has_ranks: bool) -> Row {
    let name = match kind {
        EngineKind::Compute => format!("GPU {device}"),
        EngineKind::CopyUp => format!("copies to GPU {device}"),
        EngineKind::CopyDown => format!("copies from GPU {device}"),
        EngineKind::Cores => "cores".to_owned(),
        EngineKind::Link => "sends".to_owned(),
        EngineKind::Network if rank == u32::MAX => "collectives".to_owned(),
        EngineKind::Network => "communication".to_owned(),
    };
    let has_rank = has_ranks && rank != u32::MAX;
    let name = if has_rank { format!("rank {rank}: {name}") } else { name };
    Row { name, is_host: matches!(kind, EngineKind::Cores | EngineKind::Link | EngineKind::Network) }
}
