//! Application descriptions: their phases as given and as proposed, and their hyperepochs.

use std::fmt::Write;
use std::path::Path;

use anabranch::app::{App, Delivery, Epoch, EpochPlan, Hyperepoch, HyperepochLog, StmSchedule};
use anabranch::phases::{Beat, Bound, Load, Method};
use anabranch::plan::TimeUnit;
use serde::Serialize;

use crate::Failure;
use crate::args::{PipelineArgs, PipelineFormat};
use crate::files::{self, Looks};

/// The number of items that a trace shows.
const ITEMS: u64 = 8;

/// An epoch with its plans.
struct Planned<'a> {
    epoch: &'a Epoch,
    written: EpochPlan,
    proposed: Option<EpochPlan>,
}

/// A hyperepoch with its epochs.
struct Simulated<'a> {
    hyperepoch: &'a Hyperepoch,
    log: HyperepochLog,
    epochs: Vec<Planned<'a>>,
}

/// Returns the unit of all times of a report, which suits the shortest period.
fn unit_of(hyperepochs: &[Simulated<'_>]) -> TimeUnit {
    let planned = hyperepochs.iter().flat_map(|hyperepoch| &hyperepoch.epochs);
    let plans = planned.flat_map(|planned| std::iter::once(&planned.written).chain(&planned.proposed));
    let periods = plans.map(|plan| plan.phasing.period_us()).filter(|&us| us > 0.0);
    let given = hyperepochs.iter().map(|simulated| simulated.log.period_us).fold(f64::INFINITY, f64::min);
    TimeUnit::of(periods.reduce(f64::min).unwrap_or(given))
}

pub(crate) fn text(args: &PipelineArgs, format: PipelineFormat) -> Result<String, Failure> {
    let invalid = |error: anabranch::Error| Failure::Invalid(error.to_string());
    let app = open(&args.file)?;
    let schedule = match &args.state {
        Some(name) if !app.states().iter().any(|state| state.name == **name) => {
            return Err(Failure::Usage(
                app.schedule(Some(name)).map(|_| String::new()).unwrap_or_else(|error| error.to_string()),
            ));
        }
        state => app.schedule(state.as_deref()).map_err(|error| no_description(&args.file, &error))?,
    };
    let mut hyperepochs = Vec::new();
    for hyperepoch in &schedule.hyperepochs {
        let is_asked = |epoch: &&Epoch| args.epoch.as_ref().is_none_or(|name| epoch.name == **name);
        let mut epochs = Vec::new();
        for epoch in hyperepoch.epochs.iter().filter(is_asked) {
            let written = app.written(epoch).map_err(invalid)?;
            let proposed = args.auto.map(|depth| app.auto(epoch, depth)).transpose().map_err(invalid)?;
            epochs.push(Planned { epoch, written, proposed });
        }
        hyperepochs.push(Simulated { hyperepoch, log: hyperepoch.simulate().map_err(invalid)?, epochs });
    }
    if let Some(name) = args.epoch.as_ref().filter(|_| hyperepochs.iter().all(|hyperepoch| hyperepoch.epochs.is_empty())) {
        return Err(Failure::Usage(format!(
            "{}: there is no epoch '{name}'; there are {}",
            args.file.display(),
            epochs(schedule)
        )));
    }
    match format {
        PipelineFormat::Text => Ok(report(&app, schedule, &hyperepochs)),
        PipelineFormat::Json => Ok(json(&app, schedule, &hyperepochs)),
        PipelineFormat::Svg => {
            let planned = one(args, schedule, &hyperepochs)?;
            Ok(planned.proposed.as_ref().unwrap_or(&planned.written).phasing.to_svg())
        }
        PipelineFormat::Perfetto => {
            let planned = one(args, schedule, &hyperepochs)?;
            let plan = planned.proposed.as_ref().unwrap_or(&planned.written);
            Ok(plan.to_perfetto(planned.epoch, ITEMS, Beat::default()).map_err(invalid)? + "\n")
        }
    }
}

/// Reads a description. A file that cannot be read is a fault of the call, not of the file.
fn open(file: &Path) -> Result<App, Failure> {
    let cannot = |error: std::io::Error| Failure::Usage(format!("{}: cannot read: {error}", file.display()));
    if file.as_os_str() == "-" {
        let why = "an application description has other files beside it: name its file, not the standard input";
        return Err(Failure::Usage(why.into()));
    }
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(cannot(std::io::Error::other("it is a directory: name the description in it")));
        }
        Ok(metadata) if !metadata.is_file() => return Err(cannot(std::io::Error::other("it is not a regular file"))),
        known => known.and_then(|_| std::fs::File::open(file)).map_err(cannot)?,
    };
    App::open(file).map_err(|error| no_description(file, &error))
}

