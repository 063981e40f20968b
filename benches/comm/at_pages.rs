//! Memory of large values begins where a page begins, on both ranks. Otherwise its place depends on all that
//! a rank has allocated before, and what a rank receives 16 bytes further in a page than the other one has
//! it takes twice as long (docs/performance/comm.md). Both ranks of the program in C allocate the same.

use std::alloc::{GlobalAlloc, Layout, System};

const PAGE: usize = 4096;
const LARGE: usize = 1 << 16;

struct AtPages;

#[global_allocator]
static ALLOCATOR: AtPages = AtPages;

// SAFETY: the system's allocator, with a layout that depends on the given one only.
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
    if layout.size() < LARGE { layout } else { layout.align_to(PAGE).unwrap_or(layout) }
}
