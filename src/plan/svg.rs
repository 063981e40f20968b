//! Schedules as pictures: a row for each stream, a bar for each node, waits as arrows, a red rim for the
//! critical path. The picture has the same form for costs, simulations and real runs.

use std::collections::HashMap;

use super::runs::{Run, Runs};
use super::spans::{Span, on_critical_path};
use super::{Schedule, StreamKind};
use crate::draw::{Arrow, Axis, Bar, Panel, Picture, Rim, Row, counted, time};
use crate::graph::{Backend, COST_US_MAX, Control, NodeId};

impl Schedule {
    /// Draws the schedule with these spans as an SVG: the spans of [`Schedule::spans`], of a simulation, or
    /// of a real run. Inner graphs with nodes are drawn below, each once and with its own time scale, with
    /// the spans of their schedules.
    ///
    /// Names that differ only in numbers have one colour. With the pointer on a bar, a viewer shows how long
    /// the node waited after all of its inputs were ready, and the streams that it waited for. If there are
    /// more than 40 streams, the last row stands for the others.
    ///
    /// Spans of nodes that the schedule does not have, or does not have on that stream, are left out and
    /// counted in the header. So are spans whose times are negative, NaN, in the wrong order or beyond all
    /// costs (1.7·10^19 µs). A loop or a branch of 10^12 µs may take longer: such durations, and those that
    /// contain them, have a `≥` before them.
    pub fn to_svg(&self, spans: &[Span]) -> String {
        let inner = self.inner().iter().enumerate().filter(|(_, inner)| !inner.schedule().order().is_empty());
        let inner = inner.map(|(number, inner)| {
            let title = format!("in {}", self.inner_path(number));
            Drawn::new(inner.schedule(), &inner.schedule().spans()).panel(title, None)
        });
        let own = Drawn::new(self, spans).panel(String::new(), None);
        let panels = std::iter::once(own).chain(inner).collect();
        Picture { title: self.picture_title(), note: String::new(), colored_by: Vec::new(), panels }.draw()
    }

    /// Draws schedules one below the other as one SVG, with the same time scale; see [`Schedule::to_svg`].
    pub fn all_to_svg(panels: &[(&Self, &[Span])]) -> String {
        let drawn: Vec<Drawn<'_>> = panels.iter().map(|(schedule, spans)| Drawn::new(schedule, spans)).collect();
        let until = drawn.iter().map(|drawn| drawn.makespan_us).fold(0.0, f64::max);
        let panels: Vec<Panel> = drawn.iter().map(|drawn| drawn.panel(drawn.schedule.picture_title(), Some(until))).collect();
        Picture { title: counted(panels.len(), "schedule"), note: String::new(), colored_by: Vec::new(), panels }.draw()
    }

    fn picture_title(&self) -> String {
        let policy = self.policy();
        let title = self.shape().name().map_or_else(|| policy.to_owned(), |name| format!("{name} · {policy}"));
        self.remark().map_or(title.clone(), |remark| format!("{title} ({remark})"))
    }
}

/// A schedule with the spans that can be drawn.
struct Drawn<'a> {
    schedule: &'a Schedule,
    runs: Runs<'a>,
    /// The spans, by run.
    spans: Vec<Option<Span>>,
    is_critical: Vec<bool>,
    left_out: usize,
    makespan_us: f64,
}

impl<'a> Drawn<'a> {
    fn new(schedule: &'a Schedule, spans: &[Span]) -> Self {
        let runs = Runs::new(schedule);
        let known = schedule.shown(spans).map(|span| (Run { node: span.node, stream: span.stream }, *span));
        let of: HashMap<Run, Span> = known.collect();
        let left_out = spans.len() - schedule.shown(spans).count();
        let spans: Vec<Option<Span>> = runs.all.iter().map(|run| of.get(run).copied()).collect();
        let is_critical = on_critical_path(&runs, &spans);
        let shown: Vec<Span> = spans.iter().copied().flatten().collect();
        Self { schedule, runs, makespan_us: Span::makespan_us(&shown), spans, is_critical, left_out }
    }

