//! The picture of a phasing: two schedule iterations, lanes on the left, bars in the colour of their phase.
//! The label of a bar is its node and its item; the bars of one item have a dark rim, so that the item can be
//! followed.

use super::phasing::{PhaseSpan, Phasing};
use crate::draw::{Axis, Bar, Mark, Panel, Picture, Rim, Row, counted, time};

/// Periods in the picture.
const PERIODS: u32 = 2;
/// The most resources whose loads are named.
const LOADS_MAX: usize = 8;

impl Phasing {
    /// Draws two periods as an SVG: a row for each resource that has work, a bar for each node, in the colour
    /// of its phase. In the first one, phase 1 works on item k, phase 2 on item k - 1, and so on. The bars of
    /// item k have a dark rim.
    pub fn to_svg(&self) -> String {
        let rows = self.rows();
        let periods = (0..PERIODS).flat_map(|period| self.iteration().iter().map(move |span| (period, span)));
        let depth = self.depth();
        let (period, latency) = (time(self.period_us()), time(self.latency_us()));
        let title = format!("{}: period {period}, latency {latency}", counted(depth as usize, "phase"));
        let panel = Panel {
            counts: self.counts(),
            rows: rows.iter().map(|&row| Row { name: self.row_name(row), is_host: false }).collect(),
            bars: periods.map(|(period, span)| self.bar(span, period, &rows)).collect(),
            marks: (0..=PERIODS).map(|period| self.mark(period)).collect(),
            until: (f64::from(PERIODS) * self.period_us()).max(f64::MIN_POSITIVE),
            axis: Axis::Time,
            ..Panel::default()
        };
        let mut phases = self.phases.clone();
        phases.sort_unstable();
        phases.dedup();
        let colored_by = phases.into_iter().map(phase_name).collect();
        Picture { title, note: String::new(), colored_by, panels: vec![panel] }.draw()
    }

    /// Returns the lanes that have work, in the order of the resources.
    fn rows(&self) -> Vec<(super::Resource, u32)> {
        let mut rows: Vec<_> = self.iteration().iter().map(|span| (span.resource, span.lane)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn row_name(&self, (resource, lane): (super::Resource, u32)) -> String {
        let (name, capacity) = &self.checked.resources[resource.index()];
        if *capacity == 1 { name.to_string() } else { format!("{name} {lane}") }
    }

    /// Returns how far the item of a bar is from item k: a bar of phase 2 in the first period has item k - 1.
    fn item(&self, span: &PhaseSpan, period: u32) -> i64 {
        i64::from(period) - i64::from(self.phase_of(span.node).saturating_sub(1))
    }

    fn counts(&self) -> String {
        let loads = self.loads().map(|load| format!("{} {:.0} %", load.name, 100.0 * load.share));
        let mut loads: Vec<String> = loads.take(LOADS_MAX).collect();
        if self.loads().count() > loads.len() {
            loads.push("…".into());
        }
        format!("{} · {} · {}", counted(self.phases.len(), "node"), loads.join(", "), self.method_text())
    }

    fn mark(&self, period: u32) -> Mark {
        let item = item_text(i64::from(period));
        let text = if period < PERIODS { format!("phase 1 on item {item}") } else { String::new() };
        Mark { at: f64::from(period) * self.period_us(), text }
    }

    fn bar(&self, span: &PhaseSpan, period: u32, rows: &[(super::Resource, u32)]) -> Bar {
        let begin_us = f64::from(period) * self.period_us();
        let (item, phase) = (self.item(span, period), self.phase_of(span.node));
        let row = rows.binary_search(&(span.resource, span.lane)).unwrap_or(0);
        let name = self.name_of(span.node).map_or("", |name| name);
        Bar {
            item: item_text(item),
            colored_by: phase_name(phase),
            // Those of an item are shown together; none has the number 0.
            group: (item + i64::from(u32::MAX)) as u64,
            rim: if item == 0 { Rim::Followed } else { Rim::None },
            told: phase_name(phase),
            ..Bar::new(row, name, begin_us + span.start_us, begin_us + span.end_us)
        }
    }
}

fn phase_name(phase: u32) -> String {
    match phase {
        0 => "unpipelined".to_owned(),
        phase => format!("phase {phase}"),
    }
}

fn item_text(item: i64) -> String {
    match item {
        0 => "k".into(),
        item if item > 0 => format!("k+{item}"),
        item => format!("k{item}"),
    }
}
