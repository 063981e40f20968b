//! A timeline as a trace that Perfetto and Chrome show.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Instant;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::{Kept, Timeline};
use crate::runtime::{DeviceSpan, Launched, WorkSpan};

impl Timeline {
    /// Returns all that ran as JSON in Chrome's trace event format, which Perfetto (ui.perfetto.dev),
    /// `chrome://tracing` and speedscope read. Needs the feature `json`.
    ///
    /// Bodies of nodes and operations are slices of their threads. Futures that were polled more than once,
    /// loops, branches, items, flows and runs are tracks of their own. With
    /// [device times](crate::exec::ExecutorBuilder) a GPU is a process of its own, and its streams are the
    /// threads. Each has its run, its item, how long
    /// it waited, how it ended and its stream. Times are in microseconds from the first span on. A million
    /// spans take about 150 MB; [`Timeline::write_perfetto`] does not hold them in memory.
    ///
    /// # Examples
    /// ```
    /// use anabranch::Timeline;
    ///
    /// let timeline = Timeline::new(1_000_000);
    /// // ... runs ...
    /// std::fs::write("trace.json", timeline.to_perfetto())?;
    /// # std::fs::remove_file("trace.json")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_perfetto(&self) -> String {
        let mut written = Vec::new();
        self.write_perfetto(&mut written).expect("memory takes all that is written");
        String::from_utf8(written).expect("JSON is UTF-8")
    }

    /// Writes the same, piece by piece.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_perfetto(&self, out: impl io::Write) -> io::Result<()> {
        serde_json::to_writer(out, &Trace::new(self.kept().clone())).map_err(io::Error::from)
    }
}

struct Trace {
    kept: Kept,
    begin: Option<Instant>,
    /// The number of each thread: workers first.
    threads: HashMap<std::thread::ThreadId, u32>,
}

impl Trace {
    fn new(kept: Kept) -> Self {
        let mut order: Vec<_> = kept.spans.iter().map(|span| (span.thread.worker.unwrap_or(u32::MAX), span.thread.id)).collect();
        order.sort_by_key(|&(worker, _)| worker);
        let mut threads = HashMap::new();
        for (_, id) in order {
            let next = threads.len() as u32 + 1;
            threads.entry(id).or_insert(next);
        }
        let begin = kept.spans.iter().map(|span| span.ready).min();
        Self { kept, begin, threads }
    }

    fn us(&self, time: Instant) -> f64 {
        let ns = self.begin.map_or(0, |begin| time.saturating_duration_since(begin).as_nanos());
        ns as f64 / 1e3
    }

    /// Serialises the work of devices: each is a process, and its streams are the threads.
    fn serialize_devices<S: SerializeSeq>(&self, events: &mut S) -> Result<(), S::Error> {
        let mut streams: BTreeMap<(u32, u32), Vec<(DeviceSpan, &WorkSpan)>> = BTreeMap::new();
        for span in &self.kept.spans {
            if let Some(ran) = span.on_device() {
                streams.entry((ran.device, ran.stream)).or_default().push((ran, span));
            }
        }
        for ((device, stream), mut spans) in streams {
            // The host is the first process.
            let (pid, tid) = (device + 2, stream + 1);
            let (process, thread) = (format!("GPU {device}"), format!("stream {stream}"));
            events.serialize_element(&Event { pid, ..Event::name("process_name", 0, &process) })?;
            events.serialize_element(&Event { pid, ..Event::name("thread_name", tid, &thread) })?;
            spans.sort_by_key(|(ran, _)| ran.start);
            let mut last = 0.0_f64;
            for (ran, span) in spans {
                // Times of two anchors may overlap by some microseconds, and slices of a thread must not.
                let ts = self.us(ran.start).max(last);
                last = self.us(ran.end).max(ts);
                let (name, cat, args) = (&*span.work.name, Some(span.work.kind_name()), Args::of(span));
                let dur = Some(last - ts);
                events.serialize_element(&Event { ph: "X", name, cat, pid, tid, ts: Some(ts), dur, args, id: None })?;
            }
        }
        Ok(())
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("displayTimeUnit", "ns")?;
        map.serialize_entry("traceEvents", &Events(self))?;
        if self.kept.left_out > 0 {
            map.serialize_entry("otherData", &BTreeMap::from([("spans_left_out", self.kept.left_out)]))?;
        }
        map.end()
    }
}

struct Events<'t>(&'t Trace);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let trace = self.0;
        let mut events = serializer.serialize_seq(None)?;
        events.serialize_element(&Event::name("process_name", 0, "anabranch"))?;
        for (id, &tid) in &trace.threads {
            let name = trace.kept.threads.iter().find(|(known, _)| known == id).map_or("a thread", |(_, name)| name);
            events.serialize_element(&Event::name("thread_name", tid, name))?;
        }
        trace.serialize_devices(&mut events)?;
        for (span, number) in trace.kept.spans.iter().zip(1..) {
            let (ts, end) = (trace.us(span.start), trace.us(span.end));
            let (name, cat, tid) = (&*span.work.name, span.work.kind_name(), trace.threads[&span.thread.id]);
            let event = Event { name, cat: Some(cat), pid: 1, ..Event::default() };
            if is_slice(span) {
                let dur = Some(end - ts);
                events.serialize_element(&Event { ph: "X", ts: Some(ts), dur, tid, args: Args::of(span), ..event })?;
            } else {
                let id = Some(number);
                events.serialize_element(&Event { ph: "b", ts: Some(ts), id, args: Args::of(span), ..event })?;
                events.serialize_element(&Event { ph: "e", ts: Some(end), id, ..event })?;
            }
        }
        events.end()
    }
}

/// Returns whether it is one call of a body: those of a thread are nested.
fn is_slice(span: &WorkSpan) -> bool {
    span.polls == 1 && (span.work.node_id().is_some() || span.work.is_operation())
}

/// An event of the format. Empty fields are left out.
#[derive(Serialize, Default, Clone, Copy)]
struct Event<'t> {
    ph: &'static str,
    name: &'t str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'t>,
}

impl<'t> Event<'t> {
    /// Returns the event that names a thread, or the process.
    fn name(what: &'static str, tid: u32, name: &'t str) -> Self {
        Self { ph: "M", name: what, pid: 1, tid, args: Args { name: Some(name), ..Args::default() }, ..Self::default() }
    }
}

#[derive(Serialize, Default, Clone, Copy)]
struct Args<'t> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    around: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launched: Option<&'static str>,
}

impl Args<'_> {
    fn of(span: &WorkSpan) -> Self {
        Self {
            run: Some(span.work.run.get()),
            around: span.work.around.map(|around| around.get()),
            item: Some(span.work.item).filter(|&item| item > 0 || span.work.kind_name() == "item"),
            waited_us: Some(span.wait_time().as_nanos() as f64 / 1e3).filter(|&us| us > 0.0),
            polls: Some(span.polls).filter(|&polls| polls > 1),
            stream: span.work.stream(),
            ended: (!span.is_ok()).then(|| span.ended.name()),
            launched: match span.launched {
                Launched::Host => None,
                Launched::Calls => Some("calls"),
                Launched::CudaGraph => Some("CUDA graph"),
            },
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.run.is_none() && self.name.is_none()
    }
}
