//! The comparison of collectives: all ranks compare the n-th collective of a world, so no rank gets a value
//! that was made of different operations, and none waits for an operation that others have not begun.
//!
//! A transport may abort if different collectives meet. So a collective whose pair (the one before, this one)
//! is new to this rank is started after the comparison. Another one is started at the same time as its
//! comparison, and ends when both have ended. A small one is its comparison, which carries its values.
//!
//! ```text
//!  its turn ─▶ comparison begins ─▶ the next one has its turn
//!               carried: equal ─▶ ended
//!               new:    equal ─▶ started ─▶ ended            known: started ─▶ ended, and equal
//!                       different ─▶ reports ─▶ the same error on all ranks
//! ```

use std::collections::HashSet;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use super::detached::detach;
use super::engine::{Answer, CheckFuture, Checks, Issued, Issuing};
use super::op::{Op, OpFault, OpFuture};
use super::report::{Report, judge};
use super::turns::{Turn, Turns};
use super::world::Member;
use crate::error::WorldFault;
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

/// What the comparison has carried, if all ranks have begun the same.
type Verdict = Pin<Box<dyn Future<Output = Result<Vec<Vec<u8>>, OpFault>> + Send>>;

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
    pub(super) fn begin(member: &Arc<Member>, checks: Arc<dyn Checks>, report: Report, carried: &[u8]) -> Self {
        let steps = &member.steps;
        let (number, pair, is_known) = {
            let mut state = lock(&steps.state);
            let (number, pair) = (state.next, (state.last, report.hash()));
            (state.next, state.last) = (number + 1, pair.1);
            (number, pair, state.known.contains(&pair))
        };
        let (start, turn) = (Turn::new(&steps.starts, number), Turn::new(&steps.reports, number));
        let is_started = Arc::new(AtomicBool::new(false));
        let asked = checks.compare(pair.1, carried);
        // A world that its rank has left is not kept by a comparison that goes on.
        let member = Arc::downgrade(member);
        let this = Comparison { member, checks, turn, number, is_known, is_started: is_started.clone() };
        Self { start, is_known, verdict: Box::pin(this.verdict(asked, pair, report)), is_started }
    }

    /// Lets the next collective start: this one is its comparison.
    fn into_verdict(self) -> Verdict {
        self.verdict
    }

    /// Waits until all ranks have begun the same.
    pub(super) async fn agreed(self) -> Result<(), OpFault> {
        self.start.come().await;
        self.verdict.await.map(drop)
    }
}

struct Comparison {
    member: Weak<Member>,
    checks: Arc<dyn Checks>,
    turn: Turn,
    number: u64,
    is_known: bool,
    is_started: Arc<AtomicBool>,
}

