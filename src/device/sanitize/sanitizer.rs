//! The clocks of one executor, shared by its devices and its runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::clock::{Clock, Epoch};
use super::order::{Key, Order};
use crate::sync::{Mutex, MutexGuard, lock};

/// The most submissions of a lane whose clocks are kept. The host counts as having seen the end of earlier
/// ones, because it may never ask for them. A race with these is missed.
const SUBMITTED_MAX: usize = 4096;

/// The clocks of all work of one executor.
#[derive(Default)]
pub(crate) struct Sanitizer(Mutex<Clocks>);

#[derive(Default)]
pub(in crate::device) struct Clocks {
    order: Order,
    /// For each lane the submissions, by point, whose end the host may not have seen.
    submitted: HashMap<(u32, u32), VecDeque<(u64, Clock)>>,
}

impl Sanitizer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(in crate::device) fn clocks(&self) -> MutexGuard<'_, Clocks> {
        lock(&self.0)
    }

    /// Orders everything after `to` behind everything before `from`.
    pub(crate) fn join(&self, to: Key, from: Key) {
        self.clocks().join(to, from);
    }

    /// Begins a run or an engine, ordered after all that the host has seen. Earlier ones of the same number
    /// are over.
    pub(crate) fn begin(&self, of: u64) {
        let order = &mut self.clocks().order;
        order.retain(|key| !matches!(key, Key::Base(run) | Key::Program(run, _) | Key::Gate(run, ..) if run == of));
        let known = order.clock(Key::Host);
        order.learn(Key::Base(of), &known);
    }

    /// Replaces the clock of a key by the joined clocks of some others.
    pub(crate) fn restart(&self, key: Key, from: &[Key]) {
        let order = &mut self.clocks().order;
        let mut clock = Clock::default();
        from.iter().for_each(|&from| clock.join(&order.clock(from)));
        order.set(key, clock);
    }

    /// Records that the host has seen the end of all work of a lane up to a point.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn reached(&self, device: u32, lane: u32, point: u64) {
        let clocks = &mut *self.clocks();
        let Some(submitted) = clocks.submitted.get_mut(&(device, lane)) else { return };
        // The clocks of a lane grow: the last one knows all that earlier ones know.
        let passed = submitted.partition_point(|submission| submission.0 <= point);
        if let Some((_, clock)) = submitted.drain(..passed).next_back() {
            clocks.order.learn(Key::Host, &clock);
        }
    }
}

#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
impl Clocks {
    pub(super) fn join(&mut self, to: Key, from: Key) {
        let known = self.order.clock(from);
        self.order.learn(to, &known);
    }

    pub(in crate::device) fn clock(&self, key: Key) -> Clock {
        self.order.clock(key)
    }

    /// Ticks the strand of a key, for a use of memory after all that the clock knows.
    pub(in crate::device) fn tick(&mut self, key: Key, clock: &mut Clock) -> Epoch {
        let epoch = self.order.tick(key);
        clock.learn(epoch);
        epoch
    }

    pub(in crate::device) fn learn(&mut self, key: Key, clock: &Clock) {
        self.order.learn(key, clock);
    }

    /// Records a submission that ends at a point of a lane.
    pub(in crate::device) fn submitted(&mut self, (device, lane): (u32, u32), point: u64, clock: Clock) {
        self.order.learn(Key::Lane(device, lane), &clock);
        let submitted = self.submitted.entry((device, lane)).or_default();
        submitted.push_back((point, clock));
        if submitted.len() > SUBMITTED_MAX
            && let Some((_, oldest)) = submitted.pop_front()
        {
            self.order.learn(Key::Host, &oldest);
        }
    }

    /// Records an event. The driver reuses its handles.
    pub(in crate::device) fn recorded(&mut self, event: usize, clock: Clock) {
        self.order.set(Key::Event(event), clock);
    }
}
