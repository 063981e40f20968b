//! From a shape and bodies to a graph. Each node is added after those that it reads. The graphs in a loop or
//! a branch are built while the graph around is being built.
//!
//! The bodies decide the types: a state has the type of its first value, and the values that an inner graph
//! gives for it must have this type.

mod control;

use std::any::{TypeId, type_name};
use std::collections::HashSet;

use super::bodies::{Bodies, Loose};
use super::builder::Graph;
use super::check::{check, unknown_node};
use super::handle::Value;
use super::links::{Links, kahn_order};
use super::ports::numbered;
use super::shape::Link;
use super::values::Maker;
use super::{Control, Edge, EdgeKind, NESTING_MAX, NodeId, Shape};
use crate::error::{Error, Kind, PortKind, Result};
use crate::value::args::Data;

impl Graph {
    /// Makes a graph from a shape, such as `Shape::from_json` reads. Each node gets the body of its
    /// command.
    ///
    /// Backends, commands, costs, devices, phases and order are those of the shape. The inputs of a loop are
    /// its states. Its body gives new values for the first of them, in order, and the other states do not
    /// change. The loop takes the inputs that are [taken](Shape::take_input), and reads the others. The first
    /// input of a branch is its selector. The other inputs are its states, as in a loop. A loop without a
    /// condition is repeated `iterations` times. An output has the name of the node that makes it (with a
    /// number behind it, for the second and later values of a loop or branch).
    ///
    /// # Errors
    /// The error names a node by its path, and its fault: the node has no body; reads other values than its
    /// body expects; decides about a loop or a branch, but its body was added by [`Bodies::node`]; has an
    /// inner graph whose values do not fit its states; or makes two outputs of one name. Other errors are
    /// those of [`Graph::compile`] for a shape.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "json")] {
    /// use anabranch::graph::{Bodies, Shape};
    /// use anabranch::{Executor, Graph, Name, Value, inputs};
    ///
    /// let shape = Shape::from_json(r#"{"nodes": [
    ///     {"name": "x", "backend": "cpu"},
    ///     {"name": "grown", "inputs": [{"node": "x"}], "repeat": {"iterations": 5, "body": {"nodes": [
    ///         {"name": "double", "backend": "cpu", "inputs": [{"state": 0}]}
    ///     ]}}}
    /// ]}"#)?;
    /// let bodies = Bodies::new()
    ///     .node("x", |g: &mut Graph, name: &Name, ()| g.input::<u64>(name))
    ///     .node("double", |g: &mut Graph, name: &Name, x: Value<u64>| g.task(name, &x, |x: &u64| 2 * x));
    ///
    /// let plan = Graph::from_shape(&shape, &bodies)?.compile()?;
    /// let exec = Executor::inline();
    /// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "x" => 1_u64 }))?;
    /// assert_eq!(*outputs.take::<u64>("grown")?, 32);
    /// # }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn from_shape(shape: &Shape, bodies: &Bodies) -> Result<Self> {
        let mut graph = Self::new();
        shape.name().into_iter().for_each(|name| graph.shape_mut().set_name(name.to_owned()));
        let mut loader = Loader::new(bodies, shape, String::new(), 0);
        loader.load(&mut graph, &[])?;
        let mut seen = HashSet::new();
        for (node, output, value) in loader.outputs()? {
            // A value that is listed twice is one output.
            if !seen.insert((node, output)) {
                continue;
            }
            let name = numbered(shape.name_of(node), output);
            let is_said = !shape.outputs().is_empty();
            if is_said || value.of.id != TypeId::of::<()>() {
                graph.check_port(PortKind::Output, &name);
                graph.output_own(name, value.value);
            }
        }
        match graph.fault() {
            Some(fault) => Err(fault),
            None => Ok(graph),
        }
    }

    /// Adds the nodes of a shape to this graph, as [`Graph::from_shape`] does. The bodies may capture values
    /// of this graph: the item of a [`Pipeline`](crate::Pipeline), or a [feedback](Graph::feedback). The
    /// outputs of the shape are not declared: [`Graph::value_named`] returns the value of a node. `compile`
    /// returns the first mistake.
    ///
    /// # Examples
    /// A description runs over items, in its phases:
    /// ```
    /// use anabranch::graph::{Backend, Bodies, Shape};
    /// use anabranch::{Executor, Graph, Name, Pipeline, Ranked, Value};
    /// use futures::{TryStreamExt, stream};
    ///
    /// let mut shape = Shape::new();
    /// let [decode, double] = ["decode", "double"].map(|name| shape.node(name, Backend::Cpu));
    /// shape.read(decode, 0, double);
    /// shape.nodes_mut()[double.index()].phase = Some(2);
    ///
    /// let numbers = Pipeline::new("numbers", &Ranked::default(), |g, line: Value<String>| {
    ///     let bodies = Bodies::new()
    ///         .node("decode", move |g: &mut Graph, name: &Name, ()| {
    ///             g.try_task(name, &line, |line: &String| Ok(line.parse::<u64>()?))
    ///         })
    ///         .node("double", |g: &mut Graph, name: &Name, x: Value<u64>| g.task(name, &x, |x: &u64| 2 * x));
    ///     g.add_shape(&shape, &bodies);
    ///     g.value_named::<u64>("double")
    /// })?;
    /// assert_eq!(numbers.phase_of("double"), Some(2));
    ///
    /// let lines = stream::iter(["1".to_owned(), "20".to_owned()]);
    /// let exec = Executor::inline();
    /// let doubled: Vec<u64> = futures::executor::block_on(exec.pipe(&numbers, lines).try_collect())?;
    /// assert_eq!(doubled, [2, 40]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn add_shape(&mut self, shape: &Shape, bodies: &Bodies) {
        if let Err(fault) = Loader::new(bodies, shape, String::new(), 0).load(self, &[]) {
            self.mistake(fault);
        }
    }

    /// Returns the value of a node by the node's name. For a loop or a branch, returns the first value. A
    /// body that returns an existing value adds no node. If there is no such node, or its value has another
    /// type, `compile` returns an error.
    pub fn value_named<T: Data>(&mut self, node: &str) -> Value<T> {
        let mut named = self.shape().ids().zip(&self.works).filter(|(id, _)| &**self.shape().name_of(*id) == node);
        let fault = match named.next() {
            Some((_, work)) if work.values == 0 => "is asked for its value: it has none".to_owned(),
            None => format!("is asked for its value: {}", unknown_node(self.shape(), node)),
            Some((_, work)) => match &self.values[work.value as usize].of {
                of if of.id == TypeId::of::<T>() => return self.value_at(work.value),
                of => format!("gives a `{}`, and a `{}` is asked for", of.name, type_name::<T>()),
            },
        };
        self.mistake(Kind::Body { node: node.to_owned().into(), fault }.into());
        // A value of no graph: a read of it is a second mistake.
        Value::new(0, u32::MAX, 0)
    }
}

