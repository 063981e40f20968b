//! How a scope streams: its groups, why each of them ends, and how much memory they need.

use super::index::Index;
use super::legate;
use super::lifetimes::clamped;
use super::memory::{Place, Placed, Window, Windows};
use super::outline::{OpId, Outline};
use super::peak::Peak;
use super::reason::Reason;
use super::rules::Group as Growing;
use crate::error::{Kind, Result};

/// Which operations stream together.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Rule};
///
/// # let mut outline = Outline::new();
/// # let (a, b) = (outline.store("a", [64], 8), outline.store("b", [64], 8));
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// let halo = Part::tiles([8]).halo([1], [1]);
/// outline.op(Operation::new("blur", [8]).read(a, halo).write(b, Part::tiles([8])));
/// // The blur of a batch needs the next batch of the fill.
/// assert!(outline.stream(Rule::Exact)?.is_one());
/// assert!(!outline.stream(Rule::InOrder)?.is_one());
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Rule};
///
/// # let mut outline = Outline::new();
/// # let (a, b) = (outline.store("a", [64], 8), outline.store("b", [64], 8));
/// outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// outline.op(Operation::new("inc", [8]).read(a, Part::tiles([8])).write(b, Part::tiles([8])));
/// let streamed = outline.stream(Rule::Exact)?;
/// println!("{streamed}");
/// assert!(streamed.is_one());
/// // Two tiles of a batch, and not two stores.
/// assert_eq!((streamed.bytes(1), streamed.unstreamed_bytes()), (128, 1024));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Streamed {
    outline: Outline,
    rule: Rule,
    groups: Vec<Group>,
    unstreamed_bytes: u64,
}

/// Operations that stream together.
///
/// ```
/// use anabranch::tiles::{Operation, Outline, Part, Rule};
///
/// # let mut outline = Outline::new();
/// # let (a, b) = (outline.store("a", [64], 8), outline.store("b", [64], 8));
/// # outline.op(Operation::new("fill", [8]).write(a, Part::tiles([8])));
/// # let halo = Part::tiles([8]).halo([1], [1]);
/// # outline.op(Operation::new("blur", [8]).read(a, halo).write(b, Part::tiles([8])));
/// let streamed = outline.stream(Rule::Exact)?;
/// let group = &streamed.groups()[0];
/// for (op, skew) in group.ops().zip(group.skews()) {
///     println!("{} runs {skew} batches behind", outline.name_of(op));
/// }
/// assert_eq!((group.batches(), group.steps()), (8, 9));
/// # Ok::<(), anabranch::Error>(())
/// ```
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
        let index = Index::new(self);
        let Some(limit) = memory_max.into() else { return Ok(index.grouped(rule, index.lifetimes.unstreamed_bytes())) };
        let streamed = index.grouped(rule, limit);
        if streamed.bytes(1) <= limit {
            return Ok(streamed);
        }
        // Shorter groups keep more stores whole, so the longest ones may need less.
        let longest = index.grouped(rule, u64::MAX).bytes(1);
        let does_fit = |bytes: u64| index.grouped(rule, bytes).bytes(1) <= bytes;
        let cut = Some(streamed.bytes(1)).filter(|&bytes| bytes < longest && does_fit(bytes));
        Err(Kind::TooLittleMemory { bytes: cut.unwrap_or(longest), limit }.into())
    }

    /// Returns all reasons why the operations are not one group. None: all of them stream together.
    ///
    /// # Errors
    /// As [`Outline::stream`].
    pub fn reasons(&self, rule: Rule) -> Result<Vec<Reason>> {
        Ok(self.stream(rule)?.reasons())
    }
}

