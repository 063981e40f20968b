//! The accesses to an allocation, and which of them are not yet known to have ended.

use std::ops::Range;

use super::clock::Clock;
use super::violation::Label;
use crate::wire::ViolationKind;

/// Above this length the list drops accesses that the host has seen: operations that are issued later cannot
/// race with those.
const SWEPT_ABOVE: usize = 16;

/// One access by one operation.
pub(crate) struct Access {
    pub(crate) range: Range<usize>,
    pub(crate) is_write: bool,
}

/// The time and the actor of an access.
pub(crate) struct Moment<'a> {
    pub(crate) component: u32,
    pub(crate) tick: u64,
    /// Everything before it.
    pub(crate) clock: &'a Clock,
    pub(crate) label: &'a Label,
}

struct Entry {
    access: Access,
    component: u32,
    tick: u64,
    label: Label,
}

/// The accesses to one allocation that may still race with later ones.
#[derive(Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    freed_by: Option<Label>,
}

impl History {
    pub(crate) fn is_freed(&self) -> bool {
        self.freed_by.is_some()
    }

    pub(crate) fn freed_by(&self) -> Option<&Label> {
        self.freed_by.as_ref()
    }

    /// Records that an operation frees the allocation. `touch` must first check for a race.
    pub(crate) fn free(&mut self, label: Label) {
        self.freed_by = Some(label);
        self.entries = Vec::new();
    }

    /// Adds an access. Returns the violation, if there is one.
    pub(crate) fn touch(
        &mut self,
        access: Access,
        moment: &Moment<'_>,
        host: impl Fn() -> Clock,
    ) -> Option<(ViolationKind, String)> {
        let mut race = None;
        self.entries.retain(|earlier| {
            if !overlaps(&earlier.access.range, &access.range) {
                return true;
            }
            let is_ordered = moment.clock.covers(earlier.component, earlier.tick);
            if !is_ordered && (earlier.access.is_write || access.is_write) {
                race.get_or_insert_with(|| format!("{} and {} have no order between them", earlier.label, moment.label));
            }
            // An access that races with the earlier one also races with this one, if this one is as strong
            // and as wide.
            let is_as_wide = access.range.start <= earlier.access.range.start && access.range.end >= earlier.access.range.end;
            let is_as_strong = access.is_write || !earlier.access.is_write;
            !(is_ordered && is_as_wide && is_as_strong)
        });
        if self.entries.len() >= SWEPT_ABOVE {
            let host = host();
            self.entries.retain(|entry| !host.covers(entry.component, entry.tick));
        }
        self.entries.push(Entry { access, component: moment.component, tick: moment.tick, label: moment.label.clone() });
        race.map(|text| (ViolationKind::Race, text))
    }
}

fn overlaps(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}
