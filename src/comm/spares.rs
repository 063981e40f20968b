//! The memory of values that exchanges have taken: other values are received there. The system gives a
//! process new memory page by page, on first use, which takes longer than a message of that size.

use std::collections::VecDeque;
use std::sync::Arc;

use super::given::Given;
use super::wire::{Form, Landing, SPARE_MIN, SpareMemory, With};
use crate::sync::{Mutex, lock};

/// How many values are counted before the most bytes in use are counted anew.
const EPOCH: u32 = 256;

#[derive(Default)]
pub(crate) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    /// The latest is last.
    spares: VecDeque<SpareMemory>,
    /// Their bytes.
    kept: usize,
    /// The bytes that exchanges use, of values that they give and make.
    used: usize,
    /// The most that they have used at one time in this epoch, and in the last one. At most so many bytes are
    /// kept.
    most: [usize; 2],
    /// The number of values of this epoch.
    counted: u32,
}

impl Spares {
    /// Keeps the memory of a value that an operation was given, if nothing else has the value.
    pub(crate) fn keep(&self, given: Option<Given>, form: &Form) {
        let Some(spare) = given.and_then(|given| given.give_memory(form)) else { return };
        let mut state = lock(&self.0);
        state.kept += spare.bytes;
        state.spares.push_back(spare);
        let over = state.shrink();
        // Memory is given back outside of the lock.
        drop(state);
        drop(over);
    }

    /// Returns memory for a value of so many bytes: the smallest that was kept and is large enough, unless it
    /// is much too large.
    pub(crate) fn landing(self: &Arc<Self>, form: &Form, bytes: usize) -> Box<dyn Landing> {
        if bytes < SPARE_MIN {
            return (form.landing)(bytes, None);
        }
        let used = self.count(bytes);
        let mut state = lock(&self.0);
        let fits = |spare: &SpareMemory| {
            (bytes..=bytes.saturating_mul(2)).contains(&spare.bytes) && (*spare.memory).type_id() == form.id
        };
        // Of the smallest, the latest, which is still in the caches.
        let fitting = state.spares.iter().enumerate().rev().filter(|(_, spare)| fits(spare));
        let smallest = fitting.min_by_key(|(_, spare)| spare.bytes).map(|(at, _)| at);
        let found = smallest.and_then(|at| state.spares.remove(at));
        state.kept -= found.as_ref().map_or(0, |spare| spare.bytes);
        drop(state);
        Box::new(With { landing: (form.landing)(bytes, found), _kept: used })
    }

    /// Counts the bytes of a value that an exchange uses, until the return value is dropped.
    pub(crate) fn count(self: &Arc<Self>, bytes: usize) -> InUse {
        let mut state = lock(&self.0);
        state.used += bytes;
        state.most[0] = state.most[0].max(state.used);
        state.counted += 1;
        let mut over = Vec::new();
        if state.counted == EPOCH {
            (state.most, state.counted) = ([state.used, state.most[0]], 0);
            over = state.shrink();
        }
        drop(state);
        drop(over);
        InUse { spares: self.clone(), bytes }
    }
}

impl State {
    /// Removes the oldest memory that is too much.
    fn shrink(&mut self) -> Vec<SpareMemory> {
        let most = self.most[0].max(self.most[1]);
        let mut over = Vec::new();
        while self.kept > most {
            let oldest = self.spares.pop_front().expect("there are as many bytes");
            self.kept -= oldest.bytes;
            over.push(oldest);
        }
        over
    }
}

/// Bytes that an exchange uses.
pub(crate) struct InUse {
    spares: Arc<Spares>,
    bytes: usize,
}

impl Drop for InUse {
    fn drop(&mut self) {
        lock(&self.spares.0).used -= self.bytes;
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use super::*;

    fn given(bytes: usize) -> (Given, usize) {
        let value = vec![0_u8; bytes];
        let at = value.as_ptr().addr();
        (Given::new(Arc::new(value)), at)
    }

    fn at(landing: &mut Box<dyn Landing>) -> usize {
        landing.memory().0.addr()
    }

    #[test]
    fn a_value_is_received_where_one_of_its_size_was_taken() {
        // Seen to fail without the type, and without each bound of the size.
        let (spares, form) = (Arc::<Spares>::default(), Form::of::<Vec<u8>>());
        let mut first = spares.landing(&form, 400_000);
        let (value, place) = given(100_000);
        spares.keep(Some(value), &form);
        let words = Form::of::<Vec<u32>>();
        assert_ne!(at(&mut spares.landing(&words, 100_000)), place, "another type");
        assert_ne!(at(&mut spares.landing(&form, 100_001)), place, "too small");
        spares.keep(Some(given(SPARE_MIN - 1).0), &form);
        assert_eq!(lock(&spares.0).kept, 100_000, "as small as allocators keep");
        let (large, large_place) = given(200_000);
        spares.keep(Some(large), &form);
        let (later, later_place) = given(100_000);
        spares.keep(Some(later), &form);
        let mut latest = spares.landing(&form, 100_000);
        assert_eq!(at(&mut latest), later_place, "the latest of the same size");
        let mut again = spares.landing(&form, 90_000);
        assert_eq!((at(&mut again), again.memory().1), (place, 90_000));
        assert_ne!(at(&mut spares.landing(&form, 90_000)), large_place, "much too large, and the other is in use");
        assert_ne!(at(&mut first), place);
    }

    #[test]
    fn a_value_that_something_else_has_stays_as_it_is() {
        // Seen to fail when the memory of any value was given away.
        let (spares, form) = (Arc::<Spares>::default(), Form::of::<Vec<u8>>());
        drop(spares.landing(&form, 100_000));
        let value = Arc::new(vec![7_u8; 100_000]);
        spares.keep(Some(Given::new(value.clone())), &form);
        assert_eq!(value.len(), 100_000);
        assert_eq!(lock(&spares.0).kept, 0);
    }

    #[test]
    fn no_more_is_kept_than_exchanges_have_used_at_one_time() {
        // Seen to fail when the newest went first, and when landings were not counted back.
        let (spares, form) = (Arc::<Spares>::default(), Form::of::<Vec<u8>>());
        let keep = |bytes| {
            let (value, place) = given(bytes);
            spares.keep(Some(value), &form);
            place
        };
        let (kept, used) = (|| lock(&spares.0).kept, || lock(&spares.0).used);
        keep(200_000);
        assert_eq!(kept(), 0, "no exchange has used anything");
        for _ in 0..3 {
            let both = (spares.landing(&form, 100_000), spares.count(150_000));
            assert_eq!(used(), 250_000);
            drop(both);
        }
        assert_eq!(used(), 0);
        let (_, second, third) = (keep(100_000), keep(80_000), keep(110_000));
        assert_eq!(kept(), 190_000, "the oldest has gone");
        let places = [spares.landing(&form, 70_000), spares.landing(&form, 110_000)].map(|mut landing| at(&mut landing));
        assert_eq!(places, [second, third]);
        keep(100_000);
        (0..2 * EPOCH).for_each(|_| drop(spares.count(70_000)));
        assert_eq!(kept(), 0, "exchanges have used less for a long time");
    }
}
