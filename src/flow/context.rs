//! The context of a flow's code: it pushes operations, and waits for values.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::call::Call;
use super::function::{Args, CallBody, Function, Ports};
use super::get::Get;
use super::slice::WaitSlice;
use crate::device::{DeviceStream, KernelStream};
use crate::engine::{Begun, Bound, Engine, Grant, Op, Pushed, Scope, Stream, Var, Vars};
use crate::error::{BoxError, Result};
use crate::name::Name;
use crate::plan::Plan;
use crate::run::{Inputs, Run, enqueue};
use crate::runtime::{Cancel, Core, CountedFlow, Origins, WaiterKey, own_share};
use crate::value::args::{Data, OpFn, OpFutureFn, OpKernelFn, Params, Reads};

/// The context of control flow that is async code: made by [`Executor::flow`](crate::Executor::flow) and
/// given to the closure.
///
/// Its methods push an operation and return without waiting, with a [`Var`] that will have the value. Order
/// follows from use, as in an [`Engine`]: an operation that reads a variable comes after those that write it
/// and were pushed before; operations that share no variable have no order. Only [`Flow::get`] waits. So
/// `if`, `loop`, `match` and `?` are Rust's own; parts of a flow run side by side with `join!`, against a
/// clock with `select!` or a timeout, and call each other as `async fn(f: &Flow, ..)`.
///
/// # Errors
/// An operation that fails poisons the variables that it writes. An operation that reads one of them does not
/// run. [`Flow::get`] returns the first error.
///
/// # Cancellation
/// When the [`FlowRun`](super::FlowRun) is dropped or cancelled, no operation that it has pushed begins any
/// more, and asynchronous ones are dropped where they stand. To cancel the operations of a *part* of a flow,
/// make it a flow of its own ([`Flow::flow`]). Any other part that is dropped (by `select!`, say) pushes
/// nothing more; its operations go on. An operation that never began leaves its variables as they were; only
/// a variable that had no value yet gets the cancel as its error.
///
/// # Examples
/// Control flow is async code:
/// ```
/// use anabranch::{Executor, Flow, Result, Var};
///
/// async fn halve_until_small(f: &Flow, mut x: Var<f64>) -> Result<f64> {
///     while *f.get(&x).await? > 1.0 {
///         x = f.task("halve", &x, |x: &f64| x / 2.0);
///     }
///     Ok(*f.get(&x).await?)
/// }
///
/// # futures::executor::block_on(async {
/// let exec = Executor::host()?;
/// let small = exec.flow(async |f: &Flow| halve_until_small(f, f.value("x", 10.0)).await);
/// assert_eq!(small.await?, 0.625);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Flow {
    pub(super) shared: Arc<FlowShared>,
    /// The stream of its operations.
    stream: Option<Stream>,
}

/// Shared by a flow's context, its future and its cancellers.
pub(super) struct FlowShared {
    pub(super) engine: Engine,
    pub(super) core: Arc<Core>,
    pub(super) scope: Arc<Scope>,
    pub(super) slice: WaitSlice,
    /// Of the thread that made the flow, if there are observers.
    pub(super) origins: Origins,
}

impl Flow {
    pub(crate) fn new(engine: Engine, core: Arc<Core>, outer: Option<&Flow>) -> Self {
        let scope = Scope::new(outer.map(|flow| flow.shared.scope.clone()));
        let stream = outer.and_then(|flow| flow.stream.clone());
        let origins = core.observers.as_ref().map_or_else(Origins::default, |observers| observers.origins());
        Self { shared: Arc::new(FlowShared { engine, core, scope, slice: WaitSlice::new(), origins }), stream }
    }

    /// Returns a new variable with a value.
    pub fn value<T: Data>(&self, name: impl Into<Name>, value: T) -> Var<T> {
        self.shared.engine.var(name, value)
    }

