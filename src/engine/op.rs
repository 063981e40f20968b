//! Operations: a name, what is read and written, and a closure.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::body::{Body, Ran, Work};
use super::lanes::Target;
use super::name::Name;
use super::place::Asked;
use super::queue::REQUESTS_MAX;
use super::ready::Owner;
use super::scope::Scope;
use super::task::{AsyncTask, Fallible, Finish, Infallible, Task};
use super::uses::{Asking, OpFn, OpFutureFn, Reads, SCANNED, Writes};
use crate::error::{BoxError, Error, Kind};
use crate::sync::AtomicBool;

/// One operation on variables, to be [pushed](super::Engine::push): what it reads, what it writes, and a
/// closure that makes the one from the other.
///
/// The closure gets `&T` for a variable that is read, `T` for one that is taken ([`take`](crate::take)), and
/// `Vec<&T>` for a slice of variables. It returns the new values of what is written. These are stored when it
/// has returned, so an operation may read what it writes and gets the old value. It borrows its variables
/// until it is pushed.
#[must_use = "an operation does nothing until it is pushed"]
pub struct Op<'v> {
    /// There until it is pushed. An option here, so that it is moved once: from where it is made to where it
    /// is pending.
    pub(super) job: Option<Job>,
    vars: PhantomData<&'v ()>,
}

/// An operation, as the engine has it.
pub(super) struct Job {
    pub(super) name: Name,
    /// Each variable once.
    pub(super) asked: Uses,
    /// Only who runs it touches it; others look at the requests meanwhile.
    body: UnsafeCell<Body>,
    /// What few have.
    rare: Option<Box<Rare>>,
    pub(super) priority: i32,
    pub(super) role: Role,
    /// Its future was made.
    pub(super) has_begun: AtomicBool,
    /// Its closure returns a future.
    pub(super) is_async: bool,
    /// It is a kernel for a stream of a device.
    pub(super) is_kernel: bool,
}

/// What few operations have, so that the others are smaller.
#[derive(Default)]
struct Rare {
    /// A mistake in it, for who pushes it.
    fault: Option<Error>,
    /// The flow that it is of.
    scope: Option<Arc<Scope>>,
    /// Which stream it asks for.
    target: Target,
}

