//! Spans as a trace that Perfetto and Chrome show: a thread for each stream, a slice for each node, a flow
//! for each wait.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::runs::{Run, Runs};
use super::{Schedule, Span};

#[derive(Serialize)]
struct TraceForm<'a> {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Vec<EventForm<'a>>,
    #[serde(rename = "otherData", skip_serializing_if = "Option::is_none")]
    other: Option<BTreeMap<&'static str, usize>>,
}

#[derive(Serialize)]
#[serde(tag = "ph")]
enum EventForm<'a> {
    #[serde(rename = "M")]
    Thread { name: &'static str, pid: u32, tid: u32, args: BTreeMap<&'static str, String> },
    #[serde(rename = "X")]
    Slice { name: &'a str, cat: &'static str, ts: f64, dur: f64, pid: u32, tid: u32, args: BTreeMap<&'static str, &'a str> },
    #[serde(rename = "s")]
    FlowStart { name: &'static str, cat: &'static str, id: usize, ts: f64, pid: u32, tid: u32 },
    #[serde(rename = "f")]
    FlowEnd { name: &'static str, cat: &'static str, id: usize, ts: f64, pid: u32, tid: u32, bp: &'static str },
}

impl Schedule {
    /// Returns these spans of the schedule as JSON in Chrome's trace event format, which Perfetto
    /// (ui.perfetto.dev) also reads. Times are in microseconds. Needs the feature `json`.
    ///
    /// The spans that [`Schedule::to_svg`] leaves out are left out here too. `otherData.spans_left_out` of
    /// the trace is their number.
    pub fn to_perfetto(&self, spans: &[Span]) -> String {
        let runs = Runs::new(self);
        let of: HashMap<Run, &Span> =
            self.shown(spans).map(|span| (Run { node: span.node, stream: span.stream }, span)).collect();
        let mut events: Vec<EventForm<'_>> = Vec::new();
        for stream in 0..self.streams() {
            let args = BTreeMap::from([("name", self.stream_name(stream))]);
            events.push(EventForm::Thread { name: "thread_name", pid: 0, tid: self.id(stream), args });
        }
        for span in self.shown(spans) {
            let node = &self.shape().nodes()[span.node.index()];
            let (ts, dur, tid, args) = (
                span.start_us,
                span.end_us - span.start_us,
                self.id(span.stream),
                BTreeMap::from([("command", &**node.command())]),
            );
            events.push(EventForm::Slice { name: &node.name, cat: "node", ts, dur, pid: 0, tid, args });
        }
        let waits = (0..runs.all.len()).flat_map(|target| runs.waits(target).map(move |source| (source, target)));
        for (id, (source, target)) in waits.enumerate() {
            let (Some(from), Some(to)) = (of.get(&runs.all[source]), of.get(&runs.all[target])) else { continue };
            let (from_tid, to_tid) = (self.id(from.stream), self.id(to.stream));
            // A flow arrow belongs to a slice that contains its start. So it starts shortly before the end of
            // the slice.
            let ts = from.end_us - (from.end_us - from.start_us) * 1e-3;
            events.push(EventForm::FlowStart { name: "wait", cat: "wait", id, ts, pid: 0, tid: from_tid });
            events.push(EventForm::FlowEnd { name: "wait", cat: "wait", id, ts: to.start_us, pid: 0, tid: to_tid, bp: "e" });
        }
        let left_out = spans.len() - self.shown(spans).count();
        let other = (left_out > 0).then(|| BTreeMap::from([("spans_left_out", left_out)]));
        serde_json::to_string(&TraceForm { unit: "ms", events, other }).expect("the form has string keys only")
    }
}
