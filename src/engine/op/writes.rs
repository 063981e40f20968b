//! The writes of an operation: each becomes an access to a variable, and takes a part of the closure's
//! result.

use std::sync::Arc;

use super::reads::Asking;
use super::var::Var;
use crate::engine::order::{Grant, Mode, VarPtr};
use crate::error::{Error, Kind, drop_each};
use crate::value::args::{Sealed, tuples};

/// Everything that an operation writes: `()`, `&Var<T>`, `&[Var<T>]`, or a tuple of up to eight. The closure
/// returns the new values: nothing, a `T`, a `Vec<T>` as long as the slice, or a tuple.
///
/// # Examples
/// The new values of none, one, several, and a slice of variables:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (x, low, high) = (engine.var("x", 7), engine.var("low", 0), engine.var("high", 0));
/// let all = [engine.var("a", 0), engine.var("b", 0)];
///
/// engine.push(Op::task("print", &x, (), |x: &i32| println!("{x}"))).await?;
/// engine.push(Op::task("double", &x, &x, |x: &i32| x * 2)).await?;
/// engine.push(Op::task("bounds", &x, (&low, &high), |x: &i32| (x - 1, x + 1))).await?;
/// engine.push(Op::task("fill", &x, &all[..], |x: &i32| vec![*x; 2])).await?;
/// assert_eq!((*high.read().await?, *all[1].read().await?), (15, 14));
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "an operation cannot write this",
    label = "give `&var`, `&vars[..]`, a tuple of up to eight of them, or `()`"
)]
pub trait Writes: Sealed {
    /// What the closure returns.
    type Value: 'static;
    /// Stores the value.
    type Put: Put<Self::Value>;
    #[doc(hidden)]
    fn ask(self, asking: &mut Asking) -> Self::Put;
}

/// Stores what a closure returns.
///
/// A program does not name it: it follows from the variables that an operation writes.
pub trait Put<V>: Send + 'static {
    #[doc(hidden)]
    fn put(&self, value: V, grant: Grant<'_>) -> Result<(), Error>;
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

impl<T: Send + Sync + 'static> Put<T> for VarPtr<T> {
    #[inline(always)]
    fn put(&self, value: T, grant: Grant<'_>) -> Result<(), Error> {
        self.put(value, grant)
    }
}

impl<T: Send + Sync + 'static> Writes for &Var<T> {
    type Value = T;
    type Put = VarPtr<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> VarPtr<T> {
        asking.ask(self, Mode::WRITE)
    }
}

/// A variable that an operation writes with a value that may have other owners.
pub(crate) struct PutShared<'v, T: Send + Sync + 'static>(pub(crate) &'v Var<T>);

impl<T: Send + Sync + 'static> Sealed for PutShared<'_, T> {}

impl<T: Send + Sync + 'static> Put<Arc<T>> for VarPtr<T> {
    fn put(&self, value: Arc<T>, grant: Grant<'_>) -> Result<(), Error> {
        self.put_shared(value, grant)
    }
}

impl<T: Send + Sync + 'static> Writes for PutShared<'_, T> {
    type Value = Arc<T>;
    type Put = VarPtr<T>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> VarPtr<T> {
        asking.ask(self.0, Mode::WRITE)
    }
}

impl<T: Send + Sync + 'static> Put<Vec<T>> for Box<[VarPtr<T>]> {
    fn put(&self, values: Vec<T>, grant: Grant<'_>) -> Result<(), Error> {
        let (got, wanted) = (values.len(), self.len());
        if got != wanted {
            drop_each(values);
            return Err(Kind::ValueCount { got, wanted }.into());
        }
        // All are written, even if an earlier write fails.
        self.iter().zip(values).map(|(var, value)| var.put(value, grant)).fold(Ok(()), Result::and)
    }
}

impl<T: Send + Sync + 'static> Writes for &[Var<T>] {
    type Value = Vec<T>;
    type Put = Box<[VarPtr<T>]>;

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> Box<[VarPtr<T>]> {
        asking.ask_all(self, Mode::WRITE).collect()
    }
}

macro_rules! writes {
    ($($P:ident $p:ident $V:ident $v:ident $number:tt),*) => {
        impl<$($P: Writes),*> Writes for ($($P,)*) {
            type Value = ($($P::Value,)*);
            type Put = ($($P::Put,)*);

            #[inline(always)]
            fn ask(self, asking: &mut Asking) -> Self::Put {
                let ($($p,)*) = self;
                ($($p.ask(asking),)*)
            }
        }

        impl<$($V, $P: Put<$V>),*> Put<($($V,)*)> for ($($P,)*) {
            fn put(&self, ($($v,)*): ($($V,)*), grant: Grant<'_>) -> Result<(), Error> {
                let ($($p,)*) = self;
                // All are written, even if an earlier write fails.
                Ok(())$(.and($p.put($v, grant)))*
            }
        }
    };
}

tuples!(writes);
