//! Guards for user code that may panic where the library calls it: wakers, observers, and above all
//! destructors. A second panic that leaves a destructor while the thread unwinds aborts the process. So no
//! two user destructors run unguarded in one place.

use std::any::Any;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Runs user code whose panic must not reach the caller. If it panicked, returns the panic's message.
pub(crate) fn shielded(foreign: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(panic_message)
}

/// Runs a user destructor. Its panic reaches the caller, unless the thread unwinds already: there the panic
/// would abort the process.
///
/// So if several destructors panic in one place, the caller gets the first panic, and the others are
/// discarded.
#[inline]
pub(crate) fn dispose(foreign: impl FnOnce()) {
    if thread::panicking() { dispose_shielded(foreign) } else { foreign() }
}

#[cold]
#[inline(never)]
fn dispose_shielded(foreign: impl FnOnce()) {
    let _ = shielded(foreign);
}

/// Drops all items. A panic of one drop neither stops the others nor reaches the caller.
pub(crate) fn drop_each<T>(items: impl IntoIterator<Item = T>) {
    items.into_iter().for_each(|item| _ = shielded(|| drop(item)));
}

/// A user's value that the library owns. Its drop goes through [`dispose`].
#[derive(Clone)]
pub(crate) struct Foreign<P>(Option<P>);

impl<P> Foreign<P> {
    #[inline]
    pub(crate) fn new(value: P) -> Self {
        Self(Some(value))
    }

    #[inline]
    pub(crate) fn into_inner(mut self) -> P {
        self.0.take().expect("the value leaves only with its owner")
    }
}

impl<P> Deref for Foreign<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        self.0.as_ref().expect("the value leaves only with its owner")
    }
}

impl<P> Drop for Foreign<P> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            dispose(|| drop(value));
        }
    }
}

/// Returns the message of a panic, if it is text.
///
/// The drop of the payload is user code, which may panic with another payload. If that payload is not text,
/// it is leaked: its drop could panic in the same way, without end.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = text_of(&*panic);
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic)))
        && text_of(&*again).is_none()
    {
        mem::forget(again);
    }
    text.unwrap_or_else(|| "no message".into())
}

fn text_of(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}
