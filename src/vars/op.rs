//! Operations: a name, what is read and written, and a closure.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use smallvec::{SmallVec, smallvec};

use super::body::{Body, Work};
use super::place::Asked;
use super::uses::{Asking, OpFn, Put, Reads, Writes};
use crate::error::{BoxError, Error, Kind};

/// One operation on variables, to be [pushed](super::Engine::push): what it reads, what it writes, and a closure that makes the one from the other.
///
/// The closure gets `&T` for a variable that is read, and `T` for one that is taken ([`take`](crate::take)). It returns the new values of what is
/// written. These are stored when it has returned, so an operation may read what it writes and gets the old value. It borrows its variables until it is pushed.
#[must_use = "an operation does nothing until it is pushed"]
pub struct Op<'v> {
    pub(super) job: Job,
    vars: PhantomData<&'v ()>,
}

/// An operation, as the engine has it.
pub(super) struct Job {
    pub(super) name: Cow<'static, str>,
    /// Each variable once.
    pub(super) asked: Uses,
    /// None once it is run.
    pub(super) body: Option<Body>,
    pub(super) priority: i32,
    pub(super) role: Role,
    /// A mistake in it, for who pushes it.
    pub(super) fault: Option<Error>,
}

/// What an operation asks for.
pub(super) type Uses = SmallVec<[Asked; 2]>;

/// Whose an operation is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    User,
    /// Waits for a variable, for somebody who is told what comes of it.
    Waits,
    /// Frees its only variable.
    Frees,
}

impl<'v> Op<'v> {
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
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFn<R::Params, W::Value>,
    {
        Self::of::<R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation that may fail. What it writes is then poisoned: who reads it fails with this error, until it is overwritten.
    pub fn try_task<R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFn<R::Params, Result<W::Value, BoxError>>,
    {
        Self::of::<R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    /// Sets its priority: of operations that are ready, those of a higher one go first, and those of the same first come, first served. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.job.priority = priority;
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.job.name
    }

    pub(super) fn of_job(job: Job) -> Self {
        Self { job, vars: PhantomData }
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
        let mut uses = SmallVec::new();
        let mut asking = Asking { uses: &mut uses };
        let (params, put) = (reads.ask(&mut asking), writes.ask(&mut asking));
        let body = Task { params, put, work, kind: PhantomData::<fn(V) -> (K, W::Value)> };
        Self::of_job(Job::new(name, uses, Body::new(body)))
    }
}

impl Job {
    fn new(name: Cow<'static, str>, uses: Uses, body: Body) -> Self {
        let mut job = Self { name, asked: uses, body: Some(body), priority: 0, role: Role::User, fault: None };
        if job.asked.len() > 1 {
            job.merge();
        }
        job
    }

    /// Makes several uses of one variable into one.
    fn merge(&mut self) {
        let mut kept = 0;
        for place in 0..self.asked.len() {
            let address = self.asked[place].address();
            match self.asked[..kept].iter().position(|earlier| earlier.address() == address) {
                None => {
                    self.asked.swap(kept, place);
                    kept += 1;
                }
                Some(earlier) => {
                    let (how, more) = (self.asked[earlier].how, self.asked[place].how);
                    if how.is_taken && more.is_read || more.is_taken && how.is_read {
                        // SAFETY: whoever makes an operation has a handle to the variable.
                        let variable = unsafe { self.asked[place].place() }.name.clone();
                        let fault = || Kind::VarTakenAndRead { operation: self.name.clone(), variable }.into();
                        self.fault.get_or_insert_with(fault);
                    }
                    self.asked[earlier].add(more);
                }
            }
        }
        self.asked.truncate(kept);
    }

    /// What frees a variable: as soon as it can, so that memory comes back early.
    pub(super) fn freeing(asked: Asked, work: impl Work) -> Self {
        Self { priority: i32::MAX, role: Role::Frees, ..Self::new("free".into(), smallvec![asked], Body::new(work)) }
    }

    /// What waits for a variable: to look at it, or until it could be written.
    pub(super) fn waiting(name: String, asked: Asked, work: impl Work) -> Self {
        Self { role: Role::Waits, ..Self::new(name.into(), smallvec![asked], Body::new(work)) }
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

impl fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("name", &self.job.name).field("variables", &self.job.asked.len()).finish()
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

impl<P, O, F, R, K, V> Work for Task<P, O, F, R, K, V>
where
    P: Send + 'static,
    O: Put<V>,
    F: OpFn<P, R>,
    R: 'static,
    K: Finish<R, V>,
    V: 'static,
{
    unsafe fn run(self) -> Result<(), BoxError> {
        let Self { params, put, work, .. } = self;
        // SAFETY: by the caller's promise.
        let value = K::finish(unsafe { work.call(&params) }?)?;
        // SAFETY: as above, and what was returned can refer to no argument: it is 'static.
        unsafe { put.put(value) }?;
        Ok(())
    }
}

/// Does nothing.
pub(super) struct Nothing;

impl Work for Nothing {
    unsafe fn run(self) -> Result<(), BoxError> {
        Ok(())
    }
}
