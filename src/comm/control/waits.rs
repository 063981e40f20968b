//! The started operations of one world on this rank, and which of them wait for a rank that has left.
//!
//! All ranks number the collectives in the same way, so the n-th waits for ever if the rank has started fewer
//! before it left. A message may still be on its way when its sender has left, so it gets some time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

#[derive(Default)]
pub(in crate::comm) struct Waits(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of collectives that this rank has started.
    collectives: u64,
    /// The ranks that have left.
    left: BTreeMap<u32, Left>,
    waiting: Slab<Awaited>,
}

/// A rank that has left.
struct Left {
    /// The number of collectives that it had started.
    collectives: u64,
    when: Instant,
}

enum Awaited {
    Collective(u64),
    Message { peer: u32, since: Instant, is_matched: Arc<AtomicBool> },
}

/// An operation that was started, until it has ended.
pub(in crate::comm) struct Wait {
    of: Arc<Waits>,
    key: usize,
}

impl Waits {
    /// Notes that this rank starts its next collective.
    pub(in crate::comm) fn collective(self: &Arc<Self>) -> Wait {
        let mut state = lock(&self.0);
        let number = state.collectives;
        state.collectives += 1;
        Wait { of: self.clone(), key: state.waiting.insert(Awaited::Collective(number)) }
    }

    /// Notes that this rank starts a send to a rank, or a receive from it. The flag is to be set when the
    /// message has come.
    pub(in crate::comm) fn message(self: &Arc<Self>, peer: u32) -> (Wait, Arc<AtomicBool>) {
        let is_matched = Arc::<AtomicBool>::default();
        let awaited = Awaited::Message { peer, since: Instant::now(), is_matched: is_matched.clone() };
        (Wait { of: self.clone(), key: lock(&self.0).waiting.insert(awaited) }, is_matched)
    }

    pub(super) fn collectives(&self) -> u64 {
        lock(&self.0).collectives
    }

    pub(super) fn note_left(&self, rank: u32, collectives: u64) {
        lock(&self.0).left.entry(rank).or_insert(Left { collectives, when: Instant::now() });
    }

    pub(super) fn has_left(&self, rank: u32) -> bool {
        lock(&self.0).left.contains_key(&rank)
    }

    /// Returns a rank that has left before its part of an operation that waits. Its messages may take `most`.
    pub(super) fn unmet(&self, most: Duration) -> Option<u32> {
        let state = lock(&self.0);
        let waits_for = |rank: u32, left: &Left| {
            state.waiting.iter().any(|(_, awaited)| match awaited {
                Awaited::Collective(number) => *number >= left.collectives,
                Awaited::Message { peer, since, is_matched } => {
                    // ORDERING: Relaxed: it tells nothing else.
                    let is_open = *peer == rank && !is_matched.load(Ordering::Relaxed);
                    is_open && since.elapsed().min(left.when.elapsed()) > most
                }
            })
        };
        state.left.iter().find(|(rank, left)| waits_for(**rank, left)).map(|(rank, _)| *rank)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        drop(lock(&self.of.0).waiting.remove(self.key));
    }
}
