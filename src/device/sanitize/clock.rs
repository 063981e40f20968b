//! Vector clocks: the last tick of each strand that some work is ordered after.

/// The last known tick of each strand. Strands beyond the end are not known.
#[derive(Clone, Default, Debug)]
pub(in crate::device) struct Clock(Vec<u32>);

/// A tick of a strand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::device) struct Epoch {
    pub(super) strand: u32,
    pub(super) tick: u32,
}

impl Clock {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the later tick of both clocks for each strand.
    pub(in crate::device) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    }

    /// Adds an epoch.
    pub(super) fn learn(&mut self, Epoch { strand, tick }: Epoch) {
        let strand = strand as usize;
        if self.0.len() <= strand {
            self.0.resize(strand + 1, 0);
        }
        self.0[strand] = tick.max(self.0[strand]);
    }

    pub(super) fn knows(&self, Epoch { strand, tick }: Epoch) -> bool {
        self.0.get(strand as usize).is_some_and(|&known| known >= tick)
    }
}
