//! The consumer of a run over many items: it polls a source while an iteration is free, begins the items, and
//! takes their results. A result that is not taken keeps its iteration: that is the back-pressure.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::Inputs;
use super::async_nodes::Drive;
use super::flight::Flight;
use super::inner::{COMPLETE, Item, RunInner};
use super::outcomes::cancelled;
use super::pipe::EndedPhases;
use super::port::Port;
use super::state;
use crate::device::host::{Pace, Tickets};
use crate::error::{BoxError, Error, Kind, Result, panic_message};
use crate::plan::{Pipelining, Plan};
use crate::runtime::{Canceller, Core, RunId, WaiterKey, is_inside_work};

/// What the source of the items says: an item, or why there is none.
pub(crate) type Sourced<I> = Poll<Option<Result<I, BoxError>>>;

/// The consumer of a run over many items.
pub(crate) struct Items<P> {
    run: Arc<RunInner>,
    port: P,
    flight: Flight,
    /// The number of items that have begun.
    begun: u64,
    /// The iterations of those that come next: they have their items, and have not begun.
    filled: Range<u32>,
    has_ended: bool,
    /// Whether a drain has ended it, and not the source.
    was_cut: bool,
    /// Whether it is part of other work, which a drain lets end.
    is_inner: bool,
    has_workers: bool,
    key: WaiterKey,
    pace: Pace,
    ready: Tickets,
    ended: EndedPhases,
    is_over: bool,
}

impl<P: Port> Items<P> {
    pub(crate) fn new(core: &Arc<Core>, plan: &Plan, pipelining: Arc<Pipelining>, port: P, is_ordered: bool) -> Self {
        Self::of(core, plan, pipelining, port, is_ordered, false)
    }

    /// Returns the consumer of a run that a node of another run awaits.
    pub(crate) fn nested(core: &Arc<Core>, plan: &Plan, pipelining: Arc<Pipelining>, port: P) -> Self {
        Self::of(core, plan, pipelining, port, true, true)
    }

