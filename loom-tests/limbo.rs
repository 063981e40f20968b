//! Memory of dropped runs: freed once, after its point, and by someone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::{Plain, check, join, spawn};
use crate::bridge::{Lane, Limbo};

/// Memory that a device writes until its point. Freeing it reads the word, so loom reports it when it is freed too early.
struct Memory {
    word: Arc<Plain>,
    freed: Arc<AtomicU32>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.word.get() == 1 {
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Model {
    lane: Arc<Lane>,
    limbo: Arc<Limbo>,
    word: Arc<Plain>,
    freed: Arc<AtomicU32>,
}

impl Model {
    fn new() -> Self {
        let (lane, limbo) = (Arc::new(Lane::new()), Arc::new(Limbo::new()));
        Self { lane, limbo, word: Arc::new(Plain::new(0)), freed: Arc::default() }
    }

    fn memory(&self) -> Box<Memory> {
        Box::new(Memory { word: self.word.clone(), freed: self.freed.clone() })
    }

    /// What a device does: the work, the point, and then it collects.
    fn device(&self) -> impl FnOnce() + Send + 'static {
        let (lane, limbo, word) = (self.lane.clone(), self.limbo.clone(), self.word.clone());
        move || {
            word.set(1);
            lane.signal(1);
            limbo.collect();
        }
    }
}

// Failed at first: `hold` had no fence, so it could miss the point while the signaller missed the memory, which then stayed.
// Seen to fail with any of: no fence in `hold`; the count stored before the memory is there.
#[test]
fn memory_is_freed_once_its_point_has_passed_and_not_before() {
    check(|| {
        let model = Model::new();
        let device = spawn(model.device());
        // As the drop of a run does it.
        model.limbo.hold(model.lane.clone(), 1, model.memory());
        if model.lane.has_reached(1) {
            model.limbo.collect();
        }
        join(device);
        assert_eq!(model.freed.load(Ordering::Relaxed), 1, "freed by who dropped it or by who signalled, once");
        assert_eq!(model.limbo.len(), 0);
    });
}

// Seen to fail with any of: a `collect` that does not ask for the point; one that stores a count of 0.
#[test]
fn two_that_collect_at_once_free_memory_once() {
    check(|| {
        let model = Model::new();
        model.limbo.hold(model.lane.clone(), 1, model.memory());
        model.limbo.hold(Arc::new(Lane::new()), 1, Box::new(()));
        let device = spawn(model.device());
        let submission = {
            let limbo = model.limbo.clone();
            spawn(move || limbo.collect())
        };
        join(device);
        join(submission);
        assert_eq!(model.freed.load(Ordering::Relaxed), 1);
        assert_eq!(model.limbo.len(), 1, "the other's point has not passed");
    });
}
