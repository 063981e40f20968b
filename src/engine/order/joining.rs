//! Operations that are being joined into one, and the union of their variables: the joined operation has one
//! access to each variable that a part uses.

use std::mem;

use super::access::Access;
use super::body::Joined;
use super::operation::{Accesses, Operation, Unpushed};
use super::variable::Variable;
use crate::engine::hash::hash;

/// Operations that are being joined. Their variables are borrowed for as long as the joined one's.
#[derive(Default)]
pub(crate) struct Joining {
    operations: Vec<Operation>,
    used: Used,
}

impl Joining {
    pub(crate) fn with_capacity(operations: usize) -> Self {
        Self { operations: Vec::with_capacity(operations), used: Used::default() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Adds an operation.
    pub(crate) fn add(&mut self, unpushed: &mut Unpushed<'_>) {
        let Some(operation) = &unpushed.operation else { return };
        self.operations.reserve(1);
        for access in operation.accesses() {
            if !self.used.add_within_capacity(access) {
                self.used.reserve();
                let is_added = self.used.add_within_capacity(access);
                // Without an access its parts would race.
                assert!(is_added, "there is capacity for one more");
            }
        }
        self.push_within_capacity(unpushed);
    }

    /// Adds an operation if it uses one variable, `is_accepted`, and no memory must be allocated. Returns
    /// true if it was added.
    #[inline(always)]
    pub(crate) fn add_within_capacity(
        &mut self,
        unpushed: &mut Unpushed<'_>,
        is_accepted: impl FnOnce(&Operation, &Variable) -> bool,
    ) -> bool {
        let Some(operation) = &unpushed.operation else { return false };
        let [access] = operation.accesses() else { return false };
        // SAFETY: the operation was not pushed and frees nothing, so there is a handle to its variable.
        let is_accepted = is_accepted(operation, unsafe { access.variable() });
        if !is_accepted || self.operations.len() == self.operations.capacity() || !self.used.add_within_capacity(access) {
            return false;
        }
        self.push_within_capacity(unpushed)
    }

    /// Moves an operation behind the others. The caller has made sure that there is one, and capacity.
    #[inline(always)]
    fn push_within_capacity(&mut self, unpushed: &mut Unpushed<'_>) -> bool {
        let Some(operation) = &unpushed.operation else { return false };
        let Some(end) = self.operations.spare_capacity_mut().first_mut() else { return false };
        // Copied at once. `Vec::push` would copy it twice, and the second copy would wait for the first one.
        // SAFETY: two places, of which the second is free. The first is forgotten below.
        unsafe { std::ptr::copy_nonoverlapping(operation, end.as_mut_ptr(), 1) };
        // SAFETY: the operation was copied, so it is not dropped here.
        unsafe { std::ptr::write(&raw mut unpushed.operation, None) };
        // SAFETY: the place behind the last operation was initialised above.
        unsafe { self.operations.set_len(self.operations.len() + 1) };
        true
    }

    /// Returns the operations, and an access to each of their variables. Keeps capacity for as many.
    pub(crate) fn take(&mut self) -> (Joined, Accesses) {
        let next = Vec::with_capacity(self.operations.len());
        (Joined(mem::replace(&mut self.operations, next)), self.used.take())
    }
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
    /// Adds an access if no memory must be allocated. Returns true if it was added.
    #[inline(always)]
    fn add_within_capacity(&mut self, access: &Access) -> bool {
        let length = self.places.len();
        if length < 2 * (self.accesses.len() + 1) {
            return false;
        }
        let at = place_of(access.address()) & (length - 1);
        if self.places[at] != 0 { self.add_beside(at, access) } else { self.add_at(at, access) }
    }

    /// Adds an access at this place or one behind it. Not inlined: its loop would make the caller save
    /// registers.
    #[inline(never)]
    fn add_beside(&mut self, mut at: usize, access: &Access) -> bool {
        while self.places[at] != 0 {
            let known = &mut self.accesses[self.places[at] as usize - 1];
            if known.address() == access.address() {
                known.add(access.mode());
                return true;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.add_at(at, access)
    }

    /// Adds an access at a free place.
    #[inline(always)]
    fn add_at(&mut self, at: usize, access: &Access) -> bool {
        let length = self.accesses.len();
        let Some(end) = self.accesses.spare_capacity_mut().first_mut() else { return false };
        end.write(access.again());
        // SAFETY: the place behind the last access was initialised above.
        unsafe { self.accesses.set_len(length + 1) };
        self.places[at] = length as u32 + 1;
        true
    }

    /// Provides capacity for one more access.
    fn reserve(&mut self) {
        self.accesses.reserve(1);
        if self.places.len() < 2 * (self.accesses.len() + 1) {
            self.grow();
        }
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
