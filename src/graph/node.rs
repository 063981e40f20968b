//! The properties of a node, set after it is added: its backend, command, cost and order-only edges.

use std::sync::Arc;

use super::builder::Graph;
use super::handle::Value;
use super::values::Maker;
use super::{Backend, Control, NodeId, NodeShape, Ranks};
use crate::error::Kind;
use crate::name::Name;

/// A node of a graph that is being built. Made by [`Graph::node`].
///
/// # Examples
/// ```
/// use anabranch::Graph;
///
/// let mut g = Graph::new();
/// let log = g.task("open log", (), || println!("begin"));
/// let image = g.task("left image", (), || vec![0_u8; 64]);
/// g.node(&image).command("decode").cost_us(120.0).after(&log);
///
/// let node = &g.shape().nodes()[1];
/// assert_eq!((&**node.command(), node.cost_us), ("decode", 120.0));
/// ```
#[derive(Debug)]
pub struct NodeMut<'g> {
    graph: &'g mut Graph,
    node: Option<NodeId>,
}

impl Graph {
    /// Adds an order-only edge: `later` starts after `earlier` is done, and does not read it.
    pub fn order<A: 'static, B: 'static>(&mut self, earlier: &Value<A>, later: &Value<B>) {
        self.node(later).after(earlier);
    }

    /// Returns the node that makes `value`, to set its properties:
    /// `g.node(&image).cost_us(120.0).command("decode")`.
    pub fn node<T: 'static>(&mut self, value: &Value<T>) -> NodeMut<'_> {
        let mut node = None;
        if !self.owns(value) {
            self.mistake(Kind::ForeignUse { user: "`node` or `order` is given" }.into());
        } else {
            match self.values[value.index as usize].maker {
                Maker::Node(found) => node = Some(found),
                Maker::Input(input) => {
                    let (kind, name) = (self.input_kind(input), self.inputs[input as usize].name.clone());
                    self.mistake(Kind::NotANode { kind, name }.into());
                }
            }
        }
        NodeMut { graph: self, node }
    }
}