/// The largest file that is read again to guess its format, in bytes.
const READ_AGAIN_MAX: u64 = 16 << 20;

/// Returns the reason why a file is no description, and its likely format.
fn no_description(file: &Path, error: &anabranch::Error) -> Failure {
    let is_small = std::fs::metadata(file).is_ok_and(|metadata| metadata.len() <= READ_AGAIN_MAX);
    let looks = if is_small { files::text(file).ok().and_then(|text| Looks::of(&text)) } else { None };
    let hint = if looks == Some(Looks::Graph) { "; this looks like a graph, which `anabranch plan` reads" } else { "" };
    Failure::Invalid(format!("{error}{hint}"))
}

fn epochs(schedule: &StmSchedule) -> String {
    let epochs = schedule.hyperepochs.iter().flat_map(|hyperepoch| &hyperepoch.epochs);
    epochs.map(|epoch| format!("'{}'", epoch.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the only epoch, for a picture.
fn one<'a>(args: &PipelineArgs, schedule: &StmSchedule, hyperepochs: &'a [Simulated<'a>]) -> Result<&'a Planned<'a>, Failure> {
    let mut all = hyperepochs.iter().flat_map(|hyperepoch| &hyperepoch.epochs);
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Failure::Usage(format!(
            "{}: a picture or a trace shows one epoch: choose one of {} by --epoch",
            args.file.display(),
            epochs(schedule)
        ))),
    }
}

fn report(app: &App, schedule: &StmSchedule, hyperepochs: &[Simulated<'_>]) -> String {
    let unit = unit_of(hyperepochs);
    let mut out = format!("application {}, schedule {}\n", app.name(), schedule.name);
    out.push_str("phases are counted with one item at a time; in a Pipeline, those without a state handle several\n");
    for Simulated { hyperepoch, log, epochs } in hyperepochs {
        for planned in epochs {
            let Planned { epoch, written, proposed } = planned;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "\nepoch {}: {} frame{} of {}, as written",
                epoch.name,
                epoch.frames,
                s(epoch.frames),
                unit.text(epoch.period_ns as f64 / 1e3)
            );
            write_plan(&mut out, app, written, unit);
            if let Some(proposed) = proposed {
                let _ = writeln!(out, "\nepoch {}: proposed", epoch.name);
                write_plan(&mut out, app, proposed, unit);
                let rows = serde_json::to_string(&rows(app, epoch, proposed)).expect("rows are strings");
                let _ = writeln!(out, "{:<13}\"passes\": {rows}", "to write");
                for (connection, capacity) in proposed.too_small(app) {
                    let _ = writeln!(out, "{:<13}\"fifo-size\": {capacity} for {}", "", connection_name(app, connection));
                }
            }
        }
        write_log(&mut out, hyperepoch, log, unit);
    }
    if !app.warnings().is_empty() {
        out.push('\n');
    }
    app.warnings().iter().for_each(|warning| _ = writeln!(out, "warning: {warning}"));
    out
}

fn write_plan(out: &mut String, app: &App, plan: &EpochPlan, unit: TimeUnit) {
    let _ = write!(out, "{}", plan.phasing.in_unit(unit));
    let is_sized = |&(connection, _): &(u32, u32)| {
        let source = app.connections()[connection as usize].source;
        app.components()[source.component.index()].outputs[source.port as usize].bytes.is_some()
    };
    let unsized_count = plan.capacities.iter().filter(|capacity| !is_sized(capacity)).count();
    let messages = plan.messages_in_flight();
    let of_no_size = match unsized_count {
        0 => String::new(),
        1 => "; 1 connection has no size of its messages".into(),
        count => format!("; {count} connections have no size of their messages"),
    };
    let _ = writeln!(out, "{:<13}at most {messages} in the connections{of_no_size}", "messages");
    let own = plan.phasing.warnings();
    let others = plan.warnings.iter().map(ToString::to_string).filter(|text| !own.iter().any(|own| text.ends_with(own.as_str())));
    others.for_each(|text| _ = writeln!(out, "{:<13}{text}", "warning"));
}

fn write_log(out: &mut String, hyperepoch: &Hyperepoch, log: &HyperepochLog, unit: TimeUnit) {
    let fits = if log.fits() { "fits" } else { "does not fit" };
    let _ = writeln!(
        out,
        "\nhyperepoch {}: {} runnables in {}, which {fits} in {}; critical path {}",
        hyperepoch.name,
        log.spans.len(),
        unit.text(log.length_us),
        unit.text(log.period_us),
        unit.text(log.critical_path_us)
    );
    let width = log.engines.iter().map(|engine| engine.name.chars().count()).max().unwrap_or(0).max(8);
    let [busy, bound] = ["busy", "bound"].map(|what| format!("{what} {unit}"));
    let _ = writeln!(out, "{:<width$} {:>5} {busy:>14} {:>9} {bound:>14}", "resource", "lanes", "average %");
    for engine in &log.engines {
        let average = 100.0 * engine.share;
        let _ = writeln!(
            out,
            "{:<width$} {:>5} {:>14.3} {:>9.1} {:>14.3}",
            &*engine.name,
            engine.lanes,
            engine.busy_us / unit.us(),
            average,
            engine.bound_us / unit.us()
        );
    }
}

fn s(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn rows(app: &App, epoch: &Epoch, plan: &EpochPlan) -> Vec<Vec<String>> {
    let rows = plan.rows(app, epoch);
    rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
}

fn connection_name(app: &App, connection: u32) -> String {
    let connection = &app.connections()[connection as usize];
    let [source, target] = [connection.source, connection.target].map(|end| &app.components()[end.component.index()]);
    let index = |index: Option<u32>| index.map(|index| format!("[{index}]")).unwrap_or_default();
    format!(
        "{}.{}{} -> {}.{}{}",
        source.name,
        source.outputs[connection.source.port as usize].name,
        index(connection.source.index),
        target.name,
        target.inputs[connection.target.port as usize].name,
        index(connection.target.index)
    )
}

#[derive(Serialize)]
struct ReportForm<'a> {
    application: &'a str,
    schedule: &'a str,
    hyperepochs: Vec<HyperepochForm<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct HyperepochForm<'a> {
    name: &'a str,
    period_us: f64,
    runnables: usize,
    length_us: f64,
    critical_path_us: f64,
    fits: bool,
    resources: Vec<ResourceForm<'a>>,
    epochs: Vec<EpochForm<'a>>,
}

#[derive(Serialize)]
struct ResourceForm<'a> {
    name: &'a str,
    lanes: u32,
    busy_us: f64,
    average: f64,
    bound_us: f64,
}

