//! Spans of a hyperepoch as a trace that Perfetto and Chrome show: a process for each engine, a thread for
//! each lane, a slice for each runnable.

use std::collections::BTreeMap;

use serde::Serialize;

use super::planning::EpochPlan;
use super::schedule::Epoch;
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

/// Names the engines of an epoch and their lanes.
fn names(epoch: &Epoch) -> Vec<EventForm<'_>> {
    let mut events = Vec::new();
    for (engine, pid) in epoch.engines().iter().zip(0..) {
        let args = BTreeMap::from([("name", format!("{}: {}", epoch.name, engine.name))]);
        events.push(EventForm::Name { name: "process_name", pid, tid: 0, args });
        for tid in 0..engine.lanes {
            let args = BTreeMap::from([("name", format!("lane {tid}"))]);
            events.push(EventForm::Name { name: "thread_name", pid, tid, args });
        }
    }
    events
}

impl EpochPlan {
    /// Simulates items and returns when each node runs, as JSON in Chrome's trace event format. Times are in
    /// microseconds. The item of a slice is in its arguments, and its phase.
    ///
    /// # Errors
    ///
    /// As for [`Phasing::simulate`](crate::phases::Phasing::simulate).
    ///
    /// # Panics
    ///
    /// May panic if the epoch is not the one that was planned.
    pub fn to_perfetto(&self, epoch: &Epoch, items: u64, beat: Beat) -> Result<String> {
        let spans = self.phasing.simulate(items, beat)?;
        let mut events = names(epoch);
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
        Ok(serde_json::to_string(&TraceForm { unit: "ms", events }).expect("the form has string keys only"))
    }
}
