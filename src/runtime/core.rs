//! The core of an executor: its workers and devices, its clients, and the memory of dropped runs.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::admission::{Clients, Flying, Precedence};
use super::flights::Flights;
use super::inside::{is_inside, is_inside_any_body, is_inside_body, is_outside};
use super::share::may_work;
use super::{Choices, Devices, FlowCount, Lane, Limbo, Observers};
use crate::device::host::{Barrier, Origin, Pool, is_at_a_step};
use crate::error::{Kind, Result};
use crate::sync::Mutex;

/// Shared by the clones of an executor, its runs and its engines.
pub(crate) struct Core {
    /// None: polls run nodes and operations.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) barrier: Barrier,
    pub(crate) limbo: Limbo,
    pub(crate) observers: Option<Arc<Observers>>,
    /// Devices that queue work. If there are any, there are workers.
    pub(crate) devices: Option<Arc<Devices>>,
    /// The choices of a simulated executor, which has no workers.
    pub(crate) choices: Option<Choices>,
    pub(super) clients: Mutex<Clients>,
    pub(super) flights: Flights,
    pub(super) max_in_flight: usize,
    /// How long polls and pushes may work in a row beside the workers.
    pub(crate) poll_budget: Duration,
    /// The process that has the threads.
    pub(crate) origin: Origin,
    /// Reaches the number of workers that have ended.
    pub(crate) exits: Arc<Lane>,
    /// Rung when no run is in flight.
    pub(crate) idle: Lane,
    /// The flows whose last poll was pending.
    pub(crate) flows_suspended: FlowCount,
    /// The flows that have begun and are not over.
    pub(super) flows: FlowCount,
}

/// The bounds of an executor.
pub(crate) struct Limits {
    pub(crate) max_in_flight: usize,
    pub(crate) poll_budget: Duration,
}

/// Keeps an executor running. The drop of the last clone shuts it down.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<Owner>);

struct Owner(Arc<Core>);

impl Keeper {
    pub(crate) fn new(core: Core) -> Self {
        Self(Arc::new(Owner(Arc::new(core))))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.0.is_forked() {
            return std::mem::forget(self.0.clone());
        }
        self.0.close();
    }
}

/// Returns the address that stands for the executor with this lane of exits.
pub(crate) fn address_of(exits: &Arc<Lane>) -> usize {
    Arc::as_ptr(exits).addr()
}

impl Core {
    pub(crate) fn new(
        pool: Option<Arc<Pool>>,
        barrier: Barrier,
        observers: Option<Observers>,
        choices: Option<Choices>,
        devices: Option<Arc<Devices>>,
        limits: Limits,
        exits: Arc<Lane>,
    ) -> Self {
        let origin = if pool.is_some() { Origin::here() } else { Origin::anywhere() };
        Self {
            pool,
            barrier,
            limbo: Limbo::new(),
            observers: observers.map(Arc::new),
            devices,
            choices,
            clients: Mutex::default(),
            flights: Flights::new(),
            max_in_flight: limits.max_in_flight,
            poll_budget: limits.poll_budget,
            origin,
            exits,
            idle: Lane::new(),
            flows_suspended: FlowCount::new(),
            flows: FlowCount::new(),
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.workers())
    }

    /// Returns true in a child that was forked from the process that has the executor's threads. There a lock
    /// may be held for ever by a thread that does not exist, and work may be half done. So the child locks,
    /// drops and awaits nothing of the executor.
    pub(crate) fn is_forked(&self) -> bool {
        self.origin.is_forked()
    }

    /// Returns an error in such a child.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Kind::Forked.into()) } else { Ok(()) }
    }

    /// Returns the result of a pending poll. Inside of a task of this executor it is an error: a task that
    /// waits blocks a worker that the awaited work may need. Without workers the next poll does the work
    /// itself.
    pub(crate) fn pending<T>(&self) -> Poll<Result<T>> {
        if self.is_in_task() { Poll::Ready(Err(Kind::WaitsInTask.into())) } else { Poll::Pending }
    }

    /// Returns true if this thread runs an observer, or the body of a node or an operation, as a worker or
    /// instead of one.
    pub(crate) fn is_in_task(&self) -> bool {
        let is_at_a_node = || is_at_a_step() && is_inside(self.address());
        self.pool.is_some() && (is_at_a_node() || is_inside_body(self.address()))
    }

    /// Returns whether polls and pushes may do work that is known to be cheap.
    #[inline]
    pub(crate) fn may_do_cheap_work(&self) -> bool {
        self.observers.is_none() && self.choices.is_none() && !self.poll_budget.is_zero()
    }

    /// Returns whether this thread may do such work now: a worker may in the poll of a future, but not in a
    /// body.
    #[inline]
    pub(crate) fn may_work_here(&self) -> bool {
        self.pool.is_none() || may_work() && (is_outside() || !is_at_a_step() && !is_inside_any_body())
    }

    /// Returns the address that stands for this executor in [`is_inside`](super::is_inside).
    pub(crate) fn address(&self) -> usize {
        address_of(&self.exits)
    }

    /// Admits a run at once, or not at all.
    pub(crate) fn try_admit(&self, run: Flying) -> Result<u16> {
        self.check_process()?;
        match self.admit(run, &mut Precedence::default(), None) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => Err(Kind::Busy { max: self.max_in_flight }.into()),
        }
    }
}
