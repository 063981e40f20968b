//! A phasing as text: the phases with their nodes, then what follows from them.

use std::fmt;

use super::phasing::{Bound, Method, Phasing};
use crate::graph::NodeId;
use crate::plan::TimeUnit;
use crate::plan::text::{bytes_text, printable};

/// Rows are wrapped before this column.
const WIDTH: usize = 110;
/// The column where the rows begin.
const MARGIN: usize = 13;

/// With all times in the unit that fits the period.
impl fmt::Display for Phasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_unit(TimeUnit::of(self.period_us())).fmt(f)
    }
}

impl Phasing {
    /// Returns the same table with all times in this unit: for reports of several phasings.
    pub fn in_unit(&self, unit: TimeUnit) -> impl fmt::Display {
        Table { phasing: self, unit }
    }
}

struct Table<'a> {
    phasing: &'a Phasing,
    unit: TimeUnit,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phasing, unit } = self;
        let depth = phasing.depth();
        writeln!(
            f,
            "{depth} phase{}, {} node{}: period {}, latency {}",
            if depth == 1 { "" } else { "s" },
            phasing.phases.len(),
            if phasing.phases.len() == 1 { "" } else { "s" },
            unit.text(phasing.period_us()),
            unit.text(phasing.latency_us()),
        )?;
        let mut by_phase: Vec<Vec<usize>> = vec![Vec::new(); depth as usize + 1];
        phasing.checked.order.iter().for_each(|&node| by_phase[phasing.phases[node] as usize].push(node));
        for (phase, nodes) in by_phase.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
            let title = if phase == 0 { "unpipelined".into() } else { format!("phase {phase}") };
            row(f, &title, nodes.iter().map(|&node| phasing.node_text(node, *unit)))?;
        }
        let load = |load: super::Load| {
            let lanes = if load.capacity == 1 { String::new() } else { format!(" × {}", load.capacity) };
            format!("{}{lanes} {:.0} % ({})", printable(&load.name), 100.0 * load.share, unit.text(load.busy_us))
        };
        row(f, "load", phasing.loads().map(load))?;
        row(f, "bound", [phasing.bound_text()].into_iter())?;
        row(f, "method", [phasing.method_text()].into_iter())?;
        row(f, "in flight", [bytes_text(phasing.bytes_in_flight())].into_iter())?;
        phasing.warnings().iter().try_for_each(|warning| row(f, "warning", [printable(warning)].into_iter()))
    }
}

impl Phasing {
    fn node_text(&self, node: usize, unit: TimeUnit) -> String {
        let name = self.name_of(NodeId(node as u32)).map(|name| printable(name));
        format!("{} {}", name.unwrap_or_default(), unit.text(super::phasing::us(self.checked.nodes[node].cost)))
    }

    fn bound_text(&self) -> String {
        match self.bound() {
            Bound::Resource(name) => format!("resource {} is always busy", printable(&name)),
            Bound::CriticalPath(0) => "the longest path, through unpipelined nodes".into(),
            Bound::CriticalPath(phase) => format!("the longest path of phase {phase}"),
            Bound::Order => "edges and resources together".into(),
            Bound::Nothing => "nothing: no node takes time".into(),
        }
    }

    /// Returns how phases and schedule were found.
    pub(super) fn method_text(&self) -> String {
        let phases = match self.method() {
            Method::Given => "phases given".into(),
            Method::Exact => "phases by exact search".into(),
            Method::Heuristic(name) => format!("phases by heuristic ({name})"),
        };
        format!("{phases}, schedule {}", if self.is_exact() { "exact" } else { "by list scheduling" })
    }
}

fn row(f: &mut fmt::Formatter<'_>, title: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    write!(f, "{title:MARGIN$}")?;
    let mut column = MARGIN;
    for item in items {
        let width = item.chars().count();
        if column > MARGIN && column + " · ".len() + width > WIDTH {
            write!(f, "\n{:MARGIN$}", "")?;
            column = MARGIN;
        }
        write!(f, "{}{item}", if column > MARGIN { " · " } else { "" })?;
        column += width + if column > MARGIN { 3 } else { 0 };
    }
    writeln!(f)
}
