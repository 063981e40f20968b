//! Spans of a hyperepoch as a trace that Perfetto and Chrome show: a process for each engine, a thread for
//! each lane, a slice for each runnable.

use std::collections::BTreeMap;

use serde::Serialize;

use super::description::App;
use super::planning::EpochPlan;
use super::schedule::{Epoch, Hyperepoch};
use super::simulation::HyperepochLog;
use crate::error::Result;
use crate::phases::Beat;

#[derive(Serialize)]
struct TraceForm<'a> {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Vec<EventForm<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "ph")]
enum EventForm<'a> {
    #[serde(rename = "M")]
    Name { name: &'static str, pid: u32, tid: u32, args: BTreeMap<&'static str, String> },
    #[serde(rename = "X")]
    Slice { name: &'a str, cat: &'static str, ts: f64, dur: f64, pid: u32, tid: u32, args: BTreeMap<&'static str, String> },
}

/// Names the engines, from the process `first` on, and their lanes.
fn names<'a>(first: u32, engines: impl Iterator<Item = (String, u32)>) -> Vec<EventForm<'a>> {
    let mut events = Vec::new();
    for ((name, lanes), pid) in engines.zip(first..) {
        events.push(EventForm::Name { name: "process_name", pid, tid: 0, args: BTreeMap::from([("name", name)]) });
        for tid in 0..lanes {
            let args = BTreeMap::from([("name", format!("lane {tid}"))]);
            events.push(EventForm::Name { name: "thread_name", pid, tid, args });
        }
    }
    events
}

fn text(events: Vec<EventForm<'_>>) -> String {
    serde_json::to_string(&TraceForm { unit: "ms", events }).expect("the form has string keys only")
}

impl EpochPlan {
    /// Simulates items and returns when each node runs, as JSON in Chrome's trace event format. Times are in
    /// microseconds. The item of a slice is in its arguments, and its phase.
    ///
    /// # Errors
    ///
    /// As for [`Phasing::simulate`](crate::phases::Phasing::simulate).
    pub fn to_perfetto(&self, epoch: &Epoch, items: u64, beat: Beat) -> Result<String> {
        let spans = self.phasing.simulate(items, beat)?;
        let engines = epoch.engines().iter().map(|engine| (format!("{}: {}", epoch.name, engine.name), engine.lanes));
        let mut events = names(0, engines);
        for span in &spans {
            let runnable = &epoch.runnables[span.node.index()];
            events.push(EventForm::Slice {
                name: &runnable.name,
                cat: "item",
                ts: span.start_us,
                dur: span.end_us - span.start_us,
                pid: runnable.engine.0,
                tid: span.lane,
                args: BTreeMap::from([("item", span.item.to_string()), ("phase", self.phasing.phase_of(span.node).to_string())]),
            });
        }
        Ok(text(events))
    }
}

impl App {
    /// Returns the spans of a simulated hyperepoch as JSON in Chrome's trace event format. Times are in
    /// microseconds. The epoch, the frame and the component of a slice are in its arguments.
    pub fn to_perfetto(&self, hyperepoch: &Hyperepoch, log: &HyperepochLog) -> String {
        let engines = hyperepoch.engines.iter().map(|engine| (engine.name.to_string(), engine.lanes));
        let mut events = names(0, engines);
        for span in &log.spans {
            let epoch = &hyperepoch.epochs[span.epoch as usize];
            let runnable = &epoch.runnables[span.runnable.index()];
            let component = self.passes()[runnable.pass.index()].component;
            events.push(EventForm::Slice {
                name: &runnable.name,
                cat: "runnable",
                ts: span.start_us,
                dur: span.end_us - span.start_us,
                pid: span.engine.0,
                tid: span.lane,
                args: BTreeMap::from([
                    ("epoch", epoch.name.to_string()),
                    ("frame", span.frame.to_string()),
                    ("component", self.components()[component.index()].name.to_string()),
                ]),
            });
        }
        text(events)
    }
}
