//! Engines and flows of an executor. All its flows share one engine.

use std::future::Future;
use std::sync::{Arc, Weak};

use super::Executor;
use crate::engine::{Blocked, Engine, EngineBuilder, EngineCore};
use crate::error::Result;
use crate::flow::{Call, Flow, FlowRun, Function, Ports, Values};
use crate::sync::{Mutex, lock};

/// The engine that an executor's flows share. It lives as long as a flow or a variable of it.
pub(super) type SharedEngine = Mutex<Weak<EngineCore>>;

impl Engine {
    /// Returns an engine on the workers of an executor.
    ///
    /// # Errors
    /// If the executor is shut down, or has 256 engines already.
    pub fn new(exec: &Executor) -> Result<Self> {
        Self::builder(exec).build()
    }

    /// Returns a builder with the default settings of an engine.
    pub fn builder(exec: &Executor) -> EngineBuilder {
        EngineBuilder::new(&exec.keeper)
    }
}

impl Executor {
    /// Returns the engine that flows share. It does not keep the executor alive. Each flow has its own limit
    /// of operations, so that no flow keeps another from pushing.
    fn flow_engine(&self) -> Result<Engine> {
        self.core().check_process()?;
        let mut shared = lock(&self.flows);
        if let Some(core) = shared.upgrade() {
            return Ok(Engine::of_core(core));
        }
        let core = EngineBuilder::new(&self.keeper).build_for_flows()?;
        *shared = Arc::downgrade(&core);
        Ok(Engine::of_core(core))
    }

    /// Returns the pending operations of this executor's flows, with the operations that each waits for.
    ///
    /// # Errors
    /// Those of [`Engine::blocked`].
    pub fn blocked(&self) -> Result<Blocked> {
        self.core().check_process()?;
        // The guard is released first: the drop of the last reference to the engine drops user values.
        let shared = lock(&self.flows).upgrade();
        shared.map_or(Ok(Blocked::default()), |core| Engine::of_core(core).blocked())
    }

    /// Calls a function without a flow, with typed arguments and results. The future is lazy: the run starts
    /// at its first poll. An argument is a `T` or an `Arc<T>`, so the results of one call can be passed to
    /// the next without a copy. Where a node takes the argument, it is a `T`.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Function, Graph, Value};
    ///
    /// let divide = Function::new("divide", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
    ///     let quotient = g.task("quotient", (&a, &b), |a: &u64, b: &u64| a / b);
    ///     let rest = g.task("rest", (&a, &b), |a: &u64, b: &u64| a % b);
    ///     (quotient, rest)
    /// })?;
    ///
    /// # futures::executor::block_on(async {
    /// let exec = Executor::host()?;
    /// let (quotient, rest) = exec.call(&divide, (17, 5)).await?;
    /// let (quotient, rest) = exec.call(&divide, (quotient, rest)).await?;
    /// assert_eq!((*quotient, *rest), (1, 1));
    /// # Ok::<(), anabranch::Error>(()) })?;
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn call<I: Ports, O: Ports>(&self, function: &Function<I, O>, args: impl Values<I>) -> Call<O> {
        Call::new(self.core(), function, args)
    }

    /// Returns a flow, a lazy future: it runs async code, which calls graphs and pushes operations, with
    /// branches and loops between them. See [`Flow`].
    ///
    /// Write `async |f: &Flow| ..`. A closure that returns an async block (`|f: &Flow| async move ..`) does
    /// not compile: the block borrows `f` for longer than the closure permits ("lifetime may not live long
    /// enough").
    ///
    /// Flows of one executor share an engine, so they may share variables. The flow does not keep the
    /// executor alive. If the executor is dropped first, the flow's operations end with an error for which
    /// [`Error::is_shut_down`](crate::Error::is_shut_down) is true.
    ///
    /// # Examples
    /// Two independent parts of the work at the same time, with a deadline:
    /// ```
    /// use std::time::Duration;
    ///
    /// use anabranch::{Executor, Flow, Result, Var};
    ///
    /// async fn sum(f: &Flow, mut x: Var<f64>, steps: u32) -> Result<f64> {
    ///     for _ in 0..steps {
    ///         x = f.task("halve", &x, |x: &f64| x / 2.0);
    ///     }
    ///     Ok(*f.get(&x).await?)
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let exec = Executor::host()?;
    /// let both = exec.flow(async |f: &Flow| {
    ///     let (x, y) = (f.value("x", 8.0), f.value("y", 1.0));
    ///     let (x, y) = tokio::try_join!(sum(f, x, 3), sum(f, y, 1))?;
    ///     Ok(x + y)
    /// });
    /// let both = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it takes no minute")?;
    /// assert_eq!(both, 1.5);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn flow<T, F>(&self, work: F) -> FlowRun<impl Future<Output = Result<T>> + use<T, F>>
    where
        F: AsyncFnOnce(&Flow) -> Result<T>,
    {
        FlowRun::new(self.flow_engine().map(|engine| Flow::new(engine, self.core().clone(), None)), work)
    }
}
