//! A fence with a cheap side and a dear side, for protocols in which one side runs a million times more often.
//!
//! "Store a, light; load b" against "store b, heavy; load a": at least one side sees the other's store. On Linux the dear side
//! asks the kernel to run a full fence on every thread of the process (`membarrier`, under a microsecond here), so the cheap
//! side only has to stop the compiler. Elsewhere, and in loom models, both sides are full fences.

use crate::sync::{Ordering, fence};

/// The two sides of the fence. Copied into whatever takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    has_membarrier: bool,
}

impl Barrier {
    /// Registers the process for the dear side, where the system has it.
    pub(crate) fn new() -> Self {
        Self { has_membarrier: membarrier::register() }
    }

    /// The cheap side.
    #[inline]
    pub(crate) fn light(self) {
        if self.has_membarrier {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The dear side.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.has_membarrier {
            membarrier::run();
        }
    }
}

#[cfg(all(target_os = "linux", not(anabranch_loom), not(miri)))]
mod membarrier {
    /// Returns true if the kernel agreed to run fences on this process's threads.
    pub(super) fn register() -> bool {
        command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn run() {
        let done = command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        assert!(done, "membarrier fails only when the process is not registered, and it was");
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

    pub(super) fn run() {}
}