impl NodeMut<'_> {
    /// Sets where the node prefers to run. The default is `Cpu` for tasks and async nodes, and `Gpu` for
    /// kernels.
    pub fn backend(self, backend: Backend) -> Self {
        self.with(|shape| shape.backend = backend)
    }

    /// Sets the kind of work, for policies that keep equal commands on one stream. The default is the node's
    /// name.
    pub fn command(self, command: impl Into<Name>) -> Self {
        let command = command.into();
        self.with(|shape| shape.command = Some(command))
    }

    /// Sets the devices that the node spans: one for most nodes, several for a collective. Device 0, the
    /// default, is the first device of the executor, whatever its ordinal. An empty list means the device on
    /// which the plan begins.
    ///
    /// A node that spans several devices runs on a stream of each device, and each of these streams waits for
    /// all that the node needs. The host device runs the node once.
    pub fn devices(self, devices: impl Into<Arc<[u32]>>) -> Self {
        let devices = devices.into();
        self.with(|shape| shape.devices = Some(devices))
    }

    /// Sets the expected duration in microseconds, for policies and simulations. The default is 1.
    pub fn cost_us(self, cost_us: f64) -> Self {
        self.with(|shape| shape.cost_us = cost_us)
    }

    /// Sets the phase, in a pipeline. Phases count from 1, and a node's phase is not before that of a node it
    /// reads. The nodes of a loop or a branch are in its phase, whatever they set. See
    /// [`Phases::Written`](crate::pipe::Phases::Written).
    pub fn phase(self, phase: u32) -> Self {
        self.with(|shape| shape.phase = Some(phase))
    }

    /// Sets the most iterations of a loop. If its condition holds once more, the run fails and the error
    /// names the loop.
    pub fn max_iterations(self, max: u64) -> Self {
        let Some(node) = self.node else { return self };
        if let Some(Control::Repeat { max_iterations, .. }) = self.graph.control_mut(node) {
            *max_iterations = Some(max);
        } else {
            let name = self.graph.full_name(node);
            self.graph.mistake(Kind::NotALoop { name }.into());
        }
        self
    }

    /// Adds an order-only edge: the node waits for `earlier` and does not read it.
    pub fn after<T: 'static>(self, earlier: &Value<T>) -> Self {
        if let Some(node) = self.node {
            self.graph.order_after(earlier, node);
        }
        self
    }

    /// Adds an order-only edge from item to item, in a pipeline: the node waits for the node that makes
    /// `earlier`, of the item that came `items` before. With 1 it is the previous item. So nodes of different
    /// items may share memory that is not a value, such as a ring of buffers. The phases of the two nodes may
    /// be in any order.
    ///
    /// If `earlier` fails or is skipped, the node runs all the same.
    /// [`Phases::Auto`](crate::pipe::Phases::Auto) and the report of phases do not count these edges. In
    /// lockstep, where an earlier phase has a later item, an edge that no item could satisfy is an error.
    ///
    /// # Examples
    /// A ring of three buffers. An item is written into its buffer after the item three before was read from
    /// it:
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use anabranch::pipe::Phases;
    /// use anabranch::{Executor, Pipeline, Ranked};
    /// use futures::{TryStreamExt, stream};
    ///
    /// static RING: [Mutex<usize>; 3] = [const { Mutex::new(0) }; 3];
    ///
    /// let pipeline = Pipeline::new("ring", &Ranked::default(), |g, item| {
    ///     let write = g.task("write", &item, |item: &usize| *RING[item % 3].lock().unwrap() = *item);
    ///     let read = g.task("read", &item, |item: &usize| *RING[item % 3].lock().unwrap());
    ///     g.node(&read).after(&write);
    ///     g.node(&write).after_item(&read, 3);
    ///     read
    /// })?;
    /// let pipeline = pipeline.phases(Phases::Each)?.in_flight(8)?;
    /// let exec = Executor::host()?;
    /// let results = exec.pipe(&pipeline, stream::iter(0..100));
    /// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?,
    /// (0..100).collect::<Vec<_>>());
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn after_item<T: 'static>(self, earlier: &Value<T>, items: u32) -> Self {
        if let Some(node) = self.node {
            self.graph.order_items(earlier, node, items);
        }
        self
    }

    /// Says that all ranks make the same value, in a plan for several ranks. So a loop may end by it. Without
    /// this, a node that reads nothing, or an input, counts as one whose values differ; any other node makes
    /// the same value on all ranks if all values that it reads are the same.
    pub fn replicated(self) -> Self {
        self.with(|shape| shape.ranks = Some(Ranks::Same))
    }

    /// Says that the node runs on one rank only, in a plan for several ranks. Where another rank reads its
    /// value, [`Graph::compile_for`] adds a transfer. Nodes without a rank run on all ranks.
    ///
    /// An output that such a node makes leaves the run on that rank only.
    pub fn rank(self, rank: u32) -> Self {
        self.with(|shape| shape.ranks = Some(Ranks::One(rank)))
    }

    /// Sets the expected size of the node's value, in bytes, for plans over several ranks. Without it, the
    /// size of its type counts, which is that of a `Vec` without its elements.
    pub fn bytes(self, bytes: u64) -> Self {
        self.with(|shape| shape.bytes = Some(bytes))
    }

    /// Says that each rank makes a value of its own, in a plan for several ranks: the body has something of
    /// its rank, beside the values that it reads.
    pub fn per_rank(self) -> Self {
        self.with(|shape| shape.ranks = Some(Ranks::Each))
    }

    fn with(self, change: impl FnOnce(&mut NodeShape)) -> Self {
        if let Some(node) = self.node {
            change(&mut self.graph.shape_mut().nodes_mut()[node.index()]);
        }
        self
    }
}
