//! Anabranch itself, as one of the peers.

use crate::peers::{Load, Peer};
use crate::shapes::Shape;

/// Name of our column.
pub(crate) const NAME: &str = "anabranch";

/// The graph is compiled once per shape and the plan run many times.
pub(crate) struct Ours;

impl Ours {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Peer for Ours {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, _shape: &Shape, _load: &Load) -> Option<f64> {
        None
    }
}
