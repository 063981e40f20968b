//! How a scope streams: its groups, why each of them ends, and how much memory they need.

use super::legate;
use super::memory::{Place, Placed, Window, Windows, unstreamed_bytes};
use super::outline::{Mode, OpId, Operation, Outline, StoreId};
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
        let unstreamed_bytes = unstreamed_bytes(self);
        let Some(limit) = memory_max.into() else { return Ok(self.grouped(rule, unstreamed_bytes)) };
        let streamed = self.grouped(rule, limit);
        if streamed.bytes(1) <= limit {
            return Ok(streamed);
        }
        // Shorter groups keep more stores whole, so the longest ones may need less.
        let longest = self.grouped(rule, u64::MAX).bytes(1);
        let cut = Some(streamed.bytes(1)).filter(|&bytes| bytes < longest && self.grouped(rule, bytes).bytes(1) <= bytes);
        Err(Kind::TooLittleMemory { bytes: cut.unwrap_or(longest), limit }.into())
    }

    /// Finds the groups. In each, one batch in flight needs at most `limit` bytes, if no store is whole.
    fn grouped(&self, rule: Rule, limit: u64) -> Streamed {
        let mut groups: Vec<Found> = Vec::new();
        let mut first = 0;
        while first < self.ops.len() {
            let (ops, cut) = self.longest(rule, limit, first);
            first += ops.len();
            groups.push((ops, cut));
        }
        let groups: Vec<Group> = (0..groups.len()).map(|number| self.group(&groups, number)).collect();
        Streamed { outline: self.clone(), rule, groups, unstreamed_bytes: unstreamed_bytes(self) }
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

    /// Returns the longest group from an operation on, and why it is no longer.
    fn longest(&self, rule: Rule, limit: u64, first: usize) -> Found {
        let (mut exact, mut legate) = (Growing::new(rule == Rule::Exact, limit), legate::Group::default());
        for number in first..self.ops.len() {
            let reasons = if rule == Rule::Legate { legate.add(self, number) } else { exact.add(self, number) };
            if !reasons.is_empty() && number == first {
                // It does not stream at all: a group of its own.
                return (vec![Placed { op: first, place: Place::All }], reasons);
            }
            if !reasons.is_empty() {
                return (placed(rule, exact, first, number), reasons);
            }
        }
        (placed(rule, exact, first, self.ops.len()), Vec::new())
    }

    fn group(&self, all: &[Found], number: usize) -> Group {
        let (ops, cut) = &all[number];
        let is_elsewhere = |store: StoreId| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != number).flat_map(|(_, (ops, _))| ops);
            others.flat_map(|placed| &self.ops[placed.op].accesses).any(|access| access.store == store)
        };
        let skew = |placed: &Placed| match placed.place {
            Place::Before | Place::All => 0,
            Place::Batches { skew } => skew,
            Place::Once { step } => step,
        };
        Group {
            ops: ops.clone(),
            skews: ops.iter().map(skew).collect(),
            batches: ops.iter().map(|placed| self.ops[placed.op].batches()).max().unwrap_or(0),
            windows: Windows::new(self, ops, is_elsewhere),
            cut: cut.clone(),
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
        self.groups.iter().map(|group| self.bytes_of(group, in_flight)).max().unwrap_or(0)
    }

    /// Returns the most bytes in memory while a group streams: also of the stores that later groups need.
    fn bytes_of(&self, group: &Group, in_flight: u64) -> u64 {
        let (Some(first), Some(last)) = (group.ops.first(), group.ops.last()) else { return 0 };
        let is_used =
            |store: StoreId, ops: &[Operation]| ops.iter().flat_map(|op| &op.accesses).any(|access| access.store == store);
        let (before, others) = self.outline.ops.split_at(first.op);
        let (own, behind) = others.split_at(last.op + 1 - first.op);
        let is_idle = |&store: &StoreId| {
            let is_made = is_used(store, before) || self.is_read_first(store);
            let is_needed = is_used(store, behind) || self.outline.stores[store.index()].is_kept;
            is_made && is_needed && !is_used(store, own)
        };
        let stores = (0..self.outline.stores.len() as u32).map(StoreId);
        let bytes = |store: StoreId| self.outline.stores[store.index()].bytes();
        let idle = stores.filter(is_idle).fold(0_u64, |sum, store| sum.saturating_add(bytes(store)));
        group.bytes(in_flight).saturating_add(idle)
    }

    /// Returns whether a store is there before the scope begins.
    fn is_read_first(&self, store: StoreId) -> bool {
        let mut accesses = self.outline.ops.iter().flat_map(|op| &op.accesses);
        accesses.find(|access| access.store == store).is_some_and(|access| access.mode == Mode::Read)
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

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
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

    /// Returns the most bytes in memory with so many batches in flight.
    pub fn bytes(&self, in_flight: u64) -> u64 {
        self.windows.bytes(in_flight.max(1))
    }
}
