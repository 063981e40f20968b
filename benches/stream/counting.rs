//! The allocator of this bench. It counts bytes only after `start`, not while time is measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IS_ON: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Starts to count, from 0.
pub(crate) fn start() {
    BYTES.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
}

pub(crate) fn stop() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Returns the peak of the bytes allocated and not freed since [`start`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed).max(0) as usize
}

fn add(bytes: i64) {
    // ORDERING: counters; no other memory depends on them.
    if IS_ON.load(Ordering::Relaxed) {
        let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}
