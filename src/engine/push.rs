//! The push of an operation: done when there is room for it. Who makes one has the operation in a place that
//! is not dropped, and finds it empty afterwards: it was pushed, was dropped because it was refused, or waits
//! in the push.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::handle::{Handled, Pushed};
use super::hub::Hub;
use super::op::Job;
use super::pace::HANDED_OVER;
use crate::error::{Error, Kind, Result};
use crate::runtime::WaiterKey;

/// Pushes an operation; made by [`Engine::push`](super::Engine::push).
#[must_use = "where there is no room the operation is pushed only if this is awaited"]
pub struct Push<'v> {
    hub: &'v Arc<Hub>,
    state: State<'v>,
}

/// What has become of it: words that come in registers, and are looked at where they are. What is written to
/// memory word by word, and moved from there at once by more than a word, is waited for, and that was a fifth
/// of the time of a push.
enum State<'v> {
    /// It was run where it lay.
    Ran,
    Handled(Handled),
    Other(Box<Other<'v>>),
    Told,
}

/// What becomes of few.
enum Other<'v> {
    Tried(Result<Pushed>),
    /// It was pushed; the future takes a unit of the task's budget before it returns the handle.
    Due(Pushed),
    Waits(Waiting<'v>),
}

/// An operation for which there was no room.
struct Waiting<'v> {
    hub: &'v Arc<Hub>,
    job: Option<Job>,
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
        let Self { hub, state } = &mut *self;
        // Taken out first: were the old state dropped behind it, the result would have to be in memory.
        Poll::Ready(match mem::replace(state, State::Told) {
            State::Ran => Ok(Pushed::ended(Ok(()))),
            State::Handled(handled) => Ok(Pushed::pending(hub.clone(), handled)),
            State::Other(mut other) => {
                if other.poll(hub, cx).is_pending() {
                    *state = State::Other(other);
                    return Poll::Pending;
                }
                other.told()
            }
            State::Told => Err(Kind::Spent.into()),
        })
    }
}

impl<'v> Push<'v> {
    /// Pushes an operation, unless there is no room. It is taken out in any case.
    #[inline(always)]
    pub(super) fn new(hub: &'v Arc<Hub>, job: &mut Option<Job>) -> Self {
        // Asked here, too: it saves the call.
        let ran = if hub.is_inline() { hub.run_now(job) } else { None };
        let state = match ran {
            Some(Ok(Ok(()))) if hub.pace.is_due() => State::Other(Other::due(Pushed::ended(Ok(())))),
            Some(Ok(Ok(()))) => State::Ran,
            Some(outcome) => State::Other(Other::tried(outcome.map(Pushed::ended), job)),
            None => match hub.push_plainly(job) {
                Some(handled) if handled.is_one_of(HANDED_OVER) => {
                    State::Other(Other::due(Pushed::pending(hub.clone(), handled)))
                }
                Some(handled) => State::Handled(handled),
                None => State::Other(Other::push(hub, job)),
            },
        };
        debug_assert!(job.is_none());
        Self { hub, state }
    }
}

impl Drop for Push<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.state {
            State::Handled(handled) => drop(Pushed::pending(self.hub.clone(), *handled)),
            State::Other(other) => other.tell_idle(self.hub),
            State::Ran | State::Told => {}
        }
    }
}

impl<'v> Other<'v> {
    #[cold]
    fn tried(pushed: Result<Pushed>, job: &mut Option<Job>) -> Box<Self> {
        // What was refused is still there.
        *job = None;
        Box::new(Self::Tried(pushed))
    }

    #[cold]
    fn due(pushed: Pushed) -> Box<Self> {
        Box::new(Self::Due(pushed))
    }

    #[inline(never)]
    fn push(hub: &'v Arc<Hub>, job: &mut Option<Job>) -> Box<Self> {
        match hub.try_push(job) {
            Err(refused) => Self::refused(refused, hub, job),
            pushed => Self::tried(pushed, job),
        }
    }

    #[cold]
    fn refused(error: Error, hub: &'v Arc<Hub>, job: &mut Option<Job>) -> Box<Self> {
        if !error.is_busy() {
            return Self::tried(Err(error), job);
        }
        let (key, driver) = (WaiterKey::default(), WaiterKey::default());
        Box::new(Self::Waits(Waiting { hub, job: job.take(), key, driver }))
    }

    /// What was refused, and nobody has heard of, is told by `idle`.
    #[cold]
    fn tell_idle(&self, hub: &Hub) {
        if let Self::Tried(Err(refused)) = self
            && !refused.is_shut_down()
        {
            hub.keep_failure(refused);
        }
    }

    /// Leaves what came of it in its place: a result that a call returns is in memory, on all paths.
    #[inline(never)]
    fn poll(&mut self, hub: &Hub, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tried(_) => {}
            Self::Due(_) if hub.is_inline() => ready!(hub.pace.poll_measured(cx)),
            Self::Due(_) => ready!(hub.pace.poll_unit(cx)),
            Self::Waits(waiting) => {
                let pushed = ready!(waiting.poll(cx));
                *self = Self::Tried(pushed);
            }
        }
        Poll::Ready(())
    }

    /// Returns what came of it.
    #[inline(always)]
    fn told(self) -> Result<Pushed> {
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
        self.hub.may_wait_for_room()?;
        loop {
            self.hub.drive(&mut self.driver, cx);
            // Point u64::MAX never passes: the lane is only rung.
            let _ = self.hub.space.poll(u64::MAX, &mut self.key, cx);
            if !self.hub.has_space() {
                self.hub.may_block()?;
                return Poll::Pending;
            }
            if let Some(done) = self.push() {
                return Poll::Ready(done);
            }
        }
    }

    /// Returns None if there is still no room.
    fn push(&mut self) -> Option<Result<Pushed>> {
        let pushed = self.hub.try_push(&mut self.job);
        if pushed.as_ref().is_err_and(Error::is_busy) { None } else { Some(pushed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.hub.is_forked() {
            return;
        }
        self.hub.space.forget(&mut self.key);
        self.hub.forget_driver(&mut self.driver);
    }
}
