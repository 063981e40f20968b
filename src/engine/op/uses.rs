//! What operations read and write: variables on one side, the arguments and the result of a closure on the
//! other.

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::var::Var;
use crate::engine::order::{Access, Accesses, Grant, Mode, SCANNED, VarPtr, Variable};
use crate::error::{Error, Kind, drop_each};

/// Collects what an operation asks for.
#[derive(Default)]
pub struct Asking {
    /// The first two, each by its own name, so that they stay in registers until they are written to where
    /// they are to be: what is written to memory word by word, and copied from there at once by more than a
    /// word, is waited for.
    first: Option<Access>,
    second: Option<Access>,
    /// All, if there are more: in front two to be overwritten with those above.
    all: Vec<Access>,
    /// Whether one is taken and read as well.
    pub(super) is_aliased: bool,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl Asking {
    /// Asks for a variable. The pointer is for the body of the operation that is made of this.
    #[inline(always)]
    fn ask<T: Send + Sync + 'static>(&mut self, var: &Var<T>, mode: Mode) -> VarPtr<T> {
        let (access, pointer) = var.access(mode);
        let variable = var.variable();
        if !self.ask_few(access, variable, mode) {
            // Taken out, because what a call gets the address of is in memory.
            let mut all = mem::take(&mut self.all);
            self.is_aliased |= ask_more(&mut all, variable, mode);
            self.all = all;
        }
        pointer
    }

    fn ask_all<'p, T: Send + Sync + 'static>(
        &mut self,
        vars: &'p [Var<T>],
        mode: Mode,
    ) -> impl Iterator<Item = VarPtr<T>> + use<'p, T> {
        let mut all = mem::take(&mut self.all);
        for var in vars {
            let variable = var.variable();
            self.is_aliased |= !self.ask_few(var.access(mode).0, variable, mode) && ask_more(&mut all, variable, mode);
        }
        self.all = all;
        vars.iter().map(move |var| var.access(mode).1)
    }

    /// Returns false if it is one more than two.
    #[inline(always)]
    fn ask_few(&mut self, access: Access, variable: &Variable, mode: Mode) -> bool {
        match (&mut self.first, &mut self.second) {
            (Some(first), _) if first.is_of(variable) => self.is_aliased |= first.add(mode),
            (first @ None, _) => *first = Some(access),
            (_, Some(second)) if second.is_of(variable) => self.is_aliased |= second.add(mode),
            (_, second @ None) => *second = Some(access),
            _ => return false,
        }
        true
    }

    /// Returns what was asked for.
    #[inline(always)]
    pub(super) fn accesses(self) -> Accesses {
        match (self.first, self.second) {
            (Some(first), Some(second)) if !self.all.is_empty() => all_of(first, second, self.all),
            (Some(first), second) => {
                let count = 1 + usize::from(second.is_some());
                let second = second.unwrap_or_else(|| first.filler());
                Accesses::from_buf_and_len([first, second], count)
            }
            (None, _) => Accesses::new(),
        }
    }
}

/// Asks for one variable more than two. Returns whether it is taken and read as well.
fn ask_more(all: &mut Vec<Access>, variable: &Variable, mode: Mode) -> bool {
    if all.is_empty() {
        all.extend([Access::new(variable, mode), Access::new(variable, mode)]);
    }
    let scanned = all.len().min(SCANNED);
    if let Some(known) = all[2..scanned].iter_mut().find(|known| known.is_of(variable)) {
        return known.add(mode);
    }
    all.push(Access::new(variable, mode));
    false
}

