//! Variables: handles to values that an engine's operations read and write.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::core::{EngineCore, Pushed};
use crate::engine::order::{Access, Grant, Mode, Operation, Role, TypedVariable, Unpushed, VarHandle, VarPtr, Variable};
use crate::error::{Error, Kind, Result};
use crate::runtime::poll_share;
use crate::sync::{Mutex, lock};
use crate::value::args::Key;

/// A value that operations of one engine read and write, in the order in which they were pushed. Made by
/// [`Engine::var`](crate::Engine::var).
///
/// Cheap to clone; clones are the same variable. When the last is dropped, the value is freed after all
/// operations that were pushed before.
///
/// # Examples
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let count = engine.var("count", 0);
/// let same = count.clone();
/// engine.push(Op::task("add", &count, &count, |count: &i32| count + 1)).await?;
/// assert_eq!(*same.read().await?, 1);
/// assert_eq!((same.name(), same.version()), ("count", 1));
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
pub struct Var<T: Send + Sync + 'static>(VarHandle<T, EngineCore>);

impl<T: Send + Sync + 'static> Var<T> {
    pub(in crate::engine) fn new(core: Arc<EngineCore>, typed: TypedVariable<T>) -> Self {
        Self(VarHandle::new(core, typed))
    }

    #[inline]
    pub(super) fn variable(&self) -> &Variable {
        &self.0.typed().variable
    }

    /// Returns an access to the variable, and the pointer to be kept in the body of the same operation.
    #[inline(always)]
    pub(super) fn access(&self, mode: Mode) -> (Access, VarPtr<T>) {
        self.0.access(mode)
    }

    fn core(&self) -> &Arc<EngineCore> {
        self.0.engine()
    }

    /// Returns the variable's name.
    pub fn name(&self) -> &str {
        &self.variable().name
    }

    /// Returns how often it was written: the number of operations that wrote it, or failed to, and have
    /// ended; of kernels for a device with queues, those that were submitted.
    pub fn version(&self) -> u64 {
        self.variable().version()
    }

    /// Waits for all operations that were pushed before and write the variable, and returns the value as it
    /// is then.
    ///
    /// The read takes its place among the operations at once; the future only waits for it. So it cannot wait
    /// for room: reads are not bounded by the engine's `max_pending`. A program that makes many of them
    /// awaits or drops them.
    ///
    /// # Errors
    /// - The failure of the operation that should have written it.
    /// - The variable has no value.
    /// - The value is not there yet, and the future is awaited where a wait may never end: see [`Pushed`].
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    #[inline]
    pub fn read(&self) -> VarRead<T> {
        VarRead(match self.read_now() {
            Some(Ok(value)) => Reading::There(value),
            Some(Err(error)) => Reading::Failed(error),
            None => self.read_later(),
        })
    }

    #[inline(never)]
    fn read_later(&self) -> Reading<T> {
        let found = Arc::new(Mutex::new(None));
        let ((access, var), place) = (self.access(Mode::READ), found.clone());
        let operation = Operation::own(Role::Waits, access, move |grant, _| {
            *lock(&place) = Some(var.share(grant)?);
            Ok(())
        });
        let pushed = Pushed::beyond(self.core(), Unpushed::new(operation));
        Reading::Pushed(Box::new(PendingRead { pushed, found }))
    }

    /// Returns the value, or why there is none, if no pending operation uses the variable. May return None
    /// though there is none.
    pub(crate) fn read_now(&self) -> Option<Result<Arc<T>>> {
        let (variable, (_, var)) = (self.variable(), self.access(Mode::READ));
        let look = |grant: Grant<'_>| {
            variable.device_uses.is_written().then(|| match variable.poison() {
                Some(origin) => Err(origin),
                None => var.share(grant),
            })
        };
        self.core().glance(variable, look).flatten()
    }

    /// Poisons a variable that will never have a value. There is no other handle.
    pub(crate) fn fail(&self, error: Error) {
        self.variable().set_poison(Some(error));
    }

    /// Waits for everything that was pushed before and reads or writes the variable.
    ///
    /// # Errors
    /// If the executor is shut down, or the future is awaited where a wait may never end: see [`Pushed`].
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn wait_writable(&self) -> VarWait {
        let (access, _) = self.access(Mode::EXCLUSIVE);
        VarWait(Pushed::beyond(self.core(), Unpushed::new(Operation::own(Role::Waits, access, |_, _| Ok(())))))
    }
}

impl<T: Send + Sync + 'static> Clone for Var<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Var").field("name", &self.name()).field("version", &self.version()).finish()
    }
}

/// A variable's value, when it is there; made by [`Var::read`].
///
/// # Examples
/// The place of the read is that of the call, not that of the `await`:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let x = engine.var("x", 1);
/// let before = x.read();
/// engine.push(Op::task("double", &x, &x, |x: &i32| x * 2)).await?;
/// let after = x.read();
/// assert_eq!((*before.await?, *after.await?), (1, 2));
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct VarRead<T>(Reading<T>);

/// Of two words, which come in registers: see [`Push`](crate::engine::Push).
enum Reading<T> {
    /// The value was there when it was asked for.
    There(Arc<T>),
    Failed(Error),
    Pushed(Box<PendingRead<T>>),
    Spent,
}

/// A read that waits for operations.
struct PendingRead<T> {
    pushed: Pushed,
    found: Arc<Mutex<Option<Arc<T>>>>,
}

impl<T> fmt::Debug for VarRead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VarRead").finish_non_exhaustive()
    }
}

impl<T> Future for VarRead<T> {
    type Output = Result<Arc<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Arc<T>>> {
        if let Reading::Pushed(pending) = &mut self.0 {
            return pending.poll(cx);
        }
        ready!(poll_share(cx)).used();
        Poll::Ready(match mem::replace(&mut self.0, Reading::Spent) {
            Reading::There(value) => Ok(value),
            Reading::Failed(error) => Err(error).inspect_err(Error::note_reported),
            Reading::Pushed(_) | Reading::Spent => Err(Kind::Spent.into()),
        })
    }
}

impl<T> PendingRead<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<T>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.pushed).poll(cx)) {
            Ok(()) => lock(&self.found).take().ok_or_else(|| Kind::Spent.into()),
            Err(error) => Err(error.origin().clone()),
        })
    }
}

/// The wait until a variable could be written; made by [`Var::wait_writable`].
///
/// # Examples
/// Every operation that reads or writes the variable has ended:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let page = engine.var("page", String::from("a page"));
/// engine.push(Op::task("print", &page, (), |page: &String| println!("{page}"))).await?;
/// page.wait_writable().await?;
/// println!("it is printed");
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct VarWait(Pushed);

impl Future for VarWait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll(cx)
    }
}
