//! The core of an executor: its workers and devices, its clients, and the memory of dropped runs.

use std::sync::{Arc, Weak};
use std::task::Poll;

use super::admission::{Admission, Closed};
use super::inside::is_inside_body;
use super::{Choices, Client, Devices, Lane, Limbo, Observer};
use crate::device::host::{Barrier, Origin, Pool};
use crate::error::{Kind, Result, shielded};
use crate::sync::{AtomicU64, Ordering};

/// Shared by the clones of an executor, its runs and its engines.
pub(crate) struct Core {
    /// None: polls run nodes and operations.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) barrier: Barrier,
    pub(crate) limbo: Limbo,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Devices that queue work. If there are any, there are workers.
    pub(crate) devices: Option<Arc<Devices>>,
    /// The choices of a simulated executor, which has no workers.
    pub(crate) choices: Option<Choices>,
    admission: Admission,
    /// The process that has the threads.
    origin: Origin,
    /// Reaches the number of workers that have ended.
    pub(crate) exits: Arc<Lane>,
    /// Rung when no run is in flight.
    pub(crate) idle: Lane,
    numbers: AtomicU64,
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
        observer: Option<Arc<dyn Observer>>,
        choices: Option<Choices>,
        devices: Option<Arc<Devices>>,
        max_in_flight: usize,
        exits: Arc<Lane>,
    ) -> Self {
        let origin = if pool.is_some() { Origin::here() } else { Origin::anywhere() };
        Self {
            pool,
            barrier,
            limbo: Limbo::new(),
            observer,
            devices,
            choices,
            admission: Admission::new(max_in_flight),
            origin,
            exits,
            idle: Lane::new(),
            numbers: AtomicU64::new(0),
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.workers())
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.admission.max_in_flight()
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

    /// Returns the mark of the process that has the executor's threads.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the result of a pending poll. Inside of a task of this executor it is an error: a task that
    /// waits blocks a worker that the awaited work may need. Without workers the next poll does the work
    /// itself.
    pub(crate) fn pending<T>(&self) -> Poll<Result<T>> {
        if self.is_in_task() { Poll::Ready(Err(Kind::WaitsInTask.into())) } else { Poll::Pending }
    }

    /// Returns true if this thread is a worker and runs an observer, or the body of a node or an operation.
    pub(crate) fn is_in_task(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_in_body() || pool.is_on_worker() && is_inside_body(self.address()))
    }

    /// Returns the address that stands for this executor in [`is_inside`](super::is_inside).
    pub(crate) fn address(&self) -> usize {
        address_of(&self.exits)
    }

    /// Returns a number that no other run or engine of this executor has.
    pub(crate) fn next_number(&self) -> u64 {
        // ORDERING: Relaxed: the number is only unique.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.admission.is_closed()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Admits a run and returns its place among those in flight, or queues it. `turn` is 0 at first, and then
    /// the run's turn in the queue, until [`Core::leave_queue`]. The lane is rung when the run is called.
    pub(crate) fn admit(&self, run: Weak<dyn Client>, turn: &mut u64, lane: &Arc<Lane>) -> Poll<Result<u32>> {
        self.admission.admit(run, turn, Some(lane), || self.expect_client()).map_or(Poll::Pending, Poll::Ready)
    }

    /// Admits a run at once, or not at all.
    pub(crate) fn try_admit(&self, run: Weak<dyn Client>) -> Result<u32> {
        self.check_process()?;
        let admitted = self.admission.admit(run, &mut 0, None, || self.expect_client());
        admitted.unwrap_or_else(|| Err(Kind::Busy { max: self.max_in_flight() }.into()))
    }

    /// Takes a run that will not start out of the queue.
    pub(crate) fn leave_queue(&self, turn: u64) {
        if turn > 0 {
            self.admission.leave(turn).iter().for_each(|lane| lane.ring());
        }
    }

    /// Gives back the place of an admitted run that never entered the pool.
    pub(crate) fn withdraw(&self, place: u32) {
        self.pool.iter().for_each(|pool| pool.forget_run());
        self.end_flight(place);
    }

    /// Ends the flight of a run, and calls the next waiting run.
    pub(crate) fn end_flight(&self, place: u32) {
        let ended = self.admission.end(place);
        ended.next.iter().for_each(|lane| lane.ring());
        if ended.is_idle {
            self.idle.ring();
        }
    }

    pub(super) fn add_engine(&self, engine: Weak<dyn Client>) -> Result<u32> {
        self.admission.add_engine(engine, || self.expect_client())
    }

    pub(super) fn remove_engine(&self, place: u32) {
        self.admission.remove_engine(place);
    }

    fn expect_client(&self) {
        self.pool.iter().for_each(|pool| pool.expect_run());
    }

    /// Admits no further client, and shuts down the present ones.
    pub(crate) fn close(&self) {
        let Closed { clients, waiting } = self.admission.close();
        for client in clients {
            client.clone().shut_down();
            // This may be the last owner of the client, whose drop runs foreign code.
            let _ = shielded(|| drop(client));
        }
        waiting.values().for_each(|lane| lane.ring());
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }
}
