//! Impls for each number of arguments and results.

use std::future::Future;

use super::function::{Arg, Args, Ports, Sealed};
use crate::device::StreamMut;
use crate::engine::{Engine, Fetch, Op, Shared, Use, Var, Writes};
use crate::error::{BoxError, Error, Result};
use crate::graph::{Graph, Value};
use crate::run::{Inputs, Outputs};

impl<T> Sealed for Value<T> {}

impl<T: Send + Sync + 'static> Ports for Value<T> {
    type Vars = Var<T>;
    type Arcs = std::sync::Arc<T>;

    fn declare(graph: &mut Graph) -> Self {
        graph.input("0")
    }

    fn output(&self, graph: &mut Graph) {
        graph.output("0", self);
    }

    fn unwritten(engine: &Engine, function: &str) -> Var<T> {
        engine.empty_var(function.to_owned())
    }

    fn fail(vars: &Var<T>, error: &Error) {
        vars.fail(error.clone());
    }

    fn shared(vars: &Var<T>) -> impl Writes<Value = Self::Arcs> {
        Shared(vars)
    }

    fn take(outputs: &mut Outputs) -> Result<Self::Arcs> {
        outputs.take("0")
    }
}

impl<T: Send + Sync + 'static, A: Arg<T>> Args<Value<T>> for A {
    fn run<'v, W, Fut>(self, name: &str, writes: W, run: impl FnOnce(Inputs) -> Fut + Send + 'static) -> Op<'v>
    where
        Self: 'v,
        W: Writes + 'v,
        W::Value: 'static,
        Fut: Future<Output = Result<W::Value, BoxError>> + Send + 'static,
    {
        Args::<(Value<T>,)>::run((self,), name, writes, run)
    }

    fn kernel<'v, W, E>(self, name: &str, writes: W, enqueue: impl FnOnce(Inputs) -> E + Send + 'static) -> Op<'v>
    where
        Self: 'v,
        W: Writes + 'v,
        W::Value: 'static,
        E: FnOnce(StreamMut<'_>) -> Result<W::Value, BoxError> + 'static,
    {
        Args::<(Value<T>,)>::kernel((self,), name, writes, enqueue)
    }
}

macro_rules! ports {
    ($($name:literal $T:ident $a:ident $A:ident),*) => {
        impl<$($T),*> Sealed for ($(Value<$T>,)*) {}

        impl<$($T: Send + Sync + 'static),*> Ports for ($(Value<$T>,)*) {
            type Vars = ($(Var<$T>,)*);
            type Arcs = ($(std::sync::Arc<$T>,)*);

            fn declare(graph: &mut Graph) -> Self {
                ($(graph.input::<$T>($name),)*)
            }

            fn output(&self, graph: &mut Graph) {
                let ($($a,)*) = self;
                $(graph.output($name, $a);)*
            }

            fn unwritten(engine: &Engine, function: &str) -> Self::Vars {
                ($(engine.empty_var::<$T>(format!("{function}.{}", $name)),)*)
            }

            fn fail(vars: &Self::Vars, error: &Error) {
                let ($($a,)*) = vars;
                $($a.fail(error.clone());)*
            }

            fn shared(vars: &Self::Vars) -> impl Writes<Value = Self::Arcs> {
                let ($($a,)*) = vars;
                ($(Shared($a),)*)
            }

            fn take(outputs: &mut Outputs) -> Result<Self::Arcs> {
                Ok(($(outputs.take::<$T>($name)?,)*))
            }
        }

        impl<$($T: Send + Sync + 'static, $A: Arg<$T>),*> Args<($(Value<$T>,)*)> for ($($A,)*) {
            fn run<'v, W, Fut>(self, name: &str, writes: W, run: impl FnOnce(Inputs) -> Fut + Send + 'static) -> Op<'v>
            where
                Self: 'v,
                W: Writes + 'v,
                W::Value: 'static,
                Fut: Future<Output = Result<W::Value, BoxError>> + Send + 'static,
            {
                Op::future(name.to_owned(), self, writes, move |$($a: <<$A as Use>::Fetch as Fetch>::Owned),*| {
                    let inputs = Inputs::new();
                    $(let inputs = <$A as Arg<$T>>::give($a, $name, inputs);)*
                    run(inputs)
                })
            }

            fn kernel<'v, W, E>(self, name: &str, writes: W, enqueue: impl FnOnce(Inputs) -> E + Send + 'static) -> Op<'v>
            where
                Self: 'v,
                W: Writes + 'v,
                W::Value: 'static,
                E: FnOnce(StreamMut<'_>) -> Result<W::Value, BoxError> + 'static,
            {
                Op::whole(name.to_owned(), self, writes, move |$($a: <<$A as Use>::Fetch as Fetch>::Owned),*| {
                    let inputs = Inputs::new();
                    $(let inputs = <$A as Arg<$T>>::give($a, $name, inputs);)*
                    enqueue(inputs)
                })
            }
        }
    };
}

ports!("0" T0 a0 A0);
ports!("0" T0 a0 A0, "1" T1 a1 A1);
ports!("0" T0 a0 A0, "1" T1 a1 A1, "2" T2 a2 A2);
ports!("0" T0 a0 A0, "1" T1 a1 A1, "2" T2 a2 A2, "3" T3 a3 A3);
ports!("0" T0 a0 A0, "1" T1 a1 A1, "2" T2 a2 A2, "3" T3 a3 A3, "4" T4 a4 A4);
ports!("0" T0 a0 A0, "1" T1 a1 A1, "2" T2 a2 A2, "3" T3 a3 A3, "4" T4 a4 A4, "5" T5 a5 A5);
