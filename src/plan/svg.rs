//! Schedules as pictures: streams are lanes, nodes boxes in the colour of their backend, waits arrows; what
//! held up the end has a red rim. The same picture for costs, simulations and real runs.

use std::collections::HashMap;
use std::fmt::Write;

use super::dot::fill;
use super::picture::{CHAR, Scale, chart_width, draw_head, draw_key_box, draw_label, escaped, lane_height, pad, width_wanted};
use super::runs::{Run, Runs};
use super::spans::{Span, on_critical_path};
use super::table::count;
use super::time_unit::time;
use super::{Schedule, StreamKind};
use crate::graph::{Backend, COST_US_MAX, Control, NodeId};

/// What held up the end, and what did not.
const RED: &str = "#c2351f";
const GREY: &str = "#7a8794";
const HEADER: f64 = 64.0;
const AXIS: f64 = 30.0;
const GAP: f64 = 12.0;

impl Schedule {
    /// Draws the schedule with these spans as an SVG: those of [`Schedule::spans`], of a simulation, or of a
    /// real run. Inner graphs that have nodes stand below, each once and to a scale of time of its own, with
    /// the spans of their schedules.
    ///
    /// Spans of nodes that the schedule does not have, or not on that stream, are left out and counted in the
    /// header. So are spans whose times are negative, NaN, the wrong way round or beyond all costs (1.7·10^19
    /// µs). A loop or a branch of 10^12 µs may take longer: such times, and those that contain them, stand
    /// behind a `≥`.
    pub fn to_svg(&self, spans: &[Span]) -> String {
        let inner = self.inner().iter().enumerate().filter(|(_, inner)| !inner.schedule().order().is_empty());
        let inner = inner.map(|(number, inner)| {
            let title = format!("in {}", self.inner_path(number));
            Panel::new(inner.schedule(), &inner.schedule().spans(), Some(title))
        });
        draw(&std::iter::once(Panel::new(self, spans, None)).chain(inner).collect::<Vec<_>>())
    }

    /// Draws schedules one below the other as one SVG, all to the same scale of time; see
    /// [`Schedule::to_svg`].
    pub fn all_to_svg(panels: &[(&Self, &[Span])]) -> String {
        draw(&panels.iter().map(|(schedule, spans)| Panel::new(schedule, spans, None)).collect::<Vec<_>>())
    }
}

