//! The allocator of this bench. It counts only between `start` and `stop`, not while time is measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IS_ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// The counts since [`start`].
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) allocations: i64,
    /// Allocated and not freed.
    pub(crate) bytes: i64,
}

/// Starts to count, from 0.
pub(crate) fn start() {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
}

pub(crate) fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
}

pub(crate) fn now() -> Counts {
    Counts { allocations: ALLOCATIONS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
}

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // ORDERING: counters; no other memory depends on them.
        if IS_ON.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // ORDERING: a counter.
        if IS_ON.load(Ordering::Relaxed) {
            BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}
