//! The uses by devices that an operation comes after.

use std::sync::Arc;

use smallvec::SmallVec;

use super::device_use::{DeviceUse, Failure};
use super::operation::Granted;
use crate::error::shielded;

pub(crate) struct Predecessors(pub(crate) SmallVec<[Predecessor; 4]>);

pub(crate) struct Predecessor {
    pub(crate) device_use: Arc<DeviceUse>,
    /// Some if the operation reads what this use wrote: if the use fails, the operation fails.
    pub(crate) input: Option<Failure>,
}

impl Predecessors {
    /// Returns the predecessors of an operation that has been granted its variables.
    pub(crate) fn of(operation: &Granted<'_>) -> Self {
        let mut found: SmallVec<[Predecessor; 4]> = SmallVec::new();
        for (access, variable) in operation.variables() {
            let _ = variable.device_uses.find(access.mode(), |device_use, input| {
                match found.iter_mut().find(|known| Arc::ptr_eq(&known.device_use, device_use)) {
                    Some(known) => known.input = known.input.take().or(input.cloned()),
                    None => found.push(Predecessor { device_use: device_use.clone(), input: input.cloned() }),
                }
                None::<()>
            });
        }
        Self(found)
    }

    /// Returns a predecessor that has not ended.
    pub(crate) fn pending(operation: &Granted<'_>) -> Option<Arc<DeviceUse>> {
        operation.variables().find_map(|(access, variable)| {
            let pending = |device_use: &Arc<DeviceUse>, _: Option<&Failure>| (!device_use.is_over()).then(|| device_use.clone());
            variable.device_uses.find(access.mode(), pending)
        })
    }

    /// Returns the predecessors that the operation reads from, if they may still fail.
    pub(crate) fn inputs(&self) -> SmallVec<[(Arc<DeviceUse>, Failure); 2]> {
        let may_fail = |known: &Predecessor| {
            let input = known.input.clone().filter(|input| !known.device_use.is_over() || input.get().is_some())?;
            Some((known.device_use.clone(), input))
        };
        self.0.iter().filter_map(may_fail).collect()
    }

    /// Drops each predecessor apart, because it may hold foreign values.
    pub(crate) fn release(self) {
        self.0.into_iter().for_each(|known| _ = shielded(|| drop(known)));
    }
}
