//! Operations that are being joined into one.

use super::description::Op;
use crate::engine::order::{Body, Joining, Operation, REQUESTS_MAX, Rest, Role, Unpushed};
use crate::error::{Error, Kind};
use crate::name::Name;

/// Operations that are being joined, and the first mistake in them.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) joining: Joining,
    fault: Option<Error>,
}

impl Parts {
    pub(super) fn with_capacity(operations: usize) -> Self {
        Self { joining: Joining::with_capacity(operations), fault: None }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.joining.len()
    }

    pub(super) fn add(&mut self, op: &mut Op<'_>) {
        let Some(operation) = op.unpushed().get() else { return };
        if self.fault.is_none() {
            self.fault = operation.fault().cloned().or_else(|| why_not_joined(operation));
        }
        self.joining.add(op.unpushed());
    }

    /// Joins the operations. None are left.
    pub(super) fn join<'v>(&mut self, name: Name) -> Op<'v> {
        let (operations, accesses) = self.joining.take();
        let body = Body::new(|_, rest| {
            *rest = Rest::Parts(operations);
            Ok(())
        });
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
