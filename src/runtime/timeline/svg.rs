//! The picture of a timeline: rows for threads, for streams of devices, and for what waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread::ThreadId;
use std::time::Instant;

use super::{Kept, Timeline};
use crate::draw::{Axis, Bar, Panel, Picture, Rim, Row, counted, time};
use crate::plan::StreamKind;
use crate::runtime::{Ended, Launched, RunId, WorkKind, WorkSpan};

/// A row of the picture. In this order from top to bottom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Line {
    /// A worker, or with `u32::MAX` another thread, by the order in which the threads came.
    Thread(u32, usize),
    /// A stream of a plan, with the work that was enqueued there.
    Stream(u32, u32),
    /// A stream of a device, with the work that it did.
    Device(u32, u32),
    /// Futures of nodes and operations.
    Futures,
    Flows,
}

impl Timeline {
    /// Draws all that ran as an SVG: a row for each worker and each other thread, with the bodies that it
    /// called; a row for each stream of a device, with the nodes that were enqueued there, or with [device
    /// times](crate::exec::ExecutorBuilder) the work that it did; and rows for futures and flows, from the
    /// first poll to the end. A long timeline has the load over the whole time, and rows for a part of it.
    ///
    /// With the pointer on a bar, a viewer shows all of its run, or of its item, and how long it waited. If
    /// the timeline was full, the title says how many spans are left out.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use anabranch::{Executor, Pipeline, Ranked, Timeline};
    /// use futures::{StreamExt, stream};
    ///
    /// let squares = Pipeline::new("squares", &Ranked::default(), |g, x| g.task("square", &x, |x: &u64| x * x))?;
    /// let timeline = Arc::new(Timeline::new(100_000));
    /// let exec = Executor::builder().workers(2).observer(timeline.clone()).build()?;
    /// futures::executor::block_on(exec.pipe(&squares, stream::iter(0..4)).count());
    /// let picture = timeline.to_svg();
    /// # assert!(picture.contains("4 items · 4 nodes"), "{picture}");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn to_svg(&self) -> String {
        let kept = self.kept().clone();
        let count = kept.spans.len();
        let title = match kept.left_out {
            0 => "timeline".to_owned(),
            left_out => format!("timeline, full: the first {count} of {} spans", count as u64 + left_out),
        };
        Picture::new(title, panel(kept)).draw()
    }
}

fn panel(kept: Kept) -> Panel {
    let Kept { mut spans, threads, .. } = kept;
    spans.sort_by_key(|span| span.start);
    let numbers = numbers(&spans);
    let has_device_times = spans.iter().any(|span| span.on_device().is_some());
    let lines: Vec<Option<Line>> = spans.iter().map(|span| line(span, &numbers, has_device_times)).collect();
    let on_devices = spans.iter().filter_map(|span| span.on_device().map(|ran| Line::Device(ran.device, ran.stream)));
    let mut rows: Vec<Line> = lines.iter().copied().flatten().chain(on_devices).collect();
    rows.sort_unstable();
    rows.dedup();
    let names: HashMap<usize, &str> = threads.iter().filter_map(|(id, name)| Some((*numbers.get(id)?, &**name))).collect();
    let begin = spans.first().map(|span| span.start);
    let us = |time: Instant| begin.map_or(0.0, |begin| time.saturating_duration_since(begin).as_secs_f64() * 1e6);
    let over_items: HashSet<RunId> = spans.iter().filter(|span| span.work.item > 0).map(|span| span.work.run).collect();
    let mut groups: HashMap<(RunId, u64), u64> = HashMap::new();
    let mut bars = Vec::new();
    for (span, line) in spans.iter().zip(&lines) {
        let next = groups.len() as u64 + 1;
        let group = *groups.entry((span.work.run, span.work.item)).or_insert(next);
        let row = |line: Option<Line>| line.and_then(|line| rows.binary_search(&line).ok());
        let bar = |row, ready, start, end| Bar {
            ready: us(ready),
            item: if over_items.contains(&span.work.run) { format!("#{}", span.work.item) } else { String::new() },
            group,
            rim: match span.ended {
                Ended::Ok => Rim::None,
                Ended::Failed => Rim::Failed,
                Ended::Cancelled => Rim::Cancelled,
            },
            told: format!("{} of run {}{}", span.work.kind_name(), span.work.run, stream_text(span)),
            waits: matches!(line, Some(Line::Futures | Line::Flows)),
            ..Bar::new(row, span.work.name.to_string(), us(start), us(end))
        };
        bars.extend(row(*line).map(|row| bar(row, span.ready, span.start, span.end)));
        // On its device it waits from its submission on.
        let ran = span.on_device().and_then(|ran| Some((row(Some(Line::Device(ran.device, ran.stream)))?, ran)));
        bars.extend(ran.map(|(row, ran)| bar(row, span.end.min(ran.start), ran.start, ran.end)));
    }
    let until = spans.iter().map(|span| us(span.end.max(span.ran().1))).fold(0.0, f64::max);
    Panel {
        counts: counts(&spans, until),
        rows: rows.iter().map(|&line| row(line, &names)).collect(),
        bars,
        until: until.max(f64::MIN_POSITIVE),
        axis: Axis::Time,
        ..Panel::default()
    }
}

