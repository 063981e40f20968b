//! What finished runs of a plan leave to the next ones.

use std::any::Any;
use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// The most that are kept.
const KEPT_MAX: usize = 16;

type Block = Arc<dyn Any + Send + Sync>;

/// Blocks of memory; only runs know their type.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Block>>);

impl Spare {
    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        lock(&self.0).pop()
    }

    /// Keeps a block, or drops it if there are enough.
    pub(crate) fn put(&self, block: Block) {
        let mut kept = lock(&self.0);
        if kept.len() < KEPT_MAX {
            kept.push(block);
        }
    }
}
