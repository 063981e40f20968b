//! A graph that is being built. The methods that add to it never fail: the graph keeps the first mistake, and
//! `compile` returns it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::around::{Around, Unfinished};
use super::between::{Between, ItemEdge};
use super::body::Body;
use super::chain::Chain;
use super::closures::{Async, Kernel, Task};
use super::control_node::{ControlNode, InnerId};
use super::handle::Value;
use super::job::{Detail, SharedContext};
use super::shape::{NodeId, Shape};
use super::values::{InputPort, OutputPort, Type, ValueInfo};
use crate::device::KernelStream;
use crate::error::{BoxError, Error, Kind, PortKind};
use crate::name::Name;
use crate::value::args::{Data, Fallible, FutureFn, Infallible, KernelFn, Reads, TaskFn};
use crate::value::{Arena, Layout, Slot};

/// A graph of CPU and GPU work: nodes, the values that flow between them, named inputs and outputs.
///
/// Add nodes in any order in which a value comes before its readers. Then [`compile`](Graph::compile) the
/// graph. If there is a mistake (a name used twice, an unused value, a cycle), `compile` returns an error
/// that names the nodes.
///
/// ```
/// use anabranch::Graph;
///
/// let mut g = Graph::new();
/// let text = g.input::<String>("text");
/// let words = g.task("words", &text, |t: &String| t.split(' ').count());
/// g.output("words", &words);
/// let plan = g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Graph {
    /// Its address identifies the values of this graph.
    pub(super) token: Arc<u8>,
    pub(super) shape: Arc<Shape>,
    pub(crate) layout: Layout,
    /// The bodies, by node.
    pub(crate) bodies: Arena<dyn Body>,
    pub(crate) works: Vec<NodeWork>,
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) inputs: Vec<InputPort>,
    pub(crate) outputs: Vec<OutputPort>,
    pub(super) mistake: Option<Error>,
    /// The loops and branches among the nodes.
    pub(crate) controls: Vec<ControlNode>,
    /// The inner graphs of the controls.
    pub(crate) inner: InnerGraphs,
    /// The place of an inner graph, and its reads of the graphs around it. None for other graphs.
    pub(super) around: Option<Around>,
    /// The part that was begun and is not complete.
    pub(super) unfinished: Option<Unfinished>,
    /// The nodes that read values of the graphs around this graph, each with the offset of the value's cell,
    /// or [`NO_CELL`].
    pub(crate) captures: Vec<(NodeId, u32)>,
    /// The nodes of a part of a graph whose values no node of the part reads.
    pub(super) unread: Vec<NodeId>,
    /// The values that loops and branches keep, each with the node that keeps it.
    pub(crate) kept: Vec<(NodeId, u32)>,
    /// The states and feedbacks, in the graph of a pipeline.
    pub(crate) between: Vec<Between>,
    /// The order between nodes of different items, in the graph of a pipeline.
    pub(crate) item_edges: Vec<ItemEdge>,
    /// Details of jobs, for plans to print, by the full name of the node.
    pub(crate) details: Vec<(Name, Arc<dyn Detail>)>,
    /// The order of communication.
    pub(super) chain: Chain,
    /// The cell of the context of a run, if a node reads it. All graphs around have the same.
    pub(crate) context: Option<Slot<SharedContext>>,
    /// How values cross from rank to rank, by their types. For the room that carries them.
    pub(crate) wires: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

/// The values of a node, and how its body is called.
#[derive(Clone, Copy)]
pub(crate) struct NodeWork {
    /// The first of its values. Only a control or a job has more than one.
    pub(crate) value: u32,
    pub(crate) values: u32,
    pub(crate) is_async: bool,
    pub(crate) is_control: bool,
}

/// In place of the offset of a unit, which has no cell of its own.
pub(crate) const NO_CELL: u32 = u32::MAX;

