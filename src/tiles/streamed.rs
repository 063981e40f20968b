//! How a scope streams: its groups, why each of them ends, and how much memory they need.

use super::legate;
use super::memory::{Lifetimes, Place, Placed, Window, Windows};
use super::outline::{OpId, Outline};
use super::reason::Reason;
use super::rules::Group as Growing;
use crate::error::{Kind, Result};

/// Which operations stream together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// By the elements that batches really share. An operation may run some batches behind another. An
    /// operation that is done once comes before the batches, or after them.
    #[default]
    Exact,
    /// By the elements that batches really share, in the order of the batches only.
    InOrder,
    /// As the checker of Legate (26.x) decides.
    Legate,
    /// Nothing streams: each operation is a group.
    Off,
}

/// How a scope streams. Made by [`Outline::stream`].
#[derive(Clone, Debug)]
pub struct Streamed {
    outline: Outline,
    rule: Rule,
    groups: Vec<Group>,
    unstreamed_bytes: u64,
}

/// Operations that stream together.
#[derive(Clone, Debug)]
pub struct Group {
    ops: Vec<Placed>,
    skews: Vec<u64>,
    batches: u64,
    windows: Windows,
    /// Of the stores that it does not use, and that later groups need.
    idle_bytes: u64,
    cut: Vec<Reason>,
}

/// A group without its memory: its operations, and why it ends.
type Found = (Vec<Placed>, Vec<Reason>);

impl Outline {
    /// Finds the groups of operations that stream together: each is as long as it can be. Without a bound, a
    /// batch in flight may need as many bytes as the program that does not stream.
    ///
    /// # Errors
    /// If a name is used twice, a size is out of range, or a part does not fit its store.
    pub fn stream(&self, rule: Rule) -> Result<Streamed> {
        self.stream_within(rule, None)
    }

    /// Does so with at most these bytes in memory.
    ///
    /// # Errors
    /// As [`Outline::stream`]; or if the groups need more: the error says the least that would do.
    pub fn stream_within(&self, rule: Rule, memory_max: impl Into<Option<u64>>) -> Result<Streamed> {
        self.check()?;
        let lifetimes = Lifetimes::new(self);
        let unstreamed_bytes = lifetimes.unstreamed_bytes(self);
        let Some(limit) = memory_max.into() else { return Ok(self.grouped(rule, &lifetimes, unstreamed_bytes)) };
        let streamed = self.grouped(rule, &lifetimes, limit);
        if streamed.bytes(1) <= limit {
            return Ok(streamed);
        }
        // Shorter groups keep more stores whole, so the longest ones may need less.
        let longest = self.grouped(rule, &lifetimes, u64::MAX).bytes(1);
        let does_fit = |bytes: u64| self.grouped(rule, &lifetimes, bytes).bytes(1) <= bytes;
        let cut = Some(streamed.bytes(1)).filter(|&bytes| bytes < longest && does_fit(bytes));
        Err(Kind::TooLittleMemory { bytes: cut.unwrap_or(longest), limit }.into())
    }

    /// Finds the groups. One batch in flight of each needs at most `limit` bytes, unless the group is a
    /// single operation.
    fn grouped(&self, rule: Rule, lifetimes: &Lifetimes, limit: u64) -> Streamed {
        // The other rules know of no memory.
        let limit = if rule == Rule::Exact { limit } else { u64::MAX };
        let mut groups: Vec<Group> = Vec::new();
        let mut first = 0;
        while first < self.ops.len() {
            let (mut ops, mut cut) = self.longest(rule, first);
            let mut group = self.group(lifetimes, &ops, cut.clone());
            // Which stores are whole depends on where the group ends.
            while group.bytes(1) > limit && ops.len() > 1 {
                let last = ops.pop().expect("it has more than one");
                cut = vec![Reason::Memory { op: self.ops[last.op].name.clone(), bytes: group.bytes(1), limit }];
                group = self.group(lifetimes, &ops, cut.clone());
            }
            first += ops.len();
            groups.push(group);
        }
        Streamed { outline: self.clone(), rule, groups, unstreamed_bytes: lifetimes.unstreamed_bytes(self) }
    }

