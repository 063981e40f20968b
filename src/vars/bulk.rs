//! Bulks: operations that stand in queues, and are run, as one.
//!
//! An engine has at most one bulk that is open. Operations that are pushed into it are collected here, and
//! stand in no queue yet; whatever else is pushed, read or awaited closes it first, so that nobody sees
//! another order than that of pushing. Who closes it keeps the lock until the joined operation stands in its
//! queues.

use std::fmt;
use std::future::Future;
use std::mem::{self, ManuallyDrop};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::behind::Key;
use super::body::{Ran, Work};
use super::engine::Engine;
use super::hand::Hand;
use super::handle::Pushed;
use super::home::Home;
use super::hub::{Hub, NOWHERE};
use super::op::{Job, Op, Uses};
use super::pace::JOINS;
use super::push::Push;
use super::queue::REQUESTS_MAX;
use super::uses::SCANNED;
use super::within;
use crate::bridge::{Lane, shielded};
use crate::error::{BoxError, Error, Kind, Result};
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};

/// Joins consecutive operations into one; made by [`Engine::bulk`].
///
/// An operation costs the more, the less it does: it is put into the queues of its variables and taken out
/// again, and a worker comes for it. Joined operations share that. They stand in the queues of all variables
/// that any of them uses, so none begins before all could; each is run, fails and counts on its own.
///
/// The bulk goes to its end, and the next begins, when it has as many operations as it was made for; when an
/// operation is pushed that cannot be joined (one that is a future, or has another priority) or that is
/// pushed elsewhere on the engine; when a variable is read or dropped, [`Engine::idle`] or the handle of one
/// of its operations is awaited; and when this is dropped.
///
/// The failures of a bulk's operations are kept as long as any of its handles: [`Engine::idle`] tells what
/// nobody was told of them when the last is gone.
///
/// What stands ahead of one operation of a bulk must not wait for another one, as that waits for the first.
///
/// # Examples
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let x = engine.var("x", 0);
/// let mut bulk = engine.bulk(100);
/// for _ in 0..1000 {
///     drop(bulk.push(Op::task("add", &x, &x, |x: &i32| x + 1)).await?);
/// }
/// bulk.end();
/// assert_eq!(*x.read().await?, 1000);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "it joins what is pushed into it"]
pub struct Bulk<'e> {
    engine: &'e Engine,
    operations: usize,
}

impl<'e> Bulk<'e> {
    pub(super) fn new(engine: &'e Engine, operations: usize) -> Self {
        Self { engine, operations }
    }

    /// Pushes an operation, as [`Engine::push`], to be joined with its neighbours. Without workers, where
    /// everything is run as it is pushed, nothing is joined.
    ///
    /// # Errors
    /// As [`Engine::push`].
    ///
    /// # Cancellation
    /// As [`Engine::push`].
    #[inline]
    pub fn push<'v>(&'v mut self, op: Op<'v>) -> Join<'v> {
        // It is taken out in any case.
        let (hub, mut op) = (&self.engine.hub, ManuallyDrop::new(op));
        Join(match hub.try_join(self.operations, &mut op.job) {
            Ok(Some(part)) => Joining::Joined(Some(part)),
            Ok(None) => Joining::Alone(Push::new(hub, &mut op.job)),
            Err(refused) => Joining::Alone(Push::refused(refused, hub, &mut op.job, self.operations)),
        })
    }

    /// Ends it, as its drop does.
    pub fn end(self) {}
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        if !self.engine.hub.is_forked() {
            self.engine.hub.close_bulk();
        }
    }
}

impl fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk").field("operations", &self.operations).finish()
    }
}

/// Pushes an operation into a bulk; made by [`Bulk::push`].
#[must_use = "where there is no room the operation is pushed only if this is awaited"]
pub struct Join<'v>(Joining<'v>);

enum Joining<'v> {
    /// None once it was told.
    Joined(Option<(Arc<Ends>, u32)>),
    Alone(Push<'v>),
}