/// The inner graphs of the loops and branches of a graph, by number.
#[derive(Clone, Default)]
pub(crate) struct InnerGraphs(pub(super) Vec<Arc<Graph>>);

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// Returns an empty graph.
    pub fn new() -> Self {
        Self {
            token: Arc::new(0),
            shape: Arc::new(Shape::new()),
            layout: Layout::new(),
            bodies: Arena::default(),
            works: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            mistake: None,
            controls: Vec::new(),
            inner: InnerGraphs::default(),
            around: None,
            unfinished: None,
            captures: Vec::new(),
            chain: Chain::default(),
            context: None,
            unread: Vec::new(),
            kept: Vec::new(),
            between: Vec::new(),
            item_edges: Vec::new(),
            details: Vec::new(),
            wires: HashMap::new(),
        }
    }

    /// Sets the graph's name, for pictures, observers and traces of its runs. The name of a
    /// [`Pipeline`](crate::Pipeline) or a [`Function`](crate::Function) is also the name of its graph.
    pub fn set_name(&mut self, name: impl Into<Name>) {
        self.shape_mut().set_name(name);
    }

    /// Declares a named input, given to each run by `inputs! { "name" => value }`.
    pub fn input<T: Data>(&mut self, name: impl Into<Name>) -> Value<T> {
        let name = name.into();
        self.check_port(PortKind::Input, &name);
        let offset = self.layout.slot::<T>().offset();
        let value = self.input_of_type(name, Type::of::<T>(), offset);
        self.value_at(value)
    }

    /// Adds a CPU function: `work` gets the values of `reads`, and returns the node's value.
    ///
    /// Write out the types of the closure's arguments, as in `|a: &u32, b: String| ...`. Without them rustc
    /// often does not know the type of an argument, and reports "type annotations needed" (E0282) in the
    /// body, as for `|a| a.len()`. Or it does not know that a reference may have any lifetime, and reports
    /// "implementation of `FnOnce` is not general enough".
    ///
    /// Put values of 100 kB and more into a `Box` or a `Vec`. A body returns its value on the stack, with
    /// several copies in a debug build, and threads have a stack of 2 MiB.
    pub fn task<I, R, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        R: Data,
        F: TaskFn<Graph, I::Params, R>,
    {
        self.add(name.into(), reads, |_, params| Task::<_, _, R, Infallible> { params, work, kind: PhantomData })
    }

    /// Adds a CPU function that can fail. `Ok(f(x)?)` boxes an error of any type.
    ///
    /// # Errors
    /// An error of `work` becomes the source of the run's error, which names this node. It stops only the
    /// nodes that depend on this one.
    pub fn try_task<I, R, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        R: Data,
        F: TaskFn<Graph, I::Params, Result<R, BoxError>>,
    {
        self.add(name.into(), reads, |_, params| Task::<_, _, _, Fallible> { params, work, kind: PhantomData })
    }

    /// Adds an async node. The node makes its future when its inputs exist. The executor's workers poll it
    /// inside the tokio runtime in which the run was started, so it can use that runtime's I/O and timers.
    /// Without workers, the task that awaits the run polls it ([where futures run](crate::guide::futures)).
    ///
    /// # Cancellation
    /// A cancel or a drop of the run drops the future.
    ///
    /// # Examples
    /// The node may call the body again, in another run. So the body clones captured values into the future:
    /// ```
    /// # use std::sync::Arc;
    /// # let (mut g, client) = (anabranch::Graph::new(), Arc::new(1));
    /// let key = g.input::<u32>("key");
    /// let found = g.future("find", &key, move |key: Arc<u32>| {
    ///     let client = client.clone();
    ///     async move { Ok(*client + *key) }
    /// });
    /// ```
    pub fn future<I, R, F, Fut>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        R: Data,
        F: FutureFn<Graph, I::Params, Fut>,
        Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    {
        self.add(name.into(), reads, |graph, params| Async { params, work, future: graph.layout.slot::<Fut>() })
    }

    /// Adds a kernel: `work` enqueues device work on a stream, and the device runs it in the stream's order.
    /// `S` is the type of the stream, such as [`HostStream`](crate::HostStream).
    pub fn kernel<I, S, R, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        S: KernelStream,
        R: Data,
        F: KernelFn<Graph, S, I::Params, R>,
    {
        self.add(name.into(), reads, |_, params| Kernel::<S, _, _, R, Infallible> { params, work, kind: PhantomData })
    }

    /// Adds a kernel whose submission can fail.
    ///
    /// # Errors
    /// Those of [`Graph::try_task`].
    pub fn try_kernel<I, S, R, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Value<R>
    where
        I: Reads<Graph>,
        S: KernelStream,
        R: Data,
        F: KernelFn<Graph, S, I::Params, Result<R, BoxError>>,
    {
        self.add(name.into(), reads, |_, params| Kernel::<S, _, _, _, Fallible> { params, work, kind: PhantomData })
    }

    /// Declares `value` as the output `name`. A finished run returns it as an `Arc`.
    pub fn output<T: Data>(&mut self, name: impl Into<Name>, value: &Value<T>) {
        let name = name.into();
        self.check_port(PortKind::Output, &name);
        if !self.owns(value) {
            return self.mistake(Kind::ForeignValue { name }.into());
        }
        self.output_own(name, value.index);
    }

    /// Returns the graph's shape: the part that policies see.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn shared_shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Replaces the shape by that of a plan of this graph, in which the readers of a value come before the
    /// node that takes it.
    pub(crate) fn set_shape(&mut self, shape: Arc<Shape>) {
        self.shape = shape;
    }

    /// Returns a copy of a complete graph. Nodes can be added to it.
    pub(crate) fn copy(&self) -> Self {
        Self {
            token: self.token.clone(),
            shape: self.shape.clone(),
            layout: self.layout,
            bodies: self.bodies.clone(),
            works: self.works.clone(),
            values: self.values.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            mistake: self.mistake.clone(),
            controls: self.controls.clone(),
            inner: self.inner.clone(),
            around: None,
            unfinished: self.unfinished,
            captures: self.captures.clone(),
            unread: self.unread.clone(),
            kept: self.kept.clone(),
            between: self.between.clone(),
            item_edges: self.item_edges.clone(),
            details: self.details.clone(),
            chain: Chain::default(),
            context: self.context,
            wires: self.wires.clone(),
        }
    }

    pub(crate) fn shape_mut(&mut self) -> &mut Shape {
        Arc::make_mut(&mut self.shape)
    }

    /// Returns the address that identifies the values of this graph.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.token).addr()
    }

    /// Returns whether a value belongs to this graph. Also checks the type, because a later graph may have
    /// the address of a dropped one.
    pub(super) fn owns<T: 'static>(&self, value: &Value<T>) -> bool {
        let info = self.values.get(value.index as usize);
        value.graph == self.address() && info.is_some_and(|info| info.of.id == TypeId::of::<T>())
    }

    /// Returns the path of a node from the outermost graph on: `loop/body/mul`.
    pub(crate) fn full_name(&self, node: NodeId) -> Name {
        self.full_name_of(self.shape().name_of(node))
    }

    /// Returns the full name of a node from its name. The node need not exist yet.
    pub(crate) fn full_name_of(&self, name: &Name) -> Name {
        match &self.around {
            None => name.clone(),
            Some(around) => around.place.path(Some(name)),
        }
    }

    /// Returns the first mistake, or an error for the part that is not complete.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.mistake.clone().or_else(|| {
            let kind = match self.unfinished? {
                Unfinished::Branch(node) => Kind::NotJoined { node: self.full_name(node) },
                Unfinished::Inner(node) => Kind::BuildPanicked { node: self.full_name(node) },
            };
            Some(kind.into())
        })
    }

    /// Returns true if this is the condition or the body of a loop, or an arm of a branch.
    pub(crate) fn is_inner(&self) -> bool {
        self.around.is_some()
    }

    /// Keeps an error if it is the first.
    pub(super) fn mistake(&mut self, error: Error) {
        self.mistake.get_or_insert(error);
    }
}

impl InnerGraphs {
    pub(crate) fn get(&self, id: InnerId) -> &Graph {
        &self.0[id.0 as usize]
    }
}

/// Drops the graphs level by level: they may be nested deeper than the stack allows.
impl Drop for InnerGraphs {
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.0);
        while let Some(graph) = open.pop() {
            Arc::into_inner(graph).into_iter().for_each(|mut graph| open.append(&mut graph.inner.0));
        }
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<_> = self.values.iter().take(16).map(|value| value.of.name).collect();
        f.debug_struct("Graph")
            .field("nodes", &self.shape.nodes().len())
            .field("edges", &self.shape.edges().len())
            .field("value_types", &types)
            .finish()
    }
}
