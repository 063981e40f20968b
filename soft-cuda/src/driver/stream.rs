//! A stream: a queue, its progress, and the clock of everything before its next operation.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::capture::Member;
use super::clock::{Clock, Kept, new_component};
use super::command::{Command, WriteValue};
use super::device::Device;
use super::issue::{Issuer, Operation};
use super::progress::Progress;
use super::queue::{Queue, Work};
use super::{execute, lock, memory};
use crate::code::{Code, Outcome};

/// A stream of one device.
pub(crate) struct Stream {
    pub(crate) device: &'static Device,
    /// The number in reports and logs; 0 is the default stream.
    pub(crate) number: u32,
    pub(crate) component: u32,
    pub(crate) queue: Queue,
    pub(crate) progress: Progress,
    /// Held while a call issues work, so that positions, clocks and the queue agree.
    pub(crate) issuing: Mutex<Issuing>,
    /// A code that the next query or synchronisation returns, of the stream or of an event recorded on it; or
    /// 0.
    pending: AtomicU32,
    /// The position that the host has waited for.
    waited: AtomicU64,
    /// Values that are written only when the host waits for the stream.
    held: Mutex<Vec<(WriteValue, Kept)>>,
}

/// The state before the next operation.
#[derive(Default)]
pub(crate) struct Issuing {
    /// The number of pieces of work that were issued.
    pub(crate) position: u64,
    pub(crate) clock: Clock,
    /// The version of the host's clock that is included in this one.
    pub(crate) host_seen: u64,
    pub(crate) capture: Option<Member>,
}

impl Stream {
    pub(crate) fn new(device: &'static Device, number: u32) -> Self {
        Self {
            device,
            number,
            component: new_component(),
            queue: Queue::default(),
            progress: Progress::default(),
            issuing: Mutex::default(),
            pending: AtomicU32::new(0),
            waited: AtomicU64::new(0),
            held: Mutex::default(),
        }
    }

    /// Issues a command, or adds it to the graph that is being captured. Returns the position to wait for.
    pub(crate) fn submit(self: &Arc<Self>, command: Command) -> Outcome<u64> {
        let mut issuing = lock(&self.issuing);
        if let Some(member) = issuing.capturing() {
            member.add(command)?;
            return Ok(0);
        }
        self.see_host(&mut issuing);
        let mut issuer =
            Issuer { device: self.device, stream: self.number, component: self.component, clock: &mut issuing.clock };
        let mut mapped = Vec::new();
        let issued = issuer.issue(&command, &mut mapped);
        self.push(&mut issuing, Work::Operation(Operation { command, issued, _mapped: mapped }))
    }

    /// Appends work, and returns its position.
    pub(crate) fn push(self: &Arc<Self>, issuing: &mut Issuing, work: Work) -> Outcome<u64> {
        self.queue.push(self, work)?;
        issuing.position += 1;
        Ok(issuing.position)
    }

    /// Orders operations that are issued next after everything that the host has seen.
    pub(crate) fn see_host(&self, issuing: &mut Issuing) {
        if self.device.tracks_races() {
            self.device.host().tell(&mut issuing.clock, &mut issuing.host_seen);
        }
    }

    /// Orders all operations that are issued next after a position of the other stream.
    pub(crate) fn wait_for(self: &Arc<Self>, issuing: &mut Issuing, other: &Arc<Stream>, position: u64, clock: &Kept) -> Outcome {
        if let Some(clock) = clock {
            issuing.clock.join(clock);
        }
        if Arc::ptr_eq(self, other) || other.progress.has_passed(position) {
            return Ok(());
        }
        self.push(issuing, Work::Wait(other.clone(), position)).map(drop)
    }

    /// Returns the position and the clock of all issued work.
    pub(crate) fn mark(&self) -> Outcome<(u64, Kept)> {
        let mut issuing = lock(&self.issuing);
        if let Some(member) = issuing.capturing() {
            member.invalidate();
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        Ok((issuing.position, self.kept_clock(&mut issuing)))
    }

    pub(crate) fn kept_clock(&self, issuing: &mut Issuing) -> Kept {
        self.device.tracks_races().then(|| {
            self.see_host(issuing);
            Arc::new(issuing.clock.clone())
        })
    }

    pub(crate) fn query(&self) -> Outcome {
        let (position, clock) = self.mark()?;
        let has_passed = self.progress.has_passed(position);
        self.device.context.check()?;
        self.take_pending()?;
        if has_passed { self.host_sees(&clock) } else { Err(Code::NOT_READY) }
    }

    pub(crate) fn synchronize(&self) -> Outcome {
        let (position, clock) = self.mark()?;
        self.block_until(position)?;
        self.take_pending()?;
        self.host_sees(&clock)
    }

    /// Blocks until the position has passed.
    pub(crate) fn block_until(&self, position: u64) -> Outcome {
        let context = &self.device.context;
        let has_passed = self.progress.wait_for(position, || context.is_over());
        context.check()?;
        if !has_passed {
            return Err(Code::CONTEXT_IS_DESTROYED);
        }
        // ORDERING: Relaxed: only the check of a fault reads it, and it guards no other data.
        self.waited.fetch_max(position, Ordering::Relaxed);
        self.write_held();
        Ok(())
    }

    /// Returns true if the host has waited for the position.
    pub(crate) fn is_waited_for(&self, position: u64) -> bool {
        // ORDERING: Relaxed: the position guards no other data.
        self.waited.load(Ordering::Relaxed) >= position
    }

    /// Keeps a value until the host waits for the stream.
    pub(crate) fn hold(&self, write: WriteValue, informs: Kept) {
        lock(&self.held).push((write, informs));
    }

    fn write_held(&self) {
        let held = std::mem::take(&mut *lock(&self.held));
        for (write, informs) in held {
            // The caller may have freed the word in the meantime.
            if memory::find(self.device, write.into).is_some() {
                execute::write_value(self, &write, &informs);
            }
        }
    }

    /// Blocks until all issued work has ended or failed: no work writes to the caller's memory any more.
    pub(crate) fn see_through(&self) -> Outcome {
        let (position, clock) = self.mark()?;
        self.progress.wait_for(position, || false);
        self.device.context.check()?;
        self.host_sees(&clock)
    }

    pub(crate) fn host_sees(&self, clock: &Kept) -> Outcome {
        if let Some(clock) = clock {
            self.device.host().join(clock);
        }
        Ok(())
    }

    /// Records that an operation has failed with a code that is not fatal.
    pub(crate) fn fail_once(&self, code: Code) {
        // ORDERING: Relaxed: the Release in `Progress::complete` publishes it.
        self.pending.store(code.0, Ordering::Relaxed);
    }

    pub(crate) fn take_pending(&self) -> Outcome {
        // ORDERING: Relaxed: the Acquire in `Progress::has_passed` made the code visible.
        match self.pending.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }

    pub(crate) fn join(&self) {
        self.queue.join();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.queue.has_ended()
    }
}

impl Issuing {
    /// Returns the capture that the stream takes part in, if there is one.
    pub(crate) fn capturing(&mut self) -> Option<&mut Member> {
        if self.capture.as_ref().is_some_and(Member::has_ended) {
            self.capture = None;
        }
        self.capture.as_mut()
    }
}