impl Future for Join<'_> {
    type Output = Result<Pushed>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Pushed>> {
        match &mut self.0 {
            Joining::Joined(part) => {
                if let Some((ends, number)) = part
                    && number.is_multiple_of(JOINS)
                {
                    let keeper = ends.home.keeper();
                    ready!(ends.home.hub(&keeper).pace.poll_unit(cx));
                }
                let part = part.take().ok_or_else(|| Kind::Spent.into())?;
                Poll::Ready(Ok(Pushed::part(part.0, part.1)))
            }
            Joining::Alone(push) => Pin::new(push).poll(cx),
        }
    }
}

/// The open bulk of an engine.
#[derive(Default)]
pub(super) struct Open {
    parts: Mutex<Parts>,
    /// Whether there are any. Changes under the lock.
    is_open: AtomicBool,
    /// Where operations were collected, to be used again: what one thread allocates and another frees costs
    /// more than what a small operation does.
    spare: Mutex<Vec<Vec<Job>>>,
}

/// How many are kept, and for how many operations each has room, at most.
const SPARE_MAX: usize = 64;
const ROOM_MAX: usize = 128;

/// Operations that are collected.
#[derive(Default)]
struct Parts {
    jobs: Vec<Job>,
    /// What they use; a variable may be there more than once.
    uses: Uses,
    ends: Option<Arc<Ends>>,
}

impl Parts {
    /// Returns true if an operation can be joined with those that are there.
    fn go_with(&self, job: &Job) -> bool {
        let is_alike = self.jobs.first().is_none_or(|first| first.priority == job.priority);
        is_alike && self.uses.len() + job.asked.len() <= REQUESTS_MAX
    }

    fn add(&mut self, hub: &Arc<Hub>, most: usize, job: &mut Option<Job>) -> (Arc<Ends>, u32) {
        if self.jobs.capacity() == 0 {
            self.jobs = lock(&hub.bulk.spare).pop().unwrap_or_else(|| Vec::with_capacity(most.min(ROOM_MAX)));
        }
        for asked in job.iter().flat_map(|job| &job.asked) {
            let known = self.uses.len().saturating_sub(SCANNED);
            match self.uses[known..].iter_mut().find(|known| known.address() == asked.address()) {
                Some(known) => drop(known.add_all(asked)),
                None => self.uses.push(asked.again()),
            }
        }
        let ends = self.ends.get_or_insert_with(|| Arc::new(Ends::new(hub))).clone();
        let part = self.jobs.len() as u32;
        self.jobs.extend(job.take());
        (ends, part)
    }
}

/// What the handles of a bulk's operations wait for, and what they are to be told.
pub(super) struct Ends {
    pub(super) home: Home,
    /// At point 1, all have ended.
    pub(super) lane: Lane,
    /// The operation that they were joined to, from when it stands in its queues.
    pub(super) joined: OnceLock<Key>,
    failures: Mutex<Vec<(u32, Error)>>,
}

impl Ends {
    fn new(hub: &Arc<Hub>) -> Self {
        Self { home: Home::of(hub), lane: Lane::new(), joined: OnceLock::new(), failures: Mutex::default() }
    }

