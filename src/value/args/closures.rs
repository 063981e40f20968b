//! Closures that nodes and operations run. A node's is called in each run, an operation's once: that is the
//! one difference, `Fn` or `FnOnce`.

use super::params::Place;
use crate::error::BoxError;

/// A closure that is the body of a task with arguments `P` and value `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what is read, or does not return what is written",
    label = "one argument for each read: `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`; write their types out: `|x: &T| ..`"
)]
pub trait TaskFn<X: Place, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call<'a>(&self, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is the body of a kernel on streams of type `S`, with arguments `P` and value `R`.
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
#[diagnostic::on_unimplemented(
    message = "this async closure does not take what is read, or its future is not Send",
    label = "one argument for each read: `Arc<T>` for `&x`, `T` for `take(&x)`, `Vec<Arc<T>>` for `&xs[..]`; clone what it captures into the future"
)]
pub trait FutureFn<X: Place, P, Fut>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call<'a>(&self, params: &'a P, view: X::View<'a>) -> Result<Fut, X::Fault>;
}

/// A closure that is an operation with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what is read, or does not return what is written",
    label = "one argument for each read: `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`; write their types out: `|x: &T| ..`"
)]
pub trait OpFn<X: Place, P, R>: Send + 'static {
    #[doc(hidden)]
    fn call<'a>(self, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is a kernel on streams of type `S`, with arguments `P` and result `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what is read, or does not return what is written",
    label = "first `&mut DeviceStream` or `&mut HostStream`, then `&T` for `&x`, `T` for `take(&x)`, `Each<T>` for `&xs[..]`: `|s: &mut DeviceStream, x: &T| ..`"
)]
pub trait OpKernelFn<X: Place, S, P, R>: Send + 'static {
    #[doc(hidden)]
    fn call<'a>(self, stream: &'a mut S, params: &'a P, view: X::View<'a>) -> Result<R, X::Fault>;
}

/// A closure that is an asynchronous operation with arguments `P`, and returns the future `Fut`.
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
