//! Operations that must not be pushed, and why.

use super::engine_core::EngineCore;
use crate::engine::order::{Operation, Unpushed, Variable};
use crate::error::{Error, Kind};

impl EngineCore {
    /// Returns the error if an operation must not be pushed.
    #[inline]
    pub(in crate::engine) fn fault(&self, unpushed: &mut Unpushed<'_>) -> Option<Error> {
        let operation = unpushed.get()?;
        let mut is_odd = self.is_odd(operation);
        unpushed.each_variable(|_, variable| is_odd |= variable.engine != self.address());
        if is_odd { self.describe_fault(unpushed) } else { None }
    }

    /// Returns whether an operation that uses only this variable may be pushed.
    #[inline(always)]
    pub(in crate::engine) fn is_accepted(&self, operation: &Operation, variable: &Variable) -> bool {
        variable.engine == self.address() && !self.is_odd(operation)
    }

    /// Returns true for few operations: [`EngineCore::describe_fault`] may find a mistake in them, or notes
    /// for observers that they are pushed.
    #[inline(always)]
    fn is_odd(&self, operation: &Operation) -> bool {
        operation.is_kernel || operation.fault().is_some() || self.is_closed_or_observed() || self.is_forked()
    }

    #[cold]
    fn describe_fault(&self, unpushed: &mut Unpushed<'_>) -> Option<Error> {
        if let Some(observed) = &self.observed {
            let note = |operation: &mut Operation| operation.note_pushed(|| observed.observers.origins());
            unpushed.get_mut().into_iter().for_each(note);
        }
        let operation = unpushed.get()?;
        if let Err(forked) = self.check_process() {
            return Some(forked);
        }
        if self.is_closed() {
            return Some(Kind::ShutDown.into());
        }
        let name = || operation.name.to_cow();
        if let (Some(lanes), Some(target)) = (&self.lanes, operation.kernel())
            && target.device as usize >= lanes.device_count()
        {
            let (device, count) = (target.device, lanes.device_count());
            return Some(Kind::OpDevice { operation: name(), device, count }.into());
        }
        if let Some(fault) = operation.fault() {
            return Some(fault.clone());
        }
        let mut foreign = None;
        unpushed.each_variable(|_, variable| {
            if foreign.is_none() && variable.engine != self.address() {
                foreign = Some(Kind::ForeignVar { variable: variable.name.to_cow(), operation: name() }.into());
            }
        });
        foreign
    }
}