/// The priority of what frees a variable.
pub(super) const FREES: i32 = i32::MAX;

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
    /// Performs others in order, which succeed or fail for themselves.
    Joins,
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
    /// drop(engine.push(Op::task("add", (&x, &y), &y, |x: &i32, y: &i32| x + y)).await?);
    /// assert_eq!(*y.read().await?, 21);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    #[inline]
    pub fn task<R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFn<R::Params, W::Value>,
    {
        Self::of::<R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation that may fail. What it writes is then poisoned: reads fail with this error, until
    /// it is overwritten. An operation that could not begin, because a reader keeps the value that it
    /// [takes](crate::take), poisons nothing and leaves its variables as they were.
    #[inline]
    pub fn try_task<R, W, F>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFn<R::Params, Result<W::Value, BoxError>>,
    {
        Self::of::<R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation whose closure returns a future. It has its variables until the future is ready;
    /// it may await others, and push operations.
    ///
    /// The closure gets an `Arc<T>` for a variable that is read, `T` for one that is taken, and a
    /// `Vec<Arc<T>>` for a slice. The executor's workers poll the future, within the tokio runtime in which
    /// this was called; without workers, whoever awaits something of the engine polls it.
    ///
    /// # Errors
    /// As [`Op::try_task`]. Its future must not wait for what waits for it. To await its own handle is an
    /// error there; so is to await an operation that stands behind it in the queue of a variable, and the
    /// error names both and the variable. It comes also beside something that may be ready first (a `select`,
    /// a timeout).
    ///
    /// A longer circle is not seen: by way of a third operation, of a task that is spawned here, of another
    /// engine. It waits for ever, as any futures do that wait for each other, unless there is a timeout. To
    /// block inside (`block_on`) takes a worker away; with one, or none, no thread is left.
    ///
    /// # Cancellation
    /// When the executor is shut down, the future is dropped where it stands, and the operation fails.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let (key, page) = (engine.var("key", 7), engine.var("page", String::new()));
    /// let fetch = Op::future("fetch", &key, &page, |key: Arc<i32>| async move { Ok(format!("page {key}")) });
    /// drop(engine.push(fetch).await?);
    /// assert_eq!(*page.read().await?, "page 7");
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn future<R, W, F, Fut>(name: impl Into<Cow<'static, str>>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads + 'v,
        W: Writes + 'v,
        W::Value: 'static,
        F: OpFutureFn<R::Params, Fut>,
        Fut: Future<Output = Result<W::Value, BoxError>> + Send + 'static,
    {
        let mut op = Self::using(name.into(), reads, writes, |params, put| {
            Body::new(AsyncTask::<_, _, _, Fut, W::Value>::new(params, put, work))
        });
        op.job_mut().is_async = true;
        op
    }

    /// Sets its priority: of operations that are ready, those of a higher one go first, and those of the same
    /// first come, first served. The default is 0. What frees a variable goes ahead of all.
    pub fn priority(mut self, priority: i32) -> Self {
        self.job_mut().priority = priority.min(FREES - 1);
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.job().name
    }

    #[inline]
    pub(super) fn of_job(job: Job) -> Self {
        Self { job: Some(job), vars: PhantomData }
    }

    #[inline]
    fn job(&self) -> &Job {
        self.job.as_ref().expect("whoever pushes it has it")
    }

    #[inline]
    pub(super) fn job_mut(&mut self) -> &mut Job {
        self.job.as_mut().expect("whoever pushes it has it")
    }

    #[inline]
    fn of<R, W, F, V, K>(name: Cow<'static, str>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads,
        W: Writes,
        F: OpFn<R::Params, V>,
        V: 'static,
        K: Finish<V, W::Value>,
        W::Value: 'static,
    {
        Self::using(name, reads, writes, |params, put| Body::new(Task::<_, _, _, V, K, W::Value>::new(params, put, work)))
    }

    #[inline]
    pub(super) fn using<R: Reads, W: Writes>(
        name: Cow<'static, str>,
        reads: R,
        writes: W,
        body: impl FnOnce(R::Params, W::Put) -> Body,
    ) -> Self {
        let mut asking = Asking::default();
        let (params, put) = (reads.ask(&mut asking), writes.ask(&mut asking));
        let (name, is_aliased, mut uses) = (Name::from(name), asking.is_aliased, asking.uses());
        let is_odd = is_aliased || uses.len() > SCANNED;
        let rare = if is_odd { Rare::with_fault(check(&name, &mut uses, is_aliased)) } else { None };
        Self::of_job(Job { rare, ..Job::new(name, uses, body(params, put)) })
    }
}

impl Job {
    #[inline]
    pub(super) fn new(name: Name, uses: Uses, body: Body) -> Self {
        Self {
            name,
            asked: uses,
            body: UnsafeCell::new(body),
            rare: None,
            priority: 0,
            role: Role::User,
            has_begun: AtomicBool::new(false),
            is_async: false,
            is_kernel: false,
        }
    }

    /// Empties a place for operations. Of one that has run nearly always nothing is left to be dropped, and
    /// to see that is cheaper than to drop it part by part.
    #[inline(always)]
    pub(super) fn clear(place: &mut Option<Self>) {
        let is_bare = |job: &mut Self| {
            let is_fixed = matches!(job.name, Name::Fixed(_)) && !job.asked.spilled() && job.rare.is_none();
            is_fixed && !job.body.get_mut().needs_drop()
        };
        match place.as_mut().is_some_and(is_bare) {
            true => std::mem::forget(place.take()),
            false => *place = None,
        }
    }

    /// Does that with each variable it asks for. The first by itself: most ask for one, and loops are
    /// compiled for many.
    #[inline(always)]
    pub(super) fn each(&self, mut act: impl FnMut(&Asked)) {
        if let Some((first, others)) = self.asked.split_first() {
            act(first);
            others.iter().for_each(act);
        }
    }

    /// Asks for one thing more, which it did not ask for before.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.asked.push(asked);
        if self.asked.len() > REQUESTS_MAX {
            self.check();
        }
    }

    /// Whether there is nothing about it that is not in its requests and its closure.
    #[inline(always)]
    pub(super) fn is_simple(&self) -> bool {
        self.rare.is_none() && !self.is_async && !self.is_kernel && self.is_plain()
    }

    /// Whether it may be kept from running, and has an effect on its variables, itself.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self.role, Role::Frees | Role::Joins)
    }

    #[inline]
    pub(super) fn has_no_fault(&self) -> bool {
        self.rare.is_none() || self.fault().is_none()
    }

    /// Returns the mistake in it, if there is one.
    pub(super) fn fault(&self) -> Option<&Error> {
        self.rare.as_ref()?.fault.as_ref()
    }

    /// Returns which stream it asks for, if it is a kernel for one of a device.
    #[inline]
    pub(super) fn kernel(&self) -> Option<Target> {
        self.is_kernel.then(|| self.rare.as_ref().map_or(Target::default(), |rare| rare.target))
    }

    pub(super) fn set_target(&mut self, target: Target) {
        if self.is_kernel {
            self.rare.get_or_insert_default().target = target;
        }
    }

    /// Makes it one of a flow's.
    pub(super) fn set_scope(&mut self, scope: Arc<Scope>) {
        self.rare.get_or_insert_default().scope = Some(scope);
    }

    /// Returns the flow that it is of.
    #[inline]
    pub(super) fn scope(&self) -> Option<&Arc<Scope>> {
        self.rare.as_ref()?.scope.as_ref()
    }

    /// Returns the owner that ends it when there are no polls.
    pub(super) fn owner(&self) -> Owner<'_> {
        match (self.role, self.scope()) {
            // The engine ends its own operations, also if no future waits for them any more.
            (Role::Frees | Role::Waits, _) => Owner::Engine,
            (_, Some(scope)) => Owner::Flow(scope),
            _ => Owner::Nobody,
        }
    }

    pub(super) fn check(&mut self) {
        if let Some(fault) = check(&self.name, &mut self.asked, false) {
            self.set_fault(fault);
        }
    }

    /// Records a mistake in it, for whoever pushes it.
    pub(super) fn set_fault(&mut self, fault: Error) {
        self.rare.get_or_insert_default().fault = Some(fault);
    }

    /// What frees a variable: as soon as it can, so that memory comes back early.
    pub(super) fn freeing(asked: Asked, work: impl Work) -> Self {
        Self { priority: FREES, role: Role::Frees, ..Self::new(Name::Fixed("free"), smallvec![asked], Body::new(work)) }
    }

    /// What waits for a variable: to look at it, or until it could be written.
    pub(super) fn waiting(asked: Asked, work: impl Work) -> Self {
        Self { role: Role::Waits, ..Self::new(Name::Fixed("wait"), smallvec![asked], Body::new(work)) }
    }

    /// Returns what errors call it. A wait is called after its variable, which nobody pays for who waits in
    /// vain for an error.
    pub(super) fn said_name(&self) -> Cow<'static, str> {
        match (self.role, &self.asked[..]) {
            (Role::Waits, [asked]) => {
                let what = if asked.is_read() { "read of" } else { "wait for" };
                // SAFETY: the operation is pending, so the variable is there.
                format!("{what} {}", &*unsafe { asked.place() }.name).into()
            }
            _ => self.name.to_cow(),
        }
    }

    /// Does what it is there for.
    ///
    /// # Safety
    /// As [`Work::run`], and nobody else calls this.
    #[inline(always)]
    pub(super) unsafe fn run(&self) -> Result<Ran, BoxError> {
        // SAFETY: by the caller's promise.
        let body = unsafe { &mut *self.body.get() };
        // SAFETY: as above.
        unsafe { body.run() }
    }

    /// Says what it is there for from now on.
    ///
    /// # Safety
    /// Nobody else uses its body.
    pub(super) unsafe fn go_on_with(&self, work: impl Work) {
        // SAFETY: by the caller's promise.
        let body = unsafe { &mut *self.body.get() };
        *body = Body::new(work);
    }

    /// Drops undone what it was there for.
    ///
    /// # Safety
    /// Nobody else uses it.
    pub(super) unsafe fn forgo(&self) {
        // SAFETY: by the caller's promise.
        let body = unsafe { &mut *self.body.get() };
        body.forgo();
    }

    pub(super) fn failed(&self, cause: BoxError) -> Error {
        Error::with_source(Kind::OpFailed { operation: self.said_name() }, cause)
    }

    pub(super) fn panicked(&self, message: String) -> Error {
        Kind::OpPanicked { operation: self.said_name(), message }.into()
    }

    pub(super) fn frees(&self) -> bool {
        self.role == Role::Frees
    }

    /// Returns true if it has something to poison should it fail.
    pub(super) fn writes(&self) -> bool {
        self.asked.iter().any(Asked::changes)
    }
}

