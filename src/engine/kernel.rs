//! Operations that are kernels: their bodies get a stream, and ask it for work.

use std::borrow::Cow;
use std::marker::PhantomData;

use super::body::{Body, Ran, Work};
use super::hub::Hub;
use super::op::{Job, Op};
use super::task::{Fallible, Finish, Infallible};
use super::uses::{OpFutureFn, OpKernelFn, Params, Put, Reads, Writes};
use crate::device::host::HostStream;
use crate::device::{KernelStream, StreamMut};
use crate::error::BoxError;

/// A kernel that is to be given a stream.
pub(super) trait Enqueue: Send {
    /// # Safety
    /// As [`Work::run`].
    unsafe fn enqueue(self: Box<Self>, stream: StreamMut<'_>) -> Result<(), BoxError>;
}

impl<'v> Op<'v> {
    /// Returns an operation that is a kernel: `work` enqueues onto a stream (`S` is its type,
    /// [`DeviceStream`](crate::DeviceStream) or [`HostStream`](crate::HostStream)), in the same form as the
    /// kernel of a graph.
    ///
    /// On an executor with a device that queues work, a kernel for a `DeviceStream` has done its part for
    /// other kernels when its work is submitted: they wait for it on their own streams, not on the host.
    /// Operations of the host that use its variables, and whoever awaits it, wait until the device has done
    /// it. On all other executors it is done at once, by the host, and so is every kernel for a `HostStream`.
    ///
    /// # Examples
    /// ```
    /// use anabranch::device::kernels;
    /// use anabranch::{Buffer, DeviceStream, Engine, Executor, HostBuffer, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::inline())?; // or Executor::cuda(0)?
    /// let x = engine.var("x", vec![1.0_f32, 2.0, 3.0]);
    /// let on_device = engine.empty_var::<Buffer<f32>>("on device");
    /// let sum = engine.empty_var::<HostBuffer<f32>>("sum");
    /// let up = Op::try_kernel("up", &x, &on_device, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
    /// let add = Op::try_kernel("add", &on_device, &sum, |s: &mut DeviceStream, x: &Buffer<f32>| {
    ///     let sum = kernels::sum(s, x)?;
    ///     Ok(s.download(&sum)?)
    /// });
    /// drop((engine.push(up).await?, engine.push(add).await?));
    /// assert_eq!(sum.read().await?[0], 6.0);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn kernel<S, R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpKernelFn<S, R::Params, W::Value>,
    {
        Self::enqueueing::<S, R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns a kernel whose submission can fail.
    ///
    /// # Errors
    /// As [`Op::try_task`].
    pub fn try_kernel<S, R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpKernelFn<S, R::Params, Result<W::Value, BoxError>>,
    {
        Self::enqueueing::<S, R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    /// Returns a kernel whose closure gets what it reads to keep, as that of a future does, and returns what
    /// is done with a stream, of whatever type.
    pub(crate) fn whole<R, W, F, E>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFutureFn<R::Params, E>,
        E: FnOnce(StreamMut<'_>) -> Result<W::Value, BoxError> + 'static,
    {
        let mut op = Self::using(name.into(), reads, writes, |params, put| {
            Body::new(Whole { params, put, work, kind: PhantomData::<fn() -> (E, W::Value)> })
        });
        op.job_mut().is_kernel = true;
        op
    }

    fn enqueueing<S, R, W, F, V, K>(name: Cow<'static, str>, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads,
        W: Writes,
        F: OpKernelFn<S, R::Params, V>,
        V: 'static,
        K: Finish<V, W::Value>,
        W::Value: 'static,
    {
        let mut op = Self::using(name, reads, writes, |params, put| {
            Body::new(Kernel { params, put, work, kind: PhantomData::<fn(S, V, W::Value) -> K> })
        });
        op.job_mut().is_kernel = S::IS_QUEUE;
        op
    }
}

impl Hub {
    /// Does what an operation is there for. A kernel is left to be enqueued if there are devices for it, and
    /// done at once on the host if not.
    ///
    /// # Safety
    /// As [`Job::run`].
    #[inline(always)]
    pub(super) unsafe fn run_body(&self, job: &Job) -> Result<Ran, BoxError> {
        // SAFETY: by the caller's promise.
        match unsafe { job.run() }? {
            Ran::Enqueue(kernel) if self.lanes.is_none() => {
                // SAFETY: as above.
                unsafe { kernel.enqueue(StreamMut::Host(&mut HostStream::new(0))) }.map(|()| Ran::Over)
            }
            ran => Ok(ran),
        }
    }
}

struct Whole<P, O, F, E, V> {
    params: P,
    put: O,
    work: F,
    kind: PhantomData<fn() -> (E, V)>,
}

impl<P, O, F, E, V> Work for Whole<P, O, F, E, V>
where
    P: Params,
    O: Put<V>,
    F: OpFutureFn<P, E>,
    E: FnOnce(StreamMut<'_>) -> Result<V, BoxError> + 'static,
    V: 'static,
{
    unsafe fn run(self) -> Result<Ran, BoxError> {
        // Here, because a failure behind this is one of the device, and leaves no old value.
        // SAFETY: by the caller's promise.
        unsafe { self.params.check() }?;
        Ok(Ran::Enqueue(Box::new(self)))
    }
}

impl<P, O, F, E, V> Enqueue for Whole<P, O, F, E, V>
where
    P: Params,
    O: Put<V>,
    F: OpFutureFn<P, E>,
    E: FnOnce(StreamMut<'_>) -> Result<V, BoxError> + 'static,
    V: 'static,
{
    unsafe fn enqueue(self: Box<Self>, stream: StreamMut<'_>) -> Result<(), BoxError> {
        let Self { params, put, work, .. } = *self;
        // SAFETY: by the caller's promise.
        let enqueue = unsafe { work.call(&params) }?;
        let value = enqueue(stream)?;
        // SAFETY: as above, and what is returned can refer to no argument: it is 'static.
        unsafe { put.put(value) }?;
        Ok(())
    }
}

struct Kernel<S, P, O, F, R, K, V> {
    params: P,
    put: O,
    work: F,
    kind: PhantomData<fn(S, R, V) -> K>,
}

impl<S, P, O, F, R, K, V> Work for Kernel<S, P, O, F, R, K, V>
where
    S: KernelStream,
    P: Params,
    O: Put<V>,
    F: OpKernelFn<S, P, R>,
    R: 'static,
    K: Finish<R, V>,
    V: 'static,
{
    unsafe fn run(self) -> Result<Ran, BoxError> {
        if S::IS_QUEUE || P::IS_MANY {
            // SAFETY: by the caller's promise.
            unsafe { self.params.check() }?;
        }
        let kernel = Box::new(self);
        if S::IS_QUEUE {
            return Ok(Ran::Enqueue(kernel));
        }
        // SAFETY: by the caller's promise.
        unsafe { kernel.enqueue(StreamMut::Host(&mut HostStream::new(0))) }.map(|()| Ran::Over)
    }
}

impl<S, P, O, F, R, K, V> Enqueue for Kernel<S, P, O, F, R, K, V>
where
    S: KernelStream,
    P: Params,
    O: Put<V>,
    F: OpKernelFn<S, P, R>,
    R: 'static,
    K: Finish<R, V>,
    V: 'static,
{
    unsafe fn enqueue(self: Box<Self>, stream: StreamMut<'_>) -> Result<(), BoxError> {
        let Self { params, put, work, .. } = *self;
        // SAFETY: by the caller's promise.
        let called = S::with(stream, |stream| unsafe { work.call(stream, &params) });
        let value = K::finish(called.expect("every device gives streams that its kernels can use")?)?;
        // SAFETY: as above, and what was returned can refer to no argument: it is 'static.
        unsafe { put.put(value) }?;
        Ok(())
    }
}