impl Index<'_> {
    /// Finds the groups. One batch in flight of each needs at most `limit` bytes, unless the group is a
    /// single operation.
    fn grouped(&self, rule: Rule, limit: u64) -> Streamed {
        let mut groups: Vec<Group> = Vec::new();
        let mut first = 0;
        while first < self.outline.ops.len() {
            let group = match rule {
                // The other rules know of no memory.
                Rule::Exact if limit < u64::MAX => self.longest_within(first, limit),
                _ => self.longest(rule, first),
            };
            first += group.ops.len();
            groups.push(group);
        }
        Streamed { outline: self.outline.clone(), rule, groups, unstreamed_bytes: self.lifetimes.unstreamed_bytes() }
    }

    /// Returns the longest group from an operation on, whatever it needs.
    fn longest(&self, rule: Rule, first: usize) -> Group {
        let (mut exact, mut legate) = (Growing::new(self, rule != Rule::InOrder), legate::Group::default());
        let mut ops: Vec<Placed> = Vec::new();
        for number in first..self.outline.ops.len() {
            let reasons = match rule {
                Rule::Legate => legate.add(self.outline, number),
                Rule::Off if number > first => break,
                _ => exact.add(number),
            };
            if !reasons.is_empty() {
                return self.group(&alone(first, ops), reasons);
            }
            let in_order = Placed { op: number, place: Place::Batches { skew: 0 } };
            ops.push(exact.ops.last().copied().unwrap_or(in_order));
        }
        self.group(&ops, Vec::new())
    }

    /// Returns the longest group from an operation on of which a batch in flight needs at most `limit` bytes.
    ///
    /// A longer group may need less: a store that it has all uses of is not whole. So it grows as long as a
    /// longer one may do, and is then shortened to the longest one that does.
    fn longest_within(&self, first: usize, limit: u64) -> Group {
        let (mut growing, mut peak) = (Growing::new(self, true), Peak::new(self, first));
        // By length: whether it may do.
        let mut may_do: Vec<bool> = Vec::new();
        let mut reasons = Vec::new();
        for number in first..self.outline.ops.len() {
            reasons = growing.add(number);
            if !reasons.is_empty() {
                break;
            }
            peak.add(&growing.ops);
            may_do.push(peak.bytes() <= limit.into());
            if peak.settled() > limit.into() && may_do.len() > 1 {
                break;
            }
        }
        let ops = alone(first, growing.ops);
        let shorter = (2..=ops.len()).rev().filter(|&length| may_do[length - 1]);
        let mut groups = shorter.map(|length| self.group(&ops[..length], Vec::new()));
        let found = groups.find(|group| group.bytes(1) <= limit);
        let mut group = found.unwrap_or_else(|| self.group(&ops[..1], Vec::new()));
        group.cut = match ops.get(group.ops.len()) {
            None => reasons,
            Some(next) => {
                let bytes = self.group(&ops[..=group.ops.len()], Vec::new()).bytes(1);
                vec![Reason::Memory { op: self.outline.op_name(next.op), bytes, limit }]
            }
        };
        group
    }

    fn group(&self, ops: &[Placed], cut: Vec<Reason>) -> Group {
        let windows = Windows::new(self, ops);
        let skew = |placed: &Placed| match placed.place {
            Place::Before | Place::All => 0,
            Place::Batches { skew } => skew,
            Place::Once { step } => step,
        };
        Group {
            idle_bytes: self.idle_bytes(&windows, ops[0].op),
            ops: ops.to_vec(),
            skews: ops.iter().map(skew).collect(),
            batches: ops.iter().map(|placed| self.outline.ops[placed.op].batches()).max().unwrap_or(0),
            windows,
            cut,
        }
    }

    /// Returns the bytes of the stores that a group does not use, and that are there before and behind it.
    fn idle_bytes(&self, windows: &Windows, first: usize) -> u64 {
        let used = windows.0.iter().filter(|window| self.lifetimes.is_before(window.store, first));
        clamped(self.lifetimes.bytes_before(first) - used.map(|window| u128::from(window.store_bytes)).sum::<u128>())
    }
}

/// Returns the operations of a group, or the first one alone if it does not stream at all.
fn alone(first: usize, ops: Vec<Placed>) -> Vec<Placed> {
    if ops.is_empty() { vec![Placed { op: first, place: Place::All }] } else { ops }
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

    /// Returns all reasons why groups end, each once.
    pub fn reasons(&self) -> Vec<Reason> {
        self.cuts().flatten().cloned().collect()
    }

    /// Returns the reasons why each group ends. An operation that never streams ends the group before it,
    /// too: its reasons are with that one.
    pub(super) fn cuts(&self) -> impl Iterator<Item = Vec<&Reason>> {
        let before = [&[][..]].into_iter().chain(self.groups.iter().map(Group::cut));
        self.groups.iter().zip(before).map(|(group, told)| group.cut.iter().filter(|reason| !told.contains(reason)).collect())
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
