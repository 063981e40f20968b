//! What finished runs of a plan leave to the next ones.

use std::any::Any;
use std::sync::Arc;
// Not that of `sync`: plans of models are made outside of the model.
use std::sync::OnceLock;

use crate::sync::{Mutex, lock};

/// The most blocks that are kept.
const KEPT_MAX: usize = 16;

type Block = Arc<dyn Any + Send + Sync>;

/// Blocks of memory; only runs know their type. The list is made for the first block.
#[derive(Default)]
pub(crate) struct Spare(OnceLock<Mutex<Vec<Block>>>);

impl Spare {
    #[inline]
    pub(crate) fn take(&self) -> Option<Block> {
        lock(self.0.get()?).pop()
    }

    /// Keeps a block, or drops it if there are enough.
    pub(crate) fn put(&self, block: Block) {
        let mut kept = lock(self.0.get_or_init(|| Mutex::new(Vec::new())));
        if kept.len() < KEPT_MAX {
            kept.push(block);
        }
    }
}