    /// Returns all reasons why the operations are not one group. None: all of them stream together.
    ///
    /// # Errors
    /// As [`Outline::stream`].
    pub fn reasons(&self, rule: Rule) -> Result<Vec<Reason>> {
        let mut reasons: Vec<Reason> = self.stream(rule)?.groups.into_iter().flat_map(|group| group.cut).collect();
        // An operation that never streams ends the group before it, too.
        reasons.dedup();
        Ok(reasons)
    }

    /// Returns the longest group from an operation on, whatever it needs, and why it is no longer.
    fn longest(&self, rule: Rule, first: usize) -> Found {
        let (mut exact, mut legate) = (Growing::new(rule != Rule::InOrder), legate::Group::default());
        let end = if rule == Rule::Off { first + 1 } else { self.ops.len() };
        for number in first..end {
            let reasons = if rule == Rule::Legate { legate.add(self, number) } else { exact.add(self, number) };
            if !reasons.is_empty() && number == first {
                // It does not stream at all: a group of its own.
                return (vec![Placed { op: first, place: Place::All }], reasons);
            }
            if !reasons.is_empty() {
                return (placed(rule, exact, first, number), reasons);
            }
        }
        (placed(rule, exact, first, end), Vec::new())
    }

    fn group(&self, lifetimes: &Lifetimes, ops: &[Placed], cut: Vec<Reason>) -> Group {
        let ends = (ops[0].op, ops[ops.len() - 1].op);
        let windows = Windows::new(self, ops, |store| lifetimes.is_beyond(store, ends));
        let skew = |placed: &Placed| match placed.place {
            Place::Before | Place::All => 0,
            Place::Batches { skew } => skew,
            Place::Once { step } => step,
        };
        Group {
            idle_bytes: lifetimes.idle_bytes(self, &windows, ends),
            ops: ops.to_vec(),
            skews: ops.iter().map(skew).collect(),
            batches: ops.iter().map(|placed| self.ops[placed.op].batches()).max().unwrap_or(0),
            windows,
            cut,
        }
    }
}

/// Returns the operations of a group, and where they run.
fn placed(rule: Rule, exact: Growing, first: usize, end: usize) -> Vec<Placed> {
    match rule {
        Rule::Legate => (first..end).map(|op| Placed { op, place: Place::Batches { skew: 0 } }).collect(),
        _ => exact.ops,
    }
}

impl Streamed {
    /// Returns the groups in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns whether all operations stream together.
    pub fn is_one(&self) -> bool {
        self.groups.len() <= 1 && self.groups.iter().all(|group| group.cut.is_empty())
    }

    /// Returns the rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Returns the outline.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the most bytes in memory with so many batches in flight.
    pub fn bytes(&self, in_flight: u64) -> u64 {
        self.groups.iter().map(|group| group.bytes(in_flight)).max().unwrap_or(0)
    }

    /// Returns the most bytes of the operations one after the other, with whole stores.
    pub fn unstreamed_bytes(&self) -> u64 {
        self.unstreamed_bytes
    }
}

impl Group {
    /// Returns the operations.
    pub fn ops(&self) -> impl ExactSizeIterator<Item = OpId> {
        self.ops.iter().map(|placed| OpId(placed.op as u32))
    }

    /// Returns by how many batches each operation runs behind. Of one that is done once, it is the step that
    /// it waits for.
    pub fn skews(&self) -> &[u64] {
        &self.skews
    }

    /// Returns the number of batches.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Returns the number of steps: batches, and the largest skew.
    pub fn steps(&self) -> u64 {
        let end = |(placed, skew): (&Placed, &u64)| match placed.place {
            Place::Batches { .. } => skew + self.batches,
            Place::Before | Place::Once { .. } | Place::All => skew + 1,
        };
        self.ops.iter().zip(&self.skews).map(end).max().unwrap_or(0)
    }

    /// Returns where each operation runs.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.ops.iter().map(|placed| &placed.place)
    }

    /// Returns the part of each store that is in memory.
    pub fn windows(&self) -> &[Window] {
        &self.windows.0
    }

    /// Returns why the next operation is not in the group, or why its only operation does not stream.
    pub fn cut(&self) -> &[Reason] {
        &self.cut
    }

    /// Returns the most bytes in memory with so many batches in flight: also of the stores that later groups
    /// need.
    pub fn bytes(&self, in_flight: u64) -> u64 {
        self.windows.bytes(in_flight.max(1)).saturating_add(self.idle_bytes)
    }
}