/// Returns a number for each thread, in the order of their first spans.
fn numbers(spans: &[WorkSpan]) -> HashMap<ThreadId, usize> {
    let mut numbers = HashMap::new();
    for span in spans {
        let next = numbers.len();
        numbers.entry(span.thread.id).or_insert(next);
    }
    numbers
}

/// Returns the row of a span; none for runs, items, loops and branches. With device times, what was enqueued
/// is on the row of its thread.
fn line(span: &WorkSpan, numbers: &HashMap<ThreadId, usize>, has_device_times: bool) -> Option<Line> {
    match &span.work.kind {
        WorkKind::Flow => return Some(Line::Flows),
        WorkKind::Node { .. } | WorkKind::Operation { .. } if span.polls > 0 => {}
        _ => return None,
    }
    if let (Some(plan), Some(id)) = (span.work.plan(), span.work.node_id())
        && span.launched != Launched::Host
        && !has_device_times
    {
        let (schedule, local) = plan.inner().locate(id);
        let stream = schedule.stream_of(local);
        if let StreamKind::Device(device) = schedule.kind(stream) {
            return Some(Line::Stream(device, stream));
        }
    }
    match span.polls {
        1 => Some(Line::Thread(span.thread.worker.unwrap_or(u32::MAX), numbers[&span.thread.id])),
        _ => Some(Line::Futures),
    }
}

fn row(line: Line, names: &HashMap<usize, &str>) -> Row {
    let name = match line {
        Line::Thread(_, number) => names.get(&number).map_or_else(|| "a thread".to_owned(), |name| (*name).to_owned()),
        Line::Stream(device, stream) | Line::Device(device, stream) => format!("GPU {device} · stream {stream}"),
        Line::Futures => "futures".to_owned(),
        Line::Flows => "flows".to_owned(),
    };
    Row { name, is_host: !matches!(line, Line::Stream(..) | Line::Device(..)) }
}

fn stream_text(span: &WorkSpan) -> String {
    span.work.stream().map_or_else(String::new, |stream| format!(", stream {stream}"))
}

/// Returns how much of each kind there is, and how long it took.
fn counts(spans: &[WorkSpan], until_us: f64) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    spans.iter().for_each(|span| *kinds.entry(span.work.kind_name()).or_default() += 1);
    let order = ["run", "item", "flow", "node", "operation"];
    let counted = order.iter().filter_map(|kind| Some(counted(*kinds.get(kind)?, kind)));
    let ended =
        |ended: Ended| spans.iter().filter(|span| span.ended == ended && span.work.plan().is_none_or(|_| span.polls > 0)).count();
    let mut parts: Vec<String> = counted.collect();
    for how in [Ended::Failed, Ended::Cancelled] {
        let count = ended(how);
        if count > 0 {
            parts.push(format!("{count} {}", how.name()));
        }
    }
    parts.push(format!("takes {}", time(until_us)));
    parts.join(" · ")
}
