//! The handle to a pushed operation: a future that waits for its end.

use std::fmt;
use std::future::Future;
use std::mem::{self, ManuallyDrop};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use super::engine_core::{Accepted, EngineCore};
use crate::engine::order::{Key, Unpushed};
use crate::error::{Error, Kind, Result, shielded};
use crate::runtime::{WaiterKey, poll_share};

/// A handle to a pushed operation: a future that waits for its end.
///
/// The operation runs whether or not the handle is awaited. Later operations need no await: the queues of
/// their variables order them. If the handle is dropped, a read of a variable that the operation writes
/// reports its failure, or [`Engine::idle`](crate::Engine::idle) does.
///
/// # Errors
/// The failure of the operation, or the reason why it did not run. [`Error::node`] names the operation.
///
/// A wait that may never end is an error, too: inside of an operation of the engine that is not a future, or
/// of its observer; in a future, for its own operation or one that is behind that; inside of a task of the
/// executor. After such an error the handle can be awaited elsewhere.
///
/// # Cancellation
/// Dropping the handle changes nothing: the operation still runs.
///
/// # Examples
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let x = engine.var("x", String::from("seven"));
/// let number = engine.empty_var::<u32>("number");
///
/// let parse = Op::try_task("parse", &x, &number, |x: &String| Ok(x.parse()?));
/// let pushed = engine.push(parse).await?; // there was room, and it may run now
/// let error = pushed.await.unwrap_err(); // it has ended
/// assert_eq!(error.node(), Some("parse"));
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
pub struct Pushed(ManuallyDrop<State>);

enum State {
    Pending(Pending),
    Ended(Result<()>),
    Spent,
}

struct Pending {
    core: Arc<EngineCore>,
    key: Key,
    waker: Registered,
    /// Used without workers, when a poll runs operations. In a box, because most handles need not wait.
    driver: Option<Box<WaiterKey>>,
}

/// Whether the waker is registered. A word wide, so that a handle has no padding, which moves would copy byte
/// by byte.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Registered {
    No,
    Yes,
}

impl Pushed {
    #[inline(always)]
    fn of(state: State) -> Self {
        Self(ManuallyDrop::new(state))
    }

    #[inline(always)]
    pub(in crate::engine) fn new(core: &Arc<EngineCore>, accepted: Accepted) -> Self {
        match accepted {
            Accepted::Ended(outcome) => Self::ended(outcome),
            Accepted::Pending(key) => Self::pending(core.clone(), key),
        }
    }

    #[inline(always)]
    pub(super) fn pending(core: Arc<EngineCore>, key: Key) -> Self {
        Self::of(State::Pending(Pending { core, key, waker: Registered::No, driver: None }))
    }

    /// Pushes an operation, beyond the bound if need be. A refusal is the outcome of the handle.
    pub(in crate::engine) fn beyond(core: &Arc<EngineCore>, operation: Unpushed<'_>) -> Self {
        Self::new(core, core.push_beyond(operation).unwrap_or_else(|refused| Accepted::Ended(Err(refused))))
    }

    /// Returns a handle to an operation that has ended already.
    #[inline(always)]
    pub(crate) fn ended(outcome: Result<()>) -> Self {
        Self::of(State::Ended(outcome))
    }

    /// Returns whether it is the handle to an operation that had ended when it was made.
    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.0, State::Ended(_))
    }

    #[inline(never)]
    fn drop_rest(&mut self) {
        // In place: to move it out would wait for the stores of its words.
        *self.0 = State::Spent;
    }
}

impl Pending {
    fn is_waiting(&self) -> bool {
        self.waker == Registered::Yes
    }

    fn has_ended(&self) -> bool {
        self.core.slots.handle(self.key.number()).has_ended(self.key)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.has_ended() && self.core.workers == 0 {
            self.core.drive(self.driver.get_or_insert_default(), cx);
        }
        if !self.has_ended() {
            let mut waker = Some(cx.waker().clone());
            let is_pending = self.wait_with(&mut waker);
            let _ = shielded(|| drop(waker));
            if is_pending {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.core.handles.take_failure(self.key).map_or(Ok(()), Err))
    }

    /// Registers a waker, and returns the old one in its place. Returns false if the operation has ended.
    fn wait_with(&mut self, waker: &mut Option<Waker>) -> bool {
        let mut place = self.core.handles.wakers.of(self.key.number());
        // Under the lock: a thread that ends the operation and sees the mark takes the waker after this.
        let is_pending = self.core.slots.handle(self.key.number()).set_awaited(self.key);
        if is_pending {
            mem::swap(&mut *place, waker);
            self.waker = Registered::Yes;
        }
        is_pending
    }

    #[inline(never)]
    fn wait_no_longer(&mut self) {
        if let Some(driver) = &mut self.driver {
            self.core.forget_driver(driver);
        }
        if self.is_waiting() {
            let waker = {
                let mut place = self.core.handles.wakers.of(self.key.number());
                // After the end the place may be another operation's.
                if self.has_ended() { None } else { place.take() }
            };
            let _ = shielded(|| drop(waker));
        }
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        if self.is_waiting() || self.driver.is_some() {
            self.wait_no_longer();
        }
        self.core.handles.let_go(&self.core.slots, self.key, self.is_waiting());
    }
}

impl Drop for Pushed {
    #[inline(always)]
    fn drop(&mut self) {
        // An operation that was run in place leaves nothing to drop, and the compiler often knows that.
        if !matches!(*self.0, State::Ended(Ok(())) | State::Spent) {
            self.drop_rest();
        }
    }
}

impl Future for Pushed {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let share = ready!(poll_share(cx));
        let state = &mut *self.0;
        if let State::Pending(pending) = state {
            if !pending.has_ended() {
                // After an error of the wait the handle can be awaited elsewhere.
                pending.core.may_wait()?;
                pending.core.may_wait_for(pending.key)?;
            }
            let Poll::Ready(outcome) = pending.poll(cx) else { return Poll::Pending };
            *state = State::Ended(outcome);
        }
        share.used();
        match mem::replace(state, State::Spent) {
            State::Ended(outcome) => Poll::Ready(outcome.inspect_err(Error::note_reported)),
            _ => Poll::Ready(Err(Kind::Spent.into())),
        }
    }
}

impl fmt::Debug for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = match &*self.0 {
            State::Pending(pending) => pending.has_ended(),
            State::Ended(_) | State::Spent => true,
        };
        f.debug_struct("Pushed").field("has_ended", &has_ended).finish()
    }
}