#[derive(Serialize)]
struct EpochForm<'a> {
    name: &'a str,
    period_us: f64,
    frames: u32,
    written: PlanForm<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed: Option<PlanForm<'a>>,
    connections: Vec<LinkForm>,
}

#[derive(Serialize)]
struct PlanForm<'a> {
    phases: u32,
    passes: Vec<Vec<String>>,
    period_us: f64,
    latency_us: f64,
    loads: Vec<LoadForm>,
    bound: String,
    method: &'static str,
    exact: bool,
    bytes_in_flight: u64,
    messages_in_flight: u64,
    fifo_sizes: Vec<FifoForm>,
    nodes: Vec<NodeForm<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct LoadForm {
    name: String,
    capacity: u32,
    busy_us: f64,
    share: f64,
}

#[derive(Serialize)]
struct FifoForm {
    connection: String,
    needed: u32,
}

/// A node in the periodic schedule.
#[derive(Serialize)]
struct NodeForm<'a> {
    name: &'a str,
    phase: u32,
    resource: &'a str,
    lane: u32,
    start_us: f64,
    end_us: f64,
}

#[derive(Serialize)]
struct LinkForm {
    connection: String,
    delivery: &'static str,
    offset: Option<i32>,
    stamped: bool,
    capacity: u32,
}

