//! All policies on one graph.

use std::fmt::Write;

use anabranch::graph::Shape;
use anabranch::plan::{Schedule, Span, StreamKind};
use clap::ValueEnum;
use serde::Serialize;

use crate::Failure;
use crate::args::{CompareFormat, MachineArgs, PolicyName};
use crate::commands::simulation;

#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<&'a str>,
    streams: usize,
    waits: usize,
    makespan_us: f64,
    critical_path_us: f64,
    /// The fraction of the time during which its streams were busy.
    utilisation: f64,
}

pub(crate) fn text(
    shape: &Shape,
    max_streams: Option<u32>,
    machine: &MachineArgs,
    format: CompareFormat,
) -> Result<String, Failure> {
    let (mut simulated, mut refused): (Vec<(Schedule, Vec<Span>)>, Vec<String>) = (Vec::new(), Vec::new());
    for name in PolicyName::value_variants() {
        match shape.schedule_with(&*name.policy(max_streams, Some(machine.hand_off_us))) {
            Ok(schedule) => {
                let log = simulation(&schedule, machine).run().map_err(|error| Failure::Usage(error.to_string()))?;
                simulated.push((schedule, log.spans()));
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    let rows: Vec<Row<'_>> = simulated.iter().map(|(schedule, spans)| row(schedule, spans)).collect();
    Ok(match format {
        CompareFormat::Text => table(&rows) + &refused.iter().map(|error| format!("{error}\n")).collect::<String>(),
        CompareFormat::Json => serde_json::to_string_pretty(&rows).expect("rows have string keys only") + "\n",
        CompareFormat::Svg => {
            let panels: Vec<(&Schedule, &[Span])> = simulated.iter().map(|(schedule, spans)| (schedule, &spans[..])).collect();
            Schedule::all_to_svg(&panels)
        }
    })
}

fn row<'a>(schedule: &'a Schedule, spans: &[Span]) -> Row<'a> {
    let is_device = |stream: &u32| schedule.kind(*stream) != StreamKind::Host;
    Row {
        policy: schedule.policy(),
        remark: schedule.remark(),
        streams: (0..schedule.streams()).filter(is_device).count(),
        waits: schedule.waits(),
        makespan_us: Span::makespan_us(spans),
        critical_path_us: schedule.critical_path_us(),
        utilisation: schedule.utilisation(spans),
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let mut out = String::new();
    let head = ["policy", "streams", "waits", "makespan us", "critical path us", "busy %"];
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:<14} {:>8} {:>8} {:>14} {:>17} {:>7}", head[0], head[1], head[2], head[3], head[4], head[5]);
    for row in rows {
        let busy = 100.0 * row.utilisation;
        let _ = writeln!(
            out,
            "{:<14} {:>8} {:>8} {:>14.1} {:>17.1} {:>7.0}{}",
            row.policy,
            row.streams,
            row.waits,
            row.makespan_us,
            row.critical_path_us,
            busy,
            row.remark.map(|remark| format!("  {remark}")).unwrap_or_default()
        );
    }
    out
}
