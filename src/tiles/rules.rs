//! The exact rule, and what both rules share: which operations conflict, and where.
//!
//! Two accesses of a store conflict unless both read, or both reduce by one operator. Batch b of the later
//! operation then needs the batches of the earlier one that it meets ([`meeting`]). Let its lag be L:
//!
//! ```text
//!  L ≤ 0             batch order is enough
//!  0 < L < last      the later operation runs L batches behind; along paths this adds up
//!  L ≥ last          the first batch needs the last one: nothing would overlap, so it is refused
//! ```
//! An operation that is done once comes before all batches, if none of them conflicts with it; otherwise it
//! comes after those that it needs, and no batch may need it.

use std::collections::HashMap;

use super::index::{Index, UseId};
use super::meet::{Meeting, Use, meeting, met};
use super::memory::{Place, Placed};
use super::outline::{Access, Mode, OpKind, Outline, StoreId};
use super::reason::{Clash, Reason, Side};

/// A group that grows.
pub(super) struct Group<'i> {
    index: &'i Index<'i>,
    /// Whether operations may run behind, before or after the batches.
    is_exact: bool,
    pub(super) ops: Vec<Placed>,
    /// The operation that has set the number of batches.
    counted: Option<usize>,
    /// By store.
    uses: HashMap<StoreId, Vec<Alike>>,
}

/// The uses of a store by operations of a group that have one form and one mode.
struct Alike {
    form: u32,
    mode: Mode,
    /// That of the last batches.
    place: Place,
}

impl<'i> Group<'i> {
    pub(super) fn new(index: &'i Index<'i>, is_exact: bool) -> Self {
        Self { index, is_exact, ops: Vec::new(), counted: None, uses: HashMap::new() }
    }

    /// Adds an operation, or returns all reasons why it does not stream with the others.
    pub(super) fn add(&mut self, number: usize) -> Vec<Reason> {
        let outline = self.index.outline;
        let op = &outline.ops[number];
        if !matches!(op.kind, OpKind::Task | OpKind::Fill) {
            return vec![Reason::Kind { op: outline.op_name(number), kind: op.kind }];
        }
        let mut reasons = self.interferences(number);
        let batches = |other: usize| outline.ops[other].batches();
        let is_other = |&other: &usize| batches(other) != op.batches() && !(self.is_exact && op.batches() == 1);
        if let Some(other) = self.counted.filter(is_other) {
            let counts = [op.batches(), batches(other)];
            reasons.push(Reason::Batches { op: outline.op_name(number), other: outline.op_name(other), counts });
            return reasons;
        }
        match self.place(number) {
            Some(_) if !reasons.is_empty() => {}
            Some(place) => self.push(Placed { op: number, place }),
            None => reasons.extend(self.refusals(number)),
        }
        reasons
    }

    /// Returns the pairs of uses in which batches of one operation share elements that one of them writes.
    fn interferences(&self, number: usize) -> Vec<Reason> {
        let (mut pairs, mut reasons) = (Vec::new(), Vec::new());
        for ((one, other), met) in self.conflicts(number, number).filter(|(_, met)| met.lag > 0 || met.reach > 0) {
            // Two uses are a pair in both orders, and some are alike.
            let reason = Reason::Interferes { clash: clash(self.index.outline, one, other, met.is_exact) };
            if !pairs.contains(&(other, one)) && !reasons.contains(&reason) {
                reasons.push(reason);
            }
            pairs.push((one, other));
        }
        reasons
    }

    fn push(&mut self, placed: Placed) {
        let op = &self.index.outline.ops[placed.op];
        self.ops.push(placed);
        if op.batches() > 1 || !self.is_exact {
            self.counted.get_or_insert(placed.op);
        }
        for (number, access) in op.accesses.iter().enumerate() {
            let form = self.index.form(UseId { op: placed.op, access: number });
            let known = self.uses.entry(access.store).or_default();
            match known.iter_mut().find(|alike| alike.form == form && alike.mode == access.mode) {
                Some(alike) => alike.place = later(alike.place, placed.place),
                None => known.push(Alike { form, mode: access.mode.clone(), place: placed.place }),
            }
        }
    }

    /// Returns where an operation runs; None if it does not stream with the others.
    fn place(&self, number: usize) -> Option<Place> {
        let op = &self.index.outline.ops[number];
        let is_once = self.is_exact && op.batches() == 1;
        let (mut skew, mut step) = (0, None);
        for (access, used) in op.accesses.iter().zip((0..).map(|access| UseId { op: number, access })) {
            let alike = self.uses.get(&access.store).into_iter().flatten();
            for Alike { form, place, .. } in alike.filter(|alike| do_conflict(&alike.mode, &access.mode)) {
                let Some(Meeting { lag, .. }) = self.index.meeting(*form, self.index.form(used)) else { continue };
                match *place {
                    Place::Before | Place::All => {}
                    Place::Once { step: other } if is_once => step = step.max(Some(other)),
                    Place::Batches { skew: other } if is_once => step = step.max(Some(other + lag.max(0) as u64)),
                    Place::Once { .. } => return None,
                    Place::Batches { .. } if self.is_refused(self.index.batches(*form), lag) => return None,
                    Place::Batches { skew: other } => skew = skew.max((other as i64 + lag).max(0) as u64),
                }
            }
        }
        match step {
            Some(step) => Some(Place::Once { step }),
            None if is_once => Some(Place::Before),
            None => Some(Place::Batches { skew }),
        }
    }

