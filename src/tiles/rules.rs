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

use super::meet::{Meeting, Use, meeting, met};
use super::memory::{Place, Placed};
use super::outline::{Access, Mode, OpId, OpKind, Outline};
use super::reason::{Clash, Reason, Side};

/// A group that grows.
pub(super) struct Group {
    /// Whether operations may run behind, before or after the batches.
    pub(super) is_exact: bool,
    pub(super) ops: Vec<Placed>,
    /// The operation that has set the number of batches.
    counted: Option<usize>,
}

impl Group {
    pub(super) fn new(is_exact: bool) -> Self {
        Self { is_exact, ops: Vec::new(), counted: None }
    }

    /// Adds an operation, or returns all reasons why it does not stream with the others.
    pub(super) fn add(&mut self, outline: &Outline, number: usize) -> Vec<Reason> {
        let op = &outline.ops[number];
        if !matches!(op.kind, OpKind::Task | OpKind::Fill) {
            return vec![Reason::Kind { op: op.name.clone(), kind: op.kind }];
        }
        let mut reasons: Vec<Reason> = conflicts(outline, number, number)
            .filter(|(_, met)| met.lag > 0 || met.reach > 0)
            .map(|(clash, _)| Reason::Interferes { clash })
            .collect();
        reasons.truncate(1);
        let other = self.counted.map(|counted| &outline.ops[counted]);
        if let Some(other) = other.filter(|other| other.batches() != op.batches() && !(self.is_exact && op.batches() == 1)) {
            let counts = [op.batches(), other.batches()];
            reasons.push(Reason::Batches { op: op.name.clone(), other: other.name.clone(), counts });
            return reasons;
        }
        match self.place(outline, number) {
            Ok(_) if !reasons.is_empty() => {}
            Ok(place) => {
                self.ops.push(Placed { op: number, place });
                if op.batches() > 1 || !self.is_exact {
                    self.counted.get_or_insert(number);
                }
            }
            Err(others) => reasons.extend(others),
        }
        reasons
    }

    /// Returns where an operation runs.
    fn place(&self, outline: &Outline, number: usize) -> Result<Place, Vec<Reason>> {
        let op = &outline.ops[number];
        let is_once = self.is_exact && op.batches() == 1;
        let (mut skew, mut step, mut reasons) = (0, None, Vec::new());
        for &Placed { op: other, place } in &self.ops {
            for (clash, met) in conflicts(outline, other, number) {
                match place {
                    Place::Before | Place::All => {}
                    Place::Once { step: other } if is_once => step = step.max(Some(other)),
                    Place::Once { .. } => reasons.push(Reason::AfterOnce { clash }),
                    Place::Batches { skew: other } if is_once => step = step.max(Some(other + met.lag.max(0) as u64)),
                    Place::Batches { skew: other } => match self.refused(outline, clash, met) {
                        Some(reason) => reasons.push(reason),
                        None => skew = skew.max((other as i64 + met.lag).max(0) as u64),
                    },
                }
            }
        }
        match step {
            _ if !reasons.is_empty() => Err(reasons),
            Some(step) => Ok(Place::Once { step }),
            None if is_once => Ok(Place::Before),
            None => Ok(Place::Batches { skew }),
        }
    }

    fn refused(&self, outline: &Outline, clash: Clash, Meeting { lag, .. }: Meeting) -> Option<Reason> {
        let last = outline.ops[clash.earlier.op.index()].batches() as i64 - 1;
        let lag_of = lag.max(0) as u64;
        match () {
            () if lag <= 0 => None,
            () if lag >= last => Some(Reason::NeedsLast { clash, lag: lag_of }),
            () if self.is_exact => None,
            () => {
                let first = first_ahead(outline, &clash);
                Some(Reason::Ahead { clash, first, lag: lag_of })
            }
        }
    }
}

/// The batches that are looked at for the first one that needs a later one.
const LOOKED_MAX: u64 = 1 << 16;

/// Returns the first batch that needs a later one, and the last one that it needs.
fn first_ahead(outline: &Outline, clash: &Clash) -> Option<(u64, u64)> {
    let store = outline.stores.iter().find(|store| store.name == clash.store).expect("a clash is in a store");
    let side = |side: &Side| (&outline.ops[side.op.index()], side.part.clone());
    let ((before, part), (behind, other)) = (side(&clash.earlier), side(&clash.later));
    let (earlier, later) = (Use { launch: before.axes(), part: &part }, Use { launch: behind.axes(), part: &other });
    let needs =
        |batch| met(&store.extents, earlier, later, batch).map(|(_, last)| (batch, last)).filter(|(batch, last)| last > batch);
    (0..behind.batches().min(LOOKED_MAX)).find_map(needs)
}

/// Returns the conflicts of two operations, of which `earlier` is not behind `later`, and how they meet.
pub(crate) fn conflicts(outline: &Outline, earlier: usize, later: usize) -> impl Iterator<Item = (Clash, Meeting)> {
    let (before, behind) = (&outline.ops[earlier], &outline.ops[later]);
    let pairs =
        before.accesses.iter().enumerate().flat_map(move |one| behind.accesses.iter().enumerate().map(move |other| (one, other)));
    let clashing = pairs.filter(|((_, one), (_, other))| one.store == other.store && do_conflict(one, other));
    clashing.filter_map(move |((at, one), (place, other))| {
        let (one, other) = (Use { launch: before.axes(), part: &one.part }, Use { launch: behind.axes(), part: &other.part });
        let met = meeting(&outline.stores[before.accesses[at].store.index()].extents, one, other)?;
        Some((clash(outline, (earlier, at), (later, place)), met))
    })
}

fn do_conflict(one: &Access, other: &Access) -> bool {
    match (&one.mode, &other.mode) {
        (Mode::Read, Mode::Read) => false,
        (Mode::Reduce(one), Mode::Reduce(other)) => one != other,
        _ => true,
    }
}

/// Returns two accesses, each by its operation and its place there, as a clash.
pub(super) fn clash(outline: &Outline, earlier: (usize, usize), later: (usize, usize)) -> Clash {
    let side = |(number, place): (usize, usize)| {
        let op = &outline.ops[number];
        let Access { mode, part, .. } = op.accesses[place].clone();
        Side { op: OpId(number as u32), name: op.name.clone(), mode, part }
    };
    let store = outline.ops[earlier.0].accesses[earlier.1].store;
    Clash { store: outline.store_name(store).clone(), earlier: side(earlier), later: side(later) }
}
