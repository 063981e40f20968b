//! The slots of pending operations: by number, in chunks that never move. Pushing threads take free slots
//! from the front, and threads that run operations give them back at the back, so that they seldom contend.
//! The difference of the two counts is the number of pending operations.
//!
//! ```text
//!  event                                     before   `holds` after
//!  enter                                     any      requests, and 1 more unless there is just one
//!  another thread grants a request           n        n - 1
//!  the entering thread is done               n        n - (1 if there was 1 more, and those that it granted)
//!  a thread releases the last holds          n        0 or n: the thread gets the `Runnable`
//!  push to the chain of ready operations     any      0
//!  the next one is linked behind it          0        LINKED │ next
//!  leave                                     any      LEFT
//!
//!  event                                     before   `refs` after
//!  enter                                     0        requests + 1
//!  another thread is done with a request     n        n - 1
//!  end                                       n        n - (1, and those that the thread released)
//!  a thread releases the last refs           n        0: the thread clears the slot, which is free
//! ```

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::handle_state::{HandleState, Key};
use super::inspection::Inspection;
use super::operation::{Granted, Operation, Unpushed};
use super::queue::OPERATIONS_MAX;
use super::tokens::{Entering, Left, NothingPending, Runnable, Spot, Turn};
use crate::device::host::Barrier;
use crate::error::shielded;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Line, Mutex, MutexGuard, OnceLock, Ordering, lock};

/// The slots of the first chunk; each other chunk has twice as many as the one before.
const FIRST: usize = 64;
pub(crate) const CHUNKS: usize = 19;

/// In `holds`: the operation is ready, and the other bits are its link in the ready list.
pub(super) const LINKED: u32 = 1 << 31;
/// The value of `holds` once the operation leaves its queues.
pub(super) const LEFT: u32 = u32::MAX;

/// The slot of one pending operation: two cache lines. In this order, so that the words which threads change
/// while an operation is pending (the counts, the handle, the requests) are on the first line.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Slot {
    /// The number of requests that are not granted, and one more while the operation enters its queues. When
    /// the last is released, the operation is ready. Then this is its link in the ready list (`ready.rs`),
    /// and at the end [`LEFT`].
    pub(super) holds: AtomicU32,
    /// The number of requests that other threads may still use, and one more until the operation ends. At 0
    /// the slot is free.
    pub(super) refs: AtomicU32,
    pub(super) handle: HandleState,
    operation: UnsafeCell<Option<Operation>>,
}

// SAFETY: an `Operation` is Sync. It is put there before any other thread knows the slot's number, and is
// cleared when `refs` is 0, so no other thread uses it.
unsafe impl Sync for Slot {}

#[cfg(all(target_pointer_width = "64", not(anabranch_loom)))]
const _: () = assert!(size_of::<Slot>() == 128, "a pending operation takes two cache lines");

impl Slot {
    /// Returns the operation in the slot.
    ///
    /// # Safety
    /// The operation is in the slot, and stays there during `'s`.
    pub(super) unsafe fn operation<'s>(&self) -> &'s Operation {
        // SAFETY: the caller promises that no thread puts or clears the operation meanwhile.
        let operation = unsafe { &*self.operation.get() };
        operation.as_ref().expect("it was pushed")
    }

    /// Moves an operation into the slot.
    ///
    /// # Safety
    /// The slot is free, and no other thread knows its number.
    unsafe fn put(&self, operation: &mut Option<Operation>) {
        // SAFETY: the slot is free, so the old content is None and needs no drop; the copied operation is
        // forgotten below.
        unsafe { std::ptr::copy_nonoverlapping(operation, self.operation.get(), 1) };
        // SAFETY: the operation was copied, so it is not dropped here.
        unsafe { std::ptr::write(operation, None) };
    }

    /// Drops the operation in the slot.
    ///
    /// # Safety
    /// No other thread uses the operation.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the caller promises that no other thread uses the operation.
        Operation::clear(unsafe { &mut *self.operation.get() });
    }
}

