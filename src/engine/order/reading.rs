//! The reads of a few variables, without an operation.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::access::Access;
use super::variable::Variable;

/// One or two variables that are read.
pub(crate) struct Reading<'v> {
    first: NonNull<Variable>,
    second: Option<NonNull<Variable>>,
    vars: PhantomData<&'v ()>,
}

impl Reading<'_> {
    /// Returns the variables of these accesses, if they are only read. The caller has handles to them for
    /// `'v`.
    #[inline]
    pub(crate) fn of(first: &Access, second: Option<&Access>) -> Option<Self> {
        let is_read = |access: &Access| !access.uses().changes();
        // SAFETY: the caller has handles to the variables.
        let variable = |access: &Access| NonNull::from(unsafe { access.variable() });
        let reads = is_read(first) && second.is_none_or(is_read);
        reads.then(|| Self { first: variable(first), second: second.map(variable), vars: PhantomData })
    }

    #[inline]
    pub(crate) fn first(&self) -> &Variable {
        // SAFETY: the caller of `of` has handles to the variables.
        unsafe { self.first.as_ref() }
    }

    #[inline]
    pub(crate) fn second(&self) -> Option<&Variable> {
        // SAFETY: the caller of `of` has handles to the variables.
        self.second.as_ref().map(|second| unsafe { second.as_ref() })
    }
}
