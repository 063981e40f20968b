//! A graph without its closures, for policies, plans and pictures. Nodes and edges keep the order in which
//! they were added, because ties are broken by it.

use std::sync::Arc;

use super::communication::{Communication, Ranks};
use super::nested::Control;
use crate::name::Name;

/// A node of one graph, by its position.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Shape};
///
/// let mut shape = Shape::new();
/// let decode = shape.node("decode", Backend::Cpu);
/// let infer = shape.node("infer", Backend::Gpu);
/// shape.read(decode, 0, infer);
/// assert_eq!(shape.nodes()[infer.index()].name, "infer");
/// assert_eq!(shape.ids().collect::<Vec<_>>(), [decode, infer]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Returns the position of the node in [`Shape::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The place where a node prefers to run. The words are those of DALI.
///
/// # Examples
/// A task prefers the host, and a kernel the device:
/// ```
/// use anabranch::graph::Backend;
/// use anabranch::{DeviceStream, Graph};
///
/// let mut g = Graph::new();
/// let x = g.task("x", (), || vec![1.0_f32]);
/// let x = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
/// assert_eq!(g.shape().nodes()[0].backend, Backend::Cpu);
/// assert_eq!(g.shape().nodes()[1].backend, Backend::Gpu);
///
/// g.node(&x).backend(Backend::Mixed);
/// assert_eq!(g.shape().nodes()[1].backend, Backend::Mixed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "json", derive(serde::Deserialize, serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Backend {
    /// On the host.
    #[default]
    Cpu,
    /// Reads host memory, writes device memory.
    Mixed,
    /// On the device.
    Gpu,
}

/// The memory in which a consumer reads a value.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Memory, Shape};
///
/// let mut shape = Shape::new();
/// let (read, up) = (shape.node("read", Backend::Cpu), shape.node("up", Backend::Mixed));
/// shape.read(read, 0, up);
/// assert_eq!(shape.memory_of(up), Memory::Gpu);
/// assert_eq!(shape.read_memory(&shape.edges()[0]), Some(Memory::Cpu));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "json", derive(serde::Deserialize, serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Memory {
    /// Host memory.
    Cpu,
    /// Device memory.
    Gpu,
}

/// The meaning of an edge.
///
/// # Examples
/// The number of edges that carry no value:
/// ```
/// use anabranch::Graph;
/// use anabranch::graph::EdgeKind;
///
/// let mut g = Graph::new();
/// let log = g.task("open log", (), || println!("begin"));
/// let x = g.task("x", (), || 1);
/// let y = g.task("y", &x, |x: &i32| x + 1);
/// g.node(&y).after(&log);
/// let orders = g.shape().edges().iter().filter(|edge| edge.kind == EdgeKind::Order);
/// assert_eq!(orders.count(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EdgeKind {
    /// The target reads an output of the source.
    Data {
        /// The number of the output of the source.
        output: u32,
        /// The memory in which the target reads it. None means the memory in which the source's backend
        /// leaves it.
        memory: Option<Memory>,
        /// Whether the target reads only the output's shape and type, so that it needs no device wait.
        metadata: bool,
    },
    /// The target waits for the source and reads nothing.
    Order,
}

/// An edge, source to target.
///
/// # Examples
/// A node that reads only the size of an image on a device:
/// ```
/// use anabranch::graph::{Backend, Edge, EdgeKind, Shape};
///
/// let mut shape = Shape::new();
/// let image = shape.node("image", Backend::Gpu);
/// let tiles = shape.node("choose tiles", Backend::Cpu);
/// shape.edge(Edge::new(image, tiles, EdgeKind::Data { output: 0, memory: None, metadata: true }));
///
/// let edge = shape.edges()[0];
/// assert_eq!((edge.source, edge.target), (image, tiles));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Edge {
    /// The node that comes first.
    pub source: NodeId,
    /// The node that comes after it.
    pub target: NodeId,
    /// What the edge means.
    pub kind: EdgeKind,
}

impl NodeShape {
    /// Returns the kind of work: the command if there is one, or else the name.
    pub fn command(&self) -> &Name {
        self.command.as_ref().unwrap_or(&self.name)
    }

    /// Returns the ordinals of the devices that the node spans.
    pub fn devices(&self) -> &[u32] {
        self.devices.as_deref().unwrap_or(&[0])
    }
}

impl Edge {
    /// Returns an edge from `source` to `target`.
    pub fn new(source: NodeId, target: NodeId, kind: EdgeKind) -> Self {
        Self { source, target, kind }
    }

    pub(crate) fn is_data(&self) -> bool {
        matches!(self.kind, EdgeKind::Data { .. })
    }

    /// Returns the same edge from another node: it reads this value of it, if it reads one.
    pub(crate) fn reading(mut self, source: NodeId, value: u32) -> Self {
        self.source = source;
        if let EdgeKind::Data { output, .. } = &mut self.kind {
            *output = value;
        }
        self
    }
}

impl EdgeKind {
    /// Returns the read of an output, in the memory where the source leaves it.
    pub(crate) fn data(output: u32) -> Self {
        Self::Data { output, memory: None, metadata: false }
    }
}

