//! The builder. Its methods never fail: the first mistake is kept and comes out of `compile`.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::body::{Async, Body, Fallible, Finish, Infallible, Kernel, Task};
use super::check::check_name;
use super::control::ControlNode;
use super::inner::{Around, InnerGraphs, Unfinished};
use super::source::{Binder, FutureFn, KernelFn, Sources, TaskFn, Value};
use super::values::{InputPort, Maker, OutputPort, Sharer, ValueInfo};
use super::{Backend, NodeId, NodeMut, PORTS_MAX, Shape};
use crate::device::KernelStream;
use crate::error::{BoxError, Error, Kind};
use crate::value::{Arena, Layout, Slot};

/// A graph of CPU and GPU work: nodes, the values that flow between them, named inputs and outputs.
///
/// Add nodes in any order that has values before their readers; then `compile` it with a stream policy. A
/// mistake (a name used twice, a value nobody reads, a circle) is reported by `compile`, which names the
/// nodes.
///
/// ```
/// use anabranch::{Graph, Single};
///
/// let mut g = Graph::new();
/// let text = g.input::<String>("text");
/// let words = g.task("words", &text, |t: &String| t.split(' ').count());
/// g.output("words", &words);
/// let plan = g.compile(&Single)?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Graph {
    /// Its address tells this graph's values from another's.
    pub(super) token: Arc<u8>,
    pub(super) shape: Arc<Shape>,
    pub(crate) layout: Layout,
    /// By node.
    pub(crate) bodies: Arena<dyn Body>,
    pub(crate) works: Vec<NodeWork>,
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) inputs: Vec<InputPort>,
    pub(crate) outputs: Vec<OutputPort>,
    pub(super) mistake: Option<Error>,
    /// The loops and branches among the nodes.
    pub(crate) controls: Vec<ControlNode>,
    /// The inner graphs of these.
    pub(crate) inner: InnerGraphs,
    /// For an inner graph: its place, and its reads of the graphs around it.
    pub(super) around: Option<Around>,
    /// The part that was begun and is not complete.
    pub(super) unfinished: Option<Unfinished>,
    /// The nodes that read values of the graphs around this one.
    pub(crate) captors: Vec<NodeId>,
    /// The values that loops and branches keep, by who keeps them.
    pub(super) kept: Vec<(NodeId, u32)>,
}