    /// Returns the panel of the schedule. Its axis ends at `until`, or else at the last span.
    fn panel(&self, title: String, until: Option<f64>) -> Panel {
        let row =
            |stream| Row { name: self.schedule.stream_name(stream), is_host: self.schedule.kind(stream) == StreamKind::Host };
        // The place of each run among the bars.
        let mut places: Vec<Option<usize>> = vec![None; self.runs.all.len()];
        let mut bars = Vec::new();
        let ends = self.ends();
        for (run, span) in self.spans.iter().enumerate() {
            if let Some(span) = span {
                places[run] = Some(bars.len());
                bars.push(self.bar(run, span, &ends));
            }
        }
        let arrow = |target: usize, source: usize| {
            let (from, to) = (places[source]?, places[target]?);
            Some(Arrow { from, to, is_critical: self.is_critical[source] && self.is_critical[target] })
        };
        let runs = 0..self.runs.all.len();
        let arrows = runs.flat_map(|target| self.runs.waits(target).filter_map(move |source| arrow(target, source)));
        Panel {
            title,
            counts: self.counts(),
            rows: (0..self.schedule.streams()).map(row).collect(),
            arrows: arrows.collect(),
            bars,
            until: until.unwrap_or(self.makespan_us).max(f64::MIN_POSITIVE),
            axis: Axis::Time,
            ..Panel::default()
        }
    }

    fn counts(&self) -> String {
        let schedule = self.schedule;
        let shown: Vec<Span> = self.spans.iter().copied().flatten().collect();
        let used = 100.0 * schedule.utilisation(&shown);
        let is_bounded = shown.iter().any(|span| self.is_bounded(span));
        let mut took_us: HashMap<NodeId, f64> = HashMap::new();
        shown.iter().for_each(|span| {
            let took = took_us.entry(span.node).or_default();
            *took = took.max(span.end_us - span.start_us);
        });
        let critical_us = schedule.dearest_path_us(|node| took_us.get(&node).copied().unwrap_or(0.0));
        format!(
            "{}, {}, {} · takes {}, critical path {} · {used:.0} % busy{}",
            counted(schedule.order().len(), "node"),
            schedule.streams_text(),
            counted(schedule.waits(), "wait"),
            at_least(is_bounded, self.makespan_us),
            at_least(is_bounded, critical_us),
            if self.left_out > 0 { format!(" · {} left out", counted(self.left_out, "span")) } else { String::new() },
        )
    }

    /// Returns, for each node that ran, the time when it had ended on all its streams.
    fn ends(&self) -> HashMap<NodeId, f64> {
        let mut ends: HashMap<NodeId, f64> = HashMap::new();
        for span in self.spans.iter().flatten() {
            let end = ends.entry(span.node).or_default();
            *end = end.max(span.end_us);
        }
        ends
    }

    fn bar(&self, run: usize, span: &Span, ends: &HashMap<NodeId, f64>) -> Bar {
        let node = &self.schedule.shape().nodes()[span.node.index()];
        let before = self.schedule.predecessors(span.node).iter().filter_map(|before| ends.get(before).copied());
        let iterations = node.control.as_deref().map(|control| match control {
            Control::Repeat { iterations, .. } => *iterations,
            Control::Branch { .. } => 1,
        });
        Bar {
            ready: before.fold(0.0, f64::max).min(span.start_us),
            item: node.control.as_ref().map_or_else(String::new, |control| format!("· {}", control.remark())),
            rim: if self.is_critical[run] { Rim::Critical } else { Rim::None },
            told: match node.backend {
                Backend::Cpu => "runs on the CPU",
                Backend::Mixed => "goes from the CPU to the GPU",
                Backend::Gpu => "runs on the GPU",
            }
            .to_owned(),
            iterations,
            is_bounded: self.is_bounded(span),
            ..Bar::new(span.stream as usize, &*node.name, span.start_us, span.end_us)
        }
    }

    /// Returns whether this is the span of a loop or a branch that may take longer, see [`Schedule::spans`].
    fn is_bounded(&self, span: &Span) -> bool {
        let is_control = self.schedule.shape().nodes()[span.node.index()].control.is_some();
        // The difference of two such large numbers is not exact.
        is_control && span.end_us - span.start_us >= COST_US_MAX * (1.0 - 1e-9)
    }
}

fn at_least(is_bounded: bool, us: f64) -> String {
    format!("{}{}", if is_bounded { "≥ " } else { "" }, time(us))
}
