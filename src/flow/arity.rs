//! Impls for each number of arguments and results.

use super::call::{OneValue, Values};
use super::function::{Arg, Args, Ports};
use crate::engine::{Engine, Grant, PutShared, Var, Writes};
use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::name::Name;
use crate::run::{FrameValues, Inputs};
use crate::value::args::{Param, Sealed, tuples};

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

    fn unwritten(engine: &Engine, function: &Name) -> Var<T> {
        engine.empty_var(function)
    }

    fn written(engine: &Engine, function: &Name, value: Self::Arcs) -> Var<T> {
        engine.written_var(function.clone(), value)
    }

    fn fail(vars: &Var<T>, error: &Error) {
        vars.fail(error.clone());
    }

    fn shared(vars: &Var<T>) -> impl Writes<Value = Self::Arcs> {
        PutShared(vars)
    }

    fn take(results: &FrameValues<'_>) -> Self::Arcs {
        results.result(0, 1)
    }
}

impl<T: Send + Sync + 'static, A: Arg<T>> Args<Value<T>> for A {
    fn inputs((param,): &Self::Params, grant: Grant<'_>) -> Result<Inputs> {
        Ok(param.own(grant)?.give("0", Inputs::new()))
    }
}

impl<T: Send + Sync + 'static, A: OneValue<T>> Values<Value<T>> for A {
    fn inputs(self) -> Inputs {
        self.give("0", Inputs::new())
    }
}

macro_rules! ports {
    ($($A:ident $a:ident $T:ident $t:ident $number:tt),*) => {
        impl<$($T: Send + Sync + 'static),*> Ports for ($(Value<$T>,)*) {
            type Vars = ($(Var<$T>,)*);
            type Arcs = ($(std::sync::Arc<$T>,)*);

            fn declare(graph: &mut Graph) -> Self {
                ($(graph.input::<$T>(stringify!($number)),)*)
            }

            fn output(&self, graph: &mut Graph) {
                let ($($a,)*) = self;
                $(graph.output(stringify!($number), $a);)*
            }

            fn unwritten(engine: &Engine, function: &Name) -> Self::Vars {
                ($(engine.empty_var::<$T>(format!("{function}.{}", stringify!($number))),)*)
            }

            fn written(engine: &Engine, function: &Name, ($($a,)*): Self::Arcs) -> Self::Vars {
                ($(engine.written_var(format!("{function}.{}", stringify!($number)).into(), $a),)*)
            }

            fn fail(vars: &Self::Vars, error: &Error) {
                let ($($a,)*) = vars;
                $($a.fail(error.clone());)*
            }

            fn shared(vars: &Self::Vars) -> impl Writes<Value = Self::Arcs> {
                let ($($a,)*) = vars;
                ($(PutShared($a),)*)
            }

            fn take(results: &FrameValues<'_>) -> Self::Arcs {
                const COUNT: usize = [$(stringify!($number)),*].len();
                ($(results.result::<$T>($number, COUNT),)*)
            }
        }

        impl<$($T: Send + Sync + 'static, $A: Arg<$T>),*> Args<($(Value<$T>,)*)> for ($($A,)*) {
            fn inputs(($($a,)*): &Self::Params, grant: Grant<'_>) -> Result<Inputs> {
                // All are fetched before one is moved.
                Ok(Values::<($(Value<$T>,)*)>::inputs(($($a.own(grant)?,)*)))
            }
        }

        impl<$($T: Send + Sync + 'static, $A: OneValue<$T>),*> Values<($(Value<$T>,)*)> for ($($A,)*) {
            fn inputs(self) -> Inputs {
                let (($($a,)*), inputs) = (self, Inputs::new());
                $(let inputs = $a.give(stringify!($number), inputs);)*
                inputs
            }
        }
    };
}

tuples!(ports);
