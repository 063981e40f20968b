//! The engine, as what is pending in it has it: counted only where somebody goes on with what is pending
//! though nobody else has the engine. Else the two would keep each other.

use std::sync::{Arc, Weak};

use super::hub::Hub;
use crate::bridge::shielded;

/// The engine of something that is pending in it.
pub(super) enum Home {
    Kept(Arc<Hub>),
    /// Gone when nobody is left who could poll anything of it; then what is pending is dropped with it.
    Seen(Weak<Hub>),
}

impl Home {
    pub(super) fn of(hub: &Arc<Hub>) -> Self {
        if hub.is_kept { Self::Kept(hub.clone()) } else { Self::Seen(Arc::downgrade(hub)) }
    }

    /// Does that with the engine, if it is there.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<Hub>) -> R) -> Option<R> {
        match self {
            Self::Kept(hub) => Some(act(hub)),
            Self::Seen(hub) => {
                let hub = hub.upgrade()?;
                let done = act(&hub);
                // Perhaps the last by now: what it drops then is foreign.
                let _ = shielded(|| drop(hub));
                Some(done)
            }
        }
    }

    /// Returns the engine, for who has it by that [keeper](Home::keeper).
    #[inline]
    pub(super) fn hub<'h>(&'h self, keeper: &'h Option<Arc<Hub>>) -> &'h Arc<Hub> {
        match self {
            Self::Kept(hub) => hub,
            Self::Seen(_) => keeper.as_ref().expect("it was there when the keeper was asked for"),
        }
    }

    /// Returns what whoever is to poll keeps the engine by, if this does not.
    pub(super) fn keeper(&self) -> Option<Arc<Hub>> {
        if let Self::Seen(hub) = self { hub.upgrade() } else { None }
    }
}
