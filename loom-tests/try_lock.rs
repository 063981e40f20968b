//! Two threads try a lock: each that gets it sees the changes of the previous one.

use std::sync::Arc;

use super::harness::{check, join, spawn};
use crate::device::host::TryLock;
use crate::sync::{AtomicU32, Ordering};

fn add_one(lock: &TryLock<AtomicU32>) -> u32 {
    // Two steps: without the lock an addition could be lost.
    // ORDERING: Relaxed: the lock must make the store visible.
    let added = lock.try_with(|sum| sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    u32::from(added.is_some())
}

// Seen to fail with a lock that is taken by a load and a store, and with a Relaxed exchange.
#[test]
fn threads_that_get_the_lock_come_one_after_the_other() {
    check(|| {
        let lock = Arc::new(TryLock::new(AtomicU32::new(0)));
        let other = lock.clone();
        let thread = spawn(move || add_one(&other));
        let added = add_one(&lock) + join(thread);
        // ORDERING: Relaxed: the join makes the other thread's store visible.
        assert_eq!(lock.try_with(|sum| sum.load(Ordering::Relaxed)), Some(added));
    });
}
