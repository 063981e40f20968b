//! Operations that are kernels: their bodies get a stream, and ask it for work.

use super::description::Op;
use super::reads::Bound;
use super::writes::{Put, Writes};
use crate::device::host::HostStream;
use crate::device::{KernelStream, StreamMut};
use crate::engine::order::{Body, Grant, Rest, Vars};
use crate::error::BoxError;
use crate::name::Name;
use crate::value::args::{Fallible, Finish, Infallible, OpKernelFn, Params, Reads};

impl<'v> Op<'v> {
    /// Returns an operation that is a kernel: `work` enqueues onto a stream (`S` is its type,
    /// [`DeviceStream`](crate::DeviceStream) or [`HostStream`](crate::HostStream)), in the same form as the
    /// kernel of a graph.
    ///
    /// On an executor with a device that queues work, other kernels go on when the work of a kernel for a
    /// `DeviceStream` is submitted: they wait for it on their own streams, not on the host. Operations of the
    /// host that use its variables, and futures that await it, wait until the device has finished. On all
    /// other executors the host runs it at once, as it runs every kernel for a `HostStream`.
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
    /// engine.push(up).await?;
    /// engine.push(add).await?;
    /// assert_eq!(sum.read().await?[0], 6.0);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn kernel<S, R, W, F>(name: impl Into<Name>, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads<Vars> + 'v,
        W: Writes + 'v,
        F: OpKernelFn<Vars, S, R::Params, W::Value>,
    {
        Self::enqueueing::<S, R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns a kernel whose submission can fail.
    ///
    /// # Errors
    /// As [`Op::try_task`].
    pub fn try_kernel<S, R, W, F>(name: impl Into<Name>, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads<Vars> + 'v,
        W: Writes + 'v,
        F: OpKernelFn<Vars, S, R::Params, Result<W::Value, BoxError>>,
    {
        Self::enqueueing::<S, R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    fn enqueueing<S, R, W, F, V, K>(name: Name, reads: R, writes: W, work: F) -> Self
    where
        S: KernelStream,
        R: Reads<Vars> + 'v,
        W: Writes,
        F: OpKernelFn<Vars, S, R::Params, V>,
        V: 'static,
        K: Finish<V, Value = W::Value>,
    {
        let mut op = Self::using(name, Bound::new(reads), writes, |params, put| {
            Body::new(move |grant: Grant<'_>, rest: &mut Rest| {
                if S::IS_QUEUE || R::Params::IS_MANY {
                    params.check(grant)?;
                }
                let enqueue = move |grant: Grant<'_>, stream: StreamMut<'_>| {
                    let called = S::with(stream, |stream| work.call(stream, &params, grant));
                    let value = K::finish(called.expect("every device gives streams that its kernels can use")?)?;
                    put.put(value, grant)?;
                    Ok(())
                };
                if S::IS_QUEUE {
                    *rest = Rest::Kernel(Box::new(enqueue));
                    return Ok(());
                }
                enqueue(grant, StreamMut::Host(&mut HostStream::new(0)))
            })
        });
        op.set(|operation| operation.is_kernel = S::IS_QUEUE);
        op
    }
}
