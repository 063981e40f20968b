//! An observer that counts and times work with the crate `metrics`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, Histogram, Unit};

use super::{Ended, Observer, Stats, WorkKind, WorkSpan};
use crate::name::Name;

/// An observer that counts and times work with the crate [`metrics`](https://docs.rs/metrics). It works with
/// any recorder that the program installs: Prometheus, StatsD, a test. Needs the feature `metrics`.
///
/// | metric | labels | |
/// |---|---|---|
/// | `anabranch_work_total` | `kind`, `name`, `ended` | counter: runs, items, flows, nodes and operations that have ended |
/// | `anabranch_wait_seconds` | `kind`, `name` | histogram: from ready to begun |
/// | `anabranch_run_seconds` | `kind`, `name` | histogram: from begun to ended; with device times, what a GPU took |
/// | `anabranch_runs_in_flight`, `anabranch_runs_waiting`, `anabranch_runs_in_limbo` | | gauges, set by [`Metrics::set_gauges`] |
/// | `anabranch_operations_pending`, `anabranch_flows_in_flight`, `anabranch_flows_suspended` | | gauges |
/// | `anabranch_work_queued`, `anabranch_workers`, `anabranch_workers_asleep` | | gauges |
///
/// `kind` is `run`, `item`, `flow`, `node` or `operation`. `ended` is `ok`, `failed` or `cancelled`. `name`
/// is the name of a node or an operation, or of a run's graph. If there are many names,
/// [`Metrics::without_names`] leaves out that label.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use anabranch::Executor;
/// use anabranch::exec::Metrics;
///
/// // Install a recorder first: metrics before that are lost.
/// let exec = Executor::builder().observer(Arc::new(Metrics::new())).build()?;
/// // ... runs; then, before each page of metrics:
/// Metrics::set_gauges(&exec.stats());
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Metrics {
    has_names: bool,
    /// The registered metrics, by the kind and the name of work.
    series: RwLock<HashMap<(&'static str, Name), Arc<Series>>>,
}

/// The metrics of work of one kind and name.
struct Series {
    ended: [Counter; 3],
    wait: Histogram,
    run: Histogram,
}

impl Metrics {
    /// Returns the observer. Give it to [`ExecutorBuilder::observer`](super::ExecutorBuilder::observer).
    pub fn new() -> Self {
        describe();
        Self { has_names: true, series: RwLock::default() }
    }

    /// Leaves out the label `name`.
    pub fn without_names(mut self) -> Self {
        self.has_names = false;
        self
    }

    /// Sets the gauges to the present state of an executor. Call it before the metrics are read, or
    /// periodically.
    pub fn set_gauges(stats: &Stats) {
        let set = |name: &'static str, count: usize| metrics::gauge!(name).set(count as f64);
        set("anabranch_runs_in_flight", stats.runs_in_flight);
        set("anabranch_runs_waiting", stats.runs_waiting);
        set("anabranch_runs_in_limbo", stats.runs_in_limbo);
        set("anabranch_operations_pending", stats.operations_pending);
        set("anabranch_flows_in_flight", stats.flows_in_flight);
        set("anabranch_flows_suspended", stats.flows_suspended);
        set("anabranch_work_queued", stats.work_queued);
        set("anabranch_workers", stats.workers);
        set("anabranch_workers_asleep", stats.workers_asleep);
    }

    fn series(&self, span: &WorkSpan) -> Arc<Series> {
        let kind = span.work.kind_name();
        let name = if self.has_names { span.work.name.clone() } else { Name::from("") };
        let key = (kind, name);
        if let Some(series) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return series.clone();
        }
        let series = Arc::new(Series::register(kind, self.has_names.then(|| key.1.to_string())));
        self.series.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(series).clone()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Series {
    fn register(kind: &'static str, name: Option<String>) -> Self {
        let labels = |ended: Option<Ended>| {
            let mut labels = vec![("kind", kind.to_owned())];
            labels.extend(name.clone().map(|name| ("name", name)));
            labels.extend(ended.map(|ended| ("ended", ended.name().to_owned())));
            labels
        };
        let counter = |ended| metrics::counter!("anabranch_work_total", &labels(Some(ended)));
        Self {
            ended: [Ended::Ok, Ended::Failed, Ended::Cancelled].map(counter),
            wait: metrics::histogram!("anabranch_wait_seconds", &labels(None)),
            run: metrics::histogram!("anabranch_run_seconds", &labels(None)),
        }
    }
}

/// Describes the metrics to the installed recorder.
fn describe() {
    metrics::describe_counter!("anabranch_work_total", "Runs, items, flows, nodes and operations that have ended");
    metrics::describe_histogram!("anabranch_wait_seconds", Unit::Seconds, "How long work waited after it was ready");
    metrics::describe_histogram!("anabranch_run_seconds", Unit::Seconds, "How long work took from its begin to its end");
    metrics::describe_gauge!("anabranch_runs_in_flight", "Runs in flight");
    metrics::describe_gauge!("anabranch_runs_waiting", "Runs that wait for others to end");
    metrics::describe_gauge!("anabranch_runs_in_limbo", "Dropped runs whose memory may still be used");
    metrics::describe_gauge!("anabranch_operations_pending", "Operations that were pushed and have not ended");
    metrics::describe_gauge!("anabranch_flows_in_flight", "Flows that have begun and have not ended");
    metrics::describe_gauge!("anabranch_flows_suspended", "Flows that wait");
    metrics::describe_gauge!("anabranch_work_queued", "Work in the queue that all workers share");
    metrics::describe_gauge!("anabranch_workers", "Worker threads");
    metrics::describe_gauge!("anabranch_workers_asleep", "Worker threads that sleep");
}

impl Observer for Metrics {
    fn needs_begins(&self) -> bool {
        false
    }

    fn ended(&self, span: &WorkSpan) {
        let series = self.series(span);
        let ended = match span.ended {
            Ended::Ok => 0,
            Ended::Failed => 1,
            Ended::Cancelled => 2,
        };
        series.ended[ended].increment(1);
        // A flow begins at its first poll, without a wait. All other work may wait.
        if !matches!(span.work.kind, WorkKind::Flow) {
            series.wait.record(span.wait_time());
        }
        series.run.record(span.run_time());
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("has_names", &self.has_names).finish_non_exhaustive()
    }
}
