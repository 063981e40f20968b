//! An inspection of pending operations beside threads that end them: it reads no operation that is being
//! cleared, and no variable that is freed.
//!
//! The steps of `Slots::inspect` and `Batch` on the real inspection, with memory that loom checks in place of
//! the operation and the variable.

use std::sync::Arc;

use super::harness::{Plain, check, join, spawn};
use crate::device::host::Barrier;
use crate::engine::order::Inspection;
use crate::sync::{AtomicBool, Ordering};

struct Model {
    inspection: Inspection,
    /// Whether the operation is marked as over.
    is_over: AtomicBool,
    /// Whether the operation has left the queue of the variable.
    has_left: AtomicBool,
    /// Stands for the operation, or the variable.
    memory: Plain,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inspection: Inspection::new(Barrier::new()),
            is_over: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            memory: Plain::new(0),
        })
    }

    /// As `Slots::see`.
    fn inspect(&self) {
        let _inspecting = self.inspection.begin().expect("the barrier works");
        // ORDERING: Relaxed: the barrier of the inspection pairs with the light side in `pass`, and orders
        // the load.
        if !self.is_over.load(Ordering::Relaxed) {
            assert_eq!(self.memory.get(), 0, "it is neither cleared nor freed");
        }
    }
}

// Seen to fail (a race on the memory) without the light side in `pass`, without the heavy side in `begin`,
// with an `is_on` that is set after it, and with a `pass` that does not wait.
#[test]
fn an_operation_is_cleared_before_an_inspection_or_after_it() {
    check(|| {
        let model = Model::new();
        let there = model.clone();
        let ends = spawn(move || {
            // ORDERING: Relaxed: the light side in `pass` pairs with the barrier of the inspection, and
            // orders the store.
            there.is_over.store(true, Ordering::Relaxed);
            there.inspection.pass();
            there.memory.set(1);
        });
        model.inspect();
        model.inspect();
        join(ends);
    });
}

// Seen to fail (a race on the memory) with the same changes as the model of one thread, and with a freeing
// thread that does not pass.
#[test]
fn a_variable_is_freed_by_another_thread_before_an_inspection_or_after_it() {
    check(|| {
        let model = Model::new();
        let (there, behind) = (model.clone(), model.clone());
        let leaves = spawn(move || {
            // ORDERING: Release of `has_left` publishes the Relaxed mark to the Acquire of the thread that
            // frees.
            there.is_over.store(true, Ordering::Relaxed);
            there.has_left.store(true, Ordering::Release);
        });
        let frees = spawn(move || {
            if behind.has_left.load(Ordering::Acquire) {
                behind.inspection.pass();
                behind.memory.set(1);
            }
        });
        model.inspect();
        join(leaves);
        join(frees);
    });
}
