//! The spans of a run's nodes, and the calls of its observer.

use std::time::Instant;

use super::inner::Item;
use crate::error::{Kind, shielded};
use crate::graph::NodeId;
use crate::runtime::{NodeSpan, inside};

impl Item<'_> {
    /// Returns the span of a node that ran from `start` until now, if there is an observer.
    pub(super) fn span(self, node: NodeId, start: Instant, is_ok: bool) -> Option<NodeSpan> {
        self.run.core.observer.as_ref()?;
        let span = NodeSpan::new(&self.run.plan, node, self.code().stream_of(node), start, Instant::now());
        Some(NodeSpan { run: self.run.number, item: self.number(), is_ok, ..span })
    }

    pub(super) fn observe(self, span: Option<NodeSpan>) {
        let (Some(observer), Some(span)) = (&self.run.core.observer, span) else { return };
        if let Err(message) = inside(0, || shielded(|| observer.node(&span))) {
            self.add_fault(Some(span.id), Kind::Observer { node: span.node, message }.into());
        }
    }
}