    /// Pushes a CPU function, and returns the variable that will have what it returns. As
    /// [`Graph::task`](crate::Graph::task), it gets `&T` for `&var` and `T` for
    /// [`take`](crate::take)`(&var)`.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Flow};
    ///
    /// # futures::executor::block_on(async {
    /// let exec = Executor::inline();
    /// let found = exec.flow(async |f: &Flow| {
    ///     let mut x = f.value("x", 27_u64);
    ///     let mut steps = 0;
    ///     while *f.get(&x).await? != 1 {
    ///         x = match *f.get(&x).await? % 2 {
    ///             0 => f.task("halve", &x, |x: &u64| x / 2),
    ///             _ => f.task("grow", &x, |x: &u64| 3 * x + 1),
    ///         };
    ///         steps += 1;
    ///     }
    ///     Ok(steps)
    /// });
    /// assert_eq!(found.await?, 111);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn task<R, V, F>(&self, name: impl Into<Name>, reads: R, work: F) -> Var<V>
    where
        R: Reads<Vars>,
        V: Data,
        F: OpFn<Vars, R::Params, V>,
    {
        let (name, var) = self.unwritten(name.into());
        self.push_to(&var, Op::task(name, reads, &var, work));
        var
    }

    /// Pushes a CPU function that can fail: then its variable is poisoned.
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn try_task<R, V, F>(&self, name: impl Into<Name>, reads: R, work: F) -> Var<V>
    where
        R: Reads<Vars>,
        V: Data,
        F: OpFn<Vars, R::Params, Result<V, BoxError>>,
    {
        let (name, var) = self.unwritten(name.into());
        self.push_to(&var, Op::try_task(name, reads, &var, work));
        var
    }

    /// Pushes a closure that returns a future, as [`Op::future`].
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn future<R, V, F, Fut>(&self, name: impl Into<Name>, reads: R, work: F) -> Var<V>
    where
        R: Reads<Vars>,
        V: Data,
        F: OpFutureFn<Vars, R::Params, Fut>,
        Fut: Future<Output = Result<V, BoxError>> + Send + 'static,
    {
        let (name, var) = self.unwritten(name.into());
        self.push_to(&var, Op::future(name, reads, &var, work));
        var
    }

    /// Pushes a kernel, as [`Op::kernel`]: `work` enqueues onto a stream of the device.
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn kernel<S, R, V, F>(&self, name: impl Into<Name>, reads: R, work: F) -> Var<V>
    where
        S: KernelStream,
        R: Reads<Vars>,
        V: Data,
        F: OpKernelFn<Vars, S, R::Params, V>,
    {
        let (name, var) = self.unwritten(name.into());
        self.push_to(&var, Op::kernel(name, reads, &var, work));
        var
    }

    /// Pushes a kernel whose submission can fail: then its variable is poisoned.
    ///
    /// # Examples
    /// ```
    /// use anabranch::device::kernels;
    /// use anabranch::{Buffer, DeviceStream, Executor, Flow, HostBuffer};
    ///
    /// # futures::executor::block_on(async {
    /// let exec = Executor::host()?; // or Executor::cuda(0)?
    /// let mean = exec.flow(async |f: &Flow| {
    ///     let x = f.value("x", vec![1.0_f32, 2.0, 6.0]);
    ///     let x = f.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
    ///     let mean = f.try_kernel("mean", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
    ///         let mean = kernels::mean(s, x)?;
    ///         Ok(s.download(&mean)?)
    ///     });
    ///     Ok(f.get::<HostBuffer<f32>>(&mean).await?[0])
    /// });
    /// assert_eq!(mean.await?, 3.0);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn try_kernel<S, R, V, F>(&self, name: impl Into<Name>, reads: R, work: F) -> Var<V>
    where
        S: KernelStream,
        R: Reads<Vars>,
        V: Data,
        F: OpKernelFn<Vars, S, R::Params, Result<V, BoxError>>,
    {
        let (name, var) = self.unwritten(name.into());
        self.push_to(&var, Op::try_kernel(name, reads, &var, work));
        var
    }

    /// Returns a stream, for operations and whole graphs that are to run one after the other.
    pub fn stream(&self) -> Stream {
        self.shared.engine.stream()
    }

    /// Returns this flow with all that it pushes on that stream: operations, kernels, whole graphs, and the
    /// flows within it.
    ///
    /// # Examples
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use anabranch::{Executor, Flow};
    ///
    /// # futures::executor::block_on(async {
    /// let exec = Executor::host()?;
    /// let said = exec.flow(async |f: &Flow| {
    ///     let (log, text) = (f.on(&f.stream()), Arc::new(Mutex::new(String::new())));
    ///     // They have no variable in common, and are run in this order.
    ///     let said = ["one ", "two ", "three"].map(|word| {
    ///         let text = text.clone();
    ///         log.task("say", (), move || text.lock().unwrap().push_str(word))
    ///     });
    ///     // A flow ends with its code: it awaits the last operation.
    ///     f.get(&said[2]).await?;
    ///     Ok(text.lock().unwrap().clone())
    /// });
    /// assert_eq!(said.await?, "one two three");
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn on(&self, stream: &Stream) -> Self {
        Self { shared: self.shared.clone(), stream: Some(stream.clone()) }
    }

