//! Operations that are being joined, and the union of their variables.

use std::mem;

use super::description::Op;
use crate::engine::hash::hash;
use crate::engine::order::{Access, Accesses, Body, Joined, Operation, REQUESTS_MAX, Rest, Role, Unpushed};
use crate::error::{Error, Kind};
use crate::name::Name;

/// Operations that are being joined. Their variables are borrowed for as long as the joined one's.
#[derive(Default)]
pub(super) struct Parts {
    operations: Joined,
    used: Used,
    fault: Option<Error>,
}

impl Parts {
    pub(super) fn with_capacity(operations: usize) -> Self {
        Self { operations: Joined::with_capacity(operations), ..Self::default() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    #[inline]
    pub(super) fn add(&mut self, op: &mut Op<'_>) {
        let Some(operation) = op.unpushed().get() else { return };
        if self.fault.is_none() {
            self.fault = operation.fault().cloned().or_else(|| why_not_joined(operation));
        }
        self.add_task(op.unpushed());
    }

    /// Adds an operation that can be joined.
    #[inline(always)]
    pub(super) fn add_task(&mut self, unpushed: &mut Unpushed<'_>) {
        let Some(operation) = unpushed.get() else { return };
        // Nearly all use one variable.
        match operation.accesses() {
            [access] => self.used.add(access),
            many => self.used.add_all(many),
        }
        self.operations.push(unpushed);
    }

    /// Joins the operations. None are left.
    pub(super) fn join<'v>(&mut self, name: Name) -> Op<'v> {
        let next = Joined::with_capacity(self.operations.len());
        let operations = mem::replace(&mut self.operations, next);
        let body = Body::new(|_, rest| {
            *rest = Rest::Parts(operations);
            Ok(())
        });
        let accesses = self.used.take();
        let fits = accesses.len() <= REQUESTS_MAX;
        let mut operation = Operation::new(name, accesses, body);
        operation.role = Role::Joins;
        let mut unpushed = Unpushed::new(operation);
        // The accesses are distinct, so only their number can be a mistake.
        if !fits {
            unpushed.check(false);
        }
        let mut op = Op(unpushed);
        self.fault.take().into_iter().for_each(|fault| op.set(|operation| operation.set_fault(fault)));
        op
    }
}

#[inline]
fn why_not_joined(operation: &Operation) -> Option<Error> {
    (!operation.is_task()).then(|| Kind::OpNotJoined { operation: operation.name.to_cow() }.into())
}

/// A set of accesses, one for each variable, found by its address: a hash table with linear probing.
#[derive(Default)]
struct Used {
    accesses: Vec<Access>,
    /// The place of an access plus one, or 0. Of a length that is a power of two, and at most half full.
    places: Vec<u32>,
}

/// The length of the first table.
const PLACES: usize = 64;

impl Used {
    #[inline(never)]
    fn add_all(&mut self, many: &[Access]) {
        many.iter().for_each(|access| self.add(access));
    }

    #[inline(always)]
    fn add(&mut self, access: &Access) {
        if self.places.len() <= 2 * self.accesses.len() {
            self.grow();
        }
        let (address, mask) = (access.address(), self.places.len() - 1);
        let mut at = place_of(address) & mask;
        while self.places[at] != 0 {
            let known = &mut self.accesses[self.places[at] as usize - 1];
            if known.address() == address {
                known.add(access.mode());
                return;
            }
            at = (at + 1) & mask;
        }
        self.accesses.push(access.again());
        self.places[at] = self.accesses.len() as u32;
    }

    #[cold]
    fn grow(&mut self) {
        let length = (2 * self.places.len()).max(PLACES);
        self.places.clear();
        self.places.resize(length, 0);
        for (place, access) in (1..).zip(&self.accesses) {
            let mut at = place_of(access.address()) & (length - 1);
            while self.places[at] != 0 {
                at = (at + 1) & (length - 1);
            }
            self.places[at] = place;
        }
    }

    /// Takes the accesses. The table is kept for the next ones.
    fn take(&mut self) -> Accesses {
        self.places.fill(0);
        let next = Vec::with_capacity(self.accesses.len());
        Accesses::from_vec(mem::replace(&mut self.accesses, next))
    }
}

#[inline]
fn place_of(address: usize) -> usize {
    (hash(address) >> 32) as usize
}
