//! The communication of one run: its place in the order of the rank's work, and the turns of its collectives.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use super::agreement::Agreement;
use super::turns::{Turn, Turns};
use super::world::Entry;
use crate::error::{Error, Result};
use crate::graph::{RunContext, SharedContext};
use crate::name::Name;
use crate::ranks::Order;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

pub(crate) struct RunComm {
    /// None once all of its communication was started, or it has ended.
    entry: Mutex<Option<Arc<Entry>>>,
    pub(super) order: Arc<Order>,
    /// Whether all ranks have the same plan.
    pub(super) agreement: Arc<Agreement>,
    units: Vec<Unit>,
    /// The number of operations that were started.
    started: AtomicU64,
}

/// The turns of one graph's collectives, and how often each of them was performed.
#[derive(Default)]
struct Unit {
    turns: Arc<Turns>,
    executions: Mutex<HashMap<u32, u64>>,
}

impl RunComm {
    pub(super) fn new(entry: Entry, order: Arc<Order>, agreement: Arc<Agreement>) -> Self {
        let units = (0..order.units).map(|_| Unit::default()).collect();
        Self { entry: Mutex::new(Some(Arc::new(entry))), order, agreement, units, started: AtomicU64::new(0) }
    }

    /// Returns the communication of the run whose context a job has got.
    pub(super) fn of(context: Option<SharedContext>) -> Arc<Self> {
        let context: Arc<dyn Any + Send + Sync> = context.expect("a plan with communication has a context");
        context.downcast().expect("it is made by `compile_for`")
    }

    /// Returns the run's place in the order of the rank's work, before all of its operations were started.
    pub(super) fn entry(&self) -> Option<Arc<Entry>> {
        lock(&self.entry).clone()
    }

    /// Returns the turn of the next execution of a collective, number `number` of the `of` in its unit.
    pub(super) fn turn(&self, unit: u32, number: u32, of: u32) -> Turn {
        let unit = &self.units[unit as usize];
        let mut executions = lock(&unit.executions);
        let execution = executions.entry(number).or_default();
        *execution += 1;
        Turn::new(&unit.turns, (*execution - 1) * u64::from(of) + u64::from(number))
    }

    /// Notes that an operation was started. After the last one, the work behind this run has its turn. That
    /// of loops and branches is not known before the run ends.
    pub(super) fn note_started(&self) {
        // ORDERING: Relaxed: one caller sees the last number. What it does then needs no write of another.
        let started = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        if self.order.total == Some(started) {
            drop(self.take_entry());
        }
    }

    /// Takes the run's place. It is dropped outside of the lock: that wakes others.
    fn take_entry(&self) -> Option<Arc<Entry>> {
        lock(&self.entry).take()
    }

    /// Ends the run's communication. Other ranks may wait for what was not started.
    fn close(&self, why: impl FnOnce() -> String) {
        if let Some(entry) = self.take_entry() {
            entry.abandon(why());
        }
    }
}

impl RunContext for RunComm {
    fn fail(&self, node: &Name, error: &Error) {
        // Communication behind the node will not start, and its turn would never come.
        if self.order.leading.contains(node) {
            self.close(|| format!("{error:#}"));
        }
    }

    fn end(&self, verdict: &Result<()>) {
        match verdict {
            Ok(()) => drop(self.take_entry()),
            Err(error) => self.close(|| format!("{error:#}")),
        }
    }
}

impl Drop for RunComm {
    fn drop(&mut self) {
        self.close(|| "it was dropped before it began".into());
    }
}