fn draw(panels: &[Panel<'_>]) -> String {
    let gutter = panels.iter().map(|panel| panel.gutter).fold(60.0, f64::max);
    let makespan_us = panels.iter().filter(|panel| !panel.is_inner).map(|panel| panel.makespan_us).fold(0.0, f64::max);
    let chart = chart_width(panels.iter().map(|panel| panel.width_wanted()).fold(0.0, f64::max));
    let scale = |makespan_us: f64| Scale { left: gutter, width: chart, makespan_us: makespan_us.max(f64::MIN_POSITIVE) };
    let width = gutter + chart + 24.0;
    let height = panels.iter().map(|panel| panel.height() + GAP).sum::<f64>();
    let mut out = String::new();
    draw_head((width, height), &format!("{}{}", marker("tip", GREY), marker("hot", RED)), &mut out);
    let mut top = 0.0;
    for panel in panels {
        panel.draw(&scale(if panel.is_inner { panel.makespan_us } else { makespan_us }), top, &mut out);
        top += panel.height() + GAP;
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the head of an arrow.
fn marker(id: &str, color: &str) -> String {
    format!(
        "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0.8 8 4 0 7.2z\" fill=\"{color}\"/></marker>"
    )
}

struct Panel<'a> {
    schedule: &'a Schedule,
    title: String,
    is_inner: bool,
    runs: Runs<'a>,
    /// By run.
    spans: Vec<Option<Span>>,
    is_critical: Vec<bool>,
    left_out: usize,
    makespan_us: f64,
    lane: f64,
    gutter: f64,
}

impl<'a> Panel<'a> {
    fn new(schedule: &'a Schedule, spans: &[Span], title: Option<String>) -> Self {
        let policy = schedule.policy();
        let own = || schedule.shape().name().map_or_else(|| policy.to_owned(), |name| format!("{name} · {policy}"));
        let (is_inner, title) = (title.is_some(), title.unwrap_or_else(own));
        let runs = Runs::new(schedule);
        let known = schedule.shown(spans).map(|span| (Run { node: span.node, stream: span.stream }, *span));
        let of: HashMap<Run, Span> = known.collect();
        let left_out = spans.len() - schedule.shown(spans).count();
        let spans: Vec<Option<Span>> = runs.all.iter().map(|run| of.get(run).copied()).collect();
        let is_critical = on_critical_path(&runs, &spans);
        let shown: Vec<Span> = spans.iter().copied().flatten().collect();
        let names = (0..schedule.streams()).map(|stream| schedule.stream_name(stream).chars().count());
        let gutter = names.max().unwrap_or(0) as f64 * CHAR + 26.0;
        let lane = lane_height(schedule.streams());
        Self {
            schedule,
            title,
            is_inner,
            runs,
            makespan_us: Span::makespan_us(&shown),
            spans,
            is_critical,
            left_out,
            lane,
            gutter,
        }
    }

    fn height(&self) -> f64 {
        HEADER + f64::from(self.schedule.streams()) * self.lane + AXIS
    }

    fn width_wanted(&self) -> f64 {
        let times_us = self.spans.iter().flatten().map(|span| span.end_us - span.start_us).collect();
        let names = self.schedule.shape().nodes().iter().map(|node| node.name.chars().count()).collect();
        width_wanted(times_us, names, self.makespan_us)
    }

    fn draw(&self, scale: &Scale, top: f64, out: &mut String) {
        self.draw_header(scale, top, out);
        let lanes_top = top + HEADER;
        self.draw_lanes(scale, lanes_top, out);
        scale.draw_axis(lanes_top, lanes_top + f64::from(self.schedule.streams()) * self.lane, out);
        self.draw_waits(scale, lanes_top, out);
        for run in 0..self.runs.all.len() {
            self.draw_box(run, scale, lanes_top, out);
        }
    }

    fn draw_header(&self, scale: &Scale, top: f64, out: &mut String) {
        let schedule = self.schedule;
        let remark = schedule.remark().map(|remark| format!(" ({remark})")).unwrap_or_default();
        let shown: Vec<Span> = self.spans.iter().copied().flatten().collect();
        let used = 100.0 * schedule.utilisation(&shown);
        let is_bounded = shown.iter().any(|span| self.is_bounded(span));
        let mut took_us: HashMap<NodeId, f64> = HashMap::new();
        shown.iter().for_each(|span| {
            let took = took_us.entry(span.node).or_default();
            *took = took.max(span.end_us - span.start_us);
        });
        let critical_us = schedule.dearest_path_us(|node| took_us.get(&node).copied().unwrap_or(0.0));
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"{:.0}\" font-size=\"15\" font-weight=\"bold\">{}{}</text>\n\
             <text x=\"16\" y=\"{:.0}\" fill=\"#60707c\">{}, {}, {} · takes {}, critical path {} · {used:.0} % busy{}</text>",
            top + 24.0,
            escaped(&self.title),
            escaped(&remark),
            top + 42.0,
            count(schedule.order().len(), "node"),
            schedule.streams_text(),
            count(schedule.waits(), "wait"),
            at_least(is_bounded, self.makespan_us),
            at_least(is_bounded, critical_us),
            if self.left_out > 0 { format!(" · {} left out", count(self.left_out, "span")) } else { String::new() },
        );
        if !self.is_inner {
            draw_key(scale.left + scale.width, top, out);
        }
    }

    fn draw_lanes(&self, scale: &Scale, top: f64, out: &mut String) {
        let step = (11.0 / self.lane).ceil() as u32;
        for stream in 0..self.schedule.streams() {
            let y = top + f64::from(stream) * self.lane;
            let color = match (self.schedule.kind(stream), stream % 2) {
                (StreamKind::Host, 0) => "#fbf8f1",
                (StreamKind::Host, _) => "#f7f2e6",
                (StreamKind::Device(_), 0) => "#f5f7f9",
                (StreamKind::Device(_), _) => "#edf1f4",
            };
            let name = (stream % step == 0).then(|| self.schedule.stream_name(stream));
            scale.draw_lane(y, self.lane, color, name.as_deref(), out);
        }
    }

    fn draw_waits(&self, scale: &Scale, top: f64, out: &mut String) {
        for target in 0..self.runs.all.len() {
            for source in self.runs.waits(target) {
                let (Some(from), Some(to)) = (self.spans[source], self.spans[target]) else { continue };
                // From the edge of one box to that of the other, so that both ends are seen wherever other
                // boxes lie between.
                let down = if to.stream > from.stream { 1.0 } else { -1.0 };
                let edge = down * (self.lane / 2.0 - pad(self.lane));
                let [y1, y2] = [from.stream, to.stream].map(|stream| top + (f64::from(stream) + 0.5) * self.lane);
                let (x1, y1, x2, y2) = (scale.x(from.end_us) - 5.0, y1 + edge, scale.x(to.start_us) + 4.0, y2 - edge);
                let is_critical = self.is_critical[source] && self.is_critical[target];
                let (color, width, tip) = if is_critical { (RED, 1.6, "hot") } else { (GREY, 0.9, "tip") };
                let bend = down * ((y2 - y1).abs() / 2.0).clamp(self.lane * 0.4, 60.0);
                let _ = writeln!(
                    out,
                    "<path d=\"M{x1:.1} {y1:.1}C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"{color}\" \
                     stroke-width=\"{width}\" stroke-opacity=\"0.75\" marker-end=\"url(#{tip})\"/>",
                    y1 + bend,
                    y2 - bend,
                );
            }
        }
    }

    /// Returns true for the span of a loop or a branch that may take longer, see [`Schedule::spans`].
    fn is_bounded(&self, span: &Span) -> bool {
        let is_control = self.schedule.shape().nodes()[span.node.index()].control.is_some();
        // The difference of two such large numbers is not exact.
        is_control && span.end_us - span.start_us >= COST_US_MAX * (1.0 - 1e-9)
    }

    fn draw_box(&self, run: usize, scale: &Scale, top: f64, out: &mut String) {
        let Some(span) = self.spans[run] else { return };
        let node = &self.schedule.shape().nodes()[span.node.index()];
        let pad = pad(self.lane);
        let (x, y) = (scale.x(span.start_us), top + f64::from(span.stream) * self.lane + pad);
        let (width, height) = ((scale.x(span.end_us) - x - 1.0).max(1.5), self.lane - 2.0 * pad);
        let rim = if self.is_critical[run] { "#c2351f\" stroke-width=\"2" } else { "#00000033\" stroke-width=\"0.8" };
        let _ = write!(
            out,
            "<g><title>{} on {}: {} from {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"{:.1}\" fill=\"{}\" stroke=\"{rim}\"/>",
            escaped(&node.name),
            escaped(&self.schedule.stream_name(span.stream)),
            at_least(self.is_bounded(&span), span.end_us - span.start_us),
            time(span.start_us),
            (height / 5.0).min(4.0),
            fill(node.backend),
        );
        let name = match &node.control {
            None => node.name.to_string(),
            Some(control) => {
                draw_control(control, (x, y, width, height), out);
                format!("{} · {}", node.name, control.remark())
            }
        };
        draw_label(&name, "", (x, y, width, height), out);
        out.push_str("</g>\n");
    }
}

/// What the colours mean.
fn draw_key(right: f64, top: f64, out: &mut String) {
    let key = [("cpu", Backend::Cpu), ("mixed", Backend::Mixed), ("gpu", Backend::Gpu)];
    let key = key.map(|(name, backend)| (name, fill(backend).to_owned()));
    let critical = ("critical path", format!("none\" stroke=\"{RED}\" stroke-width=\"2"));
    for ((name, fill), x) in key.into_iter().chain([critical]).zip([-240.0, -192.0, -132.0, -86.0]) {
        draw_key_box(right + x, top + 15.0, &fill, name, out);
    }
}

/// A loop or a branch has a second rim, and a loop a line between two iterations, if there is room.
fn draw_control(control: &Control, (x, y, width, height): (f64, f64, f64, f64), out: &mut String) {
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
    let Control::Repeat { iterations, .. } = control else { return };
    let each = width / *iterations as f64;
    if each < 4.0 {
        return;
    }
    for iteration in 1..*iterations {
        let x = x + each * iteration as f64;
        let (from, to) = (y + height - 6.0, y + height - 2.0);
        let _ = write!(out, "<path d=\"M{x:.1} {from:.1}V{to:.1}\" stroke=\"#00000088\" stroke-width=\"0.8\"/>");
    }
}

fn at_least(is_bounded: bool, us: f64) -> String {
    format!("{}{}", if is_bounded { "≥ " } else { "" }, time(us))
}
