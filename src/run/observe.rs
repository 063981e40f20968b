//! The spans of a run's nodes, and the calls of its observer.

use std::time::Instant;

use super::inner::RunInner;
use crate::error::{Kind, shielded};
use crate::graph::NodeId;
use crate::runtime::{NodeSpan, inside};

impl RunInner {
    /// Returns the span of a node that ran from `start` until now, if there is an observer.
    pub(super) fn span(&self, node: NodeId, start: Instant, is_ok: bool) -> Option<NodeSpan> {
        self.core.observer.as_ref()?;
        let span = NodeSpan::new(&self.plan, node, self.code().stream_of(node), start, Instant::now());
        Some(NodeSpan { run: self.number, is_ok, ..span })
    }

    pub(super) fn observe(&self, span: Option<NodeSpan>) {
        let (Some(observer), Some(span)) = (&self.core.observer, span) else { return };
        if let Err(message) = inside(0, || shielded(|| observer.node(&span))) {
            self.add_fault(Some(span.id), Kind::Observer { node: span.node, message }.into());
        }
    }
}
