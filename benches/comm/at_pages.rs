//! Memory of large values begins where a page begins, on both ranks. Otherwise its place depends on all that
//! a rank has allocated before, and a message and its answer take twice as long if it happens to be a bad one
//! (docs/decisions/160). Both ranks of the program in C allocate the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
const LARGE: usize = 1 << 16;

struct AtPages;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Begins with that. Call it before there are large values. The solver goes without: its vectors would get
/// into each other's way in the caches.
pub(crate) fn begin() {
    // ORDERING: Relaxed: the program has one thread now.
    IS_ON.store(true, Ordering::Relaxed);
}

#[global_allocator]
static ALLOCATOR: AtPages = AtPages;

// SAFETY: the system's allocator, with a layout that depends on the given one only: `begin` comes before all
// large ones.
unsafe impl GlobalAlloc for AtPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises that the size is not 0.
        unsafe { System.alloc(at_page(layout)) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `alloc` has made it with the same layout.
        unsafe { System.dealloc(at, at_page(layout)) }
    }
}

fn at_page(layout: Layout) -> Layout {
    // ORDERING: Relaxed: as in `begin`.
    let is_at_page = layout.size() >= LARGE && IS_ON.load(Ordering::Relaxed);
    if is_at_page { layout.align_to(PAGE).unwrap_or(layout) } else { layout }
}
