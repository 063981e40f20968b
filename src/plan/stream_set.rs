//! Sets of streams that share their common parts. A union costs as much as the two sides differ, and a stale
//! entry leaves all sets at once. They are big-endian Patricia trees (Okasaki and Gill, "Fast mergeable
//! integer maps", 1998).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The number of uses of each stream, and the number of entries that were visited in lookups.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) counts: Vec<u32>,
    pub(super) steps: Cell<u64>,
}

/// A set of streams, each with the number of its uses when it was added. An entry is current while its stream
/// has no more uses than that, and stale afterwards.
#[derive(Clone, Default)]
pub(super) struct StreamSet(RefCell<Option<Rc<Tree>>>);

/// The keys of a tree agree with its `prefix` above its `bit`; a leaf has no such bit.
struct Tree {
    prefix: u32,
    bit: u32,
    uses: u32,
    /// The subtrees with the bit clear and with the bit set. Emptied once all entries in them are found to be
    /// stale.
    sides: [StreamSet; 2],
}

impl StreamSet {
    /// Returns the set of one stream.
    pub(super) fn of(stream: u32, uses: u32) -> Self {
        Self::from(Tree { prefix: stream, bit: 0, uses, sides: Default::default() })
    }

    fn from(tree: Tree) -> Self {
        Self(RefCell::new(Some(Rc::new(tree))))
    }

    fn tree(&self) -> Option<Rc<Tree>> {
        self.0.borrow().clone()
    }

    /// Returns the tree. None if it is a stale entry, which then leaves the set.
    fn fresh(&self, uses: &Uses) -> Option<Rc<Tree>> {
        let tree = self.tree()?;
        uses.steps.set(uses.steps.get() + 1);
        if tree.bit == 0 && tree.uses != uses.counts[tree.prefix as usize] {
            *self.0.borrow_mut() = None;
            return None;
        }
        Some(tree)
    }

    /// Returns the lowest stream with a current entry. `uses` has the uses so far. Stale entries on the way
    /// leave this set and all sets that share them.
    pub(super) fn first(&self, uses: &Uses) -> Option<u32> {
        let tree = self.fresh(uses)?;
        let found = match tree.bit {
            0 => Some(tree.prefix),
            _ => tree.sides[0].first(uses).or_else(|| tree.sides[1].first(uses)),
        };
        if found.is_none() {
            *self.0.borrow_mut() = None;
        }
        found
    }

    /// Returns the union of two sets, without the stale entries that are met on the way.
    pub(super) fn union(&self, other: &Self, uses: &Uses) -> Self {
        let (Some(a), Some(b)) = (self.fresh(uses), other.fresh(uses)) else {
            return if self.0.borrow().is_some() { self.clone() } else { other.clone() };
        };
        if Rc::ptr_eq(&a, &b) {
            return self.clone();
        }
        let (outer, inner) = if a.bit >= b.bit { (self, other) } else { (other, self) };
        let (above, below) = if a.bit >= b.bit { (a, b) } else { (b, a) };
        if above.prefix != prefix_of(below.prefix, above.bit) {
            return join(outer, above.prefix, inner, below.prefix);
        }
        match (above.bit, below.bit) {
            // Both entries are current, so they are equal.
            (0, 0) => outer.clone(),
            (bit, other) if bit == other => {
                let sides = [0, 1].map(|side| above.sides[side].union(&below.sides[side], uses));
                if below.has_sides(&sides) { inner.clone() } else { above.with(sides, outer) }
            }
            (bit, _) => {
                let side = usize::from(below.prefix & bit != 0);
                let mut sides = above.sides.clone();
                sides[side] = sides[side].union(inner, uses);
                above.with(sides, outer)
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&*self.0.borrow(), &*other.0.borrow()) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Tree {
    fn has_sides(&self, sides: &[StreamSet; 2]) -> bool {
        self.sides.iter().zip(sides).all(|(own, side)| own.is_same(side))
    }

    /// Returns this tree, which `set` holds, with other subtrees. If they are the same, returns `set`, so
    /// that the tree stays shared. If one is empty, returns the other.
    fn with(&self, sides: [StreamSet; 2], set: &StreamSet) -> StreamSet {
        if let Some(empty) = sides.iter().position(|side| side.0.borrow().is_none()) {
            return sides[1 - empty].clone();
        }
        if self.has_sides(&sides) {
            return set.clone();
        }
        StreamSet::from(Self { prefix: self.prefix, bit: self.bit, uses: 0, sides })
    }
}

/// Returns the bits of `key` above `bit`.
fn prefix_of(key: u32, bit: u32) -> u32 {
    if bit == 0 { key } else { key & !(bit | (bit - 1)) }
}

/// Returns the union of two sets whose keys differ above the bits of both.
fn join(a: &StreamSet, a_prefix: u32, b: &StreamSet, b_prefix: u32) -> StreamSet {
    let bit = 1 << (31 - (a_prefix ^ b_prefix).leading_zeros());
    let sides = if a_prefix & bit == 0 { [a.clone(), b.clone()] } else { [b.clone(), a.clone()] };
    StreamSet::from(Tree { prefix: prefix_of(a_prefix, bit), bit, uses: 0, sides })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Seen to fail with stale entries kept, with `first` that visits the high side first, and with a prefix
    /// that keeps the bit.
    #[test]
    fn unions_are_those_of_maps() {
        let mut word = 11_u64;
        let mut draw = move |bound: u64| {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (word >> 33) % bound
        };
        for _ in 0..200 {
            let streams = 1 + draw(40) as usize;
            let mut uses = Uses { counts: vec![0_u32; streams], ..Uses::default() };
            let mut sets: Vec<(StreamSet, BTreeMap<u32, u32>)> = vec![Default::default(); 4];
            for _ in 0..200 {
                let (stream, to, other) = (draw(streams as u64) as u32, draw(4) as usize, draw(4) as usize);
                if draw(3) == 0 {
                    uses.counts[stream as usize] += 1;
                }
                let entry = (stream, uses.counts[stream as usize]);
                let (set, map) = sets[other].clone();
                sets[to].0 = sets[to].0.union(&set, &uses).union(&StreamSet::of(entry.0, entry.1), &uses);
                for (stream, used) in map.into_iter().chain([entry]) {
                    let known = sets[to].1.entry(stream).or_default();
                    *known = used.max(*known);
                }
                let is_current = |(stream, used): (&u32, &u32)| Some(*stream).filter(|_| uses.counts[*stream as usize] == *used);
                let checked = &sets[draw(4) as usize];
                assert_eq!(checked.0.first(&uses), checked.1.iter().find_map(is_current));
            }
        }
    }
}
