//! The push of an operation: done when there is room for it.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::handle::Pushed;
use super::hub::Hub;
use super::op::Job;
use crate::bridge::WaiterKey;
use crate::error::{Kind, Result};

/// Pushes an operation; made by [`Engine::push`].
#[must_use = "where there is no room the operation is pushed only if this is awaited"]
pub struct Push<'v> {
    state: PushState<'v>,
    /// Not 0 if it was run where it lay, without a mistake: then there is nothing else to know. A word, and behind the rest, because this is read as soon as all was moved, and a byte that was
    /// written cannot be had from a load of sixteen: without workers that is a fifth of what an operation takes.
    has_run: usize,
}

enum PushState<'v> {
    Tried(Result<Pushed>),
    Waits(Box<Waiting<'v>>),
    Told,
}

/// An operation for which there was no room.
struct Waiting<'v> {
    hub: &'v Arc<Hub>,
    job: Option<Job>,
    /// How many it is joined with at most.
    joined_max: usize,
    key: WaiterKey,
    driver: WaiterKey,
}

impl Future for Push<'_> {
    type Output = Result<Pushed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pushed>> {
        if mem::take(&mut self.has_run) != 0 {
            return Poll::Ready(Ok(Pushed::ended(Ok(()))));
        }
        if let PushState::Waits(waiting) = &mut self.state {
            self.state = PushState::Tried(ready!(waiting.poll(cx)));
        }
        match mem::replace(&mut self.state, PushState::Told) {
            PushState::Tried(pushed) => Poll::Ready(pushed),
            _ => Poll::Ready(Err(Kind::Spent.into())),
        }
    }
}

impl<'v> Push<'v> {
    /// Pushes an operation, joined with so many at most, unless there is no room.
    #[inline]
    pub(super) fn new(hub: &'v Arc<Hub>, job: &mut Option<Job>, joined_max: usize) -> Self {
        match hub.run_now(job) {
            Some(Ok(Ok(()))) => Self { state: PushState::Told, has_run: 1 },
            Some(outcome) => Self { state: PushState::Tried(outcome.map(Pushed::ended)), has_run: 0 },
            None => Self::try_or_wait(hub, job, joined_max),
        }
    }

    #[inline(never)]
    fn try_or_wait(hub: &'v Arc<Hub>, job: &mut Option<Job>, joined_max: usize) -> Self {
        let state = match hub.try_join(joined_max, job) {
            Err(error) if error.is_busy() => PushState::Waits(Box::new(Waiting {
                hub,
                job: job.take(),
                joined_max,
                key: WaiterKey::default(),
                driver: WaiterKey::default(),
            })),
            tried => PushState::Tried(tried),
        };
        Self { state, has_run: 0 }
    }
}

impl Waiting<'_> {
    #[inline(never)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Pushed>> {
        let Self { hub, job, joined_max, key, driver } = self;
        hub.may_wait_for_all()?;
        loop {
            hub.drive(driver, cx);
            // Point u64::MAX never passes: the lane is only rung.
            let _ = hub.space.poll(u64::MAX, key, cx);
            if !hub.has_space() {
                return Poll::Pending;
            }
            match hub.try_join(*joined_max, job) {
                Err(error) if error.is_busy() => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hub.space.forget(&mut self.key);
        self.hub.forget_driver(&mut self.driver);
    }
}
