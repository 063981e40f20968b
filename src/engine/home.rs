//! A pending operation's reference to its engine. It is counted only if workers, or other flows, go on with
//! the operation when no handle is left. Otherwise the two would keep each other alive.

use std::sync::{Arc, Weak};

use super::hub::Hub;
use crate::error::shielded;

/// A pending operation's reference to its engine.
pub(super) enum Home {
    Kept(Arc<Hub>),
    /// The engine goes with its last handle, because nothing can poll it any more. Its pending operations go
    /// with it.
    Seen(Weak<Hub>),
}

impl Home {
    pub(super) fn of(hub: &Arc<Hub>) -> Self {
        if hub.is_kept { Self::Kept(hub.clone()) } else { Self::Seen(Arc::downgrade(hub)) }
    }

    /// Calls `act` with the engine, if it is there.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<Hub>) -> R) -> Option<R> {
        match self {
            Self::Kept(hub) => Some(act(hub)),
            Self::Seen(hub) => {
                let hub = hub.upgrade()?;
                let done = act(&hub);
                // This may be the last reference: dropping the engine drops foreign values.
                let _ = shielded(|| drop(hub));
                Some(done)
            }
        }
    }
}
