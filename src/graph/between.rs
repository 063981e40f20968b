//! Data that passes from item to item in the graph of a pipeline: states and feedback. Each is an input of
//! the graph, which the pipeline fills itself. Also the order between nodes of different items.

use std::sync::Arc;

use super::NodeId;
use crate::error::PortKind;
use crate::name::Name;
use crate::value::Cells;

/// An edge from item to item: `target` waits for `source` of an earlier item. `items` is the distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ItemEdge {
    pub(crate) source: NodeId,
    pub(crate) target: NodeId,
    pub(crate) items: u32,
}

/// A function that puts a value into the cells of an iteration.
pub(crate) type Fill = Box<dyn Fn(Cells<'_>)>;

/// A state or a feedback, and its input of the graph.
#[derive(Clone)]
pub(crate) struct Between {
    pub(crate) name: Name,
    pub(crate) input: u32,
    /// Makes the value with which a run of the pipeline begins.
    pub(crate) init: Arc<dyn Fn() -> Fill + Send + Sync>,
    pub(crate) is: Stays,
}

#[derive(Clone)]
pub(crate) enum Stays {
    State {
        holder: Option<NodeId>,
    },
    Feedback {
        /// The value that is fed back, once [`Graph::feed`](super::Graph::feed) named it.
        from: Option<u32>,
        /// Copies the value from the cells of one iteration to those of another.
        copy: fn(Cells<'_>, u32, Cells<'_>, u32),
    },
}

/// The reason why no node may take a value by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    Result,
    FedBack,
    Feedback,
}

impl Stays {
    pub(crate) fn kind(&self) -> PortKind {
        if matches!(self, Self::State { .. }) { PortKind::State } else { PortKind::Feedback }
    }
}

impl Kept {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Result => "it is a result of the pipeline: read it by reference",
            Self::FedBack => "it is fed back to a later item: read it by reference",
            Self::Feedback => "it stays until the next item has its own: read it by reference",
        }
    }
}
