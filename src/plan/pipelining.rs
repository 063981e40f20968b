//! How a plan runs over many items: the phases that begin at the end of a phase, and the data between items.
//!
//! A run has iterations. Item k is in iteration k modulo their number. Each phase of an iteration has a gate.
//! It counts the arrivals that the phase waits for, and the last arrival begins the phase. So every rule is
//! an arrow: the end of one phase of item k arrives at the gate of another phase of item k + shift.
//!
//! ```text
//!  rule                                        arrow                    shift
//!  data goes to a later phase                  its phase ─▶ the later   0
//!  a phase has the items in order              the phase ─▶ itself      1
//!  feedback of lag l                           its phase ─▶ the reader  l
//!  a feedback's cell is read before it is      the reader ─▶ its phase  iterations - l
//!    written for a later item
//!  an edge to the item s later                 its source ─▶ its target s
//!  its gate has begun anew                     the target ─▶ the source iterations - s
//!  lockstep                                    q ─▶ p                   q - p + 1
//!  an item is there                            the source ─▶ phases that read no other
//! ```
//!
//! A phase of kernels can end twice: when it is *queued* on its device, and when it is *reached*. Kernels
//! that follow it wait only for the first end (`queued.rs`).
//!
//! An item gets an iteration only after the previous item in it ended and its results were taken. A gate is
//! reset at its last arrival, before the phase begins. An arrival for the next item in the iteration never
//! comes before that reset: each arrow starts at a phase that comes after the beginning of the gate's own
//! phase, by the reuse of the iteration, by the order of the phase, or by the arrow back from a reader.

use std::sync::Arc;

use super::queued::is_one;
use crate::error::{Error, Kind, Result};
use crate::graph::{Between, Edge, Fill, Graph, ItemEdge, Kept, Maker, NodeId, Stays, Transfer, ValueInfo};
use crate::name::Name;
use crate::value::Cells;

/// The rules by which a plan runs over many items.
#[derive(Clone)]
pub(crate) struct Pipelining {
    /// The number of iterations, which is the maximum number of items in flight.
    pub(crate) slots: u32,
    pub(crate) phases: Vec<PhaseRule>,
    /// The phases whose gates count the arrival of an item.
    pub(crate) begun_by_source: Vec<u32>,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) inits: Vec<Init>,
    /// The number of phases that no later phase of their item waits for. The item ends with the last of them.
    pub(crate) last_phases: u32,
    /// The values that are dropped at the end of each item, by their offsets in its memory.
    pub(crate) dropped: Vec<(u32, &'static Transfer)>,
    /// Whether nodes wait for nodes of earlier items.
    pub(super) has_item_edges: bool,
    /// The inputs that are results. They are dropped at the end of a failed item.
    pub(crate) inputs_out: Vec<(u32, &'static Transfer)>,
}

/// The arrivals that a phase waits for, and the effects of its end.
#[derive(Clone, Default)]
pub(crate) struct PhaseRule {
    /// The number of arrivals at its gate.
    pub(crate) arrivals: u32,
    /// The arrows. Those at its submission come first. Of the others, those within the item come last.
    pub(crate) arrows: Vec<Arrow>,
    /// The number of arrows at the time when the phase is queued on its device. The others come at its end.
    pub(crate) queued_arrows: u32,
    /// Whether a value of the phase is fed back.
    pub(crate) has_feeds: bool,
    /// Whether the phase is queued behind that of the item before, on the same lane.
    pub(crate) is_behind_itself: bool,
    /// Whether a later phase of the item waits for its end, so that the item does not end with this phase.
    pub(crate) is_followed: bool,
}

/// The progress of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// It is queued on its device.
    Queued,
    /// Its device has done its work.
    Reached,
    /// It has ended, and was not queued on a device.
    Ended,
}

impl PhaseRule {
    /// Returns whether the end of the phase has effects other than the end of its item.
    #[inline]
    pub(crate) fn leads_on(&self) -> bool {
        self.has_feeds || !self.arrows.is_empty()
    }