    /// Pushes any operation, at once: one that writes existing variables, several, or none.
    ///
    /// The handle is a future of its end. If the operation fails, reads of the variables that it writes
    /// report the failure, too. They do not if it could not begin, because a reader keeps a value that it
    /// takes. Then its variables are as they were. If the handle did not report the error, the flow ends with
    /// it, or [`Engine::idle`] reports it if the flow is an engine's.
    #[inline(always)]
    pub fn node(&self, mut op: Op<'_>) -> Pushed {
        self.push(&mut op).unwrap_or_else(|refused| Pushed::ended(Err(refused)))
    }

    /// Calls a graph. It acts at once: it pushes a run of the graph, and returns the variables that will have
    /// its results. An argument is `&var`, or [`take`](crate::take)`(&var)` for one that a node of the graph
    /// takes.
    ///
    /// If the graph is known to be cheap and no pending operation uses its arguments, it runs inside of this
    /// call ([`poll_budget`](crate::exec::ExecutorBuilder::poll_budget)), and the results have values when
    /// this returns. Otherwise it runs when all its arguments have values, on the workers if there are some.
    /// There, a cheap one is run as an operation is, so a flow may push many calls ahead. If it awaits a
    /// value now and then, cheap calls that depend on each other take less time still.
    ///
    /// A graph that has only kernels for one device that queues work is called as one kernel, on one stream:
    /// it is submitted behind the work that it depends on, as any kernel is, without the host.
    ///
    /// # Errors
    /// If the run fails, all its results are poisoned.
    #[must_use = "its failure is not reported: `get` it, even if only its effect matters"]
    pub fn call<I: Ports, O: Ports, A: Args<I>>(&self, function: &Function<I, O>, args: A) -> O::Vars {
        let FlowShared { engine, core, .. } = &*self.shared;
        let may_go_to = |device| self.stream.as_ref().is_none_or(|stream| stream.device() == device);
        // Later work is submitted behind it, without the host.
        if let Some(device) = function.device.filter(|&device| engine.has_devices() && may_go_to(device)) {
            let (results, plan) = (O::unwritten(engine, &function.name), function.plan().clone());
            let run = move |inputs, stream: &mut DeviceStream| Ok(enqueue::enqueue(&plan, inputs, stream, O::take)?);
            let body = CallBody { inputs: A::inputs, run };
            let op = Op::try_kernel(function.name.clone(), args, O::shared(&results), body).device(device);
            self.push_call::<O>(&results, op);
            return results;
        }
        let reads = Bound::new(args);
        if let Some(inputs) = self.inputs_now(function.plan(), &reads, A::inputs) {
            return self.call_now(function, reads, inputs);
        }
        let (results, core, plan) = (O::unwritten(engine, &function.name), core.clone(), function.plan().clone());
        let run = move |inputs| begin::<O>(&core, &plan, inputs);
        let body = CallBody { inputs: A::inputs, run };
        let op = Op::future_of(function.name.clone(), reads, O::shared(&results), body, |begun| begun);
        self.push_call::<O>(&results, op);
        results
    }