/// A graph that is being made from its shape.
struct Loader<'a> {
    bodies: &'a Bodies,
    shape: &'a Shape,
    /// The prefix of the names of its nodes: empty, or the path of its loop or branch and a slash.
    path: String,
    depth: usize,
    /// The values of each node that was added.
    made: Vec<Vec<Loose>>,
    /// For each node, the node of the graph that has its value, if any, and whether it was added for this
    /// node: a body may return an existing value.
    nodes: Vec<Option<(NodeId, bool)>>,
}

impl<'a> Loader<'a> {
    fn new(bodies: &'a Bodies, shape: &'a Shape, path: String, depth: usize) -> Self {
        let count = shape.nodes().len();
        Self { bodies, shape, path, depth, made: vec![Vec::new(); count], nodes: vec![None; count] }
    }

    /// Adds all nodes to `graph`. `states` are the states of the loop or branch around.
    fn load(&mut self, graph: &mut Graph, states: &[Loose]) -> Result<()> {
        if self.depth > NESTING_MAX {
            return Err(Kind::Limit { what: "how deep graphs are nested".into(), got: self.depth, limit: NESTING_MAX }.into());
        }
        check(self.shape).map_err(|fault| match self.path.trim_end_matches('/') {
            "" => fault,
            path => fault.within(path.into()),
        })?;
        let last_read = self.shape.edges().iter().rposition(Edge::is_data).map_or(0, |last| last + 1);
        let (early, late) = self.shape.edges().split_at(last_read);
        let reads = self.shape.reads();
        let mut orders = vec![Vec::new(); reads.len()];
        early.iter().filter(|edge| !edge.is_data()).for_each(|edge| orders[edge.target.index()].push(edge.source));
        for node in kahn_order(&Links::new(self.shape)) {
            let given = reads[node.index()].iter().map(|read| self.value(node, *read, states)).collect::<Result<Vec<_>>>()?;
            self.add(graph, node, &given)?;
            orders[node.index()].iter().for_each(|&source| self.order(graph, source, node));
        }
        // Edges after which no value is read are added after all others, as in the shape.
        late.iter().for_each(|edge| self.order(graph, edge.source, edge.target));
        Ok(())
    }

