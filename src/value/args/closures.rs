//! Closures that nodes and operations run. A node's is called in each run, an operation's once: that is the
//! one difference, `Fn` or `FnOnce`.

use super::params::Place;
use crate::error::BoxError;

/// A closure that is the body of a task with arguments `P` and value `R`.
///
/// # Examples
/// Closures without arguments, with a reference, with a value that is taken, and with a slice:
/// ```
/// use anabranch::graph::Each;
/// use anabranch::{Graph, take};
///
/// let mut g = Graph::new();
/// let list = g.task("list", (), || vec![2.0, 3.0]);
/// let first = g.task("first", &list, |list: &Vec<f64>| list[0]);
/// let sum = g.task("sum", take(&list), |list: Vec<f64>| list.into_iter().sum::<f64>());
/// let all = g.task("largest", &[first, sum][..], |all: Each<f64>| all.iter().copied().fold(0.0, f64::max));
/// g.output("largest", &all);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this closure does not take what is read, or does not return what is written",
    label = "one argument for each read: `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`; write their types out: `|x: &T| ..`"
)]
pub trait TaskFn<X: Place, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call<'a>(&self, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is the body of a kernel on streams of type `S`, with arguments `P` and value `R`.
///
/// # Examples
/// Kernels for the device of the executor, with two kinds of arguments:
/// ```
/// use anabranch::{Buffer, DeviceStream, Graph, take};
///
/// let mut g = Graph::new();
/// let x = g.input::<Vec<f32>>("x");
/// let x = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
/// let x = g.try_kernel("clear", take(&x), |s: &mut DeviceStream, mut x: Buffer<f32>| {
///     s.fill(&mut x, 0.0)?;
///     Ok(x)
/// });
/// let x = g.try_kernel("down", &x, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
/// g.output("x", &x);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what is read, or does not return what is written",
    label = "first `&mut DeviceStream` or `&mut HostStream`, then `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`: `|s: &mut DeviceStream, x: &T| ..`"
)]
pub trait KernelFn<X: Place, S, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call<'a>(&self, stream: &'a mut S, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// An async closure (or a closure that returns a future) that is the body of an async node with arguments
/// `P`.
///
/// # Examples
/// An async closure, and a closure that returns a future:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::{Graph, take};
///
/// let mut g = Graph::new();
/// let (host, port) = (g.input::<String>("host"), g.input::<u16>("port"));
/// let join = async |host: Arc<String>, port: Arc<u16>| Ok(format!("{host}:{port}"));
/// let name = g.future("name", (&host, &port), join);
/// let upper = g.future("upper", &name, |name: Arc<String>| async move { Ok(name.to_uppercase()) });
/// let length = g.future("length", take(&upper), async |upper: String| Ok(upper.len()));
/// g.output("length", &length);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this async closure does not take what is read, or its future is not Send",
    label = "one argument for each read: `Arc<T>` for `&x`, `T` for `take(&x)`, `Vec<Arc<T>>` for `&xs[..]`; clone what it captures into the future"
)]
pub trait FutureFn<X: Place, P, Fut>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call<'a>(&self, params: &'a P, view: X::View<'a>) -> Result<Fut, X::Fault>;
}

/// A closure that is an operation with arguments `P` and result `R`.
///
/// # Examples
/// A closure that is called once may give away what it captures:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let list = engine.var("list", vec![1]);
/// let more = vec![2, 3];
/// let extend = move |list: &Vec<i32>| [list.clone(), more].concat();
/// engine.push(Op::task("extend", &list, &list, extend)).await?;
/// assert_eq!(*list.read().await?, [1, 2, 3]);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "this closure does not take what is read, or does not return what is written",
    label = "one argument for each read: `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`; write their types out: `|x: &T| ..`"
)]
pub trait OpFn<X: Place, P, R>: Send + 'static {
    #[doc(hidden)]
    fn call<'a>(self, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is a kernel on streams of type `S`, with arguments `P` and result `R`.
///
/// # Examples
/// ```
/// use anabranch::{Buffer, DeviceStream, Engine, Executor, HostBuffer, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?; // or Executor::cuda(0)?
/// let on_device = engine.empty_var::<Buffer<f32>>("on device");
/// let x = engine.empty_var::<HostBuffer<f32>>("x");
/// let up = |s: &mut DeviceStream| Ok(s.upload(&[1.0, 2.0])?);
/// engine.push(Op::try_kernel("up", (), &on_device, up)).await?;
/// let down = |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?);
/// engine.push(Op::try_kernel("down", &on_device, &x, down)).await?;
/// assert_eq!(x.read().await?[..], [1.0, 2.0]);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what is read, or does not return what is written",
    label = "first `&mut DeviceStream` or `&mut HostStream`, then `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`: `|s: &mut DeviceStream, x: &T| ..`"
)]
pub trait OpKernelFn<X: Place, S, P, R>: Send + 'static {
    #[doc(hidden)]
    fn call<'a>(self, stream: &'a mut S, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is an asynchronous operation with arguments `P`, and returns the future `Fut`.
///
/// # Examples
/// The future gets an `Arc` for each variable that it reads:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (url, page) = (engine.var("url", String::from("/index")), engine.empty_var::<String>("page"));
/// let (send, receive) = futures::channel::oneshot::channel::<&str>();
/// let fetch = async |url: Arc<String>| Ok(format!("{url}: {}", receive.await?));
/// engine.push(Op::future("fetch", &url, &page, fetch)).await?;
/// send.send("hello").unwrap();
/// assert_eq!(*page.read().await?, "/index: hello");
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "this async closure does not take what is read, or its future is not Send",
    label = "one argument for each read: `Arc<T>` for `&x`, `T` for `take(&x)`, `Vec<Arc<T>>` for `&xs[..]`; clone what it captures into the future"
)]
pub trait OpFutureFn<X: Place, P, Fut>: Send + 'static {
    #[doc(hidden)]
    fn call<'a>(self, params: &'a P, view: X::View<'a>) -> Result<Fut, X::Fault>;
}

/// A stream that no kernel is for. With two impls to choose from, rustc reports that a closure is no kernel,
/// and what a kernel takes; with one, it reports how many arguments that impl expects.
#[derive(Debug)]
pub enum NoStream {}

/// Has no implementation.
pub trait Never {}

impl<X: Place, F: Never + Send + Sync + 'static, P, R> KernelFn<X, NoStream, P, R> for F {
    fn call<'a>(&self, stream: &'a mut NoStream, _: &'a P, _: X::View<'a>) -> Result<R, X::Fault> {
        match *stream {}
    }
}

impl<X: Place, F: Never + Send + 'static, P, R> OpKernelFn<X, NoStream, P, R> for F {
    fn call<'a>(self, stream: &'a mut NoStream, _: &'a P, _: X::View<'a>) -> Result<R, X::Fault> {
        match *stream {}
    }
}

/// Turns what a closure returned into a value, or an error: for bodies that can fail, and for those that
/// cannot.
pub(crate) trait Finish<R>: Send + Sync + 'static {
    type Value: 'static;
    fn finish(returned: R) -> Result<Self::Value, BoxError>;
}

pub(crate) struct Infallible;
pub(crate) struct Fallible;

impl<R: 'static> Finish<R> for Infallible {
    type Value = R;

    #[inline]
    fn finish(returned: R) -> Result<R, BoxError> {
        Ok(returned)
    }
}

impl<R: 'static> Finish<Result<R, BoxError>> for Fallible {
    type Value = R;

    #[inline]
    fn finish(returned: Result<R, BoxError>) -> Result<R, BoxError> {
        returned
    }
}