/// One node, for policies.
///
/// # Examples
/// The expected work of a graph, by command:
/// ```
/// use std::collections::BTreeMap;
///
/// use anabranch::graph::Shape;
///
/// fn work_us(shape: &Shape) -> BTreeMap<&str, f64> {
///     let mut work_us = BTreeMap::new();
///     for node in shape.nodes() {
///         *work_us.entry(&**node.command()).or_default() += node.cost_us;
///     }
///     work_us
/// }
///
/// # let mut g = anabranch::Graph::new();
/// # let (left, right) = (g.task("left", (), || 1), g.task("right", (), || 2));
/// g.node(&left).command("decode").cost_us(120.0);
/// g.node(&right).command("decode").cost_us(80.0);
/// assert_eq!(work_us(g.shape())["decode"], 200.0);
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeShape {
    /// The node's name, unique in its graph.
    pub name: Name,
    /// The place where it prefers to run.
    pub backend: Backend,
    /// The kind of work, for policies that keep equal commands together. None means the node's name.
    pub command: Option<Name>,
    /// The devices that it spans, each once, by their place among the executor's devices. None means device
    /// 0. An empty list means the device on which the plan begins.
    pub devices: Option<Arc<[u32]>>,
    /// Its expected duration in microseconds.
    pub cost_us: f64,
    /// Its phase in a pipeline, from 1 on, if it is set. Graphs in JSON have none.
    pub phase: Option<u32>,
    /// Its inner graphs, if it is a loop or a branch.
    pub control: Option<Arc<Control>>,
    /// The expected size of its value in bytes, if it is set.
    pub bytes: Option<u64>,
    /// The ranks on which it runs, if they are set.
    pub ranks: Option<Ranks>,
    /// What it exchanges between ranks, if it does.
    pub communication: Option<Arc<Communication>>,
}

/// A graph without closures.
///
/// The order of nodes and edges matters: where a policy chooses between equals, it chooses the first.
///
/// # Examples
/// A graph without bodies, and its schedule:
/// ```
/// use anabranch::graph::{Backend, Shape};
///
/// let mut shape = Shape::new();
/// let load = shape.node("load", Backend::Cpu);
/// let [left, right] = ["left", "right"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(load, 0, left);
/// shape.read(load, 0, right);
///
/// let schedule = shape.schedule()?;
/// assert_ne!(schedule.stream_of(left), schedule.stream_of(right));
/// println!("{schedule}");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shape {
    name: Option<Name>,
    nodes: Vec<NodeShape>,
    edges: Vec<Edge>,
    states: Vec<StateRead>,
    /// The inputs that loops and branches take: the node and the number of the input, sorted.
    takes: Vec<(NodeId, u32)>,
    /// None if no outputs were declared.
    outputs: Option<Vec<(NodeId, u32)>>,
    /// The nodes that start to communicate in this order, if other ranks depend on it.
    pub(super) starts: Vec<NodeId>,
}

/// A read, by a node of an inner graph, of a state of the loop or branch around.
#[derive(Clone, Copy, Debug)]
struct StateRead {
    state: u32,
    target: NodeId,
    /// The number of edges that were added before: the reads of a node have an order.
    edges: usize,
}

/// An edge, or a read of a state.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Link {
    Edge(Edge),
    State { state: u32, target: NodeId },
}

/// The place of a read of a state matters only among the reads of the same node.
impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        let has_states = !self.states.is_empty() || !other.states.is_empty();
        let is_same = (&self.name, &self.nodes, &self.edges, &self.takes, &self.outputs)
            == (&other.name, &other.nodes, &other.edges, &other.takes, &other.outputs);
        is_same && (!has_states || self.reads() == other.reads())
    }
}

impl Shape {
    /// Returns an empty shape.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty shape with room for nodes and edges.
    pub(crate) fn with_capacity(nodes: usize, edges: usize) -> Self {
        Self { nodes: Vec::with_capacity(nodes), edges: Vec::with_capacity(edges), ..Self::default() }
    }

    /// Sets the graph's name, for pictures.
    pub fn set_name(&mut self, name: impl Into<Name>) {
        self.name = Some(name.into());
    }

    /// Returns the graph's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Adds a node. Returns its id.
    pub fn node(&mut self, name: impl Into<Name>, backend: Backend) -> NodeId {
        self.push(NodeShape {
            name: name.into(),
            backend,
            command: None,
            devices: None,
            cost_us: 1.0,
            phase: None,
            control: None,
            bytes: None,
            ranks: None,
            communication: None,
        })
    }

