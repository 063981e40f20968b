//! Where pending operations lie: by number, in chunks that never move.

use std::cell::UnsafeCell;

use super::op::Job;
use super::queue::OPERATIONS_MAX;
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, lock};

/// Slots of the first chunk; each other one has twice as many as the one before.
const FIRST: usize = 64;
const CHUNKS: usize = 19;

/// The place of one pending operation.
pub(super) struct Slot {
    /// Requests that were not granted yet, and one more while they are made. When it comes to 0, the operation is ready.
    pub(super) holds: AtomicU32,
    /// Requests that somebody may still look at, and one more for who runs the operation. When it comes to 0, the slot is free.
    pub(super) looks: AtomicU32,
    /// Which operation it is, counted over the slot's life, and what is known of its handle: see `handle.rs`.
    pub(super) state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: the operation is put there before anybody knows the slot, its requests are atomics, and what else there is only who runs it touches.
unsafe impl Sync for Slot {}

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
        // SAFETY: by the caller's promise; what is overwritten is None, and what is copied is forgotten by who had it.
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
        let job = unsafe { &mut *self.job.get() };
        *job = None;
    }
}

/// All slots.
pub(super) struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<Free>,
}

/// Which slots are free, and who waits for that.
struct Free {
    list: Vec<u32>,
    /// How many there ever were.
    made: usize,
    is_space_awaited: bool,
    is_idle_awaited: bool,
    /// Whether a thread has the engine to itself; then what others push goes into the inbox.
    is_alone: bool,
    inbox: Vec<u32>,
}

/// Who has an engine without workers to itself.
pub(super) enum Turn {
    /// This thread, and nothing is pending.
    Fresh,
    /// This thread.
    Ours,
    /// Another one, or this one further up the stack. It does what was put into the inbox, too.
    Taken,
}

/// Who is to be told that slots were given back.
pub(super) struct Told {
    pub(super) space: bool,
    pub(super) idle: bool,
}

impl Slots {
    pub(super) fn new() -> Self {
        let free = Free {
            list: Vec::new(),
            made: 0,
            is_space_awaited: false,
            is_idle_awaited: false,
            is_alone: false,
            inbox: Vec::new(),
        };
        Self { chunks: std::array::from_fn(|_| OnceLock::new()), free: Mutex::new(free) }
    }

    pub(super) fn get(&self, number: u32) -> &Slot {
        let (chunk, place) = place(number as usize);
        &self.chunks[chunk].get().expect("it was made")[place]
    }

    /// Returns a free slot, unless `max` are in use.
    pub(super) fn take(&self, max: usize) -> Option<u32> {
        let mut free = lock(&self.free);
        if free.in_use() >= max.min(OPERATIONS_MAX) {
            return None;
        }
        if let Some(number) = free.list.pop() {
            return Some(number);
        }
        let number = free.made;
        free.made += 1;
        let (chunk, _) = place(number);
        self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| Slot::new()).collect());
        Some(number as u32)
    }

    /// Asks for the engine. With an operation it is put into the inbox if that is taken.
    pub(super) fn begin_turn(&self, pushed: Option<u32>) -> Turn {
        let mut free = lock(&self.free);
        if free.is_alone {
            free.inbox.extend(pushed);
            return Turn::Taken;
        }
        if pushed.is_none() && free.in_use() > 0 {
            return Turn::Taken;
        }
        free.is_alone = true;
        if pushed.is_none() { Turn::Fresh } else { Turn::Ours }
    }

    /// Asks for the engine, to run what is ready.
    pub(super) fn begin_drive(&self) -> bool {
        !std::mem::replace(&mut lock(&self.free).is_alone, true)
    }

    /// Gives the engine back, if nothing was put into the inbox meanwhile.
    pub(super) fn end_turn(&self) -> Result<Told, Vec<u32>> {
        let mut free = lock(&self.free);
        if !free.inbox.is_empty() {
            return Err(std::mem::take(&mut free.inbox));
        }
        free.is_alone = false;
        let is_idle = free.in_use() == 0;
        Ok(Told { space: false, idle: is_idle && std::mem::take(&mut free.is_idle_awaited) })
    }

    /// Gives slots back.
    pub(super) fn give_back(&self, numbers: impl IntoIterator<Item = u32>) -> Told {
        let mut free = lock(&self.free);
        free.list.extend(numbers);
        let is_idle = free.in_use() == 0 && !free.is_alone;
        let space = std::mem::take(&mut free.is_space_awaited);
        Told { space, idle: is_idle && std::mem::take(&mut free.is_idle_awaited) }
    }

    /// Returns true if fewer than `max` are in use; else whoever gives some back is told to say so.
    pub(super) fn has_space(&self, max: usize) -> bool {
        let mut free = lock(&self.free);
        free.is_space_awaited = free.in_use() >= max;
        !free.is_space_awaited
    }

    /// Returns true if none is in use; else whoever gives the last one back is told to say so.
    pub(super) fn is_idle(&self) -> bool {
        let mut free = lock(&self.free);
        free.is_idle_awaited = free.in_use() > 0 || free.is_alone;
        !free.is_idle_awaited
    }

    pub(super) fn in_use(&self) -> usize {
        lock(&self.free).in_use()
    }
}

impl Free {
    fn in_use(&self) -> usize {
        self.made - self.list.len()
    }
}

/// Returns the chunk of a slot, and its place there.
fn place(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2() as usize;
    (chunk, number - FIRST * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with chunks that begin one later.
    #[test]
    fn slots_are_numbered_through() {
        assert_eq!((place(0), place(63), place(64), place(191), place(192)), ((0, 0), (0, 63), (1, 0), (1, 127), (2, 0)));
        assert_eq!(place(OPERATIONS_MAX - 1).0, CHUNKS - 1);
        let slots = Slots::new();
        let taken: Vec<u32> = (0..1000).map_while(|_| slots.take(500)).collect();
        assert_eq!(taken, (0..500).collect::<Vec<_>>());
        assert!(!slots.give_back([7]).space && slots.take(500) == Some(7) && slots.take(500).is_none());
        assert!(!slots.has_space(500) && !slots.is_idle());
        let told = slots.give_back(taken);
        assert!(told.space && told.idle && slots.in_use() == 0 && slots.has_space(500) && slots.is_idle());
    }
}