    fn of(core: &Arc<Core>, plan: &Plan, pipelining: Arc<Pipelining>, port: P, is_ordered: bool, is_nested: bool) -> Self {
        let slots = pipelining.slots;
        Self {
            run: RunInner::of(core, plan, Some(pipelining), Inputs::new(), is_nested),
            port,
            flight: Flight::new(slots, is_ordered),
            begun: 0,
            filled: 0..0,
            has_ended: false,
            was_cut: false,
            is_inner: is_nested,
            has_workers: core.pool.is_some(),
            key: WaiterKey::default(),
            pace: Pace::new(),
            ready: Tickets::new(),
            ended: EndedPhases::new(),
            is_over: false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn id(&self) -> RunId {
        self.run.id.get()
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Canceller::new(Arc::downgrade(&self.run) as Weak<RunInner>)
    }

    pub(crate) fn cancel(&self) {
        self.run.cancel(0);
    }

    /// Returns the next result; None after the last.
    #[inline]
    pub(crate) fn poll_next<F>(&mut self, cx: &mut Context<'_>, source: F) -> Poll<Option<Result<P::Output>>>
    where
        F: FnMut(&mut Context<'_>) -> Sourced<P::Item>,
    {
        // Without workers, results of the last poll are taken without looking at anything else.
        if !self.has_workers
            && !self.is_over
            && let Some(result) = self.take()
        {
            return Poll::Ready(Some(result));
        }
        self.poll_run(cx, source)
    }

    /// Does so when no result is known to be there.
    #[inline(never)]
    fn poll_run<F>(&mut self, cx: &mut Context<'_>, source: F) -> Poll<Option<Result<P::Output>>>
    where
        F: FnMut(&mut Context<'_>) -> Sourced<P::Item>,
    {
        if self.is_over {
            return Poll::Ready(None);
        }
        // A task that awaits one result after the other would otherwise never come to a pending poll.
        #[cfg(feature = "tokio")]
        let budget = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        let polled = match self.poll_start(cx) {
            Poll::Ready(Ok(())) => self.advance(cx, source),
            // Another thread may have had any lock when this process was forked.
            Poll::Ready(Err(error)) if self.run.core.is_forked() => {
                self.is_over = true;
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(Err(error)) => self.end(Some(error)),
            Poll::Pending => self.pending(),
        };
        #[cfg(feature = "tokio")]
        if polled.is_ready() {
            budget.made_progress();
        }
        polled
    }

    /// Starts the run, once there is room for it.
    #[inline]
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let run = &self.run;
        if run.is_complete() {
            // Cancelled, or refused. Items that are done are taken all the same.
            return Poll::Ready(if self.flight.len() == 0 { Err(run.why_over()) } else { Ok(()) });
        }
        run.core.check_process()?;
        if run.live.get().is_some() {
            return Poll::Ready(Ok(()));
        }
        self.is_inner |= is_inside_work();
        let run = &self.run;
        if run.start().is_pending() {
            // Admission rings the lane when there is room. After the registration, try again.
            let polled = run.lane.poll(COMPLETE, &mut self.key, cx);
            if polled.is_pending() && run.start().is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(if run.is_complete() { Err(run.why_over()) } else { Ok(()) })
    }

    fn advance<F>(&mut self, cx: &mut Context<'_>, mut source: F) -> Poll<Option<Result<P::Output>>>
    where
        F: FnMut(&mut Context<'_>) -> Sourced<P::Item>,
    {
        let is_beside = self.run.has_cheap_items();
        loop {
            if self.is_cancelled() {
                // The cancel may have come before there was anything to close.
                self.run.close();
            }
            if let Some(result) = self.take() {
                if self.has_workers && !is_beside && !self.is_over {
                    self.fill(cx, &mut source);
                    self.submit();
                }
                return Poll::Ready(Some(result));
            }
            self.fill(cx, &mut source);
            if is_beside && !self.ready.is_empty() {
                self.run.run_beside(&mut self.pace, &mut self.ready);
            }
            self.submit();
            if self.flight.len() == 0 {
                if self.has_ended {
                    return self.end(self.was_cut.then(|| Kind::Draining.into()));
                }
                // A cancel and a drain ring the lane. The source has this task's waker.
                if self.run.lane.poll(COMPLETE, &mut self.key, cx).is_ready() {
                    return self.end(Some(self.run.why_over()));
                }
                // The drain may have come before the registration.
                if self.is_cut() && !self.is_cancelled() {
                    continue;
                }
                if self.is_cancelled() {
                    self.run.close();
                    // Otherwise another thread ends the run, and signals the lane.
                    if self.run.is_complete() {
                        continue;
                    }
                }
                return self.pending();
            }
            let ready = &mut self.ready;
            let drive = self.run.drive_with(&mut self.pace, |driver| {
                // Most often it is one ticket.
                while let Some(ticket) = ready.pop() {
                    driver.push(ticket);
                }
            });
            if self.done().is_some() {
                continue;
            }
            self.run.pipe().expect("the run has begun").await_item(self.flight.awaited());
            let polled = self.run.lane.poll(COMPLETE, &mut self.key, cx);
            if polled.is_ready() || self.done().is_some() {
                continue;
            }
            if !self.has_ended && self.flight.room() > 0 && self.is_cut() && !self.is_cancelled() {
                continue;
            }
            if drive == Drive::More || drive == Drive::Done && self.run.has_woken() {
                self.run.lane.ring();
            }
            return self.pending();
        }
    }

    /// Returns whether a drain ends it: a source may have no end.
    fn is_cut(&self) -> bool {
        !self.is_inner && self.run.core.is_draining()
    }

    #[inline]
    fn is_cancelled(&self) -> bool {
        self.run.state.glance() & state::CANCELLED != 0
    }

    /// Returns the item that is done and comes next.
    #[inline]
    fn done(&self) -> Option<Item<'_>> {
        let first = self.run.first()?;
        self.flight.next(|number| Some(first.iteration(number)).filter(|item| item.is_done()))
    }

    /// Takes the next result, if it is there.
    #[inline(always)]
    fn take(&mut self) -> Option<Result<P::Output>> {
        let Some(item) = self.done() else { return self.take_loss() };
        let number = item.at.number;
        if item.is_marked() {
            self.flight.end(number);
            return Some(self.take_failed(number));
        }
        // SAFETY: the item is done, and the next one in its iteration begins after this.
        let taken = unsafe { self.port.take(item) };
        self.flight.end(number);
        Some(Ok(taken))
    }

    /// Takes an error instead of a result that does not come, because nothing ends any more.
    fn take_loss(&mut self) -> Option<Result<P::Output>> {
        let is_lost = self.flight.len() > 0 && self.run.is_complete();
        self.is_over |= is_lost;
        is_lost.then(|| Err(self.run.why_over()))
    }

    /// Takes the failure of a done item.
    #[cold]
    fn take_failed(&mut self, iteration: u32) -> Result<P::Output> {
        let item = self.run.item(iteration);
        let failure = item.failure();
        // SAFETY: the item is done, and the next one in its iteration begins after this.
        unsafe { self.port.discard(item) };
        item.forget_failure();
        let is_of_run = failure.is_cancelled() || failure.is_shut_down();
        // A cancel is of no item: it ends the stream. A node that awaits the run goes on until all items have
        // ended.
        self.is_over = is_of_run && !self.run.is_nested;
        Err(if is_of_run { failure } else { failure.in_item(item.number()) })
    }

    /// Begins items while an iteration is free and the source has some.
    #[inline]
    fn fill<F>(&mut self, cx: &mut Context<'_>, source: &mut F)
    where
        F: FnMut(&mut Context<'_>) -> Sourced<P::Item>,
    {
        let (room, begun) = (self.flight.room(), self.begun);
        if self.has_ended || room == 0 || !self.run.reserve_items(room) {
            return;
        }
        // The source is foreign code, and is not polled again after a panic.
        let filled = catch_unwind(AssertUnwindSafe(|| match self.is_cut() {
            true => (self.has_ended, self.was_cut) = (true, true),
            false => self.fill_room(cx, source),
        }));
        self.begin_filled();
        if let Err(panic) = filled {
            self.begin_failed(Kind::SourcePanicked { message: panic_message(panic) }.into());
            self.has_ended = true;
        }
        if self.has_ended {
            let (ready, ended) = (&mut self.ready, &mut self.ended);
            self.run.end_items(ended, &mut |ticket| ready.push(ticket));
        }
        self.run.release_items(room - (self.begun - begun) as u32);
    }

    /// Puts items into the free iterations.
    #[inline]
    fn fill_room<F>(&mut self, cx: &mut Context<'_>, source: &mut F)
    where
        F: FnMut(&mut Context<'_>) -> Sourced<P::Item>,
    {
        while let Some(iteration) = self.flight.free() {
            if self.is_cancelled() {
                return;
            }
            let sourced = match source(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => return self.has_ended = true,
                Poll::Ready(Some(Ok(item))) => self.fill_iteration(iteration, item),
                Poll::Ready(Some(Err(error))) => Err(Error::with_source(Kind::SourceFailed, error)),
            };
            match sourced {
                Ok(()) => self.add_filled(iteration),
                Err(failure) => self.begin_failed(failure),
            }
        }
    }

    /// Puts an item into a free iteration.
    #[inline]
    fn fill_iteration(&self, iteration: u32, value: P::Item) -> Result<()> {
        let item = self.run.item(iteration);
        self.port.fill(item.plan(), &item.at.frame, value)?;
        item.begin(self.begun + u64::from(self.filled.end - self.filled.start), false);
        Ok(())
    }

    #[inline]
    fn add_filled(&mut self, iteration: u32) {
        if self.filled.end != iteration {
            self.begin_filled();
            self.filled = iteration..iteration;
        }
        self.filled.end += 1;
        self.flight.begin();
    }

    /// Begins the items that are filled.
    #[inline]
    fn begin_filled(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        self.begin(filled, false);
    }

    /// Begins a failure that stands in the place of an item.
    #[cold]
    fn begin_failed(&mut self, failure: Error) {
        self.begin_filled();
        if let Some(iteration) = self.flight.free() {
            let item = self.run.item(iteration);
            item.add_fault(None, failure);
            item.begin(self.begun, true);
            self.flight.begin();
            self.begin(iteration..iteration + 1, true);
        }
    }

    #[inline]
    fn begin(&mut self, iterations: Range<u32>, is_empty: bool) {
        let ready = &mut self.ready;
        let count = u64::from(iterations.end - iterations.start);
        let add = &mut |ticket| ready.push(ticket);
        if count > 0 && self.run.begin_items(iterations, is_empty, &mut self.ended, add) {
            self.begun += count;
        }
    }

    /// Gives the programs that are ready to the workers, if there are any.
    #[inline]
    fn submit(&mut self) {
        if let Some(pool) = &self.run.core.pool {
            self.ready.drain(..).for_each(|ticket| pool.submit(ticket));
        }
    }

    /// Ends the stream, with an error or without.
    fn end(&mut self, error: Option<Error>) -> Poll<Option<Result<P::Output>>> {
        self.is_over = true;
        self.run.lane.forget(&mut self.key);
        self.run.close();
        Poll::Ready(error.map(Err))
    }

    /// Returns what a pending poll does. Inside of a body that the run needs, that is an error.
    fn pending(&self) -> Poll<Option<Result<P::Output>>> {
        self.run.pending().map(Some)
    }
}

impl RunInner {
    /// Returns why a run over items that is complete, or cancelled, has no further result.
    fn why_over(&self) -> Error {
        self.verdict().err().unwrap_or_else(|| cancelled(self.state.glance()))
    }
}

impl Item<'_> {
    /// Returns why a done item has no results.
    fn failure(self) -> Error {
        self.result().err().unwrap_or_else(|| cancelled(self.run.state.glance()))
    }
}

impl<P> fmt::Debug for Items<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items")
            .field("in_flight", &self.flight.len())
            .field("max_in_flight", &self.run.pipelining().slots)
            .field("has_ended", &self.has_ended)
            .finish()
    }
}

impl<P> Drop for Items<P> {
    fn drop(&mut self) {
        let run = &self.run;
        if run.core.is_forked() {
            return std::mem::forget(run.clone());
        }
        run.lane.forget(&mut self.key);
        if !self.has_ended || self.flight.len() > 0 {
            run.cancel(0);
        }
        // Also after a cancel from elsewhere, which may have come before there was anything to close.
        run.close();
        // Not cancelled, if all items have ended: a worker may still be leaving the run.
        run.keep_until_complete();
    }
}
