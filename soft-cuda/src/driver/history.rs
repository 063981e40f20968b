//! Who has touched an allocation, and who of those is not yet known to be done.

use std::ops::Range;

use super::clock::Clock;
use super::violation::Label;
use crate::wire::ViolationKind;

/// Above this the list is swept for accesses that the host has seen: nothing issued from now on can race with
/// those.
const SWEPT_ABOVE: usize = 16;

/// One access by one operation.
pub(crate) struct Access {
    pub(crate) range: Range<usize>,
    pub(crate) is_write: bool,
}

/// When and by whom.
pub(crate) struct Moment<'a> {
    pub(crate) component: u32,
    pub(crate) tick: u64,
    /// All that comes before it.
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

    /// The allocation is freed by the operation; whether that raced is `touch`'s to say, before.
    pub(crate) fn free(&mut self, label: Label) {
        self.freed_by = Some(label);
        self.entries = Vec::new();
    }

    /// Adds an access and returns what is wrong with it.
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
            // Whoever races with the earlier access races with this one too, if this one is as strong and as
            // wide.
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