pub(crate) struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// For each chunk, the address to which a slot's place is added (see `place`).
    bases: [AtomicPtr<Slot>; CHUNKS],
    front: Line<Front>,
    back: Line<Back>,
    pub(super) inspection: Inspection,
}

/// The part for threads that push.
#[derive(Default)]
struct Front {
    free: Mutex<FreeSlots>,
    /// The number of pushes. Changes under the lock.
    pushed: AtomicU64,
}

/// Free slots, for pushes. Their lock also makes a push on several variables atomic.
#[derive(Default)]
pub(crate) struct FreeSlots {
    list: Vec<u32>,
    /// The number of slots that were ever made.
    pub(super) made: u32,
    /// The number of ended operations, as it was last loaded.
    ended: u64,
}

/// The part for threads that run operations.
#[derive(Default)]
struct Back {
    freed: Mutex<Freed>,
    /// The number of ended operations. Changes under the lock.
    ended: AtomicU64,
    /// Whether a future waits until no operation is pending. Changes under the lock.
    is_idle_awaited: AtomicBool,
}

/// Slots that were given back, and that no push has taken over yet.
#[derive(Default)]
struct Freed {
    list: Vec<u32>,
    is_space_awaited: bool,
}

/// The lanes to ring after slots were given back.
#[derive(Default)]
#[must_use = "the waiters are to be woken"]
pub(crate) struct Wakes {
    /// Pushes wait for room.
    pub(crate) space: bool,
    /// Futures wait until no operation is pending.
    pub(crate) idle: bool,
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Pending operations are foreign and shielded one by one: two panics in one drop would abort the
        // process.
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            // SAFETY: `&mut self`: no other thread uses the slots.
            let _ = shielded(|| unsafe { slot.clear() });
        }
    }
}

