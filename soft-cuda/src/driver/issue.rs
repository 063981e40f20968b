//! Turns a command into an operation: gives it a number and its fault, looks up its memory and checks its
//! order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::allocation::Allocation;
use super::clock::{Clock, Kept};
use super::command::{Command, Touch};
use super::device::{self, Device};
use super::fault::Fault;
use super::history::{Access, Moment};
use super::violation::Label;
use super::{lock, memory};
use crate::code::Code;
use crate::wire::ViolationKind;

/// A command that will be executed, or fail, at its position.
pub(crate) struct Operation {
    pub(crate) command: Command,
    pub(crate) issued: Issued,
    pub(crate) _mapped: Mapped,
}

/// The results of issuing a command, for its execution.
#[derive(Default)]
pub(crate) struct Issued {
    pub(crate) fault: Fault,
    /// The clock of the host once it sees the operation's effect.
    pub(crate) informs: Kept,
}

impl Issued {
    pub(crate) fn is_any(&self) -> bool {
        self.fault.is_any() || self.informs.is_some()
    }
}

/// Keeps the memory mapped that operations access.
pub(crate) type Mapped = Vec<Arc<Allocation>>;

/// The issuer of an operation: a stream, or a node of a graph on a stream.
pub(crate) struct Issuer<'a> {
    pub(crate) device: &'static Device,
    pub(crate) stream: u32,
    pub(crate) component: u32,
    /// The clock of everything before it. The operation advances the clock.
    pub(crate) clock: &'a mut Clock,
}

impl Issuer<'_> {
    pub(crate) fn issue(&mut self, command: &Command, mapped: &mut Mapped) -> Issued {
        let device = self.device;
        // ORDERING: Relaxed: the numbers only have to differ.
        let number = device.numbers.issued.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fault = device.faults.for_operation(command.which());
        let tracks = device.tracks_races();
        let tick = if tracks { self.clock.advance(self.component) } else { 0 };
        let stream = self.stream;
        let label = || Label { name: command.name(), device: device.ordinal, stream: Some(stream), operation: number };
        command.for_each_touch(|touch| match self.check(&touch, tick, &label) {
            Ok(allocation) => mapped.extend(allocation),
            Err((kind, text)) => {
                device.violations.add(kind, text);
                fault.code.get_or_insert(Code::ILLEGAL_ADDRESS);
            }
        });
        if let Command::Free(allocation) = command {
            lock(&allocation.history).free(label());
        }
        let informs = (tracks && command.informs_host()).then(|| Arc::new(self.clock.clone()));
        Issued { fault, informs }
    }

    /// Looks up the accessed memory and checks the access. A race is reported here, because it makes no call
    /// fail.
    fn check(
        &mut self,
        touch: &Touch,
        tick: u64,
        label: &impl Fn() -> Label,
    ) -> Result<Option<Arc<Allocation>>, (ViolationKind, String)> {
        if touch.len == Some(0) {
            return Ok(None);
        }
        let Some(allocation) = memory::find(self.device, touch.address) else {
            if touch.may_be_foreign || self.is_behind_allocation(touch) {
                return Ok(None);
            }
            let text = format!("{} accesses {:#x}, which is in no allocation", label(), touch.address);
            return Err((ViolationKind::OutOfBounds, text));
        };
        let whole = allocation.range();
        let range = match touch.len {
            None => whole.clone(),
            Some(len) => touch.address..touch.address.saturating_add(len),
        };
        if range.end > whole.end {
            let excess = range.end - whole.end;
            let text = format!("{} goes {excess} bytes beyond an allocation of {}", label(), allocation.len());
            return Err((ViolationKind::OutOfBounds, text));
        }
        if allocation.device.ordinal != self.device.ordinal {
            device::link(self.device, allocation.device);
            self.clock.join(&self.device.host().snapshot());
        }
        let mut history = lock(&allocation.history);
        if let Some(freed_by) = history.freed_by() {
            return Err((ViolationKind::UseAfterFree, format!("{} accesses memory freed by {freed_by}", label())));
        }
        if self.device.tracks_races() {
            let moment = Moment { component: self.component, tick, clock: self.clock, label: &label() };
            let access = Access { range, is_write: touch.is_write };
            if let Some((kind, text)) = history.touch(access, &moment, || self.device.host().snapshot()) {
                self.device.violations.add(kind, text);
            }
        }
        drop(history);
        Ok(Some(allocation))
    }

    /// Returns true for a kernel's pointer to the end of an allocation: an empty part of it, which the kernel
    /// will not access.
    fn is_behind_allocation(&self, touch: &Touch) -> bool {
        let is_end = |allocation: Arc<Allocation>| allocation.range().end == touch.address;
        touch.len.is_none() && memory::find(self.device, touch.address - 1).is_some_and(is_end)
    }
}
