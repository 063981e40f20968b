//! The host's own accesses to the driver's memory, and what the host knows.

use super::device::Device;
use super::history::{Access, Moment};
use super::violation::{Label, Name};
use super::{lock, memory};
use crate::wire::ViolationKind;

/// Records that the host has read the word: it knows everything before the last value that was written there.
pub(crate) fn saw(device: &Device, word: usize) {
    let clock = lock(&device.words).get(&word).cloned();
    if let Some(clock) = clock {
        device.host().join(&clock);
    }
}

/// Records an access of the host at once, ordered only after everything that the host has seen. Returns the
/// name of the access.
pub(crate) fn touches(device: &Device, address: usize, len: usize, is_write: bool, name: &'static str) -> Label {
    let (component, tick, clock) = device.host().act();
    let label = Label { name: Name::Other(name), device: device.ordinal, stream: None, operation: 0 };
    let Some(allocation) = memory::find(device, address) else {
        device.violations.add(ViolationKind::OutOfBounds, format!("{label} at {address:#x}, which is in no allocation"));
        return label;
    };
    let mut history = lock(&allocation.history);
    if let Some(freed_by) = history.freed_by() {
        device.violations.add(ViolationKind::UseAfterFree, format!("{label} of memory freed by {freed_by}"));
    } else if device.tracks_races() {
        let moment = Moment { component, tick, clock: &clock, label: &label };
        let access = Access { range: address..address.saturating_add(len), is_write };
        if let Some((kind, text)) = history.touch(access, &moment, || device.host().snapshot()) {
            device.violations.add(kind, text);
        }
    }
    drop(history);
    label
}