    /// Returns the arrows at that time.
    #[inline]
    pub(crate) fn arrows_of(&self, passed: Passed) -> &[Arrow] {
        let (queued, others) = self.arrows.split_at(self.queued_arrows as usize);
        match passed {
            Passed::Queued => queued,
            Passed::Reached => others,
            Passed::Ended => &self.arrows,
        }
    }

    /// Returns whether the values that are fed back are copied at that time.
    #[inline]
    pub(crate) fn feeds_on(&self, passed: Passed) -> bool {
        let not_then = if self.is_behind_itself { Passed::Reached } else { Passed::Queued };
        self.has_feeds && passed != not_then
    }
}

/// An arrival at the gate of a phase of a later or an earlier item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Arrow {
    pub(crate) phase: u32,
    /// The number of items by which the other item is later.
    pub(crate) shift: i32,
}

/// A value that is copied to a later item at the end of its phase.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) phase: u32,
    /// The node that makes it. None for an input.
    pub(crate) node: Option<NodeId>,
    /// The offsets of the value and of the feedback.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) lag: u32,
    /// The input of the graph for the feedback.
    pub(crate) input: u32,
    pub(crate) copy: fn(Cells<'_>, u32, Cells<'_>, u32),
}

/// The first value of a state or a feedback, in all iterations: the cell of a feedback is never empty.
#[derive(Clone)]
pub(crate) struct Init {
    pub(crate) name: Name,
    /// The input of the graph for the state or feedback.
    pub(crate) input: u32,
    pub(crate) make: Arc<dyn Fn() -> Fill + Send + Sync>,
}

/// The settings of a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) slots: u32,
    /// Whether each item begins with a schedule iteration.
    pub(crate) is_lockstep: bool,
    /// Whether every phase works on the items in order.
    pub(crate) is_serial: bool,
}

impl Pipelining {
    /// Returns the rules for a plan without phases, over at most `slots` items at once, in any order.
    pub(crate) fn unordered(slots: u32) -> Self {
        let rule = PhaseRule { arrivals: 1, ..Default::default() };
        let (feeds, inits, dropped, inputs_out) = Default::default();
        let has_item_edges = false;
        Self {
            slots,
            phases: vec![rule],
            begun_by_source: vec![0],
            feeds,
            inits,
            last_phases: 1,
            dropped,
            inputs_out,
            has_item_edges,
        }
    }

    /// Returns whether no other effect follows the end of an item's only phase.
    pub(crate) fn is_plain(&self) -> bool {
        self.dropped.is_empty() && matches!(&*self.phases, [only] if !only.leads_on())
    }

