//! What operations read and write: variables on one side, the arguments and the result of a closure on the
//! other.

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::op::Uses;
use super::place::{Asked, Held, How, Place};
use super::var::Var;
use crate::error::{Error, Kind, drop_each};
use crate::value::Untakable;

/// Collects what an operation asks for.
#[derive(Default)]
pub struct Asking {
    /// The first two, each by its own name, so that they stay in registers until they are written to where
    /// they are to be: what is written to memory word by word, and copied from there at once by more than a
    /// word, is waited for.
    first: Option<Asked>,
    second: Option<Asked>,
    /// All, if there are more: in front two to be overwritten with those above.
    all: Vec<Asked>,
    /// Whether one is taken and read as well.
    pub(super) is_aliased: bool,
}

/// How many variables are compared with each further one. Those behind are compared once all are there.
pub(super) const SCANNED: usize = 16;

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl Asking {
    #[inline(always)]
    fn ask(&mut self, place: &Place, how: How) {
        if !self.ask_few(place, how) {
            // Taken out, because what a call gets the address of is in memory.
            let mut all = mem::take(&mut self.all);
            self.is_aliased |= ask_more(&mut all, place, how);
            self.all = all;
        }
    }

    fn ask_all<'p>(&mut self, places: impl Iterator<Item = &'p Place>, how: How) {
        let mut all = mem::take(&mut self.all);
        for place in places {
            self.is_aliased |= !self.ask_few(place, how) && ask_more(&mut all, place, how);
        }
        self.all = all;
    }

    /// Returns false if it is one more than two.
    #[inline(always)]
    fn ask_few(&mut self, place: &Place, how: How) -> bool {
        match (&mut self.first, &mut self.second) {
            (Some(first), _) if first.is_of(place) => self.is_aliased |= first.add(how),
            (first @ None, _) => *first = Some(Asked::new(place, how)),
            (_, Some(second)) if second.is_of(place) => self.is_aliased |= second.add(how),
            (_, second @ None) => *second = Some(Asked::new(place, how)),
            _ => return false,
        }
        true
    }

    /// Returns what was asked for.
    #[inline(always)]
    pub(super) fn uses(self) -> Uses {
        match (self.first, self.second) {
            (Some(first), Some(second)) if !self.all.is_empty() => all_of(first, second, self.all),
            (Some(first), second) => {
                let count = 1 + usize::from(second.is_some());
                let second = second.unwrap_or_else(|| first.filler());
                Uses::from_buf_and_len([first, second], count)
            }
            (None, _) => Uses::new(),
        }
    }
}

/// Asks for one variable more than two. Returns whether it is taken and read as well.
fn ask_more(all: &mut Vec<Asked>, place: &Place, how: How) -> bool {
    if all.is_empty() {
        all.extend([Asked::new(place, how), Asked::new(place, how)]);
    }
    let scanned = all.len().min(SCANNED);
    if let Some(known) = all[2..scanned].iter_mut().find(|known| known.is_of(place)) {
        return known.add(how);
    }
    all.push(Asked::new(place, how));
    false
}

#[inline(never)]
fn all_of(first: Asked, second: Asked, mut all: Vec<Asked>) -> Uses {
    (all[0], all[1]) = (first, second);
    Uses::from_vec(all)
}

/// Only this room says what can be asked for: what an operation gets at must stand in the queue of what it
/// is.
pub trait Sealed {}

impl<T: Send + Sync + 'static> Sealed for &Var<T> {}
impl<T: Send + Sync + 'static> Sealed for &[Var<T>] {}
impl<T: Send + Sync + 'static> Sealed for TakeVar<'_, T> {}

/// One thing that an operation reads: `&Var<T>`, [`take`](crate::take)`(&var)`, or `&[Var<T>]` for any number
/// of one type.
pub trait Use: Sealed {
    /// How the closure's argument comes out of its variable.
    type Fetch: Fetch;
    #[doc(hidden)]
    fn ask(self, asking: &mut Asking) -> Self::Fetch;
}

/// How an argument comes out of its variable.
pub trait Fetch: Send + 'static {
    /// What the closure gets.
    type Arg<'a>;
    /// # Safety
    /// The operation has been granted what it asked for, and has not ended.
    #[doc(hidden)]
    unsafe fn fetch<'a>(&'a self) -> Result<Self::Arg<'a>, Error>;
    /// What the closure of an asynchronous operation gets.
    type Owned: Send + 'static;
    /// # Safety
    /// As [`Fetch::fetch`].
    #[doc(hidden)]
    unsafe fn own(&self) -> Result<Self::Owned, Error>;
    /// Whether the argument takes the value out.
    #[doc(hidden)]
    const TAKES: bool = false;
    /// Returns an error if the argument cannot be fetched. The answer holds as long as the operation has what
    /// it asked for.
    ///
    /// # Safety
    /// As [`Fetch::fetch`].
    #[doc(hidden)]
    unsafe fn check(&self) -> Result<(), Error>;
}

