//! The uses of memory by a recording, and their check at submission. The parts of a recording are checked
//! against the order that the plan gives them, whichever lanes they share.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::checked::Checked;
use super::memory::Section;
use super::recording::Recording;
use crate::device::queue::{Event, Judge};
use crate::device::sanitize::{Clock, Key, Shadow};
use crate::error::{Error, How, Kind, Race, Use};

/// The uses of memory by a recording, in order.
pub(super) struct Checks {
    checked: Checked,
    /// The clock of the events that the lane waits for first.
    base: Clock,
    uses: Vec<NotedUse>,
}

struct NotedUse {
    /// The number of parts that had begun, and of earlier operations.
    parts: usize,
    ops: usize,
    shadow: Arc<Shadow>,
    bytes: Range<usize>,
    how: How,
}

impl Checks {
    pub(super) fn new(checked: &Checked) -> Box<Self> {
        Box::new(Self { checked: checked.clone(), base: Clock::default(), uses: Vec::new() })
    }

    pub(super) fn begin(&mut self, waits: &[Event]) {
        self.uses.clear();
        self.base = Clock::default();
        let clocks = self.checked.sanitizer.clocks();
        waits.iter().for_each(|event| self.base.join(&clocks.clock(Key::Event(event.0))));
    }

    pub(super) fn note(&mut self, parts: usize, ops: usize, section: &Section, how: How) {
        // The sanitizer of another executor orders the uses of its memory.
        let Some(shadow) = section.allocation.shadow.as_ref().filter(|shadow| shadow.is_of(&self.checked.sanitizer)) else {
            return;
        };
        let start = (section.address - section.allocation.address) as usize;
        self.uses.push(NotedUse { parts, ops, shadow: shadow.clone(), bytes: start..start + section.bytes, how });
    }

    /// Discards the uses by operations from `ops` on. The allocations stay.
    pub(super) fn truncate(&mut self, ops: usize) {
        self.uses.retain(|noted| noted.ops < ops || noted.how == How::Allocates);
    }

    /// Checks all uses. Parts that race are refused, although the device will still do them. Returns the
    /// clock of the recording's end. The caller holds the device's path.
    fn judge(&self, recording: &Recording, judge: &mut dyn Judge, point: u64) -> Clock {
        let (device, lane) = (self.checked.device, recording.lane);
        let (mut end, mut streams) = (self.base.clone(), HashMap::new());
        let mut ends: Vec<Clock> = Vec::with_capacity(recording.parts.len());
        let mut races = Vec::new();
        {
            let mut clocks = self.checked.sanitizer.clocks();
            end.join(&clocks.clock(Key::Host));
            end.join(&clocks.clock(Key::Lane(device, lane)));
            let (start, mut uses) = (end.clone(), &self.uses[..]);
            for (part, noted) in recording.parts.iter().enumerate() {
                let place = streams.len() as u32;
                let (place, clock) = streams.entry(noted.stream).or_insert_with(|| (place, start.clone()));
                recording.waits_of(part).iter().for_each(|&other| clock.join(&ends[other as usize]));
                let epoch = clocks.tick(Key::Stream(device, lane, *place), clock);
                let site = std::cell::OnceCell::new();
                let (own, later) = uses.split_at(uses.partition_point(|used| used.parts <= part + 1));
                uses = later;
                let check = |noted: &NotedUse| {
                    let site = site.get_or_init(|| Arc::new(judge.site(part as u32)));
                    noted.shadow.note(noted.bytes.clone(), Use { site: site.clone(), how: noted.how }, epoch, clock)
                };
                let race = own.iter().fold(None, |race: Option<Race>, noted| {
                    let found = check(noted);
                    race.or(found)
                });
                races.push(race);
                ends.push(clock.clone());
            }
            streams.into_values().for_each(|(_, clock)| end.join(&clock));
            clocks.submitted((device, lane), point, end.clone());
        }
        report(races, judge);
        end
    }
}

impl Recording {
    /// Checks all uses, if there is a sanitizer, before the recording is issued with ends up to a point.
    /// Returns the clock of the end.
    pub(super) fn judge(&mut self, judge: &mut dyn Judge, point: u64) -> Option<Clock> {
        let checks = self.checks.take()?;
        let end = checks.judge(self, judge, point);
        self.checks = Some(checks);
        Some(end)
    }
}

/// Reports the parts with races. Their successors have no valid input.
fn report(races: Vec<Option<Race>>, judge: &mut dyn Judge) {
    let mut has_raced = false;
    for (part, race) in (0..).zip(races) {
        let is_on = !has_raced || judge.goes_on(part);
        if let Some(race) = race.filter(|_| is_on) {
            let error: Error = Kind::Race(Box::new(race)).into();
            judge.refused(part, error);
            has_raced = true;
        }
    }
}
