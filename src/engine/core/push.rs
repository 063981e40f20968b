//! The push of an operation: done at once if there is room. The caller keeps the operation in a place that is
//! not dropped. The push empties that place: the operation was pushed, was refused and dropped, or waits in
//! the push.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::engine_core::EngineCore;
use super::handle::Pushed;
use super::pace::HANDED_OVER;
use crate::engine::order::{Key, Unpushed};
use crate::error::{Error, Kind, Result};
use crate::runtime::{WaiterKey, may_work, poll_work};

/// A push: a future that returns the [handle](Pushed) of the operation; made by
/// [`Engine::push`](crate::Engine::push).
///
/// If there is room, the operation is pushed before the first poll. Otherwise the future waits for room. Now
/// and then it is pending once though the operation was pushed, so that other tasks run.
///
/// # Errors
/// Those of [`Engine::push`](crate::Engine::push).
///
/// # Cancellation
/// If it is dropped while it waits for room, the operation is not pushed. An operation that is pushed already
/// stays pushed.
///
/// # Examples
/// Each `await` waits for room, so the loop has at most 8 operations pending:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::builder(&Executor::host()?).max_pending(8).build()?;
/// let sum = engine.var("sum", 0);
/// for number in 1..=100 {
///     engine.push(Op::task("add", &sum, &sum, move |sum: &u32| sum + number)).await?;
/// }
/// assert_eq!(*sum.read().await?, 5050);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "if there is no room, the operation is pushed only if this is awaited"]
pub struct Push<'v> {
    core: &'v Arc<EngineCore>,
    state: State<'v>,
}

/// The outcome: words that come in registers, and are matched there. A value that is written to memory word
/// by word, and then moved by more than a word, waits for the store buffer. That was a fifth of the time of a
/// push.
enum State<'v> {
    /// The operation was run in place.
    Rest,
    Pushed(Key),
    Other(Box<Other<'v>>),
    Spent,
}

/// The rare outcomes.
enum Other<'v> {
    Tried(Result<Pushed>),
    /// It was pushed; the future takes a unit of the task's budget before it returns the handle.
    Due(Pushed),
    Waits(Waiting<'v>),
}

/// An operation for which there was no room.
struct Waiting<'v> {
    core: &'v Arc<EngineCore>,
    operation: Unpushed<'v>,
    key: WaiterKey,
    driver: WaiterKey,
}

impl fmt::Debug for Push<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").finish_non_exhaustive()
    }
}

impl Future for Push<'_> {
    type Output = Result<Pushed>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pushed>> {
        let Self { core, state } = &mut *self;
        // Taken out first: a drop of the old state after the match would force the result into memory.
        Poll::Ready(match mem::replace(state, State::Spent) {
            State::Rest => Ok(Pushed::ended(Ok(()))),
            State::Pushed(key) => Ok(Pushed::pending(core.clone(), key)),
            State::Other(mut other) => {
                if other.poll(core, cx).is_pending() {
                    *state = State::Other(other);
                    return Poll::Pending;
                }
                other.into_outcome()
            }
            State::Spent => Err(Kind::Spent.into()),
        })
    }
}

impl<'v> Push<'v> {
    /// Pushes an operation if there is room. Takes it out in any case.
    #[inline(always)]
    pub(in crate::engine) fn new(core: &'v Arc<EngineCore>, operation: &mut Unpushed<'v>) -> Self {
        let ran = core.run_now(operation);
        // If the thread's budget is spent, this future is pending once. That renews the budget, so later
        // cheap operations run in their pushes again.
        let is_spent = core.workers > 0 && !may_work();
        let state = match ran {
            Some(Ok(Ok(()))) if core.pace.is_due() || is_spent => State::Other(Other::due(Pushed::ended(Ok(())))),
            Some(Ok(Ok(()))) => State::Rest,
            Some(outcome) => State::Other(Other::tried(outcome.map(Pushed::ended), operation)),
            None => match core.push_plainly(operation) {
                Some(key) if key.is_one_of(HANDED_OVER) || is_spent => {
                    State::Other(Other::due(Pushed::pending(core.clone(), key)))
                }
                Some(key) => State::Pushed(key),
                None => State::Other(Other::push(core, operation)),
            },
        };
        debug_assert!(operation.get().is_none());
        Self { core, state }
    }

