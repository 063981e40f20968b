//! The comparison of collectives: all ranks compare the n-th collective of a world, so no rank gets a value
//! that was made of different operations, and none waits for an operation that others have not begun.
//!
//! A transport may abort if different collectives meet. So a collective whose pair (the one before, this one)
//! is new to this rank is started after the comparison. Another one is started at the same time as its
//! comparison, and ends when both have ended.
//!
//! ```text
//!  its turn ─▶ comparison begins ─▶ the next one has its turn
//!               new:    equal ─▶ started ─▶ ended            known: started ─▶ ended, and equal
//!                       different ─▶ reports ─▶ the same error on all ranks
//! ```

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::detached::detach;
use super::engine::{CheckFuture, Checks, Issued};
use super::op::{Op, OpFault};
use super::report::{Report, judge};
use super::turns::{Turn, Turns};
use super::world::Member;
use crate::graph::Made;
use crate::name::Name;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The most pairs that are known. Then they are forgotten: that costs time only.
const KNOWN_MAX: usize = 4096;

/// The collectives of one rank, as it compares them.
#[derive(Default)]
pub(crate) struct Steps {
    state: Mutex<State>,
    /// The order of their starts. It is that of their comparisons.
    starts: Arc<Turns>,
    /// The order of the reports on comparisons that have found a difference.
    reports: Arc<Turns>,
}

#[derive(Default)]
struct State {
    /// The number of the next collective.
    next: u64,
    /// The hash of the last one.
    last: u64,
    /// The pairs of successive collectives that were equal on all ranks.
    known: HashSet<(u64, u64)>,
}

type Verdict = Pin<Box<dyn Future<Output = Result<(), OpFault>> + Send>>;

/// A collective whose comparison has begun.
pub(super) struct Compared {
    start: Turn,
    is_known: bool,
    verdict: Verdict,
    /// Whether it is started on this rank.
    is_started: Arc<AtomicBool>,
}

impl Compared {
    /// Begins the comparison of this rank's next collective. The caller has the turn.
    pub(super) fn begin(member: &Arc<Member>, checks: Arc<dyn Checks>, report: Report) -> Self {
        let steps = &member.steps;
        let (number, pair, is_known) = {
            let mut state = lock(&steps.state);
            let (number, pair) = (state.next, (state.last, report.hash()));
            (state.next, state.last) = (number + 1, pair.1);
            (number, pair, state.known.contains(&pair))
        };
        let (start, turn) = (Turn::new(&steps.starts, number), Turn::new(&steps.reports, number));
        let is_started = Arc::new(AtomicBool::new(false));
        let asked = checks.compare(pair.1);
        // A world that its rank has left is not kept by a comparison that goes on.
        let this = Comparison { member: Arc::downgrade(member), checks, turn, number, is_started: is_started.clone() };
        Self { start, is_known, verdict: Box::pin(this.verdict(asked, pair, report)), is_started }
    }

    /// Waits until all ranks have begun the same.
    pub(super) async fn agreed(self) -> Result<(), OpFault> {
        self.start.come().await;
        self.verdict.await
    }
}

struct Comparison {
    member: Weak<Member>,
    checks: Arc<dyn Checks>,
    turn: Turn,
    number: u64,
    is_started: Arc<AtomicBool>,
}

impl Comparison {
    async fn verdict(self, asked: CheckFuture<bool>, pair: (u64, u64), mut report: Report) -> Result<(), OpFault> {
        if asked.await? {
            if let Some(member) = self.member.upgrade() {
                member.steps.note(pair);
            }
            return Ok(());
        }
        self.turn.come().await;
        // ORDERING: Relaxed: the flag tells nothing else. A start that comes later is not made: its world is
        // broken.
        report.is_started = self.is_started.load(Ordering::Relaxed);
        let fault = judge(self.number, &*self.checks, report).await?;
        if let (OpFault::World(fault), Some(member)) = (&fault, self.member.upgrade()) {
            member.engine.break_by(fault.clone());
        }
        Err(fault)
    }
}

impl Steps {
    fn note(&self, pair: (u64, u64)) {
        let mut state = lock(&self.state);
        if state.known.len() >= KNOWN_MAX {
            state.known.clear();
        }
        state.known.insert(pair);
    }
}

