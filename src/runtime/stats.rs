//! What an executor does at this moment, in numbers.

use super::Core;
use crate::error::shielded;
use crate::sync::lock;

/// What an executor does at this moment; from [`Executor::stats`](crate::Executor::stats). The numbers are
/// read one after the other, while the executor goes on.
///
/// # Examples
/// A test whether a server is overloaded:
/// ```
/// use anabranch::Executor;
/// use anabranch::exec::Stats;
///
/// fn is_overloaded(stats: &Stats) -> bool {
///     stats.workers_asleep == 0 && stats.runs_waiting > 10
/// }
///
/// let exec = Executor::host()?;
/// assert!(!is_overloaded(&exec.stats()));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The worker threads.
    pub workers: usize,
    /// The workers that sleep, because there is nothing to do.
    pub workers_asleep: usize,
    /// The parts of runs, and visits to engines, that wait in the queue that all workers share. Each worker
    /// has up to 512 more of its own.
    pub work_queued: usize,
    /// The runs in flight, as [`Executor::in_flight`](crate::Executor::in_flight). A run over many items is
    /// one.
    pub runs_in_flight: usize,
    /// The runs that wait, because `max_in_flight` others are in flight.
    pub runs_waiting: usize,
    /// The dropped runs whose memory a worker or a device may still use.
    pub runs_in_limbo: usize,
    /// The operations of engines and flows that were pushed and have not ended. A wait for a variable is one.
    pub operations_pending: usize,
    /// The flows that have begun and are not over.
    pub flows_in_flight: usize,
    /// The flows that wait: their last poll was pending.
    pub flows_suspended: usize,
}

impl Core {
    pub(crate) fn stats(&self) -> Stats {
        let runs_waiting = {
            let clients = lock(&self.clients);
            clients.waiting.len() + clients.called.len() + clients.nested_waiting.len()
        };
        let engines = self.engines();
        let operations_pending = engines.iter().map(|engine| engine.pending()).sum();
        // One of these may be the last owner of its engine, whose drop runs user code.
        engines.into_iter().for_each(|engine| _ = shielded(|| drop(engine)));
        let pool = self.pool.as_deref();
        Stats {
            workers: self.workers(),
            workers_asleep: pool.map_or(0, |pool| pool.asleep()),
            work_queued: pool.map_or(0, |pool| pool.queued()),
            runs_in_flight: self.in_flight(),
            runs_waiting,
            runs_in_limbo: self.limbo.len(),
            operations_pending,
            flows_in_flight: self.flows.get(),
            flows_suspended: self.flows_suspended.get(),
        }
    }
}
