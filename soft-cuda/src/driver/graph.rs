//! Graph definitions: commands and their order.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::command::Command;
use super::device::Device;
use super::lock;
use super::table::{Handle, Kind};
use crate::code::{Code, Outcome};

/// A node. Its predecessors were added before it, so the order of adding satisfies the edges.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    pub(crate) command: Command,
    /// The predecessors, by their places in the graph.
    pub(crate) after: Vec<usize>,
}

/// A graph of one device.
pub(crate) struct Graph {
    device: &'static Device,
    nodes: Mutex<Vec<Node>>,
}

impl Graph {
    pub(crate) fn new(device: &'static Device) -> Self {
        Self { device, nodes: Mutex::default() }
    }

    pub(crate) fn add(&self, command: Command, after: &[Handle]) -> Outcome<Handle> {
        let mut nodes = lock(&self.nodes);
        let place = |handle: &Handle| nodes.iter().position(|node| node.handle == *handle).ok_or(Code::INVALID_VALUE);
        let after = after.iter().map(place).collect::<Outcome<Vec<usize>>>()?;
        // ORDERING: Relaxed: the numbers only have to differ.
        let serial = self.device.numbers.last_node.fetch_add(1, Ordering::Relaxed) + 1;
        let handle = Handle::new(Kind::Node, self.device.ordinal, serial);
        nodes.push(Node { handle, command, after });
        Ok(handle)
    }

    /// Returns a copy of the nodes.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        lock(&self.nodes).clone()
    }

    /// Returns the nodes without successors.
    pub(crate) fn last_nodes(&self) -> Vec<Handle> {
        let nodes = lock(&self.nodes);
        let is_last = |place: usize| nodes.iter().all(|node| !node.after.contains(&place));
        nodes.iter().enumerate().filter(|&(place, _)| is_last(place)).map(|(_, node)| node.handle).collect()
    }
}
