//! Plans and functions as services of the crate `tower`.

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::Executor;
use crate::error::{Error, Result};
use crate::flow::{Call, Function, Ports, Values};
use crate::plan::Plan;
use crate::run::{Inputs, Outputs, Run};

/// A [`Plan`] or a [`Function`] as a service of the crate `tower`: each request is a run. Made by
/// [`Executor::service`].
///
/// Requests of a plan are [`Inputs`], and its responses [`Outputs`]. Requests of a function are its
/// arguments, and its responses its results, as those of [`Executor::call`].
///
/// It is always ready. If `max_in_flight` runs are in flight, further requests wait in the executor, by
/// [priority](Service::priority), or are [refused](Service::shedding). A clone is a further handle to the
/// same executor.
///
/// # Errors
/// Those of a [`Run`]. `poll_ready` returns an error once the executor drains or is shut down.
///
/// # Cancellation
/// As [`Run`]: a response future that is dropped cancels its run.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use anabranch::{Executor, Function, Graph, Value};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let square = Function::new("square", |g: &mut Graph, x: Value<u64>| {
///     g.task("square", &x, |x: &u64| x * x)
/// })?;
/// let exec = Executor::builder().max_in_flight(64).build()?;
/// let service = exec.service(&square).timeout(Duration::from_secs(30)).shedding();
///
/// // With any layer around it.
/// let service = ServiceBuilder::new().concurrency_limit(1000).service(service);
/// assert_eq!(*service.oneshot(12).await?, 144);
/// exec.drain().await?;
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Service<W> {
    exec: Executor,
    work: W,
    timeout: Option<Duration>,
    priority: i8,
    is_shedding: bool,
}

mod sealed {
    /// A plan or a function.
    pub trait Served {}

    impl Served for super::Plan {}
    impl<I, O> Served for super::Function<I, O> {}
}

impl Executor {
    /// Returns a plan or a function as a service, which keeps the executor.
    pub fn service<W: Clone + sealed::Served>(&self, work: &W) -> Service<W> {
        Service { exec: self.clone(), work: work.clone(), timeout: None, priority: 0, is_shedding: false }
    }
}

impl<W> Service<W> {
    /// Gives each request so much time, from its call on; see [`Run::deadline`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the priority of the requests; see [`Run::priority`].
    pub fn priority(self, priority: i8) -> Self {
        Self { priority, ..self }
    }

    /// Refuses requests for which there is no room, instead of letting them wait: their responses are errors
    /// for which [`Error::is_busy`] is true. Then the priority has no effect. A request has its room from its
    /// call on; see [`Executor::try_run`].
    pub fn shedding(self) -> Self {
        Self { is_shedding: true, ..self }
    }

    fn ready(&self) -> Poll<Result<()>> {
        Poll::Ready(self.exec.core().check_new())
    }

    fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        let run = match self.is_shedding {
            true => Run::reserved_or_over(self.exec.core(), plan, inputs),
            false => self.exec.run(plan, inputs).priority(self.priority),
        };
        match self.timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
            Some(deadline) => run.deadline(deadline),
            None => run,
        }
    }
}

impl tower_service::Service<Inputs> for Service<Plan> {
    type Response = Outputs;
    type Error = Error;
    type Future = Run;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.ready()
    }

    fn call(&mut self, inputs: Inputs) -> Run {
        self.run(&self.work, inputs)
    }
}

impl<I: Ports, O: Ports, V: Values<I>> tower_service::Service<V> for Service<Function<I, O>> {
    type Response = O::Arcs;
    type Error = Error;
    type Future = Call<O>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.ready()
    }

    fn call(&mut self, args: V) -> Call<O> {
        Call::of(self.run(self.work.plan(), args.inputs()))
    }
}

impl<W> fmt::Debug for Service<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("exec", &self.exec)
            .field("timeout", &self.timeout)
            .field("priority", &self.priority)
            .field("is_shedding", &self.is_shedding)
            .finish()
    }
}