/// The arguments of one closure.
pub trait Params: Send + 'static {
    /// Whether there is more than one. A single argument needs no check before its fetch: nothing is taken
    /// before it, so the fetch itself may fail.
    #[doc(hidden)]
    const IS_MANY: bool;
    /// Returns an error if an argument takes its value and not all can be fetched: so nothing is taken in
    /// vain.
    ///
    /// # Safety
    /// As [`Fetch::fetch`].
    #[doc(hidden)]
    unsafe fn check(&self) -> Result<(), Error>;
}

#[diagnostic::on_unimplemented(
    message = "this is nothing that an operation reads",
    label = "give `&var`, `take(&var)`, `&vars[..]`, a tuple of up to eight of them, or `()`"
)]
/// Everything that an operation reads: `()`, one [`Use`], or a tuple of up to eight.
pub trait Reads: Sealed {
    /// How the closure's arguments come out of their variables.
    type Params: Params;
    #[doc(hidden)]
    fn ask(self, asking: &mut Asking) -> Self::Params;
}

#[diagnostic::on_unimplemented(
    message = "this is nothing that an operation writes",
    label = "give `&var`, `&vars[..]`, a tuple of up to eight of them, or `()`"
)]
/// Everything that an operation writes: `()`, `&Var<T>`, `&[Var<T>]`, or a tuple of up to eight. The closure
/// returns the new values: nothing, a `T`, a `Vec<T>` as long as the slice, or a tuple.
pub trait Writes: Sealed {
    /// What the closure returns.
    type Value;
    /// Where that goes.
    type Put: Put<Self::Value>;
    #[doc(hidden)]
    fn ask(self, asking: &mut Asking) -> Self::Put;
}

/// Where what a closure returns goes.
pub trait Put<V>: Send + 'static {
    /// # Safety
    /// As [`Fetch::fetch`], and no argument is left.
    #[doc(hidden)]
    unsafe fn put(&self, value: V) -> Result<(), Error>;
}

/// A closure that is an operation with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the operation reads, or does not return what it writes",
    label = "one argument per variable read: `&T` for `&var`, `T` for `take(&var)`, `Vec<&T>` for `&vars[..]`; write their types out: `|x: &T| ...`"
)]
pub trait OpFn<P, R>: Send + 'static {
    /// # Safety
    /// As [`Fetch::fetch`], for every parameter.
    #[doc(hidden)]
    unsafe fn call(self, params: &P) -> Result<R, Error>;
}

/// A closure that is an asynchronous operation with arguments `P`, and returns the future `Fut`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the operation reads, or does not return a future of what it writes",
    label = "one argument per variable read: `Arc<T>` for `&var`, `T` for `take(&var)`, `Vec<Arc<T>>` for `&vars[..]`; it returns an `async move` block of a `Result`"
)]
pub trait OpFutureFn<P, Fut>: Send + 'static {
    /// # Safety
    /// As [`Fetch::fetch`], for every parameter.
    #[doc(hidden)]
    unsafe fn call(self, params: &P) -> Result<Fut, Error>;
}

/// A closure that is a kernel on streams of type `S`, with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what the operation reads, or does not return what it writes",
    label = "first `&mut` the stream, then one argument per variable read; write their types out: `|s: &mut DeviceStream, x: &T| ...`"
)]
pub trait OpKernelFn<S, P, R>: Send + 'static {
    /// # Safety
    /// As [`Fetch::fetch`], for every parameter.
    #[doc(hidden)]
    unsafe fn call(self, stream: &mut S, params: &P) -> Result<R, Error>;
}

/// Reads a variable.
#[derive(Debug)]
pub struct ReadVar<T>(Held<T>);

impl<T: Send + Sync + 'static> Fetch for ReadVar<T> {
    type Arg<'a> = &'a T;

    unsafe fn fetch(&self) -> Result<&T, Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: granted; a write of the same operation comes when no argument is left.
        unsafe { block.cell.get() }.ok_or_else(|| block.place.empty())
    }

    unsafe fn check(&self) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.fetch() }?;
        Ok(())
    }

    type Owned = Arc<T>;

    unsafe fn own(&self) -> Result<Arc<T>, Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: granted.
        unsafe { block.cell.share() }.ok_or_else(|| block.place.empty())
    }
}

impl<T: Send + Sync + 'static> Use for &Var<T> {
    type Fetch = ReadVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> ReadVar<T> {
        asking.ask(&self.block().place, How::READ);
        ReadVar(Held::new(self.block()))
    }
}

/// A variable whose value an operation takes; made by [`take`](crate::take).
#[derive(Debug)]
pub struct TakeVar<'v, T: Send + Sync + 'static>(pub(super) &'v Var<T>);

/// Takes a variable's value.
#[derive(Debug)]
pub struct TakenVar<T>(Held<T>);

impl<T: Send + Sync + 'static> Fetch for TakenVar<T> {
    type Arg<'a> = T;

    unsafe fn fetch(&self) -> Result<T, Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: granted, and nothing else of the operation refers to the value.
        unsafe { block.cell.take() }.map_err(|why| match why {
            Untakable::Empty => block.place.empty(),
            Untakable::Shared => Kind::VarKept { variable: block.place.name.to_cow() }.into(),
        })
    }

    const TAKES: bool = true;

    unsafe fn check(&self) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: granted, and nothing else of the operation refers to the value.
        if unsafe { block.cell.is_shared() } {
            return Err(Kind::VarKept { variable: block.place.name.to_cow() }.into());
        }
        // SAFETY: granted, and nothing else of the operation refers to the value.
        unsafe { block.cell.get() }.map(|_| ()).ok_or_else(|| block.place.empty())
    }

    type Owned = T;

    unsafe fn own(&self) -> Result<T, Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.fetch() }
    }
}