    fn value(&self, node: NodeId, read: Link, states: &[Loose]) -> Result<Loose> {
        match read {
            Link::State { state, .. } => states.get(state as usize).copied().ok_or_else(|| {
                let around =
                    if self.depth == 0 { "is in no loop or branch".into() } else { format!("has {} around", states.len()) };
                self.fault(node, format!("reads state {state}, counted from 0, and {around}"))
            }),
            Link::Edge(Edge { source, kind, .. }) => {
                let EdgeKind::Data { output, .. } = kind else { unreachable!("only what is read is asked for") };
                let made = &self.made[source.index()];
                made.get(output as usize).copied().ok_or_else(|| {
                    let (source, made) = (self.shape.name_of(source), made.len());
                    self.fault(node, format!("reads output {output} of '{source}', which has {made}, counted from 0"))
                })
            }
        }
    }

    fn output(&self, node: NodeId, output: u32) -> Result<Loose> {
        let made = &self.made[node.index()];
        let why = || format!("has no output {output}: it has {}, counted from 0", made.len());
        made.get(output as usize).copied().ok_or_else(|| self.fault(node, why()))
    }

    /// Returns the outputs of the graph: those of the shape, or else the first value of each sink. For the
    /// outermost graph, an empty list also means the sinks: otherwise no value of its nodes could be read.
    fn outputs(&self) -> Result<Vec<(NodeId, u32, Loose)>> {
        let mut is_sink = vec![true; self.made.len()];
        self.shape.edges().iter().for_each(|edge| is_sink[edge.source.index()] = false);
        let sinks = self.shape.ids().filter(|node| is_sink[node.index()]).map(|node| (node, 0));
        let said = self.shape.outputs();
        let is_said = if self.depth == 0 { !said.is_empty() } else { self.shape.has_outputs() };
        let all: Vec<_> = if is_said { said.to_vec() } else { sinks.collect() };
        all.into_iter().map(|(node, output)| Ok((node, output, self.output(node, output)?))).collect()
    }

    fn add(&mut self, graph: &mut Graph, node: NodeId, given: &[Loose]) -> Result<()> {
        let (shape, first) = (&self.shape.nodes()[node.index()], graph.shape().nodes().len());
        let made = match shape.control.as_deref() {
            None => vec![self.add_body(graph, node, given)?],
            Some(Control::Repeat { condition, body, iterations, max_iterations }) => {
                let bounds = (*iterations, *max_iterations);
                self.add_loop(graph, node, condition.as_deref(), body, bounds, given)?
            }
            Some(Control::Branch { arms, taken }) => self.add_branch(graph, node, arms, *taken, given)?,
        };
        let maker = made.first().map(|value| graph.values[value.value as usize].maker);
        if let Some(Maker::Node(giver)) = maker {
            let is_new = giver.index() >= first;
            if is_new {
                let changed = &mut graph.shape_mut().nodes_mut()[giver.index()];
                (changed.backend, changed.cost_us) = (shape.backend, shape.cost_us);
                (changed.command, changed.devices) = (shape.command.clone(), shape.devices.clone());
                changed.phase = shape.phase.or(changed.phase);
            }
            self.nodes[node.index()] = Some((giver, is_new));
        }
        self.made[node.index()] = made;
        Ok(())
    }

    fn add_body(&self, graph: &mut Graph, node: NodeId, given: &[Loose]) -> Result<Loose> {
        let shape = &self.shape.nodes()[node.index()];
        let command = shape.command();
        let add = self.bodies.get(command);
        let add = add.ok_or_else(|| self.fault(node, format!("has no body: give one for its command '{command}'")))?;
        add(graph, &shape.name, given).map_err(|fault| self.fault(node, fault))
    }

    fn order(&self, graph: &mut Graph, source: NodeId, target: NodeId) {
        // An input exists before the run starts, so its readers need no wait for it. A node that was added
        // for another one of the shape gets no more edges.
        if let (Some((source, _)), Some((target, true))) = (self.nodes[source.index()], self.nodes[target.index()]) {
            graph.shape_mut().order(source, target);
        }
    }

    fn fault(&self, node: NodeId, fault: String) -> Error {
        Kind::Body { node: format!("{}{}", self.path, self.shape.name_of(node)).into(), fault }.into()
    }
}