impl Rare {
    fn with_fault(fault: Option<Error>) -> Option<Box<Self>> {
        fault.is_some().then(|| Box::new(Self { fault, ..Self::default() }))
    }
}

/// Brings many uses down to one a variable, and returns what is wrong with them.
#[cold]
fn check(operation: &Name, uses: &mut Uses, mut is_aliased: bool) -> Option<Error> {
    uses.sort_by_key(Asked::address);
    uses.dedup_by(|one, kept| {
        let is_same = one.address() == kept.address();
        is_aliased |= is_same && kept.add_all(one);
        is_same
    });
    if is_aliased {
        // SAFETY: whoever makes an operation has a handle to the variable.
        let taken = uses.iter().find(|asked| asked.is_taken()).map(|asked| unsafe { asked.place() }.name.to_cow());
        let (operation, variable) = (operation.to_cow(), taken.unwrap_or_default());
        return Some(Kind::VarTakenAndRead { operation, variable }.into());
    }
    let what = || format!("the number of variables of operation '{}'", &**operation);
    (uses.len() > REQUESTS_MAX).then(|| Kind::Limit { what: what(), got: uses.len(), limit: REQUESTS_MAX }.into())
}

impl fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("name", &self.name()).field("variables", &self.job().asked.len()).finish()
    }
}
