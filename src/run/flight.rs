//! Which iterations of a run over items are in use, and by which items.

/// The iterations in use, by the consumer's count.
pub(super) enum Flight {
    /// Results come in the order of their items: a ring.
    Ordered { slots: u32, first: u32, len: u32 },
    /// Results come as they are done. The search for one goes round, from `at` on: each gets its turn, and a
    /// round finds all that are done. Where only one of them is done, it looks at all others.
    Unordered { busy: Vec<u32>, at: usize, free: Vec<u32> },
}

impl Flight {
    pub(super) fn new(slots: u32, is_ordered: bool) -> Self {
        match is_ordered {
            true => Self::Ordered { slots, first: 0, len: 0 },
            false => Self::Unordered { busy: Vec::with_capacity(slots as usize), at: 0, free: (0..slots).rev().collect() },
        }
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Ordered { len, .. } => *len,
            Self::Unordered { busy, .. } => busy.len() as u32,
        }
    }

    /// Returns the number of iterations that are free.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        match self {
            Self::Ordered { slots, len, .. } => slots - len,
            Self::Unordered { free, .. } => free.len() as u32,
        }
    }

    /// Returns an iteration for one more item, if there is one.
    #[inline]
    pub(super) fn free(&self) -> Option<u32> {
        match self {
            Self::Ordered { slots, first, len } if len < slots => {
                let next = first + len;
                Some(if next >= *slots { next - slots } else { next })
            }
            Self::Ordered { .. } => None,
            Self::Unordered { free, .. } => free.last().copied(),
        }
    }

    /// Gives the free iteration to an item.
    #[inline]
    pub(super) fn begin(&mut self) {
        match self {
            Self::Ordered { len, .. } => *len += 1,
            Self::Unordered { busy, free, .. } => busy.extend(free.pop()),
        }
    }

    /// Returns what `done` says of the iteration whose item comes next.
    #[inline]
    pub(super) fn next<D>(&self, mut done: impl FnMut(u32) -> Option<D>) -> Option<D> {
        match self {
            Self::Ordered { first, len, .. } if *len > 0 => done(*first),
            Self::Ordered { .. } => None,
            Self::Unordered { busy, at, .. } => round(busy, *at).find_map(|place| done(busy[place])),
        }
    }

    /// Makes the iteration of a done item free again.
    #[inline]
    pub(super) fn end(&mut self, iteration: u32) {
        match self {
            Self::Ordered { slots, first, len } => {
                *len -= 1;
                *first = if iteration + 1 == *slots { 0 } else { iteration + 1 };
            }
            Self::Unordered { busy, at, free } => free.push(take_out(busy, at, iteration)),
        }
    }

    /// Returns the iteration whose end the consumer awaits. None if it awaits that of any.
    pub(super) fn awaited(&self) -> Option<u32> {
        match self {
            Self::Ordered { first, .. } => Some(*first),
            Self::Unordered { .. } => None,
        }
    }
}

/// Takes an iteration out of those in use. Not inlined: most results are ordered.
#[inline(never)]
fn take_out(busy: &mut Vec<u32>, at: &mut usize, iteration: u32) -> u32 {
    // The search that found it began at the same place.
    let place = round(busy, *at).find(|&place| busy[place] == iteration).expect("it is in use");
    // The last one takes this place. It has its turn in the next round, or newer ones would have it always.
    *at = place + 1;
    busy.swap_remove(place)
}

/// Returns all places, from one of them on.
fn round(places: &[u32], from: usize) -> impl Iterator<Item = usize> + use<> {
    (from..places.len()).chain(0..from.min(places.len()))
}