impl Comparison {
    async fn verdict(self, asked: CheckFuture<Answer>, pair: (u64, u64), mut report: Report) -> Result<Vec<Vec<u8>>, OpFault> {
        if let Answer::Same(carried) = asked.await? {
            if let Some(member) = self.member.upgrade().filter(|_| !self.is_known) {
                member.steps.note(pair);
            }
            return Ok(carried);
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
    pub(super) fn perform(self: &Arc<Self>, op: Op, issued: Issued) -> OpFuture {
        let mut pending = Pending::new(self, &op.name, issued);
        // In a box of its own: the futures around it are moved several times before they are polled.
        Box::pin(async move {
            let ended = pending.carry_out(op).await;
            if let Err(OpFault::World(fault)) = &ended {
                pending.member.broken_by(fault).await;
            }
            pending.end(&ended);
            ended
        })
    }

    /// Breaks the world for the fault of an operation, or for the loss of a rank that is its cause. Ends when
    /// it is broken. It is also broken if this is dropped before.
    pub(super) async fn broken_by(self: &Arc<Self>, fault: &WorldFault) {
        detach(break_after_cause(Arc::downgrade(self), fault.clone()));
        let _ = self.engine.health().watch(pending::<()>()).await;
    }
}

/// An operation that has not ended. Whatever ends it, a world that this rank breaks is broken before the next
/// operation may start.
struct Pending {
    member: Arc<Member>,
    name: Name,
    issuing: Arc<Issuing>,
    /// None once the ranks have agreed, or if they need not.
    verdict: Option<Verdict>,
}

impl Pending {
    fn new(member: &Arc<Member>, name: &Name, issued: Issued) -> Self {
        Self { member: member.clone(), name: name.clone(), issuing: Arc::new(Issuing::new(issued)), verdict: None }
    }

    /// Carries out the operation, once it is its turn.
    async fn carry_out(&mut self, mut op: Op) -> Result<Made, OpFault> {
        #[cfg(feature = "nccl")]
        if op.spec.on_device.is_some() {
            return super::nccl::start(self.member.clone(), op, self.issuing.clone()).await;
        }
        // The encoding is code of the user, which may fail or panic.
        let place = self.member.engine.place();
        op.encode(place)?;
        if op.is_collective()
            && let Some(checks) = self.member.engine.checks()
        {
            let carried = op.carried(place, checks.room());
            let compared = Compared::begin(&self.member, checks, Report::of(&op), carried.as_deref().unwrap_or_default());
            if let Some(own) = carried {
                self.verdict = Some(compared.into_verdict());
                self.issuing.complete();
                let carried = poll_fn(|cx| self.poll_verdict(cx)).await?;
                return Ok(op.combine_carried(place, &own, &carried)?);
            }
            let Compared { start, is_known, verdict, is_started } = compared;
            let start = Arc::new(start);
            self.verdict = Some(verdict);
            // Messages behind it need not wait until all ranks have come to it.
            self.issuing.replace(Box::new(start.clone()));
            start.come().await;
            if !is_known {
                poll_fn(|cx| self.poll_verdict(cx)).await?;
            }
            // ORDERING: Relaxed, as where it is read.
            is_started.store(true, Ordering::Relaxed);
        }
        let (mut work, mut ended) = (self.member.engine.start(op, self.issuing.clone()), Poll::Pending);
        let mut is_agreed = self.note_if_agreed();
        poll_fn(|cx| {
            // Before the comparison, whose poll waits a little for the others: they get the work meanwhile.
            poll_unless_ended(&mut work, &mut ended, cx);
            if !is_agreed {
                ready!(self.poll_verdict(cx))?;
                is_agreed = self.note_if_agreed();
                // It may have waited for this only.
                poll_unless_ended(&mut work, &mut ended, cx);
            }
            // A value is given when all ranks have agreed on how it was made.
            std::mem::replace(&mut ended, Poll::Pending)
        })
        .await
    }

    /// Lets the work of the operation end, if all ranks have agreed or need not. Returns whether they have.
    fn note_if_agreed(&self) -> bool {
        let is_agreed = self.verdict.is_none();
        if is_agreed {
            self.issuing.agree();
        }
        is_agreed
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Vec<u8>>, OpFault>> {
        let Some(verdict) = &mut self.verdict else { return Poll::Ready(Ok(Vec::new())) };
        let Poll::Ready(end) = verdict.as_mut().poll(cx) else { return Poll::Pending };
        self.verdict = None;
        if let Err(OpFault::Value(_)) = &end {
            // No rank starts it.
            self.issuing.complete();
        }
        Poll::Ready(end)
    }

    /// Notes the end of the operation. Breaks the world if other ranks may wait for parts of it.
    fn end(&self, ended: &Result<Made, OpFault>) {
        match ended {
            Err(OpFault::Value(error)) if !self.issuing.is_complete() => self.member.abandon(format!("'{}': {error}", self.name)),
            _ => {}
        }
        self.issuing.complete();
    }
}

fn poll_unless_ended(work: &mut OpFuture, ended: &mut Poll<<OpFuture as Future>::Output>, cx: &mut Context<'_>) {
    if ended.is_pending() {
        *ended = work.as_mut().poll(cx);
    }
}

impl Drop for Pending {
    /// Other ranks wait for what was not issued. If a comparison finds a difference, all ranks report.
    fn drop(&mut self) {
        if self.member.engine.health().fault().is_some() {
            return;
        }
        if !self.issuing.is_complete() {
            let event = if std::thread::panicking() { "panicked" } else { "was dropped" };
            self.member.abandon(format!("'{}' {event} before all of its parts were started", self.name));
        } else if let Some(verdict) = self.verdict.take() {
            // It does not keep a world that its rank leaves.
            let member = Arc::downgrade(&self.member);
            detach(async move {
                if let Err(OpFault::World(fault)) = verdict.await {
                    break_after_cause(member, fault).await;
                }
            });
        }
    }
}

/// Breaks the world of a rank, if the rank still has it. It does not keep the world.
pub(super) async fn break_after_cause(member: Weak<Member>, fault: WorldFault) {
    let Some(cause) = member.upgrade().map(|member| member.engine.cause(&fault)) else { return };
    cause.await;
    if let Some(member) = member.upgrade() {
        member.engine.break_by(fault);
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use futures::channel::oneshot;
    use futures::executor::block_on;
    use futures::future::poll_immediate;

    use super::*;
    use crate::comm::combine;
    use crate::comm::engine::Engine;
    use crate::comm::health::Health;
    use crate::comm::op::{OpFuture, Place};
    use crate::comm::world::World;

    /// An engine whose operations end like this, before they have all parts.
    struct Ends {
        health: Arc<Health>,
        end: fn() -> OpFuture,
        /// The cause of the first fault is known when this comes. Its operation has all parts.
        cause: Mutex<Option<oneshot::Receiver<()>>>,
    }

    impl Engine for Ends {
        fn name(&self) -> &'static str {
            "ends"
        }

        fn place(&self) -> Place {
            Place { rank: 0, size: 2 }
        }

        fn health(&self) -> &Arc<Health> {
            &self.health
        }

        fn start(&self, _: Op, issuing: Arc<Issuing>) -> OpFuture {
            if lock(&self.cause).is_some() {
                issuing.complete();
            }
            (self.end)()
        }

        fn duplicate(&self) -> crate::Result<Box<dyn Engine>> {
            unreachable!("no test makes a further world")
        }

        fn cause(&self, _: &WorldFault) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let cause = lock(&self.cause).take();
            Box::pin(async move {
                if let Some(cause) = cause {
                    let _ = cause.await;
                }
            })
        }

        fn break_by(&self, fault: WorldFault) {
            self.health.break_by(fault);
        }

        fn leave(&self) {}
    }

    /// What waits behind an operation. It notes whether the world is broken when it may start.
    struct Behind(Arc<Health>, Arc<Mutex<Option<bool>>>);

    impl Drop for Behind {
        fn drop(&mut self) {
            *lock(&self.1) = Some(self.0.fault().is_some());
        }
    }

    /// Returns a world whose operations end like this, and an operation.
    fn world(end: fn() -> OpFuture, cause: Option<oneshot::Receiver<()>>) -> (World, Arc<Health>, Op) {
        let health = Arc::<Health>::default();
        let world = World::of(Box::new(Ends { health: health.clone(), end, cause: Mutex::new(cause) }));
        (world, health, Op::new("op".into(), Arc::new(combine::barrier()), combine::nothing(), None))
    }

    /// Polls an operation once, and drops it. Returns its error, and what was behind it found.
    fn perform(end: fn() -> OpFuture) -> (Option<String>, Option<bool>) {
        let ((world, health, op), found) = (world(end, None), Arc::default());
        let ended = block_on(poll_immediate(world.0.perform(op, Box::new(Behind(health.clone(), Arc::clone(&found))))));
        assert!(ended.is_none_or(|ended| ended.is_err()));
        let found = lock(&found).take();
        (health.fault().map(|fault| fault.to_string()), found)
    }

    #[test]
    fn a_fault_breaks_the_world_though_its_operation_is_dropped_before_the_cause_is_known() {
        // Seen to fail when the operation itself waited for the cause.
        let (come, cause) = oneshot::channel();
        let end: fn() -> OpFuture = || Box::pin(async { Err(WorldFault::Transport { what: "it fails".into() }.into()) });
        let (world, health, op) = world(end, Some(cause));
        let ended = block_on(poll_immediate(world.0.perform(op, Box::new(()))));
        assert!(ended.is_none() && health.fault().is_none());
        come.send(()).expect("the fault waits for its cause");
        assert_eq!(health.fault(), Some(WorldFault::Transport { what: "it fails".into() }));
    }

    #[test]
    fn an_operation_that_is_dropped_before_its_first_poll_breaks_the_world() {
        // Seen to fail when it was begun by its first poll.
        let (world, health, op) = world(|| Box::pin(pending()), None);
        drop(world.0.perform(op, Box::new(())));
        let dropped = "rank 0 has abandoned the run: 'op' was dropped before all of its parts were started";
        assert_eq!(health.fault().map(|fault| fault.to_string()).as_deref(), Some(dropped));
    }

    #[test]
    fn what_is_behind_an_operation_that_fails_starts_when_the_world_is_broken() {
        // Seen to fail when the end of an operation let the next one start, and its caller broke the world.
        let (fault, found) = perform(|| Box::pin(async { Err(WorldFault::Transport { what: "it fails".into() }.into()) }));
        assert_eq!((fault.as_deref(), found), (Some("the transport has failed: it fails"), Some(true)));
        let (fault, found) = perform(|| Box::pin(async { Err(OpFault::Value("no value".into())) }));
        assert_eq!((fault.as_deref(), found), (Some("rank 0 has abandoned the run: 'op': no value"), Some(true)));
        let (fault, found) = perform(|| Box::pin(std::future::pending()));
        let dropped = "rank 0 has abandoned the run: 'op' was dropped before all of its parts were started";
        assert_eq!((fault.as_deref(), found), (Some(dropped), Some(true)));
    }
}
