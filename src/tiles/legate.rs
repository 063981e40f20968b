//! The rule of Legate's own checker (26.x), for comparison.
//!
//! Operations come in order, and must have equal launch domains. Of each store only the last access counts.
//! Two accesses need equal partitions, also two reads. A store that is being reduced must not be used
//! otherwise. Partitions are equal if the shapes of their tiles are, whatever their offsets: so a shifted
//! read passes, and hangs there. Tasks with one point are exempt from equal domains, and may read a store
//! that is being reduced.

use super::index::UseId;
use super::outline::{Access, Mode, OpKind, Operation, Outline};
use super::reason::Reason;
use super::rules::clash;

/// A group that grows.
#[derive(Default)]
pub(super) struct Group {
    ops: Vec<usize>,
    /// By store: its last use.
    last: Vec<Option<UseId>>,
}

impl Group {
    /// Adds an operation, or returns why it does not stream with the others.
    pub(super) fn add(&mut self, outline: &Outline, number: usize) -> Vec<Reason> {
        self.last.resize(outline.stores.len(), None);
        let op = &outline.ops[number];
        let launched = self.ops.iter().copied().find(|&other| !is_exempt(&outline.ops[other]));
        if let Some(other) = launched.filter(|&other| !is_exempt(op) && outline.ops[other].launch != op.launch) {
            return vec![Reason::Launches { op: outline.op_name(number), other: outline.op_name(other) }];
        }
        let mut last = self.last.clone();
        for (access, store) in op.accesses.iter().map(|access| access.store.index()).enumerate() {
            let used = UseId { op: number, access };
            if let Some(reason) = last[store].and_then(|earlier| refused(outline, earlier, used)) {
                return vec![reason];
            }
            last[store] = Some(used);
        }
        self.last = last;
        self.ops.push(number);
        Vec::new()
    }
}

fn is_exempt(op: &Operation) -> bool {
    op.kind == OpKind::Task && op.batches() == 1
}

fn refused(outline: &Outline, earlier: UseId, later: UseId) -> Option<Reason> {
    let access = |used: UseId| -> &Access { &outline.ops[used.op].accesses[used.access] };
    let (before, behind) = (access(earlier), access(later));
    let launch = |used: UseId| outline.ops[used.op].axes();
    let clash = || clash(outline, earlier, later, true);
    match (&before.mode, &behind.mode) {
        (Mode::Reduce(one), Mode::Reduce(other)) if one == other => None,
        (Mode::Reduce(_), Mode::Read) if is_exempt(&outline.ops[later.op]) => None,
        (Mode::Reduce(_), _) => Some(Reason::Reduced { clash: clash() }),
        // Nothing but a reduction is known of what comes before one.
        (_, Mode::Reduce(_)) => None,
        _ if before.part.is_equal_to_legate(launch(earlier), &behind.part, launch(later)) => None,
        _ => Some(Reason::Partitions { clash: clash() }),
    }
}
