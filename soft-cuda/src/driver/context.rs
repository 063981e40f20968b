//! The primary context of a device, and the current context of a thread.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::device::{self, Device};
use super::table::{Handle, Kind};
use crate::code::{Code, Outcome};

/// The state of the device's one context: whether it is live, and whether it has failed.
#[derive(Default)]
pub(crate) struct Context {
    /// Held while the context is created or torn down.
    pub(crate) changing: Mutex<()>,
    /// The number of retains. It changes only while `changing` is held.
    pub(crate) retains: AtomicU64,
    /// The number of contexts so far. It distinguishes a handle to a destroyed context from one to its
    /// successor.
    generation: AtomicU64,
    is_live: AtomicBool,
    /// The fatal code, or 0.
    error: AtomicU32,
    /// Whether the context is torn down, so that no stream may wait any more.
    is_let_go: AtomicBool,
    /// Whether the context was torn down with operations that could not end. The remaining operations are not
    /// executed.
    is_abandoned: AtomicBool,
}

impl Context {
    pub(crate) fn handle(&self, ordinal: u32) -> Handle {
        // ORDERING: SeqCst for all fields: contexts change rarely, and their flags are read together.
        Handle::new(Kind::Context, ordinal, self.generation.load(Ordering::SeqCst))
    }

    pub(crate) fn is_live(&self) -> bool {
        // ORDERING: SeqCst pairs with the stores in `begin` and `end`.
        self.is_live.load(Ordering::SeqCst)
    }

    /// Begins a new context.
    pub(crate) fn begin(&self) {
        // ORDERING: SeqCst for all fields: contexts change rarely, and their flags are read together.
        // `is_live` comes last.
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.error.store(0, Ordering::SeqCst);
        self.is_let_go.store(false, Ordering::SeqCst);
        self.is_abandoned.store(false, Ordering::SeqCst);
        self.is_live.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        // ORDERING: SeqCst pairs with the loads in `is_live` and `check`.
        self.is_live.store(false, Ordering::SeqCst);
        self.error.store(0, Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        // ORDERING: SeqCst pairs with the load in `is_let_go`.
        self.is_let_go.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_let_go(&self) -> bool {
        // ORDERING: SeqCst pairs with the stores in `let_go` and `begin`.
        self.is_let_go.load(Ordering::SeqCst)
    }

    pub(crate) fn abandon(&self) {
        // ORDERING: SeqCst pairs with the load in `is_over`.
        self.is_abandoned.store(true, Ordering::SeqCst);
    }

    /// Makes the context fail permanently. The first code stays.
    pub(crate) fn fail(&self, code: Code) {
        // ORDERING: SeqCst pairs with the load in `check`. A failed exchange leaves the first code.
        let _ = self.error.compare_exchange(0, code.0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns the fatal code, if there is one.
    pub(crate) fn check(&self) -> Outcome {
        // ORDERING: SeqCst pairs with the exchange in `fail`.
        match self.error.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Returns true if operations are no longer executed.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: SeqCst pairs with the store in `abandon`.
        self.check().is_err() || self.is_abandoned.load(Ordering::SeqCst)
    }
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The contexts below the current one on this thread's stack.
    static BELOW: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the device whose context is current, if it is live.
pub(crate) fn current() -> Outcome<&'static Device> {
    live(current_handle())
}

pub(crate) fn current_handle() -> Handle {
    // A thread that is ending has no current context.
    Handle(CURRENT.try_with(Cell::get).unwrap_or(0))
}

pub(crate) fn set_current(handle: Handle) -> Outcome {
    CURRENT.try_with(|current| current.set(handle.0)).map_err(|_| Code::INVALID_CONTEXT)
}

pub(crate) fn push(handle: Handle) -> Outcome {
    let below = current_handle();
    BELOW.try_with(|stack| stack.borrow_mut().push(below.0)).map_err(|_| Code::INVALID_CONTEXT)?;
    set_current(handle)
}

pub(crate) fn pop() -> Outcome<Handle> {
    let top = current_handle();
    if top == Handle::NULL {
        return Err(Code::INVALID_CONTEXT);
    }
    let below = BELOW.try_with(|stack| stack.borrow_mut().pop().unwrap_or(0)).unwrap_or(0);
    set_current(Handle(below))?;
    Ok(top)
}

/// Returns the device of a live context.
pub(crate) fn live(handle: Handle) -> Outcome<&'static Device> {
    if !handle.is(Kind::Context) {
        return Err(Code::INVALID_CONTEXT);
    }
    let device = device::known(handle.ordinal()).ok_or(Code::INVALID_CONTEXT)?;
    if device.context.handle(device.ordinal) != handle {
        return Err(Code::CONTEXT_IS_DESTROYED);
    }
    if device.context.is_live() { Ok(device) } else { Err(Code::CONTEXT_IS_DESTROYED) }
}
