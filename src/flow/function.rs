//! Graphs as functions: compiled once, with typed arguments and results, and called by flows.

use std::fmt;
use std::marker::PhantomData;

use super::call::OneValue;
use crate::device::DeviceStream;
use crate::engine::{Engine, Grant, TakeVar, Var, Vars, Writes};
use crate::error::{Error, Kind, Result};
use crate::graph::Graph;
use crate::name::Name;
use crate::plan::{Plan, Policy, Ranked};
use crate::run::{FrameValues, Inputs, enqueue};
use crate::value::args::{OneRead, OpFutureFn, OpKernelFn, Param, Reads, Sealed};

/// A graph with typed arguments and results. [`Executor::call`](crate::Executor::call) and, in a flow,
/// [`Flow::call`](super::Flow::call) call it. Cheap to clone.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Flow, Function, Graph, Value};
///
/// // One step of Newton's method for a square root, and how far it went.
/// let step = Function::new("newton", |g: &mut Graph, (x, a): (Value<f64>, Value<f64>)| {
///     let next = g.task("next", (&x, &a), |x: &f64, a: &f64| 0.5 * (x + a / x));
///     let moved = g.task("moved", (&x, &next), |x: &f64, next: &f64| (next - x).abs());
///     (next, moved)
/// })?;
///
/// # futures::executor::block_on(async {
/// let exec = Executor::host()?;
/// let root = exec.flow(async move |f: &Flow| {
///     let (mut x, a) = (f.value("x", 1.0), f.value("a", 2.0));
///     loop {
///         let (next, moved) = f.call(&step, (&x, &a));
///         x = next;
///         if *f.get(&moved).await? < 1e-12 {
///             return Ok(*f.get(&x).await?);
///         }
///     }
/// });
/// assert!((root.await? - 2.0_f64.sqrt()).abs() < 1e-12);
/// # Ok::<(), anabranch::Error>(()) })?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Function<I, O> {
    pub(super) name: Name,
    plan: Plan,
    /// The device that all its nodes are kernels for.
    pub(super) device: Option<u32>,
    kind: PhantomData<fn(I) -> O>,
}

impl<I: Ports, O: Ports> Function<I, O> {
    /// Compiles the graph that `build` makes of its arguments. They, and what it returns, are one
    /// [`Value`](crate::Value) or a tuple of up to eight. In errors, and in its [plan](Function::plan), the
    /// arguments are inputs that are named `0`, `1` and so on.
    ///
    /// # Errors
    /// As [`Graph::compile`].
    pub fn new(name: impl Into<Name>, build: impl FnOnce(&mut Graph, I) -> O) -> Result<Self> {
        Self::with_policy(name, &Ranked::default(), build)
    }

    /// Compiles the graph with a policy of your choice; see [`Function::new`].
    ///
    /// # Errors
    /// As [`Graph::compile_with`].
    pub fn with_policy(name: impl Into<Name>, policy: &dyn Policy, build: impl FnOnce(&mut Graph, I) -> O) -> Result<Self> {
        let mut graph = Graph::new();
        let args = I::declare(&mut graph);
        let name = name.into();
        graph.set_name(&name);
        let replaced = || Kind::Replaced { of: format!("function '{name}'"), node: None }.into();
        graph.lend(|graph| build(graph, args)).ok_or_else(replaced)?.output(&mut graph);
        // Its arguments are inputs whose names are numbers.
        let within = |fault: Error| {
            let node = fault.node().map(|node| node.to_owned().into());
            Kind::Within { path: format!("function {name}"), node, fault }.into()
        };
        let plan = graph.compile_with(policy).map_err(within)?;
        Ok(Self { name, device: enqueue::device_of_all(&plan), plan, kind: PhantomData })
    }

    /// Returns the function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the plan of its graph.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl<I, O> Clone for Function<I, O> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), plan: self.plan.clone(), device: self.device, kind: PhantomData }
    }
}

impl<I, O> fmt::Debug for Function<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("plan", &self.plan).finish()
    }
}

