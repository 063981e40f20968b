//! A fence with a light side and a heavy side, for protocols in which one side runs far more often than the
//! other.
//!
//! "Store a, light; load b" against "store b, heavy; load a": at least one side sees the store of the other.
//! On Linux the heavy side asks the kernel to run a full fence on every thread of the process (`membarrier`,
//! under a microsecond on the machine of the measurements), so the light side only has to stop the compiler.
//! Elsewhere, and in loom models, both sides are full fences.
//!
//! The kernel may refuse later what it allowed at first: a program that sandboxes itself forbids `membarrier`
//! with a seccomp filter. Then the heavy side returns false, and its caller must check again. The README says
//! how each caller does that.

use crate::sync::{Ordering, fence};

/// The two sides of the fence. Each user of the fence has a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    has_membarrier: bool,
    /// In tests: the kernel refuses every `membarrier` but the registration.
    #[cfg(test)]
    is_refused: bool,
}

impl Barrier {
    /// Registers the process for the heavy side, if the system has it.
    pub(crate) fn new() -> Self {
        Self {
            has_membarrier: membarrier::register(),
            #[cfg(test)]
            is_refused: false,
        }
    }

    /// A barrier whose light side relies on a `membarrier` that the kernel now refuses.
    #[cfg(test)]
    pub(crate) fn refused() -> Self {
        Self { has_membarrier: true, is_refused: true }
    }

    /// The light side.
    #[inline]
    pub(crate) fn light(self) {
        if self.has_membarrier {
            // ORDERING: pairs with `heavy`. There the kernel runs the fence for this thread, so only the
            // compiler must keep the order.
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            // ORDERING: SeqCst pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// The heavy side. Returns false if the kernel refuses `membarrier`: then this was a fence for the
    /// calling thread only, and a store that another thread made before its light side may become visible
    /// later.
    #[must_use = "after a refusal the caller must look again"]
    pub(crate) fn heavy(self) -> bool {
        // ORDERING: SeqCst pairs with the fence in `light`, or with the fences that the kernel runs on other
        // threads.
        fence(Ordering::SeqCst);
        #[cfg(test)]
        if self.is_refused {
            return false;
        }
        !self.has_membarrier || membarrier::run()
    }
}

#[cfg(all(target_os = "linux", not(anabranch_loom), not(miri)))]
mod membarrier {
    /// Returns true if the kernel agreed to run fences on this process's threads.
    pub(super) fn register() -> bool {
        command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    /// Returns true if every thread of this process has run a fence.
    pub(super) fn run() -> bool {
        command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    fn command(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes plain integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(anabranch_loom), not(miri))))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() -> bool {
        false
    }
}
