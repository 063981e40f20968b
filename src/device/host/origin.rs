//! The process in which an executor was built. A child made by `fork` has the executor's memory and none of
//! its threads: a wait for them never ends.
//!
//! On Linux the mark lies on a page of its own, which the kernel fills with zeros in every child
//! (`MADV_WIPEONFORK`). So the check costs a load, and needs no handler for the whole process. Elsewhere, and
//! on kernels before 4.14, a fork is not detected.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The value of the mark in the process that made it.
const SAME: u8 = 1;

static UNMARKED: AtomicU8 = AtomicU8::new(SAME);

/// A mark that tells the process that made it from a forked child. Clones share the mark.
#[derive(Clone)]
pub(crate) struct Origin {
    mark: NonNull<AtomicU8>,
    /// Keeps the memory of the mark alive.
    _page: Option<Arc<page::Page>>,
}

// SAFETY: the mark is an atomic, on a page that the value keeps alive, or in a static.
unsafe impl Send for Origin {}
// SAFETY: a shared reference only loads the atomic, whose memory the value keeps alive.
unsafe impl Sync for Origin {}

impl Origin {
    /// Returns the mark of this process.
    pub(crate) fn here() -> Self {
        match page::Page::new() {
            Some(page) => Self { mark: page.mark(), _page: Some(Arc::new(page)) },
            None => Self::anywhere(),
        }
    }

    /// Returns a mark for an executor without threads: it never reports a fork.
    pub(crate) fn anywhere() -> Self {
        Self { mark: NonNull::from(&UNMARKED), _page: None }
    }

    /// Returns true in a child that was forked from the process that made the mark.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        // SAFETY: the mark is a static, or lies on the page that `self` keeps mapped.
        // ORDERING: Relaxed: the mark is stored before it is shared, and changes only in a child that has one
        // thread.
        unsafe { self.mark.as_ref() }.load(Ordering::Relaxed) != SAME
    }
}

#[cfg(all(target_os = "linux", not(anabranch_loom), not(miri)))]
mod page {
    use std::ptr::{self, NonNull};
    use std::sync::atomic::{AtomicU8, Ordering};

    /// At most a page, and rounded up to one by the kernel.
    const BYTES: usize = 4096;

    pub(super) struct Page(NonNull<AtomicU8>);

    // SAFETY: the page is owned, and holds only an atomic.
    unsafe impl Send for Page {}
    // SAFETY: a shared reference only loads and stores the atomic.
    unsafe impl Sync for Page {}

    impl Page {
        /// Returns a page with the mark, or None if the kernel cannot wipe pages on a fork.
        pub(super) fn new() -> Option<Self> {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping overlaps nothing.
            let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return None;
            }
            let page = Self(NonNull::new(start.cast())?);
            // SAFETY: the page was just mapped with this length, and no reference points into it.
            let is_wiped = unsafe { libc::madvise(start, BYTES, libc::MADV_WIPEONFORK) } == 0;
            // SAFETY: the page is mapped, zeroed and aligned.
            unsafe { page.0.as_ref() }.store(super::SAME, Ordering::Relaxed);
            is_wiped.then_some(page)
        }

        pub(super) fn mark(&self) -> NonNull<AtomicU8> {
            self.0
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the page was mapped with this length, and every `Origin` that refers to it is gone.
            unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(anabranch_loom), not(miri))))]
mod page {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU8;

    pub(super) enum Page {}

    impl Page {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn mark(&self) -> NonNull<AtomicU8> {
            match *self {}
        }
    }
}
