//! What observers hear of a run's nodes.

use std::time::Instant;

use super::inner::RunInner;
use crate::error::{Kind, shielded};
use crate::graph::NodeId;
use crate::runtime::{Launched, NodeSpan, inside};

/// The time and the success of a call of a node's body.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    started: Instant,
    ended: Instant,
    pub(super) is_ok: bool,
}

impl Ran {
    /// A call that ends now.
    pub(super) fn since(started: Instant, is_ok: bool) -> Self {
        Self { started, ended: Instant::now(), is_ok }
    }
}

impl RunInner {
    pub(super) fn observe(&self, node: NodeId, ran: Ran, launched: Launched) {
        let Some(observer) = &self.core.observer else { return };
        let Ran { started, ended, is_ok } = ran;
        let span = NodeSpan::new(&self.plan, node, self.code().stream_of(node), started, ended);
        let span = NodeSpan { run: self.number, is_ok, launched, ..span };
        if let Err(message) = inside(0, || shielded(|| observer.node(&span))) {
            self.add_fault(Some(node), Kind::Observer { node: span.node, message }.into());
        }
    }
}
