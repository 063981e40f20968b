//! The pending operations, as an inspection sees them.

use super::access::Access;
use super::handle_state::Key;
use super::inspection::Inspecting;
use super::operation::{Operation, Role};
use super::slots::{LEFT, Slots};
use crate::sync::Ordering;

/// A pending operation, as an inspection saw it.
pub(crate) struct Seen {
    pub(crate) number: u32,
    pub(crate) name: String,
    /// It has left its queues: it ends, or a device has its work.
    pub(crate) has_left: bool,
    /// Without names if it has left its queues.
    pub(crate) accesses: Vec<SeenAccess>,
}

/// A request in the queue of a variable.
pub(crate) struct SeenAccess {
    /// The address of the variable, to compare.
    pub(crate) address: usize,
    pub(crate) variable: String,
    pub(crate) is_write: bool,
    /// It reads, and is granted.
    pub(crate) is_granted_read: bool,
    /// The number of the operation that is linked behind it. Behind a granted read that may be an operation
    /// that has left.
    pub(crate) behind: Option<u32>,
}

impl Slots {
    /// Returns the pending operations, but for those that free variables. Returns None if the system refuses
    /// the barrier that this needs.
    pub(crate) fn inspect(&self) -> Option<Vec<Seen>> {
        // The lock keeps pushes out, so the queues only become shorter.
        let free = self.free();
        let inspecting = self.inspection.begin()?;
        let mut all: Vec<Seen> = (0..free.made).filter_map(|number| self.see(number, &inspecting)).collect();
        // An operation that has left meanwhile may have been seen ahead of one that was granted since. The
        // others have kept their places, so what was seen of them is true at one time.
        for seen in &mut all {
            // ORDERING: Acquire: if a read was seen as granted, the LEFT of the write ahead is visible.
            seen.has_left |= self.get(seen.number).holds.load(Ordering::Acquire) == LEFT;
        }
        Some(all)
    }

    /// Returns the access of the operation that this thread polls that keeps the awaited one from a variable.
    /// Returns None if there is none, or the system refuses the barrier that this needs.
    pub(super) fn keeping<'o>(&self, polled: &'o Operation, awaited: Key) -> Option<&'o Access> {
        let _inspecting = self.inspection.begin()?;
        let slot = self.get(awaited.number());
        // ORDERING: Acquire pairs with the Release in `Batch::enter`: the operation is in the slot.
        if slot.refs.load(Ordering::Acquire) == 0 || slot.handle.key(awaited.number()) != awaited {
            return None;
        }
        // An operation that was ahead of the polled one has left.
        // ORDERING: Acquire: the grant of the polled operation orders it after that LEFT.
        if slot.holds.load(Ordering::Acquire) == LEFT {
            return None;
        }
        // SAFETY: the slot has refs after the heavy side of the barrier. So the thread that releases the
        // last of them waits for this inspection before it clears the slot.
        polled.keeping(unsafe { slot.operation() }, |_| false)
    }

    fn see(&self, number: u32, _: &Inspecting<'_>) -> Option<Seen> {
        let slot = self.get(number);
        // ORDERING: Acquire pairs with the Release in `Batch::enter`: the operation is in the slot.
        if slot.refs.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: the slot has refs after the heavy side of the barrier. So the thread that releases the
        // last of them waits for this inspection before it clears the slot.
        let operation: &Operation = unsafe { slot.operation() };
        if operation.role == Role::Frees {
            return None;
        }
        // ORDERING: the heavy side of the barrier orders this behind a LEFT whose variables may be freed.
        // Acquire pairs with the Release in `Ready::push`, though this is only shown.
        if slot.holds.load(Ordering::Acquire) == LEFT {
            let accesses = operation.accesses().iter().map(|access| SeenAccess::of(access, String::new())).collect();
            return Some(Seen { number, name: operation.name.to_string(), has_left: true, accesses });
        }
        let see = |access: &Access| {
            // SAFETY: the operation has not left its queues after the heavy side of the barrier. So the
            // operation that frees one of its variables is granted later, and waits for this inspection.
            SeenAccess::of(access, unsafe { access.variable() }.name.to_string())
        };
        let accesses = operation.accesses().iter().map(see).collect();
        // SAFETY: the operation has not left the queue of its variable, so that is alive, too.
        let name = unsafe { operation.full_name() }.into_owned();
        Some(Seen { number, name, has_left: false, accesses })
    }
}

impl SeenAccess {
    fn of(access: &Access, variable: String) -> Self {
        let (address, request) = (access.address(), &access.request);
        let (is_write, is_granted_read) = (request.is_write(), request.is_granted_read());
        Self { address, variable, is_write, is_granted_read, behind: request.behind().map(|link| link.id.operation()) }
    }
}
