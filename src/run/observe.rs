//! What observers are told of a run, its items and its nodes.

use std::time::Instant;

use smallvec::SmallVec;

use super::inner::{Item, RunInner};
use super::outcomes::outcome;
use super::state;
use super::times::{ObservedRun, SubmittedNode, Times};
use crate::error::Result;
use crate::graph::NodeId;
use crate::name::Name;
use crate::plan::code::Code;
use crate::runtime::{Begun, Core, Ended, LaneId, Launched, Origins, Work, WorkKind, run_around};
use crate::sync::{AtomicU64, Mutex, OnceLock, Ordering, lock};

impl RunInner {
    /// Returns what a run needs, if its executor has observers.
    pub(super) fn observed(core: &Core) -> Option<Box<ObservedRun>> {
        let origins = core.observers.as_ref()?.origins();
        Some(Box::new(ObservedRun { around: run_around(), origins, ready: OnceLock::new(), begun: Mutex::new(None) }))
    }

    /// Returns what an iteration needs, if the run is observed.
    pub(super) fn times(&self, code: &Code) -> Option<Box<Times>> {
        let observers = self.core.observers.as_ref()?;
        let never = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let (ended, inner) = (never(code.step_of.len()), never(code.scopes.len()));
        Some(Box::new(Times {
            began: AtomicU64::new(observers.now_ns()),
            ended,
            inner,
            item: Mutex::new(None),
            submitted: Mutex::default(),
        }))
    }

    /// Notes that the run was polled.
    #[cold]
    pub(super) fn note_ready(&self) {
        self.observed.iter().for_each(|observed| _ = observed.ready.get_or_init(Instant::now));
    }

    /// Tells observers that the run begins.
    #[cold]
    pub(super) fn tell_begin(&self) {
        let (Some(observers), Some(observed)) = (&self.core.observers, &self.observed) else { return };
        let kind = WorkKind::Run { plan: (*self.plan).clone() };
        let name = self.plan.schedule().shape().name().map_or_else(|| Name::from("run"), |name| name.to_owned().into());
        let work = Work { run: self.id.get(), around: observed.around, item: 0, name, kind };
        let ready = *observed.ready.get_or_init(Instant::now);
        *lock(&observed.begun) = Some(observers.begin(0, work, ready, &observed.origins));
    }

    /// Tells observers that the run ends so. Returns the verdict, which may be an observer's.
    #[cold]
    pub(super) fn tell_end(&self, verdict: Result<()>) -> Result<()> {
        let (Some(observers), Some(observed)) = (&self.core.observers, &self.observed) else { return verdict };
        let Some(begun) = lock(&observed.begun).take() else { return verdict };
        self.items().for_each(Item::tell_rest);
        let told = observers.end(begun, Ended::of_result(&verdict), Launched::Host, Instant::now());
        verdict.and(told)
    }
}

