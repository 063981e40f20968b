//! The process in which an executor was built. A child made by `fork` has the executor's memory but none of
//! its threads, so a wait for them never ends.
//!
//! On Linux the mark is on a page of its own, which the kernel fills with zeros in every child
//! (`MADV_WIPEONFORK`). So the check costs a load, and needs no handler for the whole process. Elsewhere, and
//! on kernels before 4.14, a fork is not detected.

use std::sync::atomic::{AtomicU8, Ordering};

/// The value of the mark in the process that made it.
const SAME: u8 = 1;

static UNMARKED: AtomicU8 = AtomicU8::new(SAME);

/// A mark that distinguishes the process that made it from a forked child.
#[derive(Clone)]
pub(crate) struct Origin(&'static AtomicU8);

impl Origin {
    /// Returns the mark of this process.
    pub(crate) fn here() -> Self {
        page::marked().map_or_else(Self::anywhere, Self)
    }

    /// Returns a mark for an executor without threads: it never reports a fork.
    pub(crate) fn anywhere() -> Self {
        Self(&UNMARKED)
    }

    /// Returns true in a child that was forked from the process that made the mark.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        // ORDERING: Relaxed: the mark is stored before it is shared. It changes only in a child, which has
        // one thread then.
        self.0.load(Ordering::Relaxed) != SAME
    }
}

#[cfg(all(target_os = "linux", not(anabranch_loom), not(miri)))]
mod page {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

    /// At most a page; the kernel rounds it up to one.
    const BYTES: usize = 4096;

    /// The last mark that was made: this process's own, or one that the kernel wiped in this child.
    static LAST: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());

    /// Returns this process's mark, or None if the kernel cannot wipe pages on a fork. A process has one page
    /// for all executors, and keeps it.
    pub(super) fn marked() -> Option<&'static AtomicU8> {
        // ORDERING: Acquire pairs with the Release of the store below: the page is mapped and marked.
        // SAFETY: the pointer is null or points to a page that is never unmapped.
        let last = unsafe { LAST.load(Ordering::Acquire).as_ref() };
        // ORDERING: Relaxed: only a fork changes the mark, and the child has one thread then.
        if let Some(mark) = last.filter(|mark| mark.load(Ordering::Relaxed) == super::SAME) {
            return Some(mark);
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping overlaps no other mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page was just mapped with this length, and no reference points into it.
        if unsafe { libc::madvise(start, BYTES, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: the page was just mapped with this length, and no reference points into it.
            unsafe { libc::munmap(start, BYTES) };
            return None;
        }
        // SAFETY: the page is mapped, zeroed and aligned, and is never unmapped.
        let mark: &'static AtomicU8 = unsafe { &*start.cast() };
        // ORDERING: Relaxed: the store of `LAST` publishes it.
        mark.store(super::SAME, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire of the load at the beginning. If two threads come here at
        // once, both pages are marks of this process, and later calls find one of them.
        LAST.store(start.cast(), Ordering::Release);
        Some(mark)
    }
}

#[cfg(not(all(target_os = "linux", not(anabranch_loom), not(miri))))]
mod page {
    pub(super) fn marked() -> Option<&'static std::sync::atomic::AtomicU8> {
        None
    }
}
