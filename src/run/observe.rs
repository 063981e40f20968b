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
        let name = &self.plan().name_of(node);
        let span = NodeSpan {
            run: self.number,
            plan: &self.plan,
            id: node,
            node: name,
            stream: self.code().stream_of(node),
            started: ran.started,
            ended: ran.ended,
            is_ok: ran.is_ok,
            launched,
        };
        if let Err(message) = inside(0, || shielded(|| observer.node(&span))) {
            self.add_fault(Some(node), Kind::Observer { node: name.clone(), message }.into());
        }
    }
}
