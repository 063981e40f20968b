//! Plans that are read from JSON, and simulations that are written as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use anabranch::graph::{NodeId, Shape};
use anabranch::plan::{Point, Schedule, Step, StreamKind};
use anabranch::sim::SimLog;
use serde::{Deserialize, Serialize};

/// The parts of a plan that are read: its streams and programs. The rest follows from them.
#[derive(Deserialize)]
pub(crate) struct PlanForm {
    streams: Vec<StreamForm>,
    programs: Vec<ProgramForm>,
    #[serde(default)]
    inner: Vec<InnerForm>,
}

/// The same parts of an inner graph.
#[derive(Deserialize)]
struct InnerForm {
    path: String,
    streams: Vec<StreamForm>,
    programs: Vec<ProgramForm>,
}

#[derive(Deserialize)]
struct StreamForm {
    id: u32,
    device: DeviceForm,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a device's ordinal or \"host\"")]
enum DeviceForm {
    Ordinal(u32),
    Host(HostForm),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum HostForm {
    Host,
}

#[derive(Deserialize)]
struct ProgramForm {
    stream: u32,
    steps: Vec<StepForm>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum StepForm {
    Run(String),
    Record(u32),
    Wait { stream: u32, point: u32 },
}

/// Programs, by the number of their stream.
type Programs = Vec<(StreamKind, Vec<Step>)>;

impl PlanForm {
    /// Returns the programs of the outermost graph, and of each inner one. `schedule` is any schedule of the
    /// graph: it names the inner graphs.
    pub(crate) fn programs(self, schedule: &Schedule) -> Result<Vec<(Arc<Shape>, Programs)>, String> {
        let Self { streams, programs, mut inner } = self;
        let mut all = vec![(schedule.shape().clone(), TableForm { streams, programs }.programs(schedule.shape())?)];
        for (number, graph) in schedule.inner().iter().enumerate() {
            let path = schedule.inner_path(number);
            let place = inner.iter().position(|form| form.path == path);
            let InnerForm { streams, programs, .. } =
                inner.swap_remove(place.ok_or_else(|| format!("inner: there is no '{path}'"))?);
            let shape = graph.schedule().shape();
            let programs = TableForm { streams, programs }.programs(shape).map_err(|fault| format!("inner '{path}': {fault}"))?;
            all.push((shape.clone(), programs));
        }
        match inner.first() {
            Some(form) => Err(format!("inner: the graph has no '{}'", form.path)),
            None => Ok(all),
        }
    }
}

/// Streams and programs of one graph.
struct TableForm {
    streams: Vec<StreamForm>,
    programs: Vec<ProgramForm>,
}

impl TableForm {
    fn programs(&self, shape: &Shape) -> Result<Programs, String> {
        let names: HashMap<&str, NodeId> = shape.ids().map(|node| (&*shape.nodes()[node.index()].name, node)).collect();
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut programs: Programs = Vec::new();
        for (index, stream) in self.streams.iter().enumerate() {
            let kind = match stream.device {
                DeviceForm::Ordinal(device) => StreamKind::Device(device),
                DeviceForm::Host(HostForm::Host) => StreamKind::Host,
            };
            if numbers.insert(stream.id, index as u32).is_some() {
                return Err(format!("streams[{index}].id: there is a stream {} already", stream.id));
            }
            programs.push((kind, Vec::new()));
        }
        let number = |id: u32, path: String| numbers.get(&id).copied().ok_or_else(|| format!("{path}: there is no stream {id}"));
        for (index, program) in self.programs.iter().enumerate() {
            let stream = number(program.stream, format!("programs[{index}].stream"))?;
            for (place, step) in program.steps.iter().enumerate() {
                let path = || format!("programs[{index}].steps[{place}]");
                programs[stream as usize].1.push(match step {
                    StepForm::Run(name) => {
                        let node = names.get(&**name).copied();
                        Step::Run(node.ok_or_else(|| format!("{}: the graph has no node '{name}'", path()))?)
                    }
                    StepForm::Record(seq) => Step::Record(Point::new(stream, *seq)),
                    StepForm::Wait { stream, point } => Step::Wait(Point::new(number(*stream, path())?, *point)),
                });
            }
        }
        Ok(programs)
    }
}

#[derive(Serialize)]
struct SimulationForm<'a> {
    policy: &'a str,
    seed: Option<u64>,
    makespan_us: f64,
    critical_path_us: f64,
    spans: Vec<SpanForm<'a>>,
    /// The choices among several possible nodes, for a replay.
    choices: Vec<u32>,
    /// None if the simulation did not look for races.
    races: Option<Vec<String>>,
}

#[derive(Serialize)]
struct SpanForm<'a> {
    node: &'a str,
    stream: u32,
    start_us: f64,
    end_us: f64,
}

/// Writes a simulation as JSON.
pub(crate) fn simulation(schedule: &Schedule, seed: Option<u64>, log: &SimLog) -> String {
    let span = |span: anabranch::plan::Span| SpanForm {
        node: &schedule.shape().nodes()[span.node.index()].name,
        stream: schedule.id(span.stream),
        start_us: span.start_us,
        end_us: span.end_us,
    };
    let form = SimulationForm {
        policy: schedule.policy(),
        seed,
        makespan_us: log.makespan_us(),
        critical_path_us: schedule.critical_path_us(),
        spans: log.spans().into_iter().map(span).collect(),
        choices: log.choices(),
        races: log.races().map(|races| races.iter().map(ToString::to_string).collect()),
    };
    serde_json::to_string_pretty(&form).expect("the form has string keys only") + "\n"
}