/// Where a node's value goes, and who calls its body.
#[derive(Clone, Copy)]
pub(crate) struct NodeWork {
    /// The first of its values; only a control has more.
    pub(crate) value: u32,
    pub(crate) values: u32,
    pub(crate) is_async: bool,
    pub(crate) is_control: bool,
}

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
            bodies: Arena::new(),
            works: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            mistake: None,
            controls: Vec::new(),
            inner: InnerGraphs::default(),
            around: None,
            unfinished: None,
            captors: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Declares a named input, given to each run by `inputs! { "name" => value }`.
    pub fn input<T: Send + Sync + 'static>(&mut self, name: impl Into<Arc<str>>) -> Value<T> {
        let name = name.into();
        self.check_is_outermost("input", &name);
        if let Err(error) = check_name(&name) {
            self.mistake(error);
        }
        if self.inputs.len() < PORTS_MAX && self.inputs.iter().any(|port| port.name == name) {
            self.mistake(Kind::DuplicatePort { what: "input", name: name.clone() }.into());
        }
        self.check_ports("inputs", self.inputs.len());
        let slot = self.layout.slot::<T>();
        self.add_input(name, slot)
    }

    /// Adds a CPU function: `work` gets what `sources` names and returns the node's value.
    ///
    /// Write the types of the closure's arguments out, as in `|a: &u32, b: String| ...`. Without them rustc
    /// does not know what an argument is, and says "type annotations needed" (E0282) where the body uses it,
    /// as in `|a| a.len()`; or it knows the type but not that the reference is good for any lifetime, and
    /// says "implementation of `FnOnce` is not general enough".
    ///
    /// Values of 100 kB and more belong in a `Box` or a `Vec`: a body returns its value over the stack, in a
    /// debug build with several copies, and threads have 2 MiB of it.
    pub fn task<I, R, F>(&mut self, name: impl Into<Arc<str>>, sources: I, work: F) -> Value<R>
    where
        I: Sources,
        R: Send + Sync + 'static,
        F: TaskFn<I::Params, R>,
    {
        self.add_task::<I, R, F, Infallible>(name.into(), sources, work)
    }

    /// Adds a CPU function that can fail; `Ok(f(x)?)` turns any error into the boxed one.
    ///
    /// # Errors
    /// An error of `work` becomes the source of the run's error, which names this node. It stops only the
    /// nodes that depend on this one.
    pub fn try_task<I, R, F>(&mut self, name: impl Into<Arc<str>>, sources: I, work: F) -> Value<R>
    where
        I: Sources,
        R: Send + Sync + 'static,
        F: TaskFn<I::Params, Result<R, BoxError>>,
    {
        self.add_task::<I, Result<R, BoxError>, F, Fallible>(name.into(), sources, work)
    }

    /// Adds an async node. Its future is made when its inputs are there, and polled by the task that awaits
    /// the run, so it can use that runtime's I/O and timers.
    ///
    /// # Cancellation
    /// When the run is cancelled or dropped, the future is dropped where it stands.
    ///
    /// # Examples
    /// What the body needs besides its arguments it clones into the future, because it may be called again:
    /// ```
    /// # use std::sync::Arc;
    /// # let (mut g, client) = (anabranch::Graph::new(), Arc::new(1));
    /// let key = g.input::<u32>("key");
    /// let found = g.future("find", &key, move |key: Arc<u32>| {
    ///     let client = client.clone();
    ///     async move { Ok(*client + *key) }
    /// });
    /// ```
    pub fn future<I, R, F, Fut>(&mut self, name: impl Into<Arc<str>>, sources: I, work: F) -> Value<R>
    where
        I: Sources,
        R: Send + Sync + 'static,
        F: FutureFn<I::Params, Fut>,
        Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let params = sources.bind(&mut Binder { graph: self, reader: node, is_async: true });
        let future = self.layout.slot::<Fut>();
        let out = self.layout.slot::<R>();
        self.finish(node, out, Async { params, work, future, out }, true)
    }

    /// Adds a kernel: `work` enqueues onto a stream of the device (`S` is its type, such as
    /// [`HostStream`](crate::HostStream)), which runs it in the stream's order.
    pub fn kernel<I, S, R, F>(&mut self, name: impl Into<Arc<str>>, sources: I, work: F) -> Value<R>
    where
        I: Sources,
        S: KernelStream,
        R: Send + Sync + 'static,
        F: KernelFn<S, I::Params, R>,
    {
        self.add_kernel::<I, S, R, F, Infallible>(name.into(), sources, work)
    }

    /// Adds a kernel whose submission can fail.
    ///
    /// # Errors
    /// As for [`Graph::try_task`].
    pub fn try_kernel<I, S, R, F>(&mut self, name: impl Into<Arc<str>>, sources: I, work: F) -> Value<R>
    where
        I: Sources,
        S: KernelStream,
        R: Send + Sync + 'static,
        F: KernelFn<S, I::Params, Result<R, BoxError>>,
    {
        self.add_kernel::<I, S, Result<R, BoxError>, F, Fallible>(name.into(), sources, work)
    }

    /// Declares that `value` leaves the graph under `name`; a finished run gives it as an `Arc`.
    pub fn output<T: Send + Sync + 'static>(&mut self, name: impl Into<Arc<str>>, value: &Value<T>) {
        let name = name.into();
        self.check_is_outermost("output", &name);
        if let Err(error) = check_name(&name) {
            self.mistake(error);
        }
        if self.outputs.len() < PORTS_MAX && self.outputs.iter().any(|port| port.name == name) {
            self.mistake(Kind::DuplicatePort { what: "output", name: name.clone() }.into());
        }
        self.check_ports("outputs", self.outputs.len());
        if !self.owns(value) {
            return self.mistake(Kind::ForeignValue { name }.into());
        }
        self.output_own(name, value.index);
    }

    /// The same with a value of this graph, by its number, under a name that nobody has checked.
    pub(super) fn output_own(&mut self, name: Arc<str>, value: u32) {
        let info = &mut self.values[value as usize];
        info.sharer.get_or_insert(Sharer::Output(self.outputs.len() as u32));
        info.is_read = true;
        let ValueInfo { offset, maker, type_name, transfer, .. } = *info;
        if let Maker::Node(node) = maker {
            let output = value - self.works[node.index()].value;
            self.shape_mut().output(node, output);
        }
        self.outputs.push(OutputPort { name, value, type_name, offset, transfer });
    }

    /// Adds an order-only edge: `later` starts after `earlier` is done, without reading it.
    pub fn order<A: 'static, B: 'static>(&mut self, earlier: &Value<A>, later: &Value<B>) {
        self.node(later).after(earlier);
    }

    /// Returns the node that gives `value`, to say more about it:
    /// `g.node(&image).cost_us(120.0).command("decode")`.
    pub fn node<T: 'static>(&mut self, value: &Value<T>) -> NodeMut<'_> {
        let mut node = None;
        if !self.owns(value) {
            self.mistake(Kind::ForeignValue { name: "a node".into() }.into());
        } else {
            match self.values[value.index as usize].maker {
                Maker::Node(found) => node = Some(found),
                Maker::Input(input) => {
                    let name = self.inputs[input as usize].name.clone();
                    self.mistake(Kind::NotANode { name }.into());
                }
            }
        }
        NodeMut { graph: self, node }
    }

    /// Returns the graph's shape: what policies see.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn shared_shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    pub(super) fn shape_mut(&mut self) -> &mut Shape {
        Arc::make_mut(&mut self.shape)
    }

    fn add_task<I, Q, F, K>(&mut self, name: Arc<str>, sources: I, work: F) -> Value<K::Value>
    where
        I: Sources,
        Q: 'static,
        F: TaskFn<I::Params, Q>,
        K: Finish<Q>,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let params = sources.bind(&mut Binder { graph: self, reader: node, is_async: false });
        let out = self.layout.slot::<K::Value>();
        self.finish(node, out, Task::<_, _, Q, K> { params, work, out, kind: PhantomData }, false)
    }

    fn add_kernel<I, S, Q, F, K>(&mut self, name: Arc<str>, sources: I, work: F) -> Value<K::Value>
    where
        I: Sources,
        S: KernelStream,
        Q: 'static,
        F: KernelFn<S, I::Params, Q>,
        K: Finish<Q>,
    {
        let node = self.shape_mut().node(name, Backend::Gpu);
        let params = sources.bind(&mut Binder { graph: self, reader: node, is_async: false });
        let out = self.layout.slot::<K::Value>();
        self.finish(node, out, Kernel::<S, _, _, Q, K> { params, work, out, kind: PhantomData }, false)
    }

    fn finish<T: Send + Sync + 'static, B: Body + 'static>(
        &mut self,
        node: NodeId,
        out: Slot<T>,
        body: B,
        is_async: bool,
    ) -> Value<T> {
        let value = self.value(out, Maker::Node(node));
        self.bodies.push(body, |body| body);
        self.works.push(NodeWork { value: value.index, values: 1, is_async, is_control: false });
        value
    }

    pub(super) fn mistake(&mut self, error: Error) {
        self.mistake.get_or_insert(error);
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<_> = self.values.iter().take(16).map(|value| value.type_name).collect();
        f.debug_struct("Graph")
            .field("nodes", &self.shape.nodes().len())
            .field("edges", &self.shape.edges().len())
            .field("value_types", &types)
            .finish()
    }
}