impl Slots {
    pub(crate) fn new(barrier: Barrier) -> Self {
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            bases: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            front: Line(Front::default()),
            back: Line(Back::default()),
            inspection: Inspection::new(barrier),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &Slot {
        let (chunk, place) = place(number as usize);
        // ORDERING: Relaxed: the chunk was made before the number was given out, and the caller got the
        // number by a lock or a queue.
        let base = self.bases[chunk].load(Ordering::Relaxed);
        debug_assert!(!base.is_null());
        // SAFETY: a number is given out after its chunk is made, and chunks stay as long as `self`.
        unsafe { &*base.wrapping_add(place) }
    }

    /// Returns the slot of a token.
    #[inline(always)]
    pub(super) fn slot(&self, spot: Spot) -> &Slot {
        debug_assert!(std::ptr::eq(self.get(spot.number), spot.slot.as_ptr().cast()), "a token is of its own engine");
        // SAFETY: the spot was made from a slot of `self`, and slots stay in their places as long as `self`.
        unsafe { spot.slot.cast::<Slot>().as_ref() }
    }

    /// If no operation is pending, returns a proof of that. No other thread pushes one into a queue during
    /// the turn.
    #[inline(always)]
    pub(crate) fn nothing_pending<'t>(&self, _: &'t Turn) -> Option<NothingPending<'t>> {
        (self.in_use() == 0).then_some(NothingPending(PhantomData))
    }

    /// Returns an operation, which only the caller runs.
    #[inline(always)]
    pub(crate) fn granted<'s>(&'s self, runnable: &'s mut Runnable) -> Granted<'s> {
        // SAFETY: there is one `Runnable` of the operation, which is borrowed here. So the operation stays in
        // its slot.
        let operation = unsafe { self.slot(runnable.0).operation() };
        // SAFETY: the `Runnable` shows that the operation was granted its variables. To leave their queues
        // takes it by value, and it is borrowed here.
        unsafe { Granted::new(operation) }
    }

    /// Returns an operation that has left its queues.
    pub(crate) fn left<'s>(&'s self, left: &'s Left) -> &'s Operation {
        // SAFETY: there is one `Left` of the operation, which is borrowed here. So the operation stays in its
        // slot.
        unsafe { self.slot(left.spot()).operation() }
    }

    /// Returns the state of the handle to an operation that has left its queues.
    #[inline]
    pub(crate) fn handle_of(&self, left: &Left) -> &HandleState {
        &self.slot(left.spot()).handle
    }

    /// Returns the state of the handle to the operation in a slot.
    #[inline]
    pub(crate) fn handle(&self, number: u32) -> &HandleState {
        &self.get(number).handle
    }

    /// Locks the free slots. No other thread pushes meanwhile.
    #[inline]
    pub(crate) fn free(&self) -> MutexGuard<'_, FreeSlots> {
        lock(&self.front.0.free)
    }

    /// Puts an operation into a free slot, unless `max` slots are in use. The key is for its handle.
    #[inline(always)]
    pub(crate) fn put(&self, free: &mut FreeSlots, max: usize, operation: &mut Unpushed<'_>) -> Option<(Entering, Key)> {
        let number = self.take(free, max)?;
        let slot = self.get(number);
        // SAFETY: `take` returned a free slot, and no other thread knows its number.
        unsafe { slot.put(&mut operation.operation) };
        Some((Entering(spot(number, slot)), slot.handle.begin(number)))
    }

    /// Takes a free slot, unless `max` are in use.
    #[inline]
    fn take(&self, free: &mut FreeSlots, max: usize) -> Option<u32> {
        // ORDERING: Relaxed: it changes only under the lock, which the caller has.
        let pushed = self.front.0.pushed.load(Ordering::Relaxed);
        if pushed - free.ended >= max.min(OPERATIONS_MAX) as u64 && !self.has_room_now(free, max) {
            return None;
        }
        let number = free.list.pop().or_else(|| self.fetch(free))?;
        // ORDERING: Release pairs with the Acquire in `in_use`.
        self.front.0.pushed.store(pushed + 1, Ordering::Release);
        Some(number)
    }

    #[inline(never)]
    fn has_room_now(&self, free: &mut FreeSlots, max: usize) -> bool {
        // ORDERING: Relaxed, both: an old count of ended operations leaves less room than there is. The other
        // changes only under the lock, which the caller has.
        free.ended = self.back.0.ended.load(Ordering::Relaxed);
        self.front.0.pushed.load(Ordering::Relaxed) - free.ended < max.min(OPERATIONS_MAX) as u64
    }

    /// Takes over the slots that were given back meanwhile, or makes one.
    #[inline(never)]
    fn fetch(&self, free: &mut FreeSlots) -> Option<u32> {
        std::mem::swap(&mut free.list, &mut lock(&self.back.0.freed).list);
        free.list.pop().or_else(|| self.make(free))
    }

    fn make(&self, free: &mut FreeSlots) -> Option<u32> {
        let number = free.made;
        let (chunk, _) = place(number as usize);
        let slots = self.chunks.get(chunk)?.get_or_init(|| (0..FIRST << chunk).map(|_| Slot::default()).collect());
        let base = slots.as_ptr().wrapping_sub(FIRST << chunk);
        // ORDERING: Relaxed: the number is given out after this, by a lock or a queue.
        self.bases[chunk].store(base.cast_mut(), Ordering::Relaxed);
        free.made += 1;
        Some(number)
    }

    /// Waits until no inspection reads a variable whose operations have left.
    pub(crate) fn before_free(&self) {
        self.inspection.pass();
    }

    pub(crate) fn give_back(&self, numbers: &[u32]) -> Wakes {
        let back = &self.back.0;
        let mut freed = lock(&back.freed);
        freed.list.extend_from_slice(numbers);
        // ORDERING: Relaxed load: it changes only under this lock. Release pairs with the Acquire in
        // `in_use`: the pushes of the ended operations are visible.
        let ended = back.ended.load(Ordering::Relaxed) + numbers.len() as u64;
        back.ended.store(ended, Ordering::Release);
        // ORDERING: Relaxed, both: it changes only under this lock.
        let idle = back.is_idle_awaited.load(Ordering::Relaxed) && self.in_use() == 0;
        if idle {
            back.is_idle_awaited.store(false, Ordering::Relaxed);
        }
        Wakes { space: std::mem::take(&mut freed.is_space_awaited), idle }
    }

    /// Returns true if fewer than `max` are in use. Otherwise the next thread that gives some back gets
    /// [`Wakes::space`].
    pub(crate) fn has_space(&self, max: usize) -> bool {
        let mut freed = lock(&self.back.0.freed);
        freed.is_space_awaited = self.in_use() >= max;
        !freed.is_space_awaited
    }

    /// Returns true if none is in use. Otherwise the thread that gives the last one back gets
    /// [`Wakes::idle`].
    pub(crate) fn is_idle(&self) -> bool {
        let _freed = lock(&self.back.0.freed);
        let is_idle = self.in_use() == 0;
        // ORDERING: Relaxed: it changes only under this lock.
        self.back.0.is_idle_awaited.store(!is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Returns true if none is in use. A thread that pushes later sees what the caller saw.
    pub(crate) fn is_unused(&self) -> bool {
        let _free = self.free();
        self.in_use() == 0
    }

    /// Returns the number of pending operations. Those that are pushed meanwhile may be among them.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        // ORDERING: Acquire, both, pairs with the Release in `give_back` and `take`. The order matters: an
        // operation that has ended was pushed before, so the difference is never negative.
        let ended = self.back.0.ended.load(Ordering::Acquire);
        (self.front.0.pushed.load(Ordering::Acquire) - ended) as usize
    }
}

