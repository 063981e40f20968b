//! The same few impls for every number of arguments, from none to eight.

use super::uses::{Asking, Fetch, OpFn, OpFutureFn, OpKernelFn, Params, Put, Reads, Sealed, TakeVar, Use, Writes};
use super::var::Var;
use crate::engine::order::Grant;
use crate::error::Error;

impl<T: Send + Sync + 'static> Reads for &Var<T> {
    type Params = (<Self as Use>::Fetch,);

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> Self::Params {
        (Use::ask(self, asking),)
    }
}

impl<T: Send + Sync + 'static> Reads for TakeVar<'_, T> {
    type Params = (<Self as Use>::Fetch,);

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> Self::Params {
        (Use::ask(self, asking),)
    }
}

impl<T: Send + Sync + 'static> Reads for &[Var<T>] {
    type Params = (<Self as Use>::Fetch,);

    #[inline(always)]
    fn ask(self, asking: &mut Asking) -> Self::Params {
        (Use::ask(self, asking),)
    }
}

macro_rules! sealed {
    ($($P:ident),*) => {
        impl<$($P: Sealed),*> Sealed for ($($P,)*) {}
    };
}

sealed!();
sealed!(A);
sealed!(A, B);
sealed!(A, B, C);
sealed!(A, B, C, D);
sealed!(A, B, C, D, E);
sealed!(A, B, C, D, E, G);
sealed!(A, B, C, D, E, G, H);
sealed!(A, B, C, D, E, G, H, I);

macro_rules! reads {
    ($($P:ident $p:ident),*) => {
        impl<$($P: Use),*> Reads for ($($P,)*) {
            type Params = ($($P::Fetch,)*);

            #[inline(always)]
            #[allow(clippy::unused_unit, unused_variables)]
            fn ask(self, asking: &mut Asking) -> Self::Params {
                let ($($p,)*) = self;
                ($($p.ask(asking),)*)
            }
        }

        impl<$($P: Fetch),*> Params for ($($P,)*) {
            const IS_MANY: bool = const { <[bool]>::len(&[$($P::TAKES),*]) > 1 };

            #[inline(always)]
            #[allow(unused_variables)]
            fn check(&self, grant: Grant<'_>) -> Result<(), Error> {
                let takes: &[bool] = const { &[$($P::TAKES),*] };
                if takes.contains(&true) {
                    let ($($p,)*) = self;
                    $($p.check(grant)?;)*
                }
                Ok(())
            }
        }

        impl<F, R, $($P: Fetch),*> OpFn<($($P,)*), R> for F
        where
            F: for<'a> FnOnce($($P::Arg<'a>),*) -> R + Send + 'static,
        {
            #[allow(unused_variables)]
            fn call(self, params: &($($P,)*), grant: Grant<'_>) -> Result<R, Error> {
                let ($($p,)*) = params;
                $(let $p = $p.fetch(grant)?;)*
                Ok(self($($p),*))
            }
        }

        impl<F, S, R, $($P: Fetch),*> OpKernelFn<S, ($($P,)*), R> for F
        where
            F: for<'s, 'a> FnOnce(&'s mut S, $($P::Arg<'a>),*) -> R + Send + 'static,
        {
            #[allow(unused_variables)]
            fn call(self, stream: &mut S, params: &($($P,)*), grant: Grant<'_>) -> Result<R, Error> {
                let ($($p,)*) = params;
                $(let $p = $p.fetch(grant)?;)*
                Ok(self(stream, $($p),*))
            }
        }

        impl<F, Fut, $($P: Fetch),*> OpFutureFn<($($P,)*), Fut> for F
        where
            F: FnOnce($($P::Owned),*) -> Fut + Send + 'static,
        {
            #[allow(unused_variables)]
            fn call(self, params: &($($P,)*), grant: Grant<'_>) -> Result<Fut, Error> {
                let ($($p,)*) = params;
                $(let $p = $p.own(grant)?;)*
                Ok(self($($p),*))
            }
        }
    };
}

reads!();
reads!(A a);
reads!(A a, B b);
reads!(A a, B b, C c);
reads!(A a, B b, C c, D d);
reads!(A a, B b, C c, D d, E e);
reads!(A a, B b, C c, D d, E e, G g);
reads!(A a, B b, C c, D d, E e, G g, H h);
reads!(A a, B b, C c, D d, E e, G g, H h, I i);

macro_rules! writes {
    ($($P:ident $p:ident $v:ident),*) => {
        impl<$($P: Writes),*> Writes for ($($P,)*) {
            type Value = ($($P::Value,)*);
            type Put = ($($P::Put,)*);

            #[inline(always)]
            fn ask(self, asking: &mut Asking) -> Self::Put {
                let ($($p,)*) = self;
                ($($p.ask(asking),)*)
            }
        }

        #[allow(non_camel_case_types)]
        impl<$($v, $P: Put<$v>),*> Put<($($v,)*)> for ($($P,)*) {
            fn put(&self, ($($v,)*): ($($v,)*), grant: Grant<'_>) -> Result<(), Error> {
                let ($($p,)*) = self;
                // All are written, even if an earlier write fails.
                Ok(())$(.and($p.put($v, grant)))*
            }
        }
    };
}

writes!(A a u);
writes!(A a u, B b v);
writes!(A a u, B b v, C c w);
writes!(A a u, B b v, C c w, D d x);
writes!(A a u, B b v, C c w, D d x, E e y);
writes!(A a u, B b v, C c w, D d x, E e y, G g z);
