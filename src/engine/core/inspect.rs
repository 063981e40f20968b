//! The operations that the futures of operations await, found by the wakers that these have left.

use std::collections::HashMap;
use std::task::Waker;

use super::engine_core::EngineCore;
use crate::engine::order::Seen;
use crate::error::{Kind, Result};

/// What an inspection knows of the futures of operations.
pub(in crate::engine) struct Futures {
    /// The operations whose futures are pending.
    pub(in crate::engine) pending: Vec<u32>,
    /// The awaited operations, each with the one whose future awaits it, or None for another waiter.
    pub(in crate::engine) awaits: Vec<(u32, Option<u32>)>,
    /// Operations that have left their queues may be on a device.
    pub(in crate::engine) has_devices: bool,
}

impl EngineCore {
    /// Returns the pending operations, and the operations that their futures await.
    ///
    /// # Errors
    /// In a forked child, and if the system refuses the barrier that an inspection needs.
    pub(in crate::engine) fn inspect(&self) -> Result<(Vec<Seen>, Futures)> {
        self.check_process()?;
        let seen = self.slots.inspect().ok_or_else(|| Kind::NoBarrier.into())?;
        let parked = self.async_ops.parked();
        let owners: HashMap<*const (), u32> = parked.iter().copied().collect();
        let waker = |number: u32| self.handles.wakers.of(number).as_ref().map(Waker::data);
        let awaits = seen.iter().filter_map(|seen| Some((seen.number, owners.get(&waker(seen.number)?).copied()))).collect();
        let pending = parked.into_iter().map(|(_, number)| number).collect();
        Ok((seen, Futures { pending, awaits, has_devices: self.lanes.is_some() }))
    }
}