/// The arguments or the results of a [`Function`]: a [`Value`](crate::Value), or a tuple of up to eight.
///
/// # Examples
/// A function of yours that accepts every function:
/// ```
/// use anabranch::flow::Ports;
/// use anabranch::{Function, Graph, Value};
///
/// fn node_count<I: Ports, O: Ports>(function: &Function<I, O>) -> usize {
///     function.plan().schedule().shape().nodes().len()
/// }
///
/// let divide = Function::new("divide", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
///     g.task("divide", (&a, &b), |a: &u64, b: &u64| a / b)
/// })?;
/// assert_eq!(node_count(&divide), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a function's arguments nor its results",
    label = "a function takes and gives a `Value`, or a tuple of up to eight; give an empty result as a `Value<()>`"
)]
pub trait Ports: Sealed + 'static {
    /// The variables that have them in a flow: [`Var`]s.
    type Vars;
    #[doc(hidden)]
    type Arcs: Send + 'static;
    #[doc(hidden)]
    fn declare(graph: &mut Graph) -> Self;
    #[doc(hidden)]
    fn output(&self, graph: &mut Graph);
    #[doc(hidden)]
    fn unwritten(engine: &Engine, function: &Name) -> Self::Vars;
    #[doc(hidden)]
    fn written(engine: &Engine, function: &Name, values: Self::Arcs) -> Self::Vars;
    #[doc(hidden)]
    fn fail(vars: &Self::Vars, error: &Error);
    #[doc(hidden)]
    fn shared(vars: &Self::Vars) -> impl Writes<Value = Self::Arcs>;
    #[doc(hidden)]
    fn take(results: &FrameValues<'_>) -> Self::Arcs;
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of type `{T}`",
    label = "give `&var` or `take(&var)` of a `Var<{T}>`; a plain value becomes one by `f.value(..)`"
)]
/// One argument of a call: `&Var<T>`, or [`take`](crate::take)`(&var)` if a node of the graph takes it.
///
/// # Examples
/// One call reads the variable. The other one takes its value:
/// ```
/// use anabranch::flow::Arg;
/// use anabranch::{Executor, Flow, Function, Graph, Value, Var, take};
///
/// type Count = Function<Value<String>, Value<usize>>;
///
/// fn count(f: &Flow, words: &Count, text: impl Arg<String>) -> Var<usize> {
///     f.call(words, text)
/// }
///
/// let words = Function::new("words", |g: &mut Graph, text: Value<String>| {
///     g.task("count", &text, |text: &String| text.split(' ').count())
/// })?;
/// let exec = Executor::inline();
/// let counts = exec.flow(async |f: &Flow| {
///     let text = f.value("text", String::from("it is a text"));
///     let (first, second) = (count(f, &words, &text), count(f, &words, take(&text)));
///     Ok((*f.get(&first).await?, *f.get(&second).await?))
/// });
/// assert_eq!(futures::executor::block_on(counts)?, (4, 4));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub trait Arg<T>: OneRead<Vars, Param: Param<Vars, Owned: OneValue<T>>> {}

impl<T: Send + Sync + 'static> Arg<T> for &Var<T> {}

impl<T: Send + Sync + 'static> Arg<T> for TakeVar<'_, T> {}

/// The arguments of a call: one [`Arg`] for each of the function's.
///
/// # Examples
/// A function of yours that calls any function and waits for its result:
/// ```
/// use anabranch::flow::{Args, Ports};
/// use anabranch::{Executor, Flow, Function, Graph, Result, Value};
///
/// async fn wait<I: Ports>(f: &Flow, of: &Function<I, Value<u64>>, args: impl Args<I>) -> Result<u64> {
///     Ok(*f.get(&f.call(of, args)).await?)
/// }
///
/// let add = Function::new("add", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
///     g.task("add", (&a, &b), |a: &u64, b: &u64| a + b)
/// })?;
/// let exec = Executor::inline();
/// let sum = exec.flow(async |f: &Flow| wait(f, &add, (&f.value("a", 2), &f.value("b", 3))).await);
/// assert_eq!(futures::executor::block_on(sum)?, 5);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "these are not the arguments of the function",
    label = "`&var` or `take(&var)`, or a tuple of these, of the types that the function's closure takes"
)]
pub trait Args<I>: Reads<Vars> {
    #[doc(hidden)]
    fn inputs(params: &Self::Params, grant: Grant<'_>) -> Result<Inputs>;
}

/// A call as the closure of an operation: gets its arguments as the inputs of a run.
pub(super) struct CallBody<P, F> {
    pub(super) inputs: fn(&P, Grant<'_>) -> Result<Inputs>,
    pub(super) run: F,
}

impl<P: 'static, Out, F: FnOnce(Inputs) -> Out + Send + 'static> OpFutureFn<Vars, P, Out> for CallBody<P, F> {
    fn call<'a>(self, params: &'a P, grant: Grant<'a>) -> Result<Out> {
        Ok((self.run)((self.inputs)(params, grant)?))
    }
}

impl<P, Out, F> OpKernelFn<Vars, DeviceStream, P, Out> for CallBody<P, F>
where
    P: 'static,
    F: FnOnce(Inputs, &mut DeviceStream) -> Out + Send + 'static,
{
    fn call<'a>(self, stream: &'a mut DeviceStream, params: &'a P, grant: Grant<'a>) -> Result<Out> {
        Ok((self.run)((self.inputs)(params, grant)?, stream))
    }
}
