//! Calls of bodies with their types erased: straight from the step, without a vtable, and compiled for the
//! place of the body's values.

use super::Cells;
use crate::device::StreamMut;
use crate::error::BoxError;

pub(crate) type Outcome = Result<(), BoxError>;

/// A body whose type is known.
pub(crate) trait TypedBody: Send + Sync {
    /// Runs a task or a kernel; `stream` is the device's stream, for kernels.
    fn run(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome;
}

type BodyFn = unsafe fn(*const (), Cells<'_>, StreamMut<'_>) -> Outcome;

/// One body, ready to be run.
pub(crate) struct Call {
    entry: BodyFn,
    body: *const (),
}

// SAFETY: the body is Send and Sync, and this is a reference to it.
unsafe impl Send for Call {}
// SAFETY: the body is Sync, and this is a shared reference to it.
unsafe impl Sync for Call {}

impl Call {
    /// Returns the call of `body`. `is_in_place`: it always gets a view made with
    /// [`Access::InPlace`](super::Access), and so is compiled without a read of any cell's tag.
    pub(crate) fn of<B: TypedBody>(body: &B, is_in_place: bool) -> Self {
        let entry = if is_in_place { run::<B, true> } else { run::<B, false> };
        Self { entry, body: std::ptr::from_ref(body).cast() }
    }

    /// Returns the address of the called function: the same for bodies of the same type, such as one closure
    /// for many nodes.
    pub(crate) fn kind(&self) -> usize {
        self.entry as usize
    }

    /// Runs the body.
    ///
    /// # Safety
    /// The body has not moved since [`Call::of`]. If `is_in_place` was true there, `cells` were made with
    /// [`Access::InPlace`](super::Access).
    #[inline(always)]
    pub(crate) unsafe fn run(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome {
        // SAFETY: `entry` is for the type of the body. The caller promises that the body is alive, and that
        // the cells are as `entry` expects them.
        unsafe { (self.entry)(self.body, cells, stream) }
    }
}

/// # Safety
/// `body` is the address of a `B` that is alive. If `IN_PLACE`, `cells` were made with
/// [`Access::InPlace`](super::Access).
unsafe fn run<B: TypedBody, const IN_PLACE: bool>(body: *const (), cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome {
    // SAFETY: the caller promises that the cells were made for values in place.
    let cells = if IN_PLACE { unsafe { cells.in_place() } } else { cells };
    // SAFETY: the caller promises that a `B` is alive at this address.
    unsafe { &*body.cast::<B>() }.run(cells, stream)
}
