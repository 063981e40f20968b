//! A pending operation's reference to its engine. It is counted only if workers or other flows continue with
//! the operation when no handle is left. Otherwise engine and operation would keep each other alive.

use std::sync::{Arc, Weak};

use super::engine_core::EngineCore;
use crate::error::shielded;

pub(super) enum EngineRef {
    Counted(Arc<EngineCore>),
    /// The engine and its pending operations are dropped with its last handle, because nothing can poll them
    /// any more.
    Uncounted(Weak<EngineCore>),
}

impl EngineRef {
    pub(super) fn new(core: &Arc<EngineCore>) -> Self {
        if core.is_kept { Self::Counted(core.clone()) } else { Self::Uncounted(Arc::downgrade(core)) }
    }

    /// Calls `act` with the engine, if it is there.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<EngineCore>) -> R) -> Option<R> {
        match self {
            Self::Counted(core) => Some(act(core)),
            Self::Uncounted(core) => {
                let core = core.upgrade()?;
                let done = act(&core);
                // This may be the last reference: dropping the engine drops foreign values.
                let _ = shielded(|| drop(core));
                Some(done)
            }
        }
    }
}
