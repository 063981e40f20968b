//! The same few impls for every number of arguments, from none to eight.

use std::future::Future;

use super::closures::{FutureFn, KernelFn, TaskFn};
use super::handle::{Take, Value};
use super::params::{Many, Own, Param, Read};
use super::source::{Binder, Source, Sources};
use crate::value::Cells;

impl<T: Send + Sync + 'static> Sources for &Value<T> {
    type Params = (Read<T>,);

    fn bind(self, binder: &mut Binder<'_>) -> Self::Params {
        (Source::bind(self, binder),)
    }
}

impl<T: Send + Sync + 'static> Sources for Take<T> {
    type Params = (Own<T>,);

    fn bind(self, binder: &mut Binder<'_>) -> Self::Params {
        (Source::bind(self, binder),)
    }
}

impl<T: Send + Sync + 'static> Sources for &[Value<T>] {
    type Params = (Many<T>,);

    fn bind(self, binder: &mut Binder<'_>) -> Self::Params {
        (Source::bind(self, binder),)
    }
}

macro_rules! arity {
    ($($P:ident $p:ident),*) => {
        impl<$($P: Source),*> Sources for ($($P,)*) {
            type Params = ($($P::Param,)*);

            #[allow(clippy::unused_unit, unused_variables)]
            fn bind(self, binder: &mut Binder<'_>) -> Self::Params {
                let ($($p,)*) = self;
                ($($p.bind(binder),)*)
            }
        }

        impl<F, R, $($P: Param),*> TaskFn<($($P,)*), R> for F
        where
            F: for<'a> Fn($($P::Arg<'a>),*) -> R + Send + Sync + 'static,
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn call(&self, params: &($($P,)*), cells: Cells<'_>) -> R {
                let ($($p,)*) = params;
                self($($p.fetch(cells)),*)
            }
        }

        impl<F, S, R, $($P: Param),*> KernelFn<S, ($($P,)*), R> for F
        where
            F: for<'a> Fn(&'a mut S, $($P::Arg<'a>),*) -> R + Send + Sync + 'static,
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn call(&self, stream: &mut S, params: &($($P,)*), cells: Cells<'_>) -> R {
                let ($($p,)*) = params;
                self(stream, $($p.fetch(cells)),*)
            }
        }

        impl<F, Fut: Future, $($P: Param),*> FutureFn<($($P,)*), Fut> for F
        where
            F: Fn($($P::Owned),*) -> Fut + Send + Sync + 'static,
        {
            #[allow(unused_variables)]
            fn call(&self, params: &($($P,)*), cells: Cells<'_>) -> Fut {
                let ($($p,)*) = params;
                self($($p.own(cells)),*)
            }
        }
    };
}

arity!();
arity!(A a);
arity!(A a, B b);
arity!(A a, B b, C c);
arity!(A a, B b, C c, D d);
arity!(A a, B b, C c, D d, E e);
arity!(A a, B b, C c, D d, E e, G g);
arity!(A a, B b, C c, D d, E e, G g, H h);
arity!(A a, B b, C c, D d, E e, G g, H h, I i);
