//! Vector clocks: how far work knows each strand.

/// For each strand the last tick that is known. Strands behind the end are not known at all.
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

    /// Learns all that the other one knows.
    pub(in crate::device) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    }

    /// Learns of an epoch.
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
