//! A schedule as JSON, for tools. Releases are left out: they follow from the rest.

use serde::Serialize;

use super::{Schedule, Step, StreamKind};

#[derive(Serialize)]
struct ScheduleForm<'a> {
    policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<&'a str>,
    #[serde(flatten)]
    table: TableForm<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inner: Vec<InnerForm<'a>>,
}

/// An inner graph. Each comes after the graph around it.
#[derive(Serialize)]
struct InnerForm<'a> {
    path: String,
    #[serde(flatten)]
    table: TableForm<'a>,
}

#[derive(Serialize)]
struct TableForm<'a> {
    order: Vec<&'a str>,
    streams: Vec<StreamForm>,
    nodes: Vec<NodeForm<'a>>,
    programs: Vec<ProgramForm<'a>>,
    records: usize,
    waits: usize,
}

#[derive(Serialize)]
struct StreamForm {
    id: u32,
    device: DeviceForm,
}

#[derive(Serialize)]
#[serde(untagged)]
enum DeviceForm {
    Ordinal(u32),
    Host(&'static str),
}

#[derive(Serialize)]
struct NodeForm<'a> {
    name: &'a str,
    streams: Vec<u32>,
}

#[derive(Serialize)]
struct ProgramForm<'a> {
    stream: u32,
    steps: Vec<StepForm<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum StepForm<'a> {
    Run(&'a str),
    Record(u32),
    Wait { stream: u32, point: u32 },
}

impl Schedule {
    /// Writes the schedule as JSON: the order, the streams with their devices, the streams of each node, and
    /// the programs. Each inner graph follows in the same form, by its path.
    ///
    /// A stream is named by the policy's label. The labels of host streams, which the policy did not choose,
    /// come after the others. A node on a host stream has no streams in the JSON.
    pub fn to_json(&self) -> String {
        let inner = self.inner().iter().enumerate();
        let inner =
            inner.map(|(number, inner)| InnerForm { path: self.inner_path(number), table: inner.schedule().table_form() });
        let form =
            ScheduleForm { policy: self.policy(), remark: self.remark(), table: self.table_form(), inner: inner.collect() };
        serde_json::to_string_pretty(&form).expect("the form has string keys only")
    }

    fn table_form(&self) -> TableForm<'_> {
        let name = |node| &**self.shape().name_of(node);
        let streams = || 0..self.streams();
        let device = |stream| match self.kind(stream) {
            StreamKind::Device(ordinal) => DeviceForm::Ordinal(ordinal),
            StreamKind::Host => DeviceForm::Host("host"),
        };
        let device_streams = |node| {
            let streams = self.streams_of(node).filter(|&stream| self.kind(stream) != StreamKind::Host);
            streams.map(|stream| self.id(stream)).collect()
        };
        TableForm {
            order: self.order().iter().map(|&node| name(node)).collect(),
            streams: streams().map(|stream| StreamForm { id: self.id(stream), device: device(stream) }).collect(),
            nodes: self.shape().ids().map(|node| NodeForm { name: name(node), streams: device_streams(node) }).collect(),
            programs: streams().map(|stream| ProgramForm { stream: self.id(stream), steps: self.step_forms(stream) }).collect(),
            records: self.records(),
            waits: self.waits(),
        }
    }

    fn step_forms(&self, stream: u32) -> Vec<StepForm<'_>> {
        let steps = self.steps(stream).iter();
        let form = |step: &Step| match *step {
            Step::Run(node) => Some(StepForm::Run(self.shape().name_of(node))),
            Step::Record(point) => Some(StepForm::Record(point.seq)),
            Step::Wait(point) => Some(StepForm::Wait { stream: self.id(point.stream), point: point.seq }),
            Step::Release(_) => None,
        };
        steps.filter_map(form).collect()
    }
}