impl Member {
    /// Performs an operation whose turn it is. Drops `issued` when the next one may have its turn.
    pub(super) async fn perform(self: &Arc<Self>, op: Op, issued: Issued) -> Result<Made, OpFault> {
        #[cfg(feature = "nccl")]
        if op.spec.on_device.is_some() {
            return super::nccl::start(self.clone(), op, issued).await;
        }
        let checks = self.engine.checks().filter(|_| op.is_collective());
        let Some(checks) = checks else { return self.issue(op, issued, None).await };
        // The report calls code of the user, which may panic.
        let mut pending = Pending::new(self, &op.name, None);
        let report = Report::of(&op);
        let Compared { start, is_known, verdict, is_started } = Compared::begin(self, checks, report);
        pending.verdict = Some(verdict);
        // Messages behind it need not wait until all ranks have come to it.
        drop(issued);
        start.come().await;
        if !is_known {
            poll_fn(|cx| pending.poll_verdict(cx)).await?;
        }
        // ORDERING: Relaxed, as where it is read.
        is_started.store(true, Ordering::Relaxed);
        self.issue(op, Box::new(start), Some(pending)).await
    }

    /// Lets the engine perform an operation. If it is dropped before the engine has all parts of it, the
    /// world breaks.
    async fn issue(self: &Arc<Self>, op: Op, issued: Issued, pending: Option<Pending>) -> Result<Made, OpFault> {
        let mut pending = pending.unwrap_or_else(|| Pending::new(self, &op.name, None));
        let issued = Flagged { _issued: issued, flag: pending.is_issued.clone() };
        // Declared behind `pending`, so dropped before it: an engine that has not all parts breaks the world.
        let mut work = self.engine.start(op, Box::new(issued));
        let mut ended = None;
        poll_fn(|cx| {
            if ended.is_none()
                && let Poll::Ready(end) = work.as_mut().poll(cx)
            {
                ended = Some(end);
            }
            match pending.poll_verdict(cx) {
                Poll::Ready(Err(fault)) => Poll::Ready(Err(fault)),
                Poll::Ready(Ok(())) => ended.take().map_or(Poll::Pending, Poll::Ready),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// Dropped when the engine has all parts of an operation. It notes that in the flag.
struct Flagged {
    _issued: Issued,
    flag: Arc<AtomicBool>,
}

impl Drop for Flagged {
    fn drop(&mut self) {
        // ORDERING: Relaxed: the flag is read by the task that polls and drops the operation, and the drop is
        // that of a poll.
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// An operation that has not ended.
struct Pending {
    member: Arc<Member>,
    name: Name,
    /// None once the ranks have agreed, or if they need not.
    verdict: Option<Verdict>,
    is_issued: Arc<AtomicBool>,
    has_failed: bool,
}

impl Pending {
    fn new(member: &Arc<Member>, name: &Name, verdict: Option<Verdict>) -> Self {
        let is_issued = Arc::new(AtomicBool::new(false));
        Self { member: member.clone(), name: name.clone(), verdict, is_issued, has_failed: false }
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OpFault>> {
        let Some(verdict) = &mut self.verdict else { return Poll::Ready(Ok(())) };
        let Poll::Ready(end) = verdict.as_mut().poll(cx) else { return Poll::Pending };
        self.verdict = None;
        self.has_failed = end.is_err();
        Poll::Ready(end)
    }
}

impl Drop for Pending {
    /// Other ranks wait for what was not issued. If a comparison finds a difference, all ranks report.
    fn drop(&mut self) {
        // ORDERING: Relaxed, as where it is written.
        let is_issued = self.is_issued.load(Ordering::Relaxed);
        if self.has_failed || self.member.engine.health().fault().is_some() {
            return;
        }
        if !is_issued {
            self.member.abandon(format!("'{}' was dropped before it was started", self.name));
        } else if let Some(verdict) = self.verdict.take() {
            // It does not keep a world that its rank leaves.
            let member = Arc::downgrade(&self.member);
            detach(async move {
                if let (Err(OpFault::World(fault)), Some(member)) = (verdict.await, member.upgrade()) {
                    member.engine.break_by(fault);
                }
            });
        }
    }
}
