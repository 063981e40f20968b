//! The memory that finished runs of a plan leave for later runs.

use std::any::Any;
use std::sync::Arc;
// Not the one of `sync`: plans for models are made outside of the model.
use std::sync::OnceLock;

#[cfg(not(anabranch_loom))]
use crate::device::host::TryLock;
#[cfg(anabranch_loom)]
use in_models::TryLock;

/// The most blocks that are kept.
const KEPT_MAX: usize = 16;

type Block = Arc<dyn Any + Send + Sync>;

/// Blocks of memory. Only runs know their type. The first block makes the list.
#[derive(Default)]
pub(crate) struct Spare(OnceLock<TryLock<Vec<Block>>>);

impl Spare {
    /// Takes a block. Returns None if there is no block, or if another thread holds the lock. In a forked
    /// child, the thread that held the lock at the fork does not exist.
    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        self.0.get()?.try_with(Vec::pop)?
    }

    /// Keeps a block. Drops it if there are enough, or if another thread holds the lock.
    pub(crate) fn put(&self, block: Block) {
        let mut block = Some(block);
        self.0.get_or_init(|| TryLock::new(Vec::with_capacity(KEPT_MAX))).try_with(|kept| {
            if kept.len() < KEPT_MAX {
                kept.extend(block.take());
            }
        });
    }
}

/// Loom does not know the order that std's `OnceLock` guarantees. So it would find that the first use of a
/// value is not ordered after its initialisation.
#[cfg(anabranch_loom)]
mod in_models {
    use crate::sync::Mutex;

    pub(super) struct TryLock<T>(Mutex<T>);

    impl<T> TryLock<T> {
        pub(super) fn new(of: T) -> Self {
            Self(Mutex::new(of))
        }

        pub(super) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
            self.0.try_lock().ok().map(|mut of| work(&mut of))
        }
    }
}
