//! What the conductor does with steps whose bodies enqueue, on an executor with a device that has queues.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::conduct::Conductor;
use super::inner::fate;
use super::queues::Berth;
use super::state;
use crate::device::host::{Queue, Ticket};
use crate::device::queue::{Event, Job};
use crate::error::{Error, panic_message};
use crate::plan::code::{HostStep, QueuedStep};
use crate::sync::Ordering;

impl<'q, Q: Queue<'q>> Conductor<'_, 'q, Q> {
    /// Returns where the program's queued steps go.
    fn berth(&mut self) -> Result<Berth, Error> {
        if let Some(berth) = self.berth {
            return Ok(berth);
        }
        let berth = self.run.queues().berth(self.run, self.live, self.code.streams[self.program as usize])?;
        self.berth = Some(berth);
        Ok(berth)
    }

    /// Parks the program if there is too much on its lane. It goes on when the device has done some of that.
    pub(super) fn is_held_up(&mut self) -> bool {
        let run = self.run;
        let Ok(berth) = self.berth() else { return false };
        let Some(point) = run.queues().device(berth).backlog(berth.lane) else { return false };
        self.store_place(self.step << 1);
        run.resume_after(self.program, berth, point);
        true
    }

    /// Submits the step's work to its device. Of a step that is skipped only the waits and the record, so that streams that would wait for it
    /// wait for what comes before it.
    #[cold]
    #[inline(never)]
    pub(super) fn submit(&mut self, step: &HostStep, is_skipped: bool) {
        let (run, live, code) = (self.run, self.live, self.code);
        let queued = code.queued(self.step);
        let berth = match self.berth() {
            Ok(berth) => berth,
            Err(_) if is_skipped => return,
            Err(error) => return self.fail(error.into()),
        };
        let is_observed = !is_skipped && run.state.glance() & state::OBSERVED != 0;
        let started = is_observed.then(std::time::Instant::now);
        let (first, count) = queued.waits;
        // ORDERING: Relaxed, here and below: the gate before this step comes after the record.
        let event = |&slot: &u32| live.events[slot as usize].load(Ordering::Relaxed) as usize;
        let waits = &code.queue_waits[first as usize..(first + count) as usize];
        let is_marked = queued.reached.1 > 0 || run.state.glance() & state::WATCHED != 0;
        if is_skipped && count == 0 && queued.event.is_none() && !is_marked {
            return;
        }
        let mut called = Ok(Ok(()));
        let submitted = run.queues().device(berth).submit(
            berth.lane,
            &mut Job {
                is_fresh: std::mem::take(&mut self.is_fresh),
                // A node that failed recorded nothing.
                waits: &mut waits.iter().map(event).filter(|&event| event != 0).map(Event),
                is_recorded: queued.event.is_some(),
                is_marked,
                body: &mut |stream| {
                    if is_skipped {
                        return;
                    }
                    // SAFETY: as in `call`.
                    let cells = unsafe { live.frame.cells(step.access) };
                    // SAFETY: as in `call`.
                    called = catch_unwind(AssertUnwindSafe(|| unsafe { step.call.run(cells, stream) }));
                },
            },
        );
        if let Some(started) = started {
            run.observe(self.step, started, submitted.is_ok() && matches!(called, Ok(Ok(()))));
        }
        match called {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(panic) => run.set_fate(self.node(), fate::FAILED, Some(run.panicked(self.step, panic_message(panic)))),
        }
        match submitted {
            Ok(submitted) => {
                if let (Some(slot), Some(event)) = (queued.event, submitted.event) {
                    live.events[slot as usize].store(event.0 as u64, Ordering::Relaxed);
                }
                self.submitted = is_marked.then_some((berth, submitted.point));
            }
            Err(error) if run.fate(self.node()) == 0 => self.fail(error.into()),
            Err(_) => {}
        }
    }

    /// Does what the end of a step leads to whose body enqueues: now on a host, and when its device comes to it elsewhere. The run may be gone
    /// afterwards, if it was the program's last.
    #[cold]
    #[inline(never)]
    pub(super) fn follow_queued(&mut self, queued: QueuedStep, held: &mut Option<Ticket>) {
        let submitted = self.submitted.take();
        let is_awaited = queued.reached.1 > 0;
        if !is_awaited && submitted.is_none() {
            return;
        }
        let run = self.run;
        if run.core.queues.is_none() {
            let targets = self.code.reached_targets(&queued);
            return targets.iter().for_each(|&target| self.hold(held, target));
        }
        // Skipped: but what was enqueued before it must be over, too.
        let mut marked = || {
            let berth = self.berth().ok()?;
            Some((berth, run.queues().device(berth).mark(berth.lane).ok()?))
        };
        match submitted.or_else(&mut marked) {
            Some((berth, point)) => run.await_device(queued.step, berth, point),
            // The device is lost, or there is none.
            None => {
                let targets = self.code.reached_targets(&queued);
                targets.iter().for_each(|&target| self.hold(held, target));
            }
        }
    }
}