#[inline(never)]
fn all_of(first: Access, second: Access, mut all: Vec<Access>) -> Accesses {
    (all[0], all[1]) = (first, second);
    Accesses::from_vec(all)
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
    #[doc(hidden)]
    fn fetch<'a>(&'a self, grant: Grant<'a>) -> Result<Self::Arg<'a>, Error>;
    /// What the closure of an asynchronous operation gets.
    type Owned: Send + 'static;
    #[doc(hidden)]
    fn own(&self, grant: Grant<'_>) -> Result<Self::Owned, Error>;
    /// Whether the argument takes the value out.
    #[doc(hidden)]
    const TAKES: bool = false;
    /// Returns an error if the argument cannot be fetched. The answer holds as long as the operation has what
    /// it asked for.
    #[doc(hidden)]
    fn check(&self, grant: Grant<'_>) -> Result<(), Error>;
}

/// The arguments of one closure.
pub trait Params: Send + 'static {
    /// Whether there is more than one. A single argument needs no check before its fetch: nothing is taken
    /// before it, so the fetch itself may fail.
    #[doc(hidden)]
    const IS_MANY: bool;
    /// Returns an error if an argument takes its value and not all can be fetched: so nothing is taken in
    /// vain.
    #[doc(hidden)]
    fn check(&self, grant: Grant<'_>) -> Result<(), Error>;
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
    #[doc(hidden)]
    fn put(&self, value: V, grant: Grant<'_>) -> Result<(), Error>;
}

/// A closure that is an operation with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the operation reads, or does not return what it writes",
    label = "one argument per variable read: `&T` for `&var`, `T` for `take(&var)`, `Vec<&T>` for `&vars[..]`; write their types out: `|x: &T| ...`"
)]
pub trait OpFn<P, R>: Send + 'static {
    #[doc(hidden)]
    fn call(self, params: &P, grant: Grant<'_>) -> Result<R, Error>;
}

/// A closure that is an asynchronous operation with arguments `P`, and returns the future `Fut`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the operation reads, or does not return a future of what it writes",
    label = "one argument per variable read: `Arc<T>` for `&var`, `T` for `take(&var)`, `Vec<Arc<T>>` for `&vars[..]`; it returns an `async move` block of a `Result`"
)]
pub trait OpFutureFn<P, Fut>: Send + 'static {
    #[doc(hidden)]
    fn call(self, params: &P, grant: Grant<'_>) -> Result<Fut, Error>;
}

/// A closure that is a kernel on streams of type `S`, with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what the operation reads, or does not return what it writes",
    label = "first `&mut` the stream, then one argument per variable read; write their types out: `|s: &mut DeviceStream, x: &T| ...`"
)]
pub trait OpKernelFn<S, P, R>: Send + 'static {
    #[doc(hidden)]
    fn call(self, stream: &mut S, params: &P, grant: Grant<'_>) -> Result<R, Error>;
}

/// Reads a variable.
#[derive(Debug)]
pub struct ReadVar<T>(VarPtr<T>);

impl<T: Send + Sync + 'static> Fetch for ReadVar<T> {
    type Arg<'a> = &'a T;
    type Owned = Arc<T>;

    fn fetch<'a>(&'a self, grant: Grant<'a>) -> Result<&'a T, Error> {
        self.0.get(grant)
    }

    fn check(&self, grant: Grant<'_>) -> Result<(), Error> {
        self.0.get(grant).map(drop)
    }

    fn own(&self, grant: Grant<'_>) -> Result<Arc<T>, Error> {
        self.0.share(grant)
    }
}

impl<T: Send + Sync + 'static> Use for &Var<T> {
    type Fetch = ReadVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> ReadVar<T> {
        ReadVar(asking.ask(self, Mode::READ))
    }
}

/// A variable whose value an operation takes; made by [`take`](crate::take).
#[derive(Debug)]
pub struct TakeVar<'v, T: Send + Sync + 'static>(pub(super) &'v Var<T>);

/// Takes a variable's value.
#[derive(Debug)]
pub struct TakenVar<T>(VarPtr<T>);

impl<T: Send + Sync + 'static> Fetch for TakenVar<T> {
    type Arg<'a> = T;
    type Owned = T;

    fn fetch(&self, grant: Grant<'_>) -> Result<T, Error> {
        self.0.take(grant)
    }

    const TAKES: bool = true;

    fn check(&self, grant: Grant<'_>) -> Result<(), Error> {
        self.0.check_take(grant)
    }

    fn own(&self, grant: Grant<'_>) -> Result<T, Error> {
        self.0.take(grant)
    }
}

