//! Operations: a name, what is read and written, and a closure.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::place::Asked;
use super::uses::{Asking, OpFn, Put, Reads, Writes};
use crate::error::{BoxError, Error, Kind};

/// One operation on variables, to be [pushed](super::Engine::push): what it reads, what it writes, and a closure that makes the one from the other.
///
/// The closure gets `&T` for a variable that is read, and `T` for one that is taken ([`take`](crate::take)). It returns the new values of what is
/// written. These are stored when it has returned, so an operation may read what it writes and gets the old value.
#[must_use = "an operation does nothing until it is pushed"]
pub struct Op {
    pub(super) name: Cow<'static, str>,
    /// Each variable once.
    pub(super) asked: SmallVec<[Asked; 2]>,
    pub(super) body: Box<dyn Body>,
    pub(super) priority: i32,
    pub(super) role: Role,
    /// A mistake in it, for who pushes it.
    pub(super) fault: Option<Error>,
}

/// Whose an operation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    User,
    /// Waits for a variable, for somebody who is told what comes of it.
    Waits,
    /// Frees its only variable.
    Frees,
}

/// What an operation does.
pub(super) trait Body: Send {
    /// # Safety
    /// The operation has been granted all that it asked for, and has not ended.
    unsafe fn run(self: Box<Self>) -> Result<(), BoxError>;
}

impl Op {
    /// Returns an operation that cannot fail but by a panic.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::inline())?;
    /// let (x, y) = (engine.var("x", 20), engine.var("y", 1));
    /// engine.push(Op::task("add", (&x, &y), &y, |x: &i32, y: &i32| x + y)).await?;
    /// assert_eq!(*y.read().await?, 21);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn task<R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads,
        W: Writes,
        W::Value: 'static,
        F: OpFn<R::Params, W::Value>,
    {
        Self::of::<R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation that may fail. What it writes is then poisoned: who reads it fails with this error, until it is overwritten.
    pub fn try_task<R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads,
        W: Writes,
        W::Value: 'static,
        F: OpFn<R::Params, Result<W::Value, BoxError>>,
    {
        Self::of::<R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    /// Sets its priority: of operations that are ready, those of a higher one go first, and those of the same first come, first served. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn of<R, W, F, V, K>(name: Cow<'static, str>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads,
        W: Writes,
        F: OpFn<R::Params, V>,
        V: 'static,
        K: Finish<V, W::Value>,
        W::Value: 'static,
    {
        let mut uses = Vec::new();
        let mut asking = Asking { uses: &mut uses };
        let (params, put) = (reads.ask(&mut asking), writes.ask(&mut asking));
        let body = Task { params, put, work, kind: PhantomData::<fn(V) -> (K, W::Value)> };
        Self::new(name, uses, Box::new(body))
    }

    pub(super) fn new(name: Cow<'static, str>, uses: Vec<Asked>, body: Box<dyn Body>) -> Self {
        let mut fault = None;
        let mut asked: SmallVec<[Asked; 2]> = SmallVec::new();
        for one in uses {
            match asked.iter_mut().find(|other| other.address() == one.address()) {
                None => asked.push(one),
                Some(other) => {
                    let is_aliased = other.how.is_taken && one.how.is_read || one.how.is_taken && other.how.is_read;
                    if is_aliased {
                        // SAFETY: whoever makes an operation has a handle to the variable.
                        let variable = unsafe { one.place() }.name.clone();
                        fault.get_or_insert_with(|| Kind::VarTakenAndRead { operation: name.clone(), variable }.into());
                    }
                    other.add(one.how);
                }
            }
        }
        Self { name, asked, body, priority: 0, role: Role::User, fault }
    }

    /// What frees a variable: as soon as it can, so that memory comes back early.
    pub(super) fn freeing(asked: Asked, body: Box<dyn Body>) -> Self {
        Self { priority: i32::MAX, role: Role::Frees, ..Self::new("free".into(), vec![asked], body) }
    }

    /// What waits for a variable: to look at it, or until it could be written.
    pub(super) fn waiting(name: String, asked: Asked, body: Box<dyn Body>) -> Self {
        Self { role: Role::Waits, ..Self::new(name.into(), vec![asked], body) }
    }

    pub(super) fn failed(&self, cause: BoxError) -> Error {
        Error::with_source(Kind::OpFailed { operation: self.name.clone() }, cause)
    }

    pub(super) fn panicked(&self, message: String) -> Error {
        Kind::OpPanicked { operation: self.name.clone(), message }.into()
    }

    /// Returns true if it has something to poison should it fail.
    pub(super) fn writes(&self) -> bool {
        self.asked.iter().any(|asked| asked.how.changes())
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("name", &self.name).field("variables", &self.asked.len()).finish()
    }
}

/// Turns what a closure returned into the values to write, or an error.
trait Finish<R, V>: 'static {
    fn finish(returned: R) -> Result<V, BoxError>;
}

struct Infallible;
struct Fallible;

impl<V> Finish<V, V> for Infallible {
    fn finish(returned: V) -> Result<V, BoxError> {
        Ok(returned)
    }
}

impl<V> Finish<Result<V, BoxError>, V> for Fallible {
    fn finish(returned: Result<V, BoxError>) -> Result<V, BoxError> {
        returned
    }
}

struct Task<P, O, F, R, K, V> {
    params: P,
    put: O,
    work: F,
    kind: PhantomData<fn(R) -> (K, V)>,
}

impl<P, O, F, R, K, V> Body for Task<P, O, F, R, K, V>
where
    P: Send,
    O: Put<V>,
    F: OpFn<P, R>,
    K: Finish<R, V>,
{
    unsafe fn run(self: Box<Self>) -> Result<(), BoxError> {
        let Self { params, put, work, .. } = *self;
        // SAFETY: by the caller's promise.
        let value = K::finish(unsafe { work.call(&params) }?)?;
        // SAFETY: as above, and what was returned can refer to no argument: it is 'static.
        unsafe { put.put(value) }?;
        Ok(())
    }
}

/// Does nothing.
pub(super) struct Nothing;

impl Body for Nothing {
    unsafe fn run(self: Box<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}