    /// Returns the inputs of a call that is known to be cheap, if this thread may run it now, and nothing
    /// pending uses its arguments.
    fn inputs_now<P: Params<Vars>>(
        &self,
        plan: &Plan,
        reads: &Bound<'_, P>,
        inputs: fn(&P, Grant<'_>) -> Result<Inputs>,
    ) -> Option<Inputs> {
        let FlowShared { engine, core, scope, .. } = &*self.shared;
        let is_cheap = plan.is_cheap() && core.may_do_cheap_work() && core.may_work_here();
        let is_plain = self.stream.is_none() && !engine.has_devices() && !scope.is_cancelled();
        if is_cheap && is_plain { engine.look(reads, inputs) } else { None }
    }

    /// Makes a call that is known to be cheap. If it takes longer than it should, or there is no room for it
    /// now, the operation that goes on with it holds its arguments, as that of any call does.
    fn call_now<I: Ports, O: Ports, P: Params<Vars>>(
        &self,
        function: &Function<I, O>,
        reads: Bound<'_, P>,
        inputs: Inputs,
    ) -> O::Vars {
        let FlowShared { engine, core, .. } = &*self.shared;
        let ran = Run::now(core, function.plan(), inputs, O::take);
        if let Ok(Ok(results)) = ran {
            return O::written(engine, &function.name, results);
        }
        let (results, name) = (O::unwritten(engine, &function.name), function.name.clone());
        let op = match ran {
            Ok(ran) => Op::try_task(name, (), O::shared(&results), move || ran.map_err(Into::into)),
            Err(run) => {
                // The run has its inputs.
                let body = CallBody { inputs: |_: &P, _| Ok(Inputs::new()), run: move |_| go_on::<O>(run) };
                Op::future_of(name, reads, O::shared(&results), body, Begun::Goes)
            }
        };
        self.push_call::<O>(&results, op);
        results
    }

    /// Pushes the operation of a call, which writes its results.
    fn push_call<O: Ports>(&self, results: &O::Vars, mut op: Op<'_>) {
        if let Err(refused) = self.push(&mut op) {
            O::fail(results, &refused);
        }
    }

    /// Waits for all operations that were pushed before and write the variable, and returns the value as it
    /// is then. The read takes its place among the operations at once; the future only waits for it.
    ///
    /// # Errors
    /// The error of the operation that should have written it.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    #[inline]
    pub fn get<'f, T: Send + Sync + 'static>(&'f self, var: &Var<T>) -> Get<'f, T> {
        Get { slice: Some(&self.shared.slice), read: var.read() }
    }

    /// Pushes an operation. If it is refused, the flow ends with the error.
    #[inline(always)]
    fn push(&self, op: &mut Op<'_>) -> Result<Pushed> {
        let FlowShared { engine, scope, .. } = &*self.shared;
        engine.push_of(scope, self.stream.as_ref(), op).inspect_err(|refused| scope.fail(refused.clone()))
    }

    /// Pushes the operation that writes a new variable.
    fn push_to<V: Send + Sync + 'static>(&self, var: &Var<V>, mut op: Op<'_>) {
        if let Err(refused) = self.push(&mut op) {
            var.fail(refused);
        }
    }

    /// Returns a variable for the result of an operation of that name.
    fn unwritten<V: Send + Sync + 'static>(&self, name: Name) -> (Name, Var<V>) {
        (name.clone(), self.shared.engine.empty_var(name))
    }
}

/// Begins a call as an operation of its own: one that is known to be cheap is over when this returns.
fn begin<O: Ports>(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Begun<O::Arcs, impl Future<Output = Called<O>> + use<O>> {
    let now = |inputs| own_share(|| Run::now(core, plan, inputs, O::take));
    match if plan.is_cheap() { now(inputs) } else { Err(Run::new(core, plan, inputs)) } {
        Ok(results) => Begun::Over(results.map_err(Into::into)),
        Err(run) => Begun::Goes(go_on::<O>(run)),
    }
}

async fn go_on<O: Ports>(run: Run) -> Called<O> {
    Ok(Call::<O>::of(run).await?)
}

type Called<O> = Result<<O as Ports>::Arcs, BoxError>;

impl Cancel for FlowShared {
    fn cancel(&self) {
        if !self.core.is_forked() {
            self.scope.cancel();
        }
    }
}

impl FlowShared {
    /// Begins the flow in its first poll.
    ///
    /// # Errors
    /// If the executor drains, or in a forked child.
    pub(super) fn begin(&self, flow: &mut CountedFlow) -> Result<()> {
        self.core.check_process()?;
        if flow.is_counted() { Ok(()) } else { self.core.begin_flow(flow, self.scope.outer.is_some()) }
    }

    pub(super) fn end(&self, flow: &mut CountedFlow) {
        if !self.core.is_forked() {
            self.core.end_flow(flow);
        }
    }

    /// Leaves the engine: the flow is over, and its code dropped.
    pub(super) fn leave(&self, key: &mut WaiterKey) {
        if !self.core.is_forked() {
            self.scope.stopped.forget(key);
            self.engine.sweep(&self.scope);
        }
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("is_cancelled", &self.shared.scope.is_cancelled()).finish()
    }
}
