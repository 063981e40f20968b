//! Capture: while a capture lasts, operations that are issued to a stream become nodes of a graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::command::Command;
use super::graph::Graph;
use super::lock;
use super::stream::Stream;
use super::table::Handle;
use crate::code::{Code, Outcome};

const ACTIVE: u8 = 0;
/// A call was made that no capture allows, so the capture can only be ended.
const INVALID: u8 = 1;
const ENDED: u8 = 2;

/// One capture, which may spread over many streams of its device.
pub(crate) struct Capture {
    graph: Arc<Graph>,
    /// The number of the stream on which it began.
    origin: u32,
    state: AtomicU8,
}

impl Capture {
    pub(crate) fn has_ended(&self) -> bool {
        // ORDERING: Acquire pairs with the AcqRel in `end_capture`. The graph has a lock of its own.
        self.state.load(Ordering::Acquire) == ENDED
    }

    fn is_invalid(&self) -> bool {
        // ORDERING: Acquire pairs with the AcqRel in `invalidate`.
        self.state.load(Ordering::Acquire) == INVALID
    }
}

/// A stream's part in a capture.
pub(crate) struct Member {
    pub(crate) capture: Arc<Capture>,
    /// The predecessors of the stream's next node.
    pub(crate) frontier: Vec<Handle>,
}

impl Member {
    pub(crate) fn has_ended(&self) -> bool {
        self.capture.has_ended()
    }

    pub(crate) fn add(&mut self, command: Command) -> Outcome {
        if self.capture.is_invalid() {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        let node = self.capture.graph.add(command, &self.frontier)?;
        self.frontier = vec![node];
        Ok(())
    }

    /// Adds nodes to the predecessors of the stream's next node.
    pub(crate) fn join(&mut self, capture: &Arc<Capture>, frontier: &[Handle]) -> Outcome {
        if !Arc::ptr_eq(&self.capture, capture) {
            self.invalidate();
            return Err(Code::CAPTURE_MERGE);
        }
        for &node in frontier {
            if !self.frontier.contains(&node) {
                self.frontier.push(node);
            }
        }
        Ok(())
    }

    pub(crate) fn invalidate(&self) {
        // ORDERING: AcqRel and Acquire pair with the exchanges of other streams in `invalidate` and
        // `end_capture`.
        let _ = self.capture.state.compare_exchange(ACTIVE, INVALID, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The result of `cuStreamIsCapturing`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Status {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

impl Stream {
    pub(crate) fn begin_capture(&self) -> Outcome {
        let mut issuing = lock(&self.issuing);
        if issuing.capturing().is_some() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let graph = Arc::new(Graph::new(self.device));
        let capture = Arc::new(Capture { graph, origin: self.number, state: AtomicU8::new(ACTIVE) });
        issuing.capture = Some(Member { capture, frontier: Vec::new() });
        Ok(())
    }

    /// Ends the capture that began on this stream and returns its graph.
    pub(crate) fn end_capture(&self) -> Outcome<Arc<Graph>> {
        let mut issuing = lock(&self.issuing);
        let member = issuing.capturing().ok_or(Code::INVALID_VALUE)?;
        if member.capture.origin != self.number {
            member.invalidate();
            return Err(Code::CAPTURE_UNMATCHED);
        }
        // ORDERING: AcqRel pairs with the Acquire in `has_ended`, and with the exchange in `invalidate`.
        let was = member.capture.state.swap(ENDED, Ordering::AcqRel);
        let Some(member) = issuing.capture.take() else { return Err(Code::UNKNOWN) };
        if was == INVALID {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        // Every node must precede the current position of the origin.
        if member.capture.graph.last_nodes().iter().any(|node| !member.frontier.contains(node)) {
            return Err(Code::CAPTURE_UNJOINED);
        }
        Ok(member.capture.graph.clone())
    }

    pub(crate) fn capture_status(&self) -> Status {
        match lock(&self.issuing).capturing() {
            None => Status::None,
            Some(member) if member.capture.is_invalid() => Status::Invalidated,
            Some(_) => Status::Active,
        }
    }

    /// Returns true if operations become nodes. Some operations cannot.
    pub(crate) fn is_capturing(&self) -> bool {
        lock(&self.issuing).capturing().is_some()
    }
}
