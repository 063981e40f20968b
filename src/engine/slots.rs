//! Where pending operations lie: by number, in chunks that never move. Who pushes takes free ones from the
//! front, who runs operations gives them back behind, so that the two seldom meet; the difference of what
//! each has counted is what is pending.

use std::cell::UnsafeCell;

use super::op::Job;
use super::queue::OPERATIONS_MAX;
use crate::error::shielded;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Line, Mutex, MutexGuard, OnceLock, Ordering, lock};

/// Slots of the first chunk; each other one has twice as many as the one before.
const FIRST: usize = 64;
pub(super) const CHUNKS: usize = 19;

/// The place of one pending operation: two cache lines.
#[repr(align(128))]
pub(super) struct Slot {
    /// Requests that were not granted yet, and one more while they are made. When the last is released, the
    /// operation is ready; then this is the one behind it among those that are (see `ready.rs`).
    pub(super) holds: AtomicU32,
    /// Requests that somebody may still look at, and one more for who runs the operation. When it comes to 0,
    /// the slot is free.
    pub(super) looks: AtomicU32,
    /// Which operation it is, counted over the slot's life, and what is known of its handle: see `handle.rs`.
    pub(super) state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: the operation is put there before anybody knows the slot, its requests are atomics, and what else
// there is only who runs it touches.
unsafe impl Sync for Slot {}

#[cfg(all(target_pointer_width = "64", not(anabranch_loom)))]
const _: () = assert!(size_of::<Slot>() == 128, "a pending operation takes two cache lines");

impl Slot {
    fn new() -> Self {
        Self { holds: AtomicU32::new(0), looks: AtomicU32::new(0), state: AtomicU64::new(0), job: UnsafeCell::new(None) }
    }

    /// Returns the operation.
    ///
    /// # Safety
    /// It is there, and nobody moves it out or in meanwhile.
    pub(super) unsafe fn job(&self) -> &Job {
        // SAFETY: by the caller's promise.
        let job = unsafe { &*self.job.get() };
        job.as_ref().expect("it was pushed")
    }

    /// Puts an operation there.
    ///
    /// # Safety
    /// None is there, and nobody knows the slot.
    pub(super) unsafe fn put(&self, job: &mut Option<Job>) {
        // SAFETY: by the caller's promise; what is overwritten is None, and what is copied is forgotten by
        // who had it.
        unsafe { std::ptr::copy_nonoverlapping(job, self.job.get(), 1) };
        // SAFETY: it was copied, so it is not dropped here.
        unsafe { std::ptr::write(job, None) };
    }

    /// Takes the operation out.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: by the caller's promise.
        Job::clear(unsafe { &mut *self.job.get() });
    }
}

/// A slot and its number: whoever has many uses for it looks it up once.
#[derive(Clone, Copy)]
pub(super) struct Spot<'s> {
    pub(super) number: u32,
    pub(super) slot: &'s Slot,
}

/// All slots.
pub(super) struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// What a slot's place is added to, for each chunk (see `place`).
    bases: [AtomicPtr<Slot>; CHUNKS],
    front: Line<Front>,
    back: Line<Back>,
}

/// What those touch who push.
struct Front {
    free: Mutex<Free>,
    /// How many operations were pushed so far. Changes under the lock.
    pushed: AtomicU64,
}

/// Free slots, for who pushes: taken with the lock that makes a push on several variables one push.
pub(super) struct Free {
    list: Vec<u32>,
    /// How many there ever were.
    made: u32,
    /// How many operations had ended when this was last looked up.
    ended: u64,
}

/// What those touch who run operations.
struct Back {
    freed: Mutex<Freed>,
    /// How many operations have ended so far, and have given their slots back. Changes under the lock.
    ended: AtomicU64,
    /// Somebody waits until none is pending.
    is_idle_awaited: AtomicBool,
}

/// Slots that were given back, and are not in the front yet.
#[derive(Default)]
struct Freed {
    list: Vec<u32>,
    is_space_awaited: bool,
}

/// Who is to be told that slots were given back.
#[derive(Default)]
pub(super) struct Told {
    pub(super) space: bool,
    pub(super) idle: bool,
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
    pub(super) fn new() -> Self {
        let free = Free { list: Vec::new(), made: 0, ended: 0 };
        let back = Back { freed: Mutex::default(), ended: AtomicU64::new(0), is_idle_awaited: AtomicBool::new(false) };
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            bases: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            front: Line(Front { free: Mutex::new(free), pushed: AtomicU64::new(0) }),
            back: Line(back),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &Slot {
        let (chunk, place) = place(number as usize);
        // ORDERING: Relaxed: whoever has the number has it from who made the chunk.
        let base = self.bases[chunk].load(Ordering::Relaxed);
        debug_assert!(!base.is_null());
        // SAFETY: a number is given out when its chunk is made, and that stays as long as this.
        unsafe { &*base.wrapping_add(place) }
    }

    #[inline]
    pub(super) fn spot(&self, number: u32) -> Spot<'_> {
        Spot { number, slot: self.get(number) }
    }