    /// Returns the rules for a graph with these phases, from 0 on. `queued` has the device of each phase that
    /// is one segment.
    ///
    /// # Errors
    /// If an edge leads to an earlier phase, a feedback to a later one, or there are too few slots.
    pub(crate) fn new(graph: &Graph, phase_of: &[u32], queued: &[Option<u32>], wanted: Wanted) -> Result<Self> {
        let depth = phase_of.iter().max().map_or(1, |last| last + 1);
        let mut drawing = Drawing { graph, phase_of, wanted, depth, arrows: Vec::new(), is_ordered: vec![false; depth as usize] };
        drawing.add_data()?;
        let is_fed = |phase: &u32| drawing.arrows.iter().any(|(_, arrow)| arrow.phase == *phase);
        let begun_by_source: Vec<u32> = (0..depth).filter(|phase| !is_fed(phase)).collect();
        let feeds = drawing.add_feedback()?;
        drawing.add_item_edges()?;
        drawing.add_orders();
        if wanted.is_lockstep {
            drawing.add_lockstep()?;
        }
        let mut phases: Vec<PhaseRule> = (0..depth).map(|_| PhaseRule::default()).collect();
        begun_by_source.iter().for_each(|&phase| phases[phase as usize].arrivals += 1);
        feeds.iter().for_each(|feed| phases[feed.phase as usize].has_feeds = true);
        drawing.arrows.sort_unstable();
        drawing.arrows.dedup();
        let (behind, mut others): (Vec<_>, Vec<_>) =
            drawing.arrows.iter().partition(|(from, arrow)| drawing.is_behind(queued, *from, *arrow));
        // With an arrow within its item, another thread may end the item. So such arrows come last.
        others.sort_by_key(|(_, arrow)| arrow.shift == 0);
        for (from, arrow) in behind {
            phases[from as usize].arrows.push(arrow);
            phases[from as usize].queued_arrows += 1;
            phases[from as usize].is_behind_itself |= arrow.phase == from;
        }
        for (from, arrow) in others {
            phases[from as usize].arrows.push(arrow);
            phases[from as usize].is_followed |= arrow.shift == 0;
        }
        drawing.arrows.iter().for_each(|(_, arrow)| phases[arrow.phase as usize].arrivals += 1);
        let init = |between: &Between| Init { name: between.name.clone(), input: between.input, make: between.init.clone() };
        let inits = graph.between.iter().map(init).collect();
        let last_phases = phases.iter().filter(|rule| !rule.is_followed).count() as u32;
        let (dropped, inputs_out) = (dropped(graph), inputs_out(graph));
        let has_item_edges = !drawing.item_edges().is_empty();
        let slots = wanted.slots;
        Ok(Self { slots, phases, begun_by_source, feeds, inits, last_phases, dropped, inputs_out, has_item_edges })
    }

    /// Returns the rules for the same graph in a single phase. The lag of each feedback stays the same.
    pub(crate) fn merged(&self) -> Self {
        let has_order = self.phases.iter().zip(0..).any(|(rule, phase)| rule.arrows.contains(&Arrow { phase, shift: 1 }));
        let is_ordered = has_order || self.has_item_edges;
        let arrows = if is_ordered { vec![Arrow { phase: 0, shift: 1 }] } else { Vec::new() };
        let (arrivals, has_feeds) = (1 + arrows.len() as u32, !self.feeds.is_empty());
        let rule = PhaseRule { arrivals, arrows, has_feeds, ..Default::default() };
        let feeds = self.feeds.iter().map(|feed| Feed { phase: 0, ..*feed }).collect();
        Self { phases: vec![rule], begun_by_source: vec![0], feeds, last_phases: 1, ..self.clone() }
    }

    /// Returns whether items begin on different lanes of a device: those of a single phase do, unless the
    /// phase is queued behind that of the item before.
    pub(crate) fn is_spread(&self) -> bool {
        matches!(&self.phases[..], [rule] if !rule.is_behind_itself)
    }

    /// Returns whether phases wait for later items.
    pub(crate) fn waits_behind(&self) -> bool {
        self.phases.iter().flat_map(|rule| &rule.arrows).any(|arrow| arrow.shift < 0)
    }

    /// Returns the arrivals, by phase and item, that do not come because there are only `items` items. In
    /// lockstep, a phase waits for later items.
    pub(crate) fn missing_behind(&self, items: u64) -> impl Iterator<Item = (u32, u64)> {
        let arrows = self.phases.iter().flat_map(|rule| &rule.arrows).filter(|arrow| arrow.shift < 0);
        arrows.flat_map(move |arrow| {
            let first = items.saturating_sub(u64::from(arrow.shift.unsigned_abs()));
            (first..items).map(move |item| (arrow.phase, item))
        })
    }

