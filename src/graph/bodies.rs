//! Bodies for graphs that are loaded from data: how each kind of node is added to a graph. Types are checked
//! once, when a graph is loaded.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;

use super::builder::Graph;
use super::condition::Condition;
use super::handle::Value;
use super::select::{Holds, Select, Test};
use super::values::Type;
use crate::error::Foreign;
use crate::name::Name;
use crate::value::Cells;
use crate::value::args::tuples;

/// The bodies of the nodes of a graph that is loaded from data, one for each command. [`Graph::from_shape`]
/// makes a graph of a shape and its bodies.
///
/// A body is a closure that adds the node. It gets the graph, the node's name and the values that the node
/// reads, in their order. It returns the node's value. So the node may be a task, a future, a kernel or an
/// input of the graph, and may `take` values. The values are `()`, one [`Value`], a tuple of up to eight, or
/// a `Vec<Value<T>>` for any number of values of one type. The body adds nodes to the graph that it gets. It
/// is an error to replace that graph by another one.
///
/// A body may `take` a state of a loop or a branch if the loop owns the state. To own it, the loop takes its
/// first value (`"take": true` at its input in JSON, [`Shape::take_input`](crate::graph::Shape::take_input)),
/// and each body gives a new value that has no other owner. Then the loop runs in place.
///
/// # Examples
/// ```
/// use anabranch::graph::Bodies;
/// use anabranch::{Graph, Name, Value};
///
/// let bodies = Bodies::new()
///     .node("text", |g: &mut Graph, name: &Name, ()| g.input::<String>(name))
///     .node("count", |g: &mut Graph, name: &Name, t: Value<String>| g.task(name, &t, |t: &String| t.split(' ').count()));
/// ```
#[derive(Default)]
pub struct Bodies(BTreeMap<Name, Foreign<Box<AddNode>>>);

type AddNode = dyn Fn(&mut Graph, &Name, &[Loose]) -> Result<Loose, String> + Send + Sync;

/// A value whose type only the bodies know.
#[derive(Clone, Copy, Debug)]
pub struct Loose {
    /// The number of the value in its graph.
    pub(super) value: u32,
    pub(super) of: Type,
    pub(super) decides: Decides,
}

/// The decisions for which a value can be used, as its body was declared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decides {
    /// Makes the value the test of a loop.
    pub(super) test: Option<fn(&mut Graph, u32) -> Test>,
    /// Reads which arm a branch takes.
    pub(super) select: Option<fn(Cells<'_>, u32) -> i64>,
}

impl Bodies {
    /// Returns a set without bodies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the body of the nodes whose command is `command`. The command of a node without one is its name.
    /// Replaces an earlier body of the same command.
    pub fn node<V, R>(
        self,
        command: impl Into<Name>,
        add: impl Fn(&mut Graph, &Name, V) -> Value<R> + Send + Sync + 'static,
    ) -> Self
    where
        V: Given,
        R: Send + Sync + 'static,
    {
        self.with(command.into(), add, Decides::default())
    }

    /// Adds a body whose value decides whether a loop goes on.
    pub fn condition<V, K>(
        self,
        command: impl Into<Name>,
        add: impl Fn(&mut Graph, &Name, V) -> Value<K> + Send + Sync + 'static,
    ) -> Self
    where
        V: Given,
        K: Holds,
    {
        let test = |inner: &mut Graph, value| inner.value_at::<K>(value).settle(inner);
        self.with(command.into(), add, Decides { test: Some(test), select: None })
    }

    /// Adds a body whose value decides which arm a branch takes.
    pub fn selector<V, K>(
        self,
        command: impl Into<Name>,
        add: impl Fn(&mut Graph, &Name, V) -> Value<K> + Send + Sync + 'static,
    ) -> Self
    where
        V: Given,
        K: Select,
    {
        self.with(command.into(), add, Decides { test: None, select: Some(K::select_at) })
    }

    fn with<V: Given, R: Send + Sync + 'static>(
        mut self,
        command: Name,
        add: impl Fn(&mut Graph, &Name, V) -> Value<R> + Send + Sync + 'static,
        decides: Decides,
    ) -> Self {
        let add_node = move |g: &mut Graph, name: &Name, given: &[Loose]| {
            let given = V::of(g, given)?;
            let made = g
                .lend(|g| add(g, name, given))
                .ok_or("has a body that replaces the graph that it is given: add to that graph, and do not replace it")?;
            if !g.owns(&made) {
                return Err("has a body that returns a value of another graph".to_owned());
            }
            Ok(Loose { value: made.index, of: Type::of::<R>(), decides })
        };
        self.0.insert(command, Foreign::new(Box::new(add_node)));
        self
    }

    pub(super) fn get(&self, command: &str) -> Option<&AddNode> {
        self.0.get(command).map(|add| &***add)
    }
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The values that a body in [`Bodies`] gets: `()`, a [`Value`], a tuple of up to eight, or a `Vec` of values
/// of one type.
///
/// # Examples
/// Bodies that get nothing, two values, and any number of values:
/// ```
/// use anabranch::graph::Bodies;
/// use anabranch::{Graph, Name, Value};
///
/// let bodies = Bodies::new()
///     .node("x", |g: &mut Graph, name: &Name, ()| g.input::<f64>(name))
///     .node("scale", |g: &mut Graph, name: &Name, (x, by): (Value<f64>, Value<f64>)| {
///         g.task(name, (&x, &by), |x: &f64, by: &f64| x * by)
///     })
///     .node("sum", |g: &mut Graph, name: &Name, all: Vec<Value<f64>>| {
///         g.task(name, &all[..], |all: anabranch::graph::Each<f64>| all.iter().sum::<f64>())
///     });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a body can be given",
    label = "`()`, `Value<T>`, a tuple of up to eight of these, or `Vec<Value<T>>`"
)]
pub trait Given: Sized {
    #[doc(hidden)]
    fn of(graph: &Graph, given: &[Loose]) -> Result<Self, String>;
}

impl<T: 'static> Given for Value<T> {
    fn of(graph: &Graph, given: &[Loose]) -> Result<Self, String> {
        Ok(<(Value<T>,)>::of(graph, given)?.0)
    }
}

impl<T: 'static> Given for Vec<Value<T>> {
    fn of(graph: &Graph, given: &[Loose]) -> Result<Self, String> {
        given.iter().zip(0..).map(|(loose, number)| typed(graph, loose, number)).collect()
    }
}

fn typed<T: 'static>(graph: &Graph, loose: &Loose, number: u32) -> Result<Value<T>, String> {
    if loose.of.id == TypeId::of::<T>() {
        return Ok(graph.value_at(loose.value));
    }
    let (found, taken) = (loose.of.name, std::any::type_name::<T>());
    Err(format!("reads a `{found}` as its input {number}, counted from 0, and its body takes a `{taken}`"))
}

fn values(count: usize) -> String {
    if count == 1 { "1 value".into() } else { format!("{count} values") }
}

macro_rules! given {
    ($($A:ident $a:ident $T:ident $t:ident $number:literal),*) => {
        impl<$($T: 'static),*> Given for ($(Value<$T>,)*) {
            #[allow(unused_variables, clippy::unused_unit)]
            fn of(graph: &Graph, given: &[Loose]) -> Result<Self, String> {
                let count = <[u32]>::len(&[$($number),*]);
                if given.len() != count {
                    return Err(format!("reads {}, and its body takes {count}", values(given.len())));
                }
                Ok(($(typed::<$T>(graph, &given[$number], $number)?,)*))
            }
        }
    };
}

given!();
tuples!(given);