    /// Returns all conflicts for which an operation does not stream with the others.
    fn refusals(&self, number: usize) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for &Placed { op: other, place } in &self.ops {
            for ((earlier, later), met) in self.conflicts(other, number) {
                let clash = || clash(self.index.outline, earlier, later, met.is_exact);
                match place {
                    Place::Before | Place::All => {}
                    Place::Once { .. } => reasons.push(Reason::AfterOnce { clash: clash() }),
                    Place::Batches { .. } => reasons.extend(self.refused(clash, self.index.outline.ops[other].batches(), met)),
                }
            }
        }
        reasons
    }

    /// Returns the conflicts of two operations, of which `earlier` is not behind `later`, and how they meet.
    fn conflicts(&self, earlier: usize, later: usize) -> impl Iterator<Item = ((UseId, UseId), Meeting)> {
        let met = |(one, other)| Some(((one, other), self.index.meeting(self.index.form(one), self.index.form(other))?));
        conflicting(self.index.outline, earlier, later).filter_map(met)
    }

    /// Returns whether a batch needs too late a batch of an operation with so many.
    fn is_refused(&self, batches: u64, lag: i64) -> bool {
        lag > 0 && (!self.is_exact || lag >= batches as i64 - 1)
    }

    fn refused(&self, clash: impl FnOnce() -> Clash, batches: u64, Meeting { lag, .. }: Meeting) -> Option<Reason> {
        if !self.is_refused(batches, lag) {
            return None;
        }
        let (clash, lag_of) = (clash(), lag as u64);
        if lag >= batches as i64 - 1 {
            return Some(Reason::NeedsLast { clash, lag: lag_of });
        }
        let first = first_ahead(self.index.outline, &clash);
        Some(Reason::Ahead { clash, first, lag: lag_of })
    }
}

/// Returns the later of two places of operations with equal numbers of batches.
fn later(one: Place, other: Place) -> Place {
    match (one, other) {
        (Place::Batches { skew: one }, Place::Batches { skew: other }) => Place::Batches { skew: one.max(other) },
        (Place::Once { step: one }, Place::Once { step: other }) => Place::Once { step: one.max(other) },
        (Place::Before | Place::All, other) => other,
        (one, _) => one,
    }
}

/// The batches that are looked at for the first one that needs a later one.
const LOOKED_MAX: u64 = 1 << 16;

/// Returns the first batch that needs a later one, and the last one that it needs.
fn first_ahead(outline: &Outline, clash: &Clash) -> Option<(u64, u64)> {
    let store = outline.stores.iter().find(|store| store.name == clash.store).expect("a clash is in a store");
    let side = |side: &Side| (&outline.ops[side.op.id.index()], side.part.clone());
    let ((before, part), (behind, other)) = (side(&clash.earlier), side(&clash.later));
    let (earlier, later) = (Use { launch: before.axes(), part: &part }, Use { launch: behind.axes(), part: &other });
    let needs =
        |batch| met(&store.extents, earlier, later, batch).map(|(_, last)| (batch, last)).filter(|(batch, last)| last > batch);
    (0..behind.batches().min(LOOKED_MAX)).find_map(needs)
}

/// Returns the conflicts of two operations, of which `earlier` is not behind `later`, and how they meet.
pub(crate) fn conflicts(outline: &Outline, earlier: usize, later: usize) -> impl Iterator<Item = (Clash, Meeting)> {
    conflicting(outline, earlier, later).filter_map(move |(one, other)| {
        let used = |used: UseId| {
            let (op, access) = (&outline.ops[used.op], &outline.ops[used.op].accesses[used.access]);
            (access.store, Use { launch: op.axes(), part: &access.part })
        };
        let ((store, before), (_, behind)) = (used(one), used(other));
        let met = meeting(&outline.stores[store.index()].extents, before, behind)?;
        Some((clash(outline, one, other, met.is_exact), met))
    })
}

/// Returns the pairs of uses of two operations that are of one store, and must keep their order if they meet.
fn conflicting(outline: &Outline, earlier: usize, later: usize) -> impl Iterator<Item = (UseId, UseId)> {
    let uses = |op: usize| (0..).map(move |access| UseId { op, access }).zip(&outline.ops[op].accesses);
    let pairs = uses(earlier).flat_map(move |one| uses(later).map(move |other| (one, other)));
    let clashing = pairs.filter(|((_, one), (_, other))| one.store == other.store && do_conflict(&one.mode, &other.mode));
    clashing.map(|((one, _), (other, _))| (one, other))
}

fn do_conflict(one: &Mode, other: &Mode) -> bool {
    match (one, other) {
        (Mode::Read, Mode::Read) => false,
        (Mode::Reduce(one), Mode::Reduce(other)) => one != other,
        _ => true,
    }
}

/// Returns two uses of a store as a clash: `is_exact` if it was found how they meet.
pub(super) fn clash(outline: &Outline, earlier: UseId, later: UseId, is_exact: bool) -> Clash {
    let side = |used: UseId| {
        let Access { mode, part, .. } = outline.ops[used.op].accesses[used.access].clone();
        Side { op: outline.op_name(used.op), mode, part }
    };
    let store = outline.ops[earlier.op].accesses[earlier.access].store;
    Clash { store: outline.store_name(store).clone(), earlier: side(earlier), later: side(later), is_exact }
}