    /// Returns the number of arrivals that the gate of a phase counts at the first use of an iteration.
    /// Arrivals from items before the first do not come. Arrivals of the first items for items before the
    /// first come here, one round of the iterations later. `shifts` are those of the [arrows to
    /// it](Self::shifts).
    pub(crate) fn first_arrivals(&self, phase: u32, iteration: u32, shifts: &[i32]) -> u32 {
        let (iteration, slots) = (iteration as i32, self.slots as i32);
        let missing = shifts.iter().filter(|&&shift| shift > iteration).count() as u32;
        let more = shifts.iter().filter(|&&shift| iteration - shift >= slots).count() as u32;
        self.phases[phase as usize].arrivals + more - missing
    }

    /// Returns the shifts of the arrows to each phase.
    pub(crate) fn shifts(&self) -> Vec<Vec<i32>> {
        let mut shifts = vec![Vec::new(); self.phases.len()];
        let arrows = self.phases.iter().flat_map(|rule| &rule.arrows);
        arrows.for_each(|arrow| shifts[arrow.phase as usize].push(arrow.shift));
        shifts
    }
}

/// Returns the values that stay until the end of an item, except its results.
fn dropped(graph: &Graph) -> Vec<(u32, &'static Transfer)> {
    let is_between = |input| graph.between.iter().any(|between| between.input == input);
    let stays = |value: &&ValueInfo| match value.maker {
        Maker::Input(input) => !is_between(input) && value.kept != Some(Kept::Result),
        Maker::Node(_) => value.kept == Some(Kept::FedBack),
    };
    // A value that needs no drop is simply overwritten.
    let stays = |value: &&ValueInfo| stays(value) && (value.of.transfer.needs_drop || value.sharer.is_some());
    let staying = graph.values.iter().filter(stays).map(|value| (value.offset, value.of.transfer));
    let inner = graph.nested().into_iter().flat_map(|inner| inner.graph.left_behind());
    staying.chain(graph.left_behind()).chain(inner).collect()
}

/// Returns the inputs that are results.
fn inputs_out(graph: &Graph) -> Vec<(u32, &'static Transfer)> {
    let is_out = |value: &&ValueInfo| matches!(value.maker, Maker::Input(_)) && value.kept == Some(Kept::Result);
    graph.values.iter().filter(is_out).map(|value| (value.offset, value.of.transfer)).collect()
}

/// The arrows of a pipeline, each with the phase where it starts, while they are being collected.
struct Drawing<'a> {
    graph: &'a Graph,
    phase_of: &'a [u32],
    wanted: Wanted,
    depth: u32,
    arrows: Vec<(u32, Arrow)>,
    /// Whether each phase works on the items in order.
    is_ordered: Vec<bool>,
}