    /// Returns what became of an operation, once all have ended.
    pub(super) fn outcome(&self, part: u32) -> Result<()> {
        let failures = lock(&self.failures);
        let failure = failures.iter().find(|(failed, _)| *failed == part);
        failure.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

/// What a joined operation does: one after the other.
struct Joined {
    jobs: Vec<Job>,
    ends: Arc<Ends>,
}

impl Work for Joined {
    unsafe fn run(mut self) -> Result<Ran, BoxError> {
        // The caller holds the engine, so it is there.
        let keeper = self.ends.home.keeper();
        let hub = self.ends.home.hub(&keeper);
        for (part, job) in self.jobs.iter().enumerate() {
            // All that the joined operation asked for was granted, and each of its parts has asked for less.
            if let Err(error) = hub.perform(job, NOWHERE) {
                lock(&self.ends.failures).push((part as u32, error));
            }
        }
        self.jobs.clear();
        Ok(Ran::Over)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Left are those that were not run, because nobody is there to run them.
        let undone = (0..self.jobs.len() as u32).map(|part| (part, Kind::ShutDown.into()));
        lock(&self.ends.failures).extend(undone);
        self.ends.lane.signal(1);
        let mut jobs = mem::take(&mut self.jobs);
        jobs.drain(..).for_each(|job| _ = shielded(|| drop(job)));
        self.ends.home.with(|hub| {
            let mut spare = lock(&hub.bulk.spare);
            if spare.len() < SPARE_MAX && jobs.capacity() <= ROOM_MAX {
                spare.push(jobs);
            }
        });
    }
}

impl Hub {
    /// Joins an operation with those of the open bulk, and returns where it will be told what became of it.
    /// None if it cannot be joined. It is left there if not, and if there is a mistake in it, or no room for
    /// another bulk.
    pub(super) fn try_join(self: &Arc<Self>, most: usize, job: &mut Option<Job>) -> Result<Option<(Arc<Ends>, u32)>> {
        let is_joined = job.as_ref().is_some_and(Job::may_be_joined);
        if most < 2 || !is_joined || self.is_inline() || within::is_polling(self.address()) {
            return Ok(None);
        }
        if let Some(fault) = job.as_ref().and_then(|job| self.fault(job)) {
            return Err(fault);
        }
        let mut hand = Hand::new(self);
        let joined = self.join(most, job, &mut hand);
        hand.give_back();
        self.start(&mut hand);
        joined.map(Some).ok_or_else(|| self.is_full())
    }

    fn join(self: &Arc<Self>, most: usize, job: &mut Option<Job>, hand: &mut Hand<'_>) -> Option<(Arc<Ends>, u32)> {
        let mut parts = lock(&self.bulk.parts);
        if job.as_ref().is_some_and(|job| !parts.go_with(job)) {
            self.close(&mut parts, hand);
        }
        if parts.jobs.is_empty() && !self.has_space() {
            return None;
        }
        let part = parts.add(self, most, job);
        // ORDERING: Relaxed: who is to see it has heard of this push.
        self.bulk.is_open.store(true, Ordering::Relaxed);
        if parts.jobs.len() >= most {
            self.close(&mut parts, hand);
        }
        Some(part)
    }

    /// Pushes the open bulk, if there is one.
    #[inline(always)]
    pub(super) fn close_bulk(self: &Arc<Self>) {
        // ORDERING: Acquire: who finds that it was closed finds the queues as that has left them.
        if self.bulk.is_open.load(Ordering::Acquire) {
            self.close_open_bulk();
        }
    }

    #[inline(never)]
    fn close_open_bulk(self: &Arc<Self>) {
        let mut hand = Hand::new(self);
        self.close(&mut lock(&self.bulk.parts), &mut hand);
        hand.give_back();
        self.start(&mut hand);
    }

    /// Has what was collected enter its queues, as one.
    fn close(self: &Arc<Self>, parts: &mut Parts, hand: &mut Hand<'_>) {
        let Parts { jobs, uses, ends } = mem::take(parts);
        if let Some(ends) = ends {
            let priority = jobs.first().map_or(0, |job| job.priority);
            // However many are pending: there was room when it was begun.
            let joined = Joined { jobs, ends: ends.clone() };
            if let Some(handled) = self.enter_new(usize::MAX, &mut Some(Job::joining(uses, priority, joined)), hand) {
                let _ = ends.joined.set(handled.key());
                drop(Pushed::pending(self.clone(), handled));
            }
        }
        // ORDERING: Release: as in `close_bulk`.
        self.bulk.is_open.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use super::*;
    use crate::Executor;
    use futures::executor::block_on;

    /// Seen to fail with buffers that are not given back, and with those of any size.
    #[test]
    fn buffers_are_used_again_unless_they_are_large() {
        let engine = Engine::new(&Executor::builder().workers(1).build().expect("a thread starts")).expect("there is room");
        let x = engine.var("x", 0);
        for (operations, kept) in [(2, 1), (100, 1), (1000, 0), (10, 1)] {
            for _ in 0..3 {
                let mut bulk = engine.bulk(operations);
                for _ in 0..operations {
                    drop(block_on(bulk.push(Op::task("add", &x, &x, |x: &u32| x + 1))).expect("there is room"));
                }
                bulk.end();
                block_on(engine.idle()).expect("nothing fails");
                assert_eq!(lock(&engine.hub.bulk.spare).len(), kept, "after {operations}");
            }
        }
        assert_eq!(block_on(x.read()).map(|x| *x).ok(), Some(3 * 1112));
    }
}
