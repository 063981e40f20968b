//! A schedule as text: one row for each stream, wrapped at a fixed width. Releases are left out: they follow
//! from the rest.

use std::fmt;

use super::{Point, Schedule, Step, StreamKind};
use crate::draw::counted;

/// Rows are wrapped before this column.
const WIDTH: usize = 110;
/// The label of the nodes that communicate.
const STARTS: &str = "exchange";

/// Prints a header, then the program of each stream as a row. A graph that communicates with other ranks has
/// a row with its exchanges, in the order in which they start. Each inner graph follows in the same form, by
/// its path.
///
/// A point prints as `stream@record`. O(steps).
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {}{}: ", self.policy(), self.remark().map(|remark| format!(" ({remark})")).unwrap_or_default())?;
        table(self, f)?;
        for (number, inner) in self.inner().iter().enumerate() {
            write!(f, "\n{}: ", printable(&self.inner_path(number)))?;
            table(inner.schedule(), f)?;
        }
        Ok(())
    }
}

impl Schedule {
    /// Returns the numbers of streams: the policy's, and the host's if there are any.
    pub(super) fn streams_text(&self) -> String {
        let host = (0..self.streams()).filter(|&stream| self.kind(stream) == StreamKind::Host).count();
        match self.streams() as usize - host {
            0 if host > 0 => counted(host, "host stream"),
            device if host > 0 => format!("{} and {}", counted(device, "stream"), counted(host, "host stream")),
            device => counted(device, "stream"),
        }
    }
}

/// Prints the end of the header, and the rows.
fn table(schedule: &Schedule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (nodes, streams) = (counted(schedule.order().len(), "node"), schedule.streams_text());
    let (records, waits) = (counted(schedule.records(), "record"), counted(schedule.waits(), "wait"));
    writeln!(f, "{nodes}, {streams}, {records}, {waits}")?;
    let names: Vec<String> = (0..schedule.streams()).map(|stream| schedule.stream_name(stream)).collect();
    let label_width =
        names.iter().map(String::len).max().unwrap_or(0).max(if schedule.shape().starts().is_empty() { 0 } else { STARTS.len() });
    for (stream, name) in (0..).zip(&names) {
        let texts = schedule.steps(stream).iter().filter_map(|step| step_text(schedule, *step));
        row(name, label_width, texts, f)?;
    }
    if schedule.shape().starts().is_empty() { Ok(()) } else { row(STARTS, label_width, starts(schedule), f) }
}

/// Returns the nodes that communicate, in the order in which they start.
fn starts(schedule: &Schedule) -> impl Iterator<Item = String> {
    schedule.shape().starts().iter().map(|&node| {
        let shape = &schedule.shape().nodes()[node.index()];
        let name = printable(&shape.name);
        shape.communication.as_ref().map_or_else(|| format!("{name}: inside"), |communication| format!("{name}: {communication}"))
    })
}

/// Prints texts with a label before them, wrapped.
fn row(label: &str, label_width: usize, texts: impl Iterator<Item = String>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{label:label_width$}")?;
    let margin = label_width + 3;
    let (mut column, mut gap) = (margin, "   ");
    for text in texts {
        let width = text.chars().count();
        if column > margin && column + " · ".len() + width > WIDTH {
            write!(f, "\n{:margin$}{text}", "")?;
            column = margin + width;
        } else {
            write!(f, "{gap}{text}")?;
            column += width + if column > margin { 3 } else { 0 };
        }
        gap = " · ";
    }
    writeln!(f)
}

fn step_text(schedule: &Schedule, step: Step) -> Option<String> {
    match step {
        Step::Wait(point) => Some(format!("wait {}", point_text(schedule, point))),
        Step::Run(node) => Some(format!("run {}", printable(schedule.shape().name_of(node)))),
        Step::Record(point) => Some(format!("record {}", point_text(schedule, point))),
        Step::Release(_) => None,
    }
}

fn point_text(schedule: &Schedule, point: Point) -> String {
    let label = schedule.label(point.stream);
    match schedule.kind(point.stream) {
        StreamKind::Device(_) => format!("{label}@{}", point.seq),
        StreamKind::Host => format!("host {label}@{}", point.seq),
    }
}

/// Returns a name on one line: control characters become spaces.
fn printable(name: &str) -> String {
    name.replace(char::is_control, " ")
}