impl Drawing<'_> {
    fn phase(&self, node: NodeId) -> u32 {
        self.phase_of[node.index()]
    }

    fn add(&mut self, from: u32, phase: u32, shift: i32) {
        self.arrows.push((from, Arrow { phase, shift }));
    }

    /// Returns whether a device queue keeps an arrow: its target is queued behind its source, an earlier
    /// phase of the item, or the same phase of the item before on the same lane. The latter does not hold if
    /// the phase feeds an earlier one, whose lane does not have the value. In lockstep no queue does: phases
    /// wait for the end of the previous schedule iteration.
    fn is_behind(&self, queued: &[Option<u32>], from: u32, Arrow { phase, shift }: Arrow) -> bool {
        let feeds_another = || self.arrows.iter().any(|&(other, arrow)| other == from && arrow.phase < from);
        let is_order = || from == phase && shift == 1 && !feeds_another();
        !self.wanted.is_lockstep && is_one(queued, from, phase) && (shift == 0 || is_order())
    }

    fn add_data(&mut self) -> Result<()> {
        for edge in self.graph.shape().edges() {
            let (first, second) = (self.phase(edge.source), self.phase(edge.target));
            if first > second {
                return Err(self.phase_back(edge));
            }
            if first < second {
                self.add(first, second, 0);
            }
        }
        Ok(())
    }

    /// Returns the error of an edge that leads to an earlier phase.
    fn phase_back(&self, edge: &Edge) -> Error {
        let name = |node| self.graph.shape().name_of(node).clone();
        let [first, second] = [edge.source, edge.target].map(|node| self.phase(node) + 1);
        let (source_node, target, is_data) = (name(edge.source), name(edge.target), edge.is_data());
        let mut takes = self.graph.take_orders().into_iter();
        match takes.find(|&(reader, taker, _)| !is_data && (reader, taker) == (edge.source, edge.target)) {
            Some((.., value)) => {
                let value = self.graph.maker_name(self.graph.values[value as usize].maker);
                Kind::TakenBefore { value, taker: target, reader: source_node, takes: second, reads: first }.into()
            }
            None => Kind::PhaseBack { source_node, target, first, second, is_data }.into(),
        }
    }

    /// Adds the arrows of feedback. Returns the copies at the ends of phases.
    fn add_feedback(&mut self) -> Result<Vec<Feed>> {
        let mut feeds = Vec::new();
        for between in &self.graph.between {
            let Stays::Feedback { from, copy } = between.is else { continue };
            let from = from.ok_or_else(|| Kind::NotFed { name: between.name.clone() }.into())?;
            let (Some((reader, read)), value) = (self.reader(between)?, &self.graph.values[from as usize]) else { continue };
            let node = if let Maker::Node(node) = value.maker { Some(node) } else { None };
            // An input exists in every phase.
            let made = node.map_or(read, |node| self.phase(node));
            if made < read {
                let maker = node.expect("an input is there in every phase");
                let [reader, maker] = [reader, maker].map(|node| self.graph.shape().name_of(node).clone());
                let (feedback, read, made) = (between.name.clone(), read + 1, made + 1);
                return Err(Kind::FeedbackForward { feedback, reader, maker, read, made }.into());
            }
            let (lag, slots) = (1 + made - read, self.wanted.slots);
            if lag > slots {
                let why =
                    format!("the feedback '{}' is from {lag} items before, so in_flight must be {lag} or more", between.name);
                return Err(Kind::TooFewSlots { slots, why }.into());
            }
            // A failed feed repeats the previous value, so the phase that feeds works on the items in order.
            self.is_ordered[made as usize] = true;
            if made != read {
                self.add(made, read, lag as i32);
                self.add(read, made, (slots - lag) as i32);
            }
            let to = self.graph.inputs[between.input as usize].offset;
            feeds.push(Feed { phase: made, node, from: value.offset, to, lag, input: between.input, copy });
        }
        Ok(feeds)
    }

    /// Returns the first reader of a feedback, and the phase of all its readers.
    fn reader(&self, between: &Between) -> Result<Option<(NodeId, u32)>> {
        let readers = &self.graph.inputs[between.input as usize].readers;
        let Some(&first) = readers.first() else { return Ok(None) };
        match readers.iter().find(|&&reader| self.phase(reader) != self.phase(first)) {
            None => Ok(Some((first, self.phase(first)))),
            Some(&reader) => {
                let [node, other] = [reader, first].map(|node| self.graph.shape().name_of(node).clone());
                let (first, second) = (self.phase(first) + 1, self.phase(reader) + 1);
                Err(Kind::FeedbackPhases { feedback: between.name.clone(), node, other, first, second }.into())
            }
        }
    }

    /// Returns the edges from item to item that need an arrow. Other edges lead to an item that begins after
    /// the source's item ended.
    fn item_edges(&self) -> Vec<ItemEdge> {
        self.graph.item_edges.iter().copied().filter(|edge| edge.items < self.wanted.slots).collect()
    }

    fn add_item_edges(&mut self) -> Result<()> {
        for ItemEdge { source, target, items } in self.item_edges() {
            let (from, to, slots) = (self.phase(source), self.phase(target), self.wanted.slots);
            let [source_node, target] = [source, target].map(|node| self.graph.shape().name_of(node).clone());
            // In lockstep, an earlier phase has a later item.
            if self.wanted.is_lockstep && items + to < from {
                return Err(Kind::ItemsApart { source_node, target, items, least: from - to }.into());
            }
            if self.wanted.is_lockstep && slots - items + from < to {
                let least = items + to - from;
                let why = format!("in lockstep '{target}' waits for '{source_node}', so in_flight must be {least} or more");
                return Err(Kind::TooFewSlots { slots, why }.into());
            }
            self.add(from, to, items as i32);
            self.add(to, from, (slots - items) as i32);
        }
        Ok(())
    }

    /// Adds arrows for the phases that must work on the items in order.
    fn add_orders(&mut self) {
        for between in &self.graph.between {
            if let Stays::State { holder: Some(holder) } = between.is {
                let phase = self.phase(holder);
                self.is_ordered[phase as usize] = true;
            }
        }
        for phase in 0..self.depth {
            if self.is_ordered[phase as usize] || self.wanted.is_serial {
                self.add(phase, phase, 1);
            }
        }
    }

    /// Adds arrows by which each schedule iteration begins after the previous one ended: phase p of item k
    /// after phase q of item k + p - q - 1.
    fn add_lockstep(&mut self) -> Result<()> {
        let (depth, slots) = (self.depth, self.wanted.slots);
        if slots < depth {
            let why = format!("in lockstep all {depth} phases have an item, so in_flight must be {depth} or more");
            return Err(Kind::TooFewSlots { slots, why }.into());
        }
        for (from, phase) in (0..depth).flat_map(|from| (0..depth).map(move |phase| (from, phase))) {
            self.add(from, phase, from as i32 - phase as i32 + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELASTIC: Wanted = Wanted { slots: 5, is_lockstep: false, is_serial: false };

    /// Three nodes in a row. The value of the last one is fed back to the first.
    fn cycle() -> Graph {
        let mut g = Graph::new();
        let before = g.feedback("before", || 0);
        let a = g.task("a", &*before, |x: &u64| *x);
        let b = g.task("b", &a, |x: &u64| *x);
        let c = g.task("c", &b, |x: &u64| *x);
        g.feed(before, &c);
        g.output("c", &c);
        g
    }

    /// Returns the arrows of phases, and whether a later phase of the item follows each.
    fn arrows(pipelining: &Pipelining) -> Vec<(Vec<(u32, i32)>, bool)> {
        let arrows = |rule: &PhaseRule| rule.arrows.iter().map(|arrow| (arrow.phase, arrow.shift)).collect();
        pipelining.phases.iter().map(|rule| (arrows(rule), rule.is_followed)).collect()
    }

    #[test]
    fn the_arrows_within_an_item_come_last_and_lead_to_its_last_phases() {
        // Seen to fail with arrows in the order of their targets.
        let pipelining = Pipelining::new(&cycle(), &[0, 1, 2], &[], ELASTIC).expect("the phases fit");
        let expected = [(vec![(2, 2), (1, 0)], true), (vec![(2, 0)], true), (vec![(0, 3), (2, 1)], false)];
        assert_eq!((arrows(&pipelining), pipelining.last_phases), (expected.to_vec(), 1));
    }

    #[test]
    fn an_item_does_not_end_before_the_device_has_reached_all_its_phases() {
        // Seen to fail with phases that count as followed by a phase that is queued behind them.
        let mut g = Graph::new();
        let item = g.input::<u64>("item");
        let [a, b] = ["a", "b"].map(|name| g.task(name, &item, |x: &u64| *x));
        let c = g.task("c", (&a, &b), |x: &u64, y: &u64| x + y);
        g.output("c", &c);
        let queued = [Some(0), None, Some(0)];
        let pipelining = Pipelining::new(&g, &[0, 1, 2], &queued, ELASTIC).expect("the phases fit");
        let expected = [(vec![(2, 0)], false), (vec![(2, 0)], true), (vec![], false)];
        assert_eq!((arrows(&pipelining), pipelining.last_phases), (expected.to_vec(), 2));
    }
}