    /// Returns the push of an operation that was refused.
    #[cold]
    pub(in crate::engine) fn refused(core: &'v Arc<EngineCore>, error: Error) -> Self {
        Self { core, state: State::Other(Box::new(Other::Tried(Err(error)))) }
    }

    /// Returns whether it waits for room.
    pub(in crate::engine) fn waits(&self) -> bool {
        matches!(&self.state, State::Other(other) if matches!(**other, Other::Waits(_)))
    }
}

impl Drop for Push<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.state {
            State::Pushed(key) => drop(Pushed::pending(self.core.clone(), *key)),
            State::Other(other) => other.report(self.core),
            State::Rest | State::Spent => {}
        }
    }
}

impl<'v> Other<'v> {
    #[cold]
    fn tried(pushed: Result<Pushed>, operation: &mut Unpushed<'v>) -> Box<Self> {
        // A refused operation is still in its place.
        drop(operation.take());
        Box::new(Self::Tried(pushed))
    }

    #[cold]
    fn due(pushed: Pushed) -> Box<Self> {
        Box::new(Self::Due(pushed))
    }

    #[inline(never)]
    fn push(core: &'v Arc<EngineCore>, operation: &mut Unpushed<'v>) -> Box<Self> {
        match core.try_push(operation).map(|accepted| Pushed::new(core, accepted)) {
            Err(full) if full.is_busy() => {
                let (key, driver) = (WaiterKey::default(), WaiterKey::default());
                Box::new(Self::Waits(Waiting { core, operation: operation.take(), key, driver }))
            }
            pushed => Self::tried(pushed, operation),
        }
    }

    /// Reports a refusal to `idle`, because the push was dropped unpolled.
    #[cold]
    fn report(&self, core: &EngineCore) {
        if let Self::Tried(Err(refused)) = self {
            core.keep_refusal(refused);
        }
    }

    /// Leaves the outcome in its place. If it returned the result, that would be in memory on all paths.
    #[inline(never)]
    fn poll(&mut self, core: &EngineCore, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tried(_) => {}
            Self::Due(_) if core.workers > 0 && !may_work() => ready!(poll_work(cx)),
            Self::Due(pushed) if pushed.has_ended() => ready!(core.pace.poll_measured(cx)),
            Self::Due(_) => ready!(core.pace.poll_unit(cx)),
            Self::Waits(waiting) => {
                let pushed = ready!(waiting.poll(cx));
                *self = Self::Tried(pushed);
            }
        }
        Poll::Ready(())
    }

    #[inline(always)]
    fn into_outcome(self) -> Result<Pushed> {
        match self {
            Self::Tried(pushed) => pushed,
            Self::Due(pushed) => Ok(pushed),
            Self::Waits(_) => Err(Kind::Spent.into()),
        }
    }
}

impl Waiting<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Pushed>> {
        if let Some(done) = self.push() {
            return Poll::Ready(done);
        }
        self.core.may_wait_for_room()?;
        loop {
            self.core.drive(&mut self.driver, cx);
            self.core.space.register(&mut self.key, cx);
            if !self.core.has_space() {
                self.core.may_block()?;
                return Poll::Pending;
            }
            if let Some(done) = self.push() {
                return Poll::Ready(done);
            }
        }
    }

    /// Returns None if there is still no room.
    fn push(&mut self) -> Option<Result<Pushed>> {
        let pushed = self.core.try_push(&mut self.operation).map(|accepted| Pushed::new(self.core, accepted));
        if pushed.as_ref().is_err_and(Error::is_busy) { None } else { Some(pushed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        self.core.space.forget(&mut self.key);
        self.core.forget_driver(&mut self.driver);
    }
}