    /// Returns the free slots. As long as the caller has them, nobody else pushes.
    #[inline]
    pub(super) fn free(&self) -> MutexGuard<'_, Free> {
        lock(&self.front.0.free)
    }

    /// Returns a free slot, unless `max` are in use.
    #[inline]
    pub(super) fn take(&self, free: &mut Free, max: usize) -> Option<u32> {
        // Changes only under the lock that the caller has.
        let pushed = self.front.0.pushed.load(Ordering::Relaxed);
        if pushed - free.ended >= max.min(OPERATIONS_MAX) as u64 && !self.has_room_now(free, max) {
            return None;
        }
        let number = free.list.pop().or_else(|| self.fetch(free))?;
        // ORDERING: Release: who counts it sees what was pushed before.
        self.front.0.pushed.store(pushed + 1, Ordering::Release);
        Some(number)
    }

    #[inline(never)]
    fn has_room_now(&self, free: &mut Free, max: usize) -> bool {
        free.ended = self.back.0.ended.load(Ordering::Relaxed);
        self.front.0.pushed.load(Ordering::Relaxed) - free.ended < max.min(OPERATIONS_MAX) as u64
    }

    /// Takes over the slots that were given back meanwhile, or makes one.
    #[inline(never)]
    fn fetch(&self, free: &mut Free) -> Option<u32> {
        std::mem::swap(&mut free.list, &mut lock(&self.back.0.freed).list);
        free.list.pop().or_else(|| self.make(free))
    }

    fn make(&self, free: &mut Free) -> Option<u32> {
        let number = free.made;
        let (chunk, _) = place(number as usize);
        let slots = self.chunks.get(chunk)?.get_or_init(|| (0..FIRST << chunk).map(|_| Slot::new()).collect());
        let base = slots.as_ptr().wrapping_sub(FIRST << chunk);
        self.bases[chunk].store(base.cast_mut(), Ordering::Relaxed);
        free.made += 1;
        Some(number)
    }

    /// Gives slots back.
    pub(super) fn give_back(&self, numbers: &[u32]) -> Told {
        let mut freed = lock(&self.back.0.freed);
        freed.list.extend_from_slice(numbers);
        let ended = self.back.0.ended.load(Ordering::Relaxed) + numbers.len() as u64;
        self.back.0.ended.store(ended, Ordering::Release);
        let is_idle_told = self.back.0.is_idle_awaited.load(Ordering::Relaxed) && self.in_use() == 0;
        if is_idle_told {
            self.back.0.is_idle_awaited.store(false, Ordering::Relaxed);
        }
        Told { space: std::mem::take(&mut freed.is_space_awaited), idle: is_idle_told }
    }

    /// Returns true if fewer than `max` are in use; else whoever gives some back is told to say so.
    pub(super) fn has_space(&self, max: usize) -> bool {
        let mut freed = lock(&self.back.0.freed);
        freed.is_space_awaited = self.in_use() >= max;
        !freed.is_space_awaited
    }

    /// Returns true if none is in use; else whoever gives the last one back is told to say so.
    pub(super) fn is_idle(&self) -> bool {
        let _freed = lock(&self.back.0.freed);
        let is_idle = self.in_use() == 0;
        // Under the lock that whoever gives back has.
        self.back.0.is_idle_awaited.store(!is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Returns true if none is in use, and whoever takes one from now on sees what the caller saw.
    pub(super) fn is_unused(&self) -> bool {
        let _free = self.free();
        self.in_use() == 0
    }

    /// How many are pending. Those that are pushed meanwhile may be among them.
    #[inline]
    pub(super) fn in_use(&self) -> usize {
        // ORDERING: Acquire: what has ended was pushed before that, so this order never counts one that has
        // ended and was not pushed.
        let ended = self.back.0.ended.load(Ordering::Acquire);
        (self.front.0.pushed.load(Ordering::Acquire) - ended) as usize
    }
}

/// Returns the chunk of a slot, and its place behind that one's base: `FIRST << chunk` is the chunk's first.
#[inline]
fn place(number: usize) -> (usize, usize) {
    let place = number + FIRST;
    ((place.ilog2() - FIRST.ilog2()) as usize, place)
}

/// Returns the chunk of a slot, where it is in that, and how many are.
pub(super) fn chunk_and_index(number: u32) -> (usize, usize, usize) {
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
        let slots = Slots::new();
        let take = || slots.take(&mut slots.free(), 500);
        let taken: Vec<u32> = (0..1000).map_while(|_| take()).collect();
        assert_eq!(taken, (0..500).collect::<Vec<_>>());
        assert!(!slots.give_back(&[7]).space && take() == Some(7) && take().is_none());
        assert!(!slots.has_space(500) && !slots.is_idle());
        let told = slots.give_back(&taken);
        assert!(told.space && told.idle && slots.in_use() == 0 && slots.has_space(500) && slots.is_idle());
    }
}
