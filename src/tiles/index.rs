//! What the rules look up in an outline: the uses of each store in order, and how two uses meet. Uses of one
//! form meet others alike, so each pair of forms is computed once.

use std::cell::RefCell;
use std::collections::HashMap;

use super::lifetimes::Lifetimes;
use super::meet::{Meeting, Use, meeting};
use super::outline::{Access, Outline, StoreId};
use super::part::Part;

/// What decides how a use of a store meets others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form<'o> {
    extents: &'o [u64],
    launch: &'o [u64],
    part: &'o Part,
}

/// A use of a store: its operation, and its number among what that uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UseId {
    pub(super) op: usize,
    pub(super) access: usize,
}

/// An outline with its uses.
pub(super) struct Index<'o> {
    pub(super) outline: &'o Outline,
    pub(super) lifetimes: Lifetimes,
    forms: Vec<Form<'o>>,
    /// By operation and access: its form, and its place among the uses of the store.
    places: Vec<Vec<(u32, usize)>>,
    /// By store.
    uses: Vec<Vec<UseId>>,
    met: RefCell<HashMap<(u32, u32), Option<Meeting>>>,
}

/// The pairs of forms that are remembered. If there are more, it starts again.
const MET_MAX: usize = 1 << 16;

impl<'o> Index<'o> {
    /// The outline has no fault.
    pub(super) fn new(outline: &'o Outline) -> Self {
        let (mut forms, mut numbers) = (Vec::new(), HashMap::new());
        let mut uses = vec![Vec::new(); outline.stores.len()];
        let mut places = Vec::with_capacity(outline.ops.len());
        for (number, op) in outline.ops.iter().enumerate() {
            let mut place = |(access, of): (usize, &'o Access)| {
                let store = of.store.index();
                let form = Form { extents: &outline.stores[store].extents, launch: op.axes(), part: &of.part };
                let form = *numbers.entry(form).or_insert_with(|| {
                    forms.push(form);
                    forms.len() as u32 - 1
                });
                uses[store].push(UseId { op: number, access });
                (form, uses[store].len() - 1)
            };
            places.push(op.accesses.iter().enumerate().map(&mut place).collect());
        }
        let met = RefCell::default();
        Self { outline, lifetimes: Lifetimes::new(outline), forms, places, uses, met }
    }

    pub(super) fn access(&self, UseId { op, access }: UseId) -> &'o Access {
        &self.outline.ops[op].accesses[access]
    }

    /// Returns the number of a use's form.
    pub(super) fn form(&self, used: UseId) -> u32 {
        self.places[used.op][used.access].0
    }

    /// Returns the number of batches of the operations with a form.
    pub(super) fn batches(&self, form: u32) -> u64 {
        self.forms[form as usize].launch.iter().product()
    }

    /// Returns the uses of a store by the operations from one to another.
    pub(super) fn uses(&self, store: StoreId, (first, last): (usize, usize)) -> &[UseId] {
        let all = &self.uses[store.index()];
        &all[all.partition_point(|used| used.op < first)..all.partition_point(|used| used.op <= last)]
    }

    /// Returns whether no operation from `first` on uses the store before.
    pub(super) fn is_first(&self, used: UseId, first: usize) -> bool {
        let before = self.places[used.op][used.access].1.checked_sub(1);
        before.is_none_or(|before| self.uses[self.access(used).store.index()][before].op < first)
    }

    /// Returns whether it is the last use of its store.
    pub(super) fn is_last(&self, used: UseId) -> bool {
        self.places[used.op][used.access].1 + 1 == self.uses[self.access(used).store.index()].len()
    }

    /// Returns how uses of a store with these forms meet; None if they share no element.
    pub(super) fn meeting(&self, earlier: u32, later: u32) -> Option<Meeting> {
        let mut known = self.met.borrow_mut();
        if known.len() >= MET_MAX {
            known.clear();
        }
        *known.entry((earlier, later)).or_insert_with(|| {
            let [earlier, later] = [earlier, later].map(|form| self.forms[form as usize]);
            let used = |form: Form<'o>| Use { launch: form.launch, part: form.part };
            meeting(earlier.extents, used(earlier), used(later))
        })
    }
}
