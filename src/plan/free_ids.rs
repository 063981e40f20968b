//! A set of free numbers that hands out the lowest first and never runs out.

/// All numbers from 0, less those that were taken and not given back.
///
/// A tree of 64-way words: a bit of a level says that its word one level down is not empty. Taking and giving
/// back cost one word per level, four levels for the largest graphs, where a heap would pay a cache miss per
/// binary level.
#[derive(Default)]
pub(super) struct FreeIds {
    /// Numbers that were given back, lowest level first; the last level has at most one word.
    levels: Vec<Vec<u64>>,
    /// The lowest number never taken.
    next: u32,
}

impl FreeIds {
    /// Takes the lowest free number.
    pub(super) fn take(&mut self) -> u32 {
        let top = self.levels.last().map_or(0, |words| words[0]);
        if top == 0 {
            self.next += 1;
            return self.next - 1;
        }
        let lowest = self.levels.iter().rev().fold(0, |place, words| place * 64 + words[place].trailing_zeros() as usize);
        let mut place = lowest;
        for words in &mut self.levels {
            words[place / 64] &= !(1 << (place % 64));
            if words[place / 64] != 0 {
                break;
            }
            place /= 64;
        }
        lowest as u32
    }

    /// Gives back a number that was taken.
    pub(super) fn give_back(&mut self, id: u32) {
        debug_assert!(id < self.next, "only what was taken comes back");
        let mut place = id as usize;
        self.grow(place / 64 + 1);
        for words in &mut self.levels {
            words[place / 64] |= 1 << (place % 64);
            place /= 64;
        }
    }

    /// Makes room for `words` words in the lowest level, and for their bits above it.
    fn grow(&mut self, mut words: usize) {
        for level in 0.. {
            if level == self.levels.len() {
                let below = level.checked_sub(1).map(|below| u64::from(self.levels[below][0] != 0));
                self.levels.push(vec![below.unwrap_or(0)]);
            }
            let held = self.levels[level].len();
            if words > held {
                self.levels[level].resize(words, 0);
            }
            if words.max(held) == 1 {
                break;
            }
            words = words.div_ceil(64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_lowest_free_number_is_taken_first() {
        // Seen to fail with the emptied word's bit left set in the level above.
        let (mut ids, mut free, mut taken) = (FreeIds::default(), (0..20_000).collect::<BTreeSet<u32>>(), Vec::new());
        let mut word = 7u64;
        for step in 0..40_000 {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let draw = (word >> 33) as usize;
            if taken.is_empty() || draw % 16 < if step < 20_000 { 12 } else { 4 } {
                let lowest = free.pop_first().expect("more numbers than steps");
                assert_eq!(ids.take(), lowest);
                taken.push(lowest);
            } else {
                let back = taken.swap_remove(draw / 16 % taken.len());
                ids.give_back(back);
                free.insert(back);
            }
        }
    }
}