fn json(app: &App, schedule: &StmSchedule, hyperepochs: &[Simulated<'_>]) -> String {
    let form = ReportForm {
        application: app.name(),
        schedule: &schedule.name,
        hyperepochs: hyperepochs.iter().map(|simulated| hyperepoch_form(app, simulated)).collect(),
        warnings: app.warnings().iter().map(ToString::to_string).collect(),
    };
    serde_json::to_string_pretty(&form).expect("the form has string keys only") + "\n"
}

fn hyperepoch_form<'a>(app: &App, simulated: &'a Simulated<'_>) -> HyperepochForm<'a> {
    let Simulated { hyperepoch, log, epochs } = simulated;
    let resources = log.engines.iter().map(|engine| ResourceForm {
        name: &engine.name,
        lanes: engine.lanes,
        busy_us: engine.busy_us,
        average: engine.share,
        bound_us: engine.bound_us,
    });
    let epochs = epochs.iter().map(|Planned { epoch, written, proposed }| EpochForm {
        name: &epoch.name,
        period_us: epoch.period_ns as f64 / 1e3,
        frames: epoch.frames,
        written: plan_form(app, epoch, written),
        proposed: proposed.as_ref().map(|proposed| plan_form(app, epoch, proposed)),
        connections: epoch.links.iter().map(|link| link_form(app, link)).collect(),
    });
    HyperepochForm {
        name: &hyperepoch.name,
        period_us: log.period_us,
        runnables: log.spans.len(),
        length_us: log.length_us,
        critical_path_us: log.critical_path_us,
        fits: log.fits(),
        resources: resources.collect(),
        epochs: epochs.collect(),
    }
}

fn link_form(app: &App, link: &anabranch::app::Link) -> LinkForm {
    let delivery = match link.delivery {
        Delivery::Within => "within",
        Delivery::ByItem => "by item",
        Delivery::Feedback => "feedback",
        Delivery::Inverted => "inverted",
        Delivery::AcrossEpochs => "across epochs",
        _ => "other",
    };
    let connection = connection_name(app, link.connection);
    LinkForm { connection, delivery, offset: link.offset, stamped: link.is_stamped, capacity: link.capacity }
}

fn plan_form<'a>(app: &App, epoch: &'a Epoch, plan: &EpochPlan) -> PlanForm<'a> {
    let phasing = &plan.phasing;
    let load =
        |load: Load| LoadForm { name: load.name.to_string(), capacity: load.capacity, busy_us: load.busy_us, share: load.share };
    let nodes = phasing.iteration().iter().map(|span| {
        let runnable = &epoch.runnables[span.node.index()];
        NodeForm {
            name: &runnable.name,
            phase: phasing.phase_of(span.node),
            resource: &epoch.engines()[runnable.engine.index()].name,
            lane: span.lane,
            start_us: span.start_us,
            end_us: span.end_us,
        }
    });
    PlanForm {
        phases: phasing.depth(),
        passes: rows(app, epoch, plan),
        period_us: phasing.period_us(),
        latency_us: phasing.latency_us(),
        loads: phasing.loads().map(load).collect(),
        bound: match phasing.bound() {
            Bound::Resource(name) => format!("resource {name}"),
            Bound::CriticalPath(phase) => format!("critical path of phase {phase}"),
            Bound::Nothing => "nothing".into(),
            _ => "order".into(),
        },
        method: match phasing.method() {
            Method::Given => "given",
            Method::Exact => "exact",
            Method::Heuristic(name) => name,
            _ => "other",
        },
        exact: phasing.is_exact(),
        bytes_in_flight: phasing.bytes_in_flight(),
        messages_in_flight: plan.messages_in_flight(),
        fifo_sizes: plan
            .too_small(app)
            .into_iter()
            .map(|(connection, needed)| FifoForm { connection: connection_name(app, connection), needed })
            .collect(),
        nodes: nodes.collect(),
        warnings: plan.warnings.iter().map(ToString::to_string).collect(),
    }
}