impl Item<'_> {
    /// Tells observers, if there are any, that an item of a run over many begins.
    #[cold]
    pub(super) fn tell_begin(self) {
        let (Some(observers), Some(times)) = (&self.run.core.observers, &self.at.times) else { return };
        let kind = WorkKind::Item { plan: (*self.run.plan).clone() };
        let (run, item) = (self.run.id.get(), self.number());
        let begun = observers.begin(
            0,
            Work { run, around: None, item, name: Name::from("item"), kind },
            Instant::now(),
            &Origins::default(),
        );
        // ORDERING: Relaxed: the arrivals that begin the item publish it.
        times.began.store(observers.ns_of(begun.start()), Ordering::Relaxed);
        *lock(&times.item) = Some(begun);
    }

    /// Tells observers that the item has ended. A panic of theirs fails it.
    #[cold]
    pub(super) fn tell_end(self) {
        let (Some(observers), Some(times)) = (&self.run.core.observers, &self.at.times) else { return };
        let Some(begun) = lock(&times.item).take() else { return };
        let is_cancelled = self.run.state.glance() & state::CANCELLED != 0;
        let ended = match self.is_marked() {
            true if is_cancelled => Ended::Cancelled,
            is_marked => Ended::of(!is_marked),
        };
        if let Err(error) = observers.end(begun, ended, Launched::Host, Instant::now()) {
            self.add_fault(None, error);
        }
    }

    /// Ends what has begun and will not end: the run of this item is over. That is so after a cancel without
    /// workers.
    fn tell_rest(self) {
        let code = self.code();
        let asyncs = code.asyncs.iter().map(|&step| code.nodes[step as usize]).zip(&self.at.asyncs);
        let controls = code.controls.iter().map(|control| control.node).zip(&self.at.controls);
        // Inner ones come behind those around them.
        let mut begun: Vec<_> = controls.chain(asyncs).filter_map(|(node, state)| Some((node, state.take()?))).collect();
        while let Some((node, begun)) = begun.pop() {
            self.end_node(node, Some(begun), Ended::Cancelled);
        }
        self.tell_end();
    }

    /// Tells observers, if there are any, that a node begins.
    pub(super) fn begin_node(self, node: NodeId) -> Option<Begun> {
        let observers = self.run.core.observers.as_ref()?;
        let stream = self.code().stream_of(node);
        let work = Work::of_node(self.run.id.get(), self.number(), &self.run.plan, node, stream);
        let ready = self.at.times.as_ref().map_or_else(Instant::now, |times| observers.instant_of(self.ready_ns(times, node)));
        Some(observers.begin(0, work, ready, &Origins::default()))
    }

    /// Returns when a node could have begun: all nodes that it reads had ended.
    fn ready_ns(self, times: &Times, node: NodeId) -> u64 {
        // ORDERING: Relaxed, all: the plan orders what this node reads before it.
        let began = self.code().scope_of(node).map_or(&times.began, |scope| &times.inner[scope]).load(Ordering::Relaxed);
        let ended = |before: NodeId| times.ended[before.index()].load(Ordering::Relaxed);
        self.plan().predecessors(node).map(ended).fold(began, u64::max)
    }

    /// Runs the body of a node, or polls its future: `body` does not unwind.
    pub(super) fn around<R>(self, begun: &mut Option<Begun>, body: impl FnOnce() -> R) -> R {
        match (&self.run.core.observers, begun) {
            (Some(observers), Some(begun)) => observers.around(begun, body),
            _ => body(),
        }
    }

    /// Tells observers that a node has ended, unless they were not told that it began.
    pub(super) fn end_node(self, node: NodeId, begun: Option<Begun>, ended: Ended) {
        // Without observers the clock is not read.
        if let Some(mut begun) = begun {
            begun.leave(Launched::Host, Instant::now());
            self.end_left(node, begun, ended);
        }
    }

    /// Tells observers of a node that has [left its thread](Begun::leave).
    fn end_left(self, node: NodeId, begun: Begun, ended: Ended) {
        let Some(observers) = &self.run.core.observers else { return };
        self.note_end(node, begun.end());
        if let Err(error) = observers.end_left(begun, ended) {
            self.add_fault(Some(node), error);
        }
    }

    /// Notes when a node has ended, for those that read it.
    pub(super) fn note_end(self, node: NodeId, end: Instant) {
        if let (Some(observers), Some(times)) = (&self.run.core.observers, &self.at.times) {
            // ORDERING: Relaxed: nodes that read it come after this.
            times.ended[node.index()].store(observers.ns_of(end), Ordering::Relaxed);
        }
    }

    /// Tells observers of a node that was submitted to a device: now, or if the device takes times, when it
    /// has ended the node.
    pub(super) fn end_submitted(self, submitted: SubmittedNode) {
        match &self.at.times {
            Some(times) if submitted.begun.is_timed() => lock(&times.submitted).push(submitted),
            _ => self.tell_submitted(submitted),
        }
    }

    /// Tells observers of the nodes whose times are known.
    pub(super) fn tell_timed(self) {
        self.tell_submitted_if(|_| false);
    }

    /// Tells observers of the nodes of a segment that has ended, and of those whose times are known.
    pub(super) fn tell_segment(self, step: u32) {
        self.tell_submitted_if(|submitted| submitted.step == step);
    }

    /// Tells observers of all nodes that were submitted, at the end.
    pub(super) fn tell_all_submitted(self) {
        self.tell_submitted_if(|_| true);
    }

    fn tell_submitted_if(self, has_ended: impl Fn(&SubmittedNode) -> bool) {
        let Some(times) = &self.at.times else { return };
        // A lane's nodes end in order: behind the first that has not ended, no other is asked for.
        let mut busy: SmallVec<[LaneId; 8]> = SmallVec::new();
        let is_known = |submitted: &mut SubmittedNode| {
            let has_ended = has_ended(submitted);
            let is_read = (has_ended || !busy.contains(&submitted.lane)) && submitted.begun.read_times();
            if !is_read && !has_ended {
                busy.push(submitted.lane);
            }
            is_read || has_ended
        };
        let known: Vec<SubmittedNode> = lock(&times.submitted).extract_if(.., is_known).collect();
        known.into_iter().for_each(|known| self.tell_submitted(known));
    }

    fn tell_submitted(self, submitted: SubmittedNode) {
        let SubmittedNode { node, begun, is_ok, .. } = submitted;
        let ended = match self.outcome(node) {
            outcome::CANCELLED => Ended::Cancelled,
            outcome => Ended::of(is_ok && outcome == outcome::NONE),
        };
        self.end_left(node, begun, ended);
    }

    /// Notes that an iteration of an inner graph begins, in an observed run.
    #[cold]
    pub(super) fn note_inner(self, scope: u32) {
        if let (Some(observers), Some(times)) = (&self.run.core.observers, &self.at.times) {
            // ORDERING: Relaxed: the tickets of its programs come after this.
            times.inner[scope as usize].store(observers.now_ns(), Ordering::Relaxed);
        }
    }
}