    /// Adds a complete node.
    pub(crate) fn push(&mut self, node: NodeShape) -> NodeId {
        // Ids beyond u32 cannot exist: the check for NODES_MAX reports such a graph before an id is used.
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// Adds an edge: `target` reads an output of `source`, in the memory where the source's backend leaves
    /// it.
    pub fn read(&mut self, source: NodeId, output: u32, target: NodeId) {
        self.edge(Edge::new(source, target, EdgeKind::data(output)));
    }

    /// Adds an order-only edge.
    pub fn order(&mut self, source: NodeId, target: NodeId) {
        self.edge(Edge::new(source, target, EdgeKind::Order));
    }

    /// Adds a complete edge.
    pub fn edge(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    /// Adds a read, by `target` in an inner graph, of a state of the loop or branch around, by the state's
    /// number. The reads of a node have the order in which they are added.
    pub fn read_state(&mut self, state: u32, target: NodeId) {
        self.states.push(StateRead { state, target, edges: self.edges.len() });
    }

    /// Marks input number `input`, from 0 on, of a loop or a branch as taken. Then the node owns that value,
    /// and its inner graphs may take the state. All other readers of the value run before the node. Input 0
    /// of a branch is its selector, which it cannot take.
    pub fn take_input(&mut self, node: NodeId, input: u32) {
        if let Err(place) = self.takes.binary_search(&(node, input)) {
            self.takes.insert(place, (node, input));
        }
    }

    /// Returns the inputs that loops and branches take, as (node, input), in this order.
    pub fn taken_inputs(&self) -> &[(NodeId, u32)] {
        &self.takes
    }

    pub(super) fn is_taken(&self, node: NodeId, input: u32) -> bool {
        self.takes.binary_search(&(node, input)).is_ok()
    }

    /// Declares that an output of `node` leaves the graph.
    pub fn output(&mut self, node: NodeId, output: u32) {
        self.outputs.get_or_insert_default().push((node, output));
    }

    /// Declares that no values leave the graph, except those of [`Shape::output`]. Without either call, the
    /// values of the sinks leave it. So call this for the body of a loop that has only side effects and gives
    /// no new states.
    pub fn no_outputs(&mut self) {
        self.outputs.get_or_insert_default();
    }

    /// Returns the memory in which `node` leaves its outputs.
    pub fn memory_of(&self, node: NodeId) -> Memory {
        match self.nodes.get(node.index()).map(|node| node.backend) {
            Some(Backend::Mixed | Backend::Gpu) => Memory::Gpu,
            _ => Memory::Cpu,
        }
    }

    /// Returns the memory in which the target of an edge reads a value. None for an order-only edge.
    pub fn read_memory(&self, edge: &Edge) -> Option<Memory> {
        match edge.kind {
            EdgeKind::Data { memory, .. } => Some(memory.unwrap_or_else(|| self.memory_of(edge.source))),
            EdgeKind::Order => None,
        }
    }

    /// Returns the nodes, in the order in which they were added.
    pub fn nodes(&self) -> &[NodeShape] {
        &self.nodes
    }

    /// Returns the nodes, to change them.
    pub fn nodes_mut(&mut self) -> &mut [NodeShape] {
        &mut self.nodes
    }

    /// Returns the edges, in the order in which they were added.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    pub(crate) fn edges_mut(&mut self) -> &mut Vec<Edge> {
        &mut self.edges
    }

    /// Returns the edges and the reads of states, in the order in which they were added.
    pub(super) fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let (mut edges, mut states) = (self.edges.iter(), self.states.iter().peekable());
        std::iter::from_fn(move || {
            let made = self.edges.len() - edges.len();
            match states.next_if(|read| read.edges <= made) {
                Some(&StateRead { state, target, .. }) => Some(Link::State { state, target }),
                None => edges.next().copied().map(Link::Edge),
            }
        })
    }

    /// Returns the reads of each node, in the order of its arguments.
    pub(super) fn reads(&self) -> Vec<Vec<Link>> {
        let mut reads = vec![Vec::new(); self.nodes.len()];
        for link in self.links() {
            match link {
                Link::Edge(Edge { kind: EdgeKind::Order, .. }) => {}
                // Leaves out links that name an unknown node: `check` reports them.
                Link::Edge(Edge { target, .. }) | Link::State { target, .. } => {
                    reads.get_mut(target.index()).into_iter().for_each(|reads| reads.push(link));
                }
            }
        }
        reads
    }

    /// Returns the states that are read, each with the reader.
    pub(crate) fn state_reads(&self) -> impl Iterator<Item = (u32, NodeId)> + '_ {
        self.states.iter().map(|read| (read.state, read.target))
    }

    /// Returns the values that leave the graph, as (node, output).
    pub fn outputs(&self) -> &[(NodeId, u32)] {
        self.outputs.as_deref().unwrap_or_default()
    }

    /// Returns whether outputs were declared.
    pub(super) fn has_outputs(&self) -> bool {
        self.outputs.is_some()
    }

    /// Returns all node ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub(crate) fn name_of(&self, node: NodeId) -> &Name {
        &self.nodes[node.index()].name
    }

    /// Whether the target of an edge waits only until the source is submitted: it reads only the shape and
    /// type of device work.
    pub(crate) fn is_submission(&self, edge: &Edge) -> bool {
        matches!(edge.kind, EdgeKind::Data { metadata: true, .. }) && self.memory_of(edge.source) == Memory::Gpu
    }
}
