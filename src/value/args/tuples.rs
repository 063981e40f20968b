//! The same impls for every number of arguments, from none to eight.

use super::closures::{FutureFn, KernelFn, OpFn, OpFutureFn, OpKernelFn, TaskFn};
use super::params::{Param, Params, Place};
use super::reads::{OneRead, Reads, Sealed};
use crate::device::KernelStream;

/// Calls a macro for tuples of one to eight. It gets two types, two names and a number for each part.
macro_rules! tuples {
    ($each:ident) => {
        $each!(A0 a0 T0 t0 0);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2, A3 a3 T3 t3 3);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2, A3 a3 T3 t3 3, A4 a4 T4 t4 4);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2, A3 a3 T3 t3 3, A4 a4 T4 t4 4, A5 a5 T5 t5 5);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2, A3 a3 T3 t3 3, A4 a4 T4 t4 4, A5 a5 T5 t5 5, A6 a6 T6 t6 6);
        $each!(A0 a0 T0 t0 0, A1 a1 T1 t1 1, A2 a2 T2 t2 2, A3 a3 T3 t3 3, A4 a4 T4 t4 4, A5 a5 T5 t5 5, A6 a6 T6 t6 6, A7 a7 T7 t7 7);
    };
}

pub(crate) use tuples;

macro_rules! args {
    ($($P:ident $p:ident $T:ident $t:ident $number:tt),*) => {
        impl<$($P: Sealed),*> Sealed for ($($P,)*) {}

        impl<At: Place, $($P: OneRead<At>),*> Reads<At> for ($($P,)*) {
            type Params = ($($P::Param,)*);

            #[inline(always)]
            #[allow(clippy::unused_unit, unused_variables)]
            fn bind(self, binder: &mut At::Binder<'_>) -> Self::Params {
                let ($($p,)*) = self;
                ($(OneRead::bind($p, binder),)*)
            }
        }

        impl<At: Place, $($P: Param<At>),*> Params<At> for ($($P,)*) {
            const IS_MANY: bool = const { <[bool]>::len(&[$($P::TAKES),*]) > 1 };

            #[inline(always)]
            #[allow(unused_variables)]
            fn check<'a>(&'a self, view: At::View<'a>) -> Result<(), At::Fault> {
                let takes: &[bool] = const { &[$($P::TAKES),*] };
                if takes.contains(&true) {
                    let ($($p,)*) = self;
                    $($p.check(view)?;)*
                }
                Ok(())
            }
        }

        closures!(Fn, [&self], self, [Send + Sync], TaskFn KernelFn FutureFn; $($P $p),*);
        closures!(FnOnce, [self], self, [Send], OpFn OpKernelFn OpFutureFn; $($P $p),*);
    };
}

macro_rules! closures {
    ($Fn:ident, [$($by:tt)*], $this:ident, [$($bounds:tt)*], $Task:ident $Kernel:ident $Future:ident; $($P:ident $p:ident),*) => {
        impl<At: Place, F, Out, $($P: Param<At>),*> $Task<At, ($($P,)*), Out> for F
        where
            F: for<'a> $Fn($($P::Arg<'a>),*) -> Out + $($bounds)* + 'static,
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn call<'a>($($by)*, params: &'a ($($P,)*), view: At::View<'a>) -> Result<Out, At::Fault> {
                let ($($p,)*) = params;
                $(let $p = $p.fetch(view)?;)*
                Ok($this($($p),*))
            }
        }

        impl<At: Place, F, On: KernelStream, Out, $($P: Param<At>),*> $Kernel<At, On, ($($P,)*), Out> for F
        where
            F: for<'a> $Fn(&'a mut On, $($P::Arg<'a>),*) -> Out + $($bounds)* + 'static,
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn call<'a>($($by)*, stream: &'a mut On, params: &'a ($($P,)*), view: At::View<'a>) -> Result<Out, At::Fault> {
                let ($($p,)*) = params;
                $(let $p = $p.fetch(view)?;)*
                Ok($this(stream, $($p),*))
            }
        }

        impl<At: Place, F, Fut, $($P: Param<At>),*> $Future<At, ($($P,)*), Fut> for F
        where
            F: $Fn($($P::Owned),*) -> Fut + $($bounds)* + 'static,
        {
            #[allow(unused_variables)]
            fn call<'a>($($by)*, params: &'a ($($P,)*), view: At::View<'a>) -> Result<Fut, At::Fault> {
                let ($($p,)*) = params;
                $(let $p = $p.own(view)?;)*
                Ok($this($($p),*))
            }
        }
    };
}

args!();
tuples!(args);