/// Returns the spot for a token. A thread makes a `Runnable` if it has found that all requests are granted,
/// or takes the operation out of a list to which a `Runnable` was added.
#[inline]
pub(super) fn spot(number: u32, slot: &Slot) -> Spot {
    Spot { number, slot: NonNull::from(slot).cast() }
}

/// Returns the chunk of a slot, and its place behind the chunk's base. The place of the first slot is
/// `FIRST << chunk`.
#[inline]
fn place(number: usize) -> (usize, usize) {
    let place = number + FIRST;
    ((place.ilog2() - FIRST.ilog2()) as usize, place)
}

/// Returns the chunk of a slot, its index there, and the length of the chunk.
pub(crate) fn chunk_and_index(number: u32) -> (usize, usize, usize) {
    let (chunk, place) = place(number as usize);
    (chunk, place - (FIRST << chunk), FIRST << chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with chunks that begin one later.
    #[test]
    fn slots_are_numbered_through() {
        assert_eq!([0, 63, 64, 191, 192].map(|number| place(number).0), [0, 0, 1, 1, 2]);
        assert_eq!(place(OPERATIONS_MAX - 1).0, CHUNKS - 1);
        assert_eq!(
            [0, 63, 64, 191, 192].map(chunk_and_index),
            [(0, 0, 64), (0, 63, 64), (1, 0, 128), (1, 127, 128), (2, 0, 256)]
        );
        let slots = Slots::new(Barrier::new());
        let take = || slots.take(&mut slots.free(), 500);
        let taken: Vec<u32> = (0..1000).map_while(|_| take()).collect();
        assert_eq!(taken, (0..500).collect::<Vec<_>>());
        assert!(!slots.give_back(&[7]).space && take() == Some(7) && take().is_none());
        assert!(!slots.has_space(500) && !slots.is_idle());
        let wakes = slots.give_back(&taken);
        assert!(wakes.space && wakes.idle && slots.in_use() == 0 && slots.has_space(500) && slots.is_idle());
    }
}
