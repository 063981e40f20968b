//! The arrivals at the gates of phases, item by item. The code follows the arrows of a [`Pipelining`], as a
//! run does.

use super::Pipelining;
use crate::error::{Kind, Result};

/// The cause of an arrival at a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The source: it began this item, or it ended before this item.
    Source(u32),
    End {
        phase: u32,
        item: u32,
    },
}

/// The arrivals at each gate for each item.
pub(super) struct Arrivals<'a> {
    pipelining: &'a Pipelining,
    items: u32,
    /// The causes, by item, then by phase.
    causes: Vec<Vec<Cause>>,
}

impl<'a> Arrivals<'a> {
    /// Follows the arrows of `items` items.
    pub(super) fn new(pipelining: &'a Pipelining, items: u32) -> Self {
        let mut arrivals = Self { pipelining, items, causes: vec![Vec::new(); items as usize * pipelining.phases.len()] };
        for item in 0..items {
            pipelining.begun_by_source.iter().for_each(|&phase| arrivals.add(item.into(), phase, Cause::Source(item)));
            for (rule, phase) in pipelining.phases.iter().zip(0..) {
                for arrow in &rule.arrows {
                    let target = i64::from(item) + i64::from(arrow.shift);
                    // The first use of an iteration counts an arrival that would come before the first item.
                    let target = if target < 0 { target + i64::from(pipelining.slots) } else { target };
                    arrivals.add(target, arrow.phase, Cause::End { phase, item });
                }
            }
        }
        for (phase, item) in pipelining.missing_behind(items.into()) {
            arrivals.add(item as i64, phase, Cause::Source(items - 1));
        }
        arrivals
    }

    fn place(&self, item: u32, phase: u32) -> usize {
        item as usize * self.pipelining.phases.len() + phase as usize
    }

    fn add(&mut self, item: i64, phase: u32, cause: Cause) {
        if let Some(item) = u32::try_from(item).ok().filter(|&item| item < self.items) {
            let place = self.place(item, phase);
            self.causes[place].push(cause);
        }
    }

    /// Returns the causes of the arrivals at the gate of a phase for an item.
    pub(super) fn at(&self, item: u32, phase: u32) -> &[Cause] {
        &self.causes[self.place(item, phase)]
    }

    /// Checks that each gate counts exactly the arrivals that come.
    pub(super) fn check(&self) -> Result<()> {
        let shifts = self.pipelining.shifts();
        for (item, phase) in
            (0..self.items).flat_map(|item| (0..self.pipelining.phases.len() as u32).map(move |phase| (item, phase)))
        {
            let counts = match self.pipelining.phases[phase as usize].arrivals {
                // Such a gate does not count: one arrival begins the phase.
                0 | 1 => 1,
                _ if item < self.pipelining.slots => self.pipelining.first_arrivals(phase, item, &shifts[phase as usize]),
                arrivals => arrivals,
            };
            let come = self.at(item, phase).len() as u32;
            if come != counts {
                return Err(Kind::Arrivals { phase: phase + 1, item, counts, come }.into());
            }
        }
        Ok(())
    }
}
