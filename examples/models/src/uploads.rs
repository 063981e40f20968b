//! Counts of finished operations beside an engine. A progress bar reads them without a lock and never waits.
//! The bytes it reads include those of every file it counts.

use std::sync::Arc;

use anabranch::engine::Pushed;
use anabranch::{Engine, Executor, Op, Result, Var};

use crate::sync::{AtomicU64, Ordering};

/// An archive that files are added to one after the other.
#[derive(Debug)]
pub struct Uploads {
    engine: Engine,
    archive: Var<Vec<u8>>,
    progress: Arc<Progress>,
}

/// Counts for a progress bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// How many files are in the archive.
    pub files: u64,
    /// How many bytes are in the archive: at least those of these files.
    pub bytes: u64,
}

#[derive(Debug)]
struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Uploads {
    /// Returns an empty archive, for at most `pending_max` files at a time.
    ///
    /// # Errors
    /// If the executor was shut down, or has too many engines.
    pub fn new(exec: &Executor, pending_max: usize) -> Result<Self> {
        let engine = Engine::builder(exec).max_pending(pending_max).build()?;
        let archive = engine.var("archive", Vec::new());
        let progress = Arc::new(Progress { files: AtomicU64::new(0), bytes: AtomicU64::new(0) });
        Ok(Self { engine, archive, progress })
    }

    /// Adds a file behind those that were added before. Await what this returns, or drop it.
    ///
    /// # Errors
    /// If too many files are pending, or the executor was shut down.
    pub fn add(&self, file: Vec<u8>) -> Result<Pushed> {
        let progress = self.progress.clone();
        let archive = anabranch::take(&self.archive);
        let add = Op::task("add", archive, &self.archive, move |mut archive: Vec<u8>| {
            archive.extend_from_slice(&file);
            progress.add(file.len() as u64);
            archive
        });
        Ok(self.engine.try_push(add)?)
    }

    /// Returns the counts, without waiting.
    pub fn done(&self) -> Done {
        self.progress.done()
    }

    /// Waits until all files that were added are in the archive, and returns it.
    ///
    /// # Errors
    /// Those of the operations.
    ///
    /// # Cancellation
    /// If this is dropped, files are still added.
    pub async fn archive(&self) -> Result<Arc<Vec<u8>>> {
        self.archive.read().await
    }
}

impl Progress {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `done`: it publishes the bytes of this file.
        self.files.fetch_add(1, Ordering::Release);
    }

    fn done(&self) -> Done {
        // ORDERING: Acquire pairs with the Release in `add`. The bytes must be read after it.
        let files = self.files.load(Ordering::Acquire);
        Done { files, bytes: self.bytes.load(Ordering::Relaxed) }
    }
}