impl<T: Send + Sync + 'static> Use for TakeVar<'_, T> {
    type Fetch = TakenVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> TakenVar<T> {
        TakenVar(asking.ask(self.0, Mode::TAKE))
    }
}

/// Reads variables of one type.
#[derive(Debug)]
pub struct ReadVars<T>(Box<[ReadVar<T>]>);

impl<T: Send + Sync + 'static> Fetch for ReadVars<T> {
    type Arg<'a> = Vec<&'a T>;
    type Owned = Vec<Arc<T>>;

    fn fetch<'a>(&'a self, grant: Grant<'a>) -> Result<Vec<&'a T>, Error> {
        self.0.iter().map(|var| var.fetch(grant)).collect()
    }

    fn check(&self, grant: Grant<'_>) -> Result<(), Error> {
        self.0.iter().try_for_each(|var| var.check(grant))
    }

    fn own(&self, grant: Grant<'_>) -> Result<Vec<Arc<T>>, Error> {
        self.0.iter().map(|var| var.own(grant)).collect()
    }
}

impl<T: Send + Sync + 'static> Use for &[Var<T>] {
    type Fetch = ReadVars<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> ReadVars<T> {
        ReadVars(asking.ask_all(self, Mode::READ).map(ReadVar).collect())
    }
}

impl Writes for () {
    type Value = ();
    type Put = ();

    #[inline(always)]
    fn ask(self, _: &mut Asking) {}
}

impl Put<()> for () {
    fn put(&self, (): (), _: Grant<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes a variable.
#[derive(Debug)]
pub struct WriteVar<T>(VarPtr<T>);

impl<T: Send + Sync + 'static> Put<T> for WriteVar<T> {
    #[inline(always)]
    fn put(&self, value: T, grant: Grant<'_>) -> Result<(), Error> {
        self.0.put(value, grant)
    }
}

impl<T: Send + Sync + 'static> Writes for &Var<T> {
    type Value = T;
    type Put = WriteVar<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteVar<T> {
        WriteVar(asking.ask(self, Mode::WRITE))
    }
}

/// A variable that an operation writes with a value that may have other owners.
pub(crate) struct Shared<'v, T: Send + Sync + 'static>(pub(crate) &'v Var<T>);

/// Writes a variable with a shared value.
pub(crate) struct WriteShared<T>(VarPtr<T>);

impl<T: Send + Sync + 'static> Sealed for Shared<'_, T> {}

impl<T: Send + Sync + 'static> Put<Arc<T>> for WriteShared<T> {
    fn put(&self, value: Arc<T>, grant: Grant<'_>) -> Result<(), Error> {
        self.0.put_shared(value, grant)
    }
}

impl<T: Send + Sync + 'static> Writes for Shared<'_, T> {
    type Value = Arc<T>;
    type Put = WriteShared<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteShared<T> {
        WriteShared(asking.ask(self.0, Mode::WRITE))
    }
}

/// Writes variables of one type.
#[derive(Debug)]
pub struct WriteVars<T>(Box<[WriteVar<T>]>);

impl<T: Send + Sync + 'static> Put<Vec<T>> for WriteVars<T> {
    fn put(&self, values: Vec<T>, grant: Grant<'_>) -> Result<(), Error> {
        let (got, wanted) = (values.len(), self.0.len());
        if got != wanted {
            drop_each(values);
            return Err(Kind::ValueCount { got, wanted }.into());
        }
        // All are written, even if an earlier write fails.
        self.0.iter().zip(values).map(|(var, value)| var.put(value, grant)).fold(Ok(()), Result::and)
    }
}

impl<T: Send + Sync + 'static> Writes for &[Var<T>] {
    type Value = Vec<T>;
    type Put = WriteVars<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> WriteVars<T> {
        WriteVars(asking.ask_all(self, Mode::WRITE).map(WriteVar).collect())
    }
}