impl<T: Send + Sync + 'static> Use for TakeVar<'_, T> {
    type Fetch = TakenVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> TakenVar<T> {
        asking.ask(&self.0.block().place, How::TAKE);
        TakenVar(Held::new(self.0.block()))
    }
}

/// Reads variables of one type.
#[derive(Debug)]
pub struct ReadVars<T>(Box<[ReadVar<T>]>);

impl<T: Send + Sync + 'static> Fetch for ReadVars<T> {
    type Arg<'a> = Vec<&'a T>;

    unsafe fn fetch(&self) -> Result<Vec<&T>, Error> {
        // SAFETY: by the caller's promise.
        self.0.iter().map(|var| unsafe { var.fetch() }).collect()
    }

    unsafe fn check(&self) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        self.0.iter().try_for_each(|var| unsafe { var.check() })
    }

    type Owned = Vec<Arc<T>>;

    unsafe fn own(&self) -> Result<Vec<Arc<T>>, Error> {
        // SAFETY: by the caller's promise.
        self.0.iter().map(|var| unsafe { var.own() }).collect()
    }
}

impl<T: Send + Sync + 'static> Use for &[Var<T>] {
    type Fetch = ReadVars<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> ReadVars<T> {
        asking.ask_all(self.iter().map(|var| &var.block().place), How::READ);
        ReadVars(self.iter().map(|var| ReadVar(Held::new(var.block()))).collect())
    }
}

impl Writes for () {
    type Value = ();
    type Put = ();

    #[inline(always)]
    fn ask(self, _: &mut Asking) {}
}

impl Put<()> for () {
    unsafe fn put(&self, (): ()) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes a variable.
#[derive(Debug)]
pub struct WriteVar<T>(Held<T>);

impl<T: Send + Sync + 'static> Put<T> for WriteVar<T> {
    #[inline(always)]
    unsafe fn put(&self, value: T) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: the operation has been granted to write, and no argument is left.
        let write = || unsafe { block.cell.put(value) };
        // SAFETY: the operation has been granted to write this variable, and no argument is left.
        unsafe { block.overwrite(write) }
    }
}

impl<T: Send + Sync + 'static> Writes for &Var<T> {
    type Value = T;
    type Put = WriteVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteVar<T> {
        asking.ask(&self.block().place, How::WRITE);
        WriteVar(Held::new(self.block()))
    }
}

/// A variable that an operation writes with a value that others may have, too.
pub(crate) struct Shared<'v, T: Send + Sync + 'static>(pub(crate) &'v Var<T>);

/// Writes a variable with a shared value.
pub(crate) struct WriteShared<T>(Held<T>);

impl<T: Send + Sync + 'static> Sealed for Shared<'_, T> {}

impl<T: Send + Sync + 'static> Put<Arc<T>> for WriteShared<T> {
    unsafe fn put(&self, value: Arc<T>) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        let block = unsafe { self.0.block() };
        // SAFETY: the operation has been granted to write, and no argument is left.
        let write = || unsafe { block.cell.put_shared(value) };
        // SAFETY: the operation has been granted to write this variable, and no argument is left.
        unsafe { block.overwrite(write) }
    }
}

impl<T: Send + Sync + 'static> Writes for Shared<'_, T> {
    type Value = Arc<T>;
    type Put = WriteShared<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteShared<T> {
        asking.ask(&self.0.block().place, How::WRITE);
        WriteShared(Held::new(self.0.block()))
    }
}

/// Writes variables of one type.
#[derive(Debug)]
pub struct WriteVars<T>(Box<[WriteVar<T>]>);

impl<T: Send + Sync + 'static> Put<Vec<T>> for WriteVars<T> {
    unsafe fn put(&self, values: Vec<T>) -> Result<(), Error> {
        let (got, wanted) = (values.len(), self.0.len());
        if got != wanted {
            drop_each(values);
            return Err(Kind::ValueCount { got, wanted }.into());
        }
        // All are written, even if an earlier write fails.
        // SAFETY: the operation has been granted to write all of them, and no argument is left.
        self.0.iter().zip(values).map(|(var, value)| unsafe { var.put(value) }).fold(Ok(()), Result::and)
    }
}

impl<T: Send + Sync + 'static> Writes for &[Var<T>] {
    type Value = Vec<T>;
    type Put = WriteVars<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteVars<T> {
        asking.ask_all(self.iter().map(|var| &var.block().place), How::WRITE);
        WriteVars(self.iter().map(|var| WriteVar(Held::new(var.block()))).collect())
    }
}
