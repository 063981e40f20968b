//! What a run gave: values by name.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Kind, Result};
use crate::plan::Plan;

/// The outputs of a finished run.
pub struct Outputs {
    pub(super) plan: Plan,
    pub(super) values: SmallVec<[Option<Arc<dyn Any + Send + Sync>>; 2]>,
}

impl Outputs {
    /// Takes the output of this name out.
    ///
    /// # Errors
    /// If the plan has no such output, it is of another type, or it was taken before.
    pub fn take<T: Send + Sync + 'static>(&mut self, name: &str) -> Result<Arc<T>> {
        let ports = &self.plan.inner().outputs;
        let Some(index) = ports.iter().position(|port| *port.name == *name) else {
            let known = ports.iter().map(|port| port.name.clone()).collect();
            return Err(Kind::UnknownOutput { name: name.into(), known }.into());
        };
        let value = self.values[index].take().ok_or_else(|| Kind::OutputTaken { name: name.into() }.into())?;
        value.downcast::<T>().map_err(|value| {
            self.values[index] = Some(value);
            let (expected, asked) = (self.plan.inner().outputs[index].type_name, std::any::type_name::<T>());
            Kind::OutputType { name: name.into(), expected, asked }.into()
        })
    }

    /// Returns the names of all outputs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plan.inner().outputs.iter().map(|port| &*port.name)
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
