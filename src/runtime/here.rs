//! The executor that polls the future of an async node: nodes that run graphs of their own find it here.

use std::cell::RefCell;
use std::sync::Arc;

use super::Core;

std::thread_local! {
    static HERE: RefCell<Option<Arc<Core>>> = const { RefCell::new(None) };
}

/// Polls a future of a node as one of that executor.
pub(crate) fn at_core<R>(core: &Arc<Core>, poll: impl FnOnce() -> R) -> R {
    let _back = Back(set(Some(core.clone())));
    poll()
}

/// Returns the executor whose node this thread polls.
pub(crate) fn core_here() -> Option<Arc<Core>> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

fn set(core: Option<Arc<Core>>) -> Option<Arc<Core>> {
    HERE.try_with(|here| here.replace(core)).ok().flatten()
}

/// Returns to the executor around, also if the poll panics.
struct Back(Option<Arc<Core>>);

impl Drop for Back {
    fn drop(&mut self) {
        let around = self.0.take();
        drop(set(around));
    }
}
