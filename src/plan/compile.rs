//! From a graph to a plan: the checks that need values, then the schedule, then the code that hosts run.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::code::Code;
use super::fabric::{Fabric, Facts};
use super::spare::Spare;
use super::{InnerSchedule, Policy, Ranked, Schedule};
use crate::device::host::Cost;
use crate::error::{Kind, Result};
use crate::graph::{Body, Detail, Graph, InputPort, Maker, NodeId, NodeWork, OutputPort, Shape, SharedContext, unknown_node};
use crate::name::Name;
use crate::value::{Access, Layout, Slot};

/// The most bytes that the values of one run may take in place. The memory behind a `Vec` or a `Box` does not
/// count.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 31;

/// A graph compiled by a stream policy: one program for each stream. It is immutable and cheap to clone. Any
/// number of runs can use it at the same time. It keeps the memory of up to 16 finished runs for later runs,
/// without values, if the values of a run take at most 64 KiB.
///
/// A plan prints as a table of its programs.
///
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let x = g.input::<i32>("x");
/// let double = g.task("double", &x, |x: &i32| 2 * x);
/// g.output("double", &double);
/// let plan = g.compile()?;
/// println!("{plan}");
/// let exec = Executor::inline();
/// for x in 1..=3 {
///     let run = exec.run(&plan, inputs! { "x" => x });
///     let mut outputs = futures::executor::block_on(run)?;
///     assert_eq!(*outputs.take::<i32>("double")?, 2 * x);
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<PlanInner>);

pub(crate) struct PlanInner {
    pub(crate) schedule: Schedule,
    pub(crate) code: Code,
    /// The code for devices with queues, made at its first use.
    queue_code: OnceLock<Code>,
    fabric: Arc<Fabric>,
    ports: Ports,
    by_name: OnceLock<HashMap<Name, NodeId>>,
    /// The cost of a run.
    pub(crate) cost: Cost,
    /// The memory of finished runs, for later runs.
    pub(crate) spare: Spare,
}

/// What goes into runs of a plan and comes out, which no policy changes.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) layout: Layout,
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) outputs: Vec<OutputPort>,
    /// What the nodes of a run share, if the plan is one over ranks.
    pub(crate) context: Option<Context>,
    /// What other ranks have, if the plan is that of one rank.
    pub(crate) elsewhere: Elsewhere,
    /// Facts about jobs, by the full names of their nodes.
    details: Arc<[(Name, Arc<dyn Detail>)]>,
    /// Whether this is the plan of a pipeline, which runs over items only.
    pub(crate) is_pipelined: bool,
}

impl Deref for PlanInner {
    type Target = Ports;

    fn deref(&self) -> &Ports {
        &self.ports
    }
}

/// Makes the context of each run of a plan.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) slot: Slot<SharedContext>,
    pub(crate) make: Arc<dyn Fn() -> SharedContext + Send + Sync>,
}

/// What makes a plan that of one rank.
#[derive(Clone, Default)]
pub(crate) struct OfRank {
    pub(crate) context: Option<Context>,
    pub(crate) elsewhere: Elsewhere,
    /// The order in which its nodes of communication start, and its loops and branches that communicate: the
    /// place of each, by its full name.
    pub(crate) starts: HashMap<Name, usize>,
}

impl OfRank {
    /// Sets the order of starts in the shape of a graph.
    fn order(&self, graph: &Graph, shape: &mut Arc<Shape>) {
        let place = |node: NodeId| Some((*self.starts.get(&graph.full_name(node))?, node));
        let mut starts: Vec<(usize, NodeId)> = shape.ids().filter_map(place).collect();
        if !starts.is_empty() {
            starts.sort_unstable();
            Arc::make_mut(shape).set_starts(starts.into_iter().map(|(_, node)| node).collect());
        }
    }
}

/// What goes into the runs of other ranks, and comes out there.
#[derive(Clone, Default)]
pub(crate) struct Elsewhere {
    /// Inputs that no node of this rank reads. Runs accept them.
    pub(crate) inputs: Vec<Name>,
    /// Outputs, each with its rank.
    pub(crate) outputs: Vec<(Name, u32)>,
}

/// An input, with the facts about its value.
#[derive(Clone)]
pub(crate) struct PlanInput {
    pub(crate) port: InputPort,
    pub(crate) is_shared: bool,
    pub(crate) taker: Option<NodeId>,
}

impl Plan {
    /// Returns whether runs of this plan are known to be cheap.
    pub(crate) fn is_cheap(&self) -> bool {
        self.0.cost.is_cheap()
    }
}

impl PlanInput {
    /// Returns how a value is stored into its cell.
    pub(crate) fn access(&self) -> Access {
        if self.is_shared { Access::Share } else { Access::Tagged }
    }
}

impl Graph {
    /// Compiles the graph with the default policy, [`Ranked`]. The policy assigns a stream to each node. The
    /// plan adds the waits between streams.
    ///
    /// A graph can be compiled any number of times. A plan does not change when its graph grows.
    ///
    /// # Errors
    /// As [`Graph::compile_with`].
    pub fn compile(&self) -> Result<Plan> {
        self.compile_with(&Ranked::default())
    }

    /// Compiles the graph with the policy `policy`; see [`Graph::compile`].
    ///
    /// # Errors
    /// The first mistake of the graph (a name used twice, a value of another graph), a cycle, a value or an
    /// input without a reader, a shared value that a node takes, a policy without a valid answer. The error
    /// names the nodes.
    pub fn compile_with(&self, policy: &dyn Policy) -> Result<Plan> {
        self.check_unpiped()?;
        if let Some(node) = self.communicates() {
            return Err(Kind::NeedsWorld { node }.into());
        }
        self.compiled(policy, false, OfRank::default())
    }

    /// Compiles the graph of a pipeline in one phase.
    pub(crate) fn compile_piped(&self, policy: &dyn Policy) -> Result<Plan> {
        if let Some(node) = self.communicates() {
            return Err(Kind::NotInPipeline { node }.into());
        }
        self.compiled(policy, true, OfRank::default())
    }

    /// Compiles the graph.
    pub(crate) fn compiled(&self, policy: &dyn Policy, is_pipelined: bool, of_rank: OfRank) -> Result<Plan> {
        let nested = self.nested();
        let (mut shape, mut shapes) = self.checked(&nested)?;
        if !of_rank.starts.is_empty() {
            of_rank.order(self, &mut shape);
            nested.iter().zip(&mut shapes).for_each(|(inner, shape)| of_rank.order(inner.graph, &mut shape.graph));
        }
        let fabric = Arc::new(Fabric::new(self, &nested)?);
        let schedule = Schedule::with_inner(shape.clone(), shapes, policy, None)?;
        let inputs = self.inputs.iter().map(|port| {
            let value = &self.values[port.value as usize];
            // An exchange takes an `Arc`, too.
            let taker = value.taker.filter(|taker| shape.nodes()[taker.index()].communication.is_none());
            PlanInput { port: port.clone(), is_shared: value.sharer.is_some(), taker }
        });
        let details = std::iter::once(self).chain(nested.iter().map(|each| each.graph)).flat_map(|graph| graph.details.clone());
        let (layout, inputs, outputs, details) = (self.layout, inputs.collect(), self.outputs.clone(), details.collect());
        let OfRank { context, elsewhere, .. } = of_rank;
        PlanInner::lowered(schedule, fabric, Ports { layout, inputs, outputs, context, elsewhere, details, is_pipelined })
    }

    /// Returns the shape with the order-only edges that make each taker the last reader.
    pub(super) fn compiled_shape(&self) -> Arc<Shape> {
        let orders = self.take_orders();
        if orders.is_empty() {
            return self.shared_shape().clone();
        }
        let mut shape = self.shape().clone();
        orders.into_iter().for_each(|(reader, taker, _)| shape.order(reader, taker));
        Arc::new(shape)
    }

    /// Returns an edge from each other reader of a taken value to the taker, with that value.
    pub(crate) fn take_orders(&self) -> Vec<(NodeId, NodeId, u32)> {
        let takers = self.values.iter().zip(0..).filter_map(|(value, number): (_, u32)| match (value.maker, value.taker) {
            (Maker::Node(_), Some(taker)) => Some((number, taker)),
            _ => None,
        });
        let taken: HashMap<u32, NodeId> = takers.collect();
        let mut orders = Vec::new();
        if !taken.is_empty() {
            let reads = self.shape().edges().iter().filter(|edge| edge.is_data());
            orders.extend(reads.filter_map(|edge| {
                let value = self.value_of(edge);
                Some((edge.target, *taken.get(&value)?, value))
            }));
        }
        for port in &self.inputs {
            let taker = self.values[port.value as usize].taker;
            let readers = |taker| port.readers.iter().map(move |&reader| (reader, taker, port.value));
            orders.extend(taker.into_iter().flat_map(readers));
        }
        orders.retain(|(reader, taker, _)| reader != taker);
        orders
    }

    pub(super) fn facts(&self) -> Vec<Facts> {
        let facts_of = |(work, body): (&NodeWork, &dyn Body)| {
            let values = &self.values[work.value as usize..(work.value + work.values) as usize];
            // A loop or a branch shares its values itself.
            let is_shared = !work.is_control && values.iter().any(|value| value.sharer.is_some());
            Facts {
                is_async: work.is_async,
                is_control: work.is_control,
                is_queued: body.is_queued(),
                is_shared,
                is_taken: values.iter().all(|value| value.taker.is_some()),
                is_in_place: !is_shared,
            }
        };
        let mut facts: Vec<Facts> = self.works.iter().zip(self.bodies.iter()).map(facts_of).collect();
        for edge in self.shape().edges() {
            let Facts { is_shared, is_control, .. } = facts[edge.source.index()];
            if edge.is_data() && (is_shared || is_control) {
                facts[edge.target.index()].is_in_place = false;
            }
        }
        // An input may be given as an `Arc`. A value of a graph around may be one too.
        let readers = self.inputs.iter().flat_map(|port| &port.readers).chain(self.captures.iter().map(|(reader, _)| reader));
        readers.for_each(|reader| facts[reader.index()].is_in_place = false);
        facts
    }
}

impl Plan {
    /// Returns the schedule: the stream of each node, the order of nodes on each stream, and the waits.
    pub fn schedule(&self) -> &Schedule {
        &self.0.schedule
    }

    /// Returns whether both are the same plan. Clones of one plan are.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks the programs with [`Shape::verify_programs`], which shares no code with the compiler.
    ///
    /// # Errors
    /// As [`Shape::verify_programs`]; for a plan of this library that is a defect of the library.
    pub fn verify(&self) -> Result<()> {
        self.0.schedule.verify()
    }

    /// Returns whether both are plans of the same graph, in which a node has the same id: a plan and its
    /// recompiled plan are.
    pub(crate) fn is_of_same_graph(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.fabric, &other.0.fabric)
    }

    pub(crate) fn inner(&self) -> &PlanInner {
        &self.0
    }
}

impl PlanInner {
    /// Compiles the same graph again, with other costs and another policy.
    pub(crate) fn recompile(&self, costs_us: &[Option<f64>], policy: &dyn Policy) -> Result<Plan> {
        let mut shape = Shape::clone(self.schedule.shape());
        for (node, cost_us) in shape.nodes_mut().iter_mut().zip(costs_us) {
            node.cost_us = cost_us.unwrap_or(node.cost_us);
        }
        self.compiled_again(Arc::new(shape), policy, self.schedule.phases().map(Arc::from))
    }

    /// Compiles the graph of a pipeline again, with these phases of its nodes, from 0 on.
    pub(crate) fn in_phases(&self, phases: Arc<[u32]>, policy: &dyn Policy) -> Result<Plan> {
        self.compiled_again(self.schedule.shape().clone(), policy, Some(phases))
    }

    fn compiled_again(&self, shape: Arc<Shape>, policy: &dyn Policy, phases: Option<Arc<[u32]>>) -> Result<Plan> {
        let inner = self.schedule.inner().iter().map(|inner| inner.0.map(|schedule| schedule.shape().clone()));
        let schedule = Schedule::with_inner(shape, inner.collect(), policy, phases)?;
        Self::lowered(schedule, self.fabric.clone(), self.ports.clone())
    }

    fn lowered(schedule: Schedule, fabric: Arc<Fabric>, ports: Ports) -> Result<Plan> {
        let code = fabric.lower(&schedule, false)?;
        let (queue_code, by_name) = (OnceLock::new(), OnceLock::new());
        let (cost, spare) = (Cost::new(), Spare::default());
        Ok(Plan(Arc::new(Self { schedule, code, queue_code, fabric, ports, by_name, cost, spare })))
    }

    /// Returns the detail of a node, by its full name.
    pub(crate) fn detail(&self, name: &str) -> Option<&dyn Detail> {
        self.details.iter().find(|(node, _)| **node == *name).map(|(_, detail)| &**detail)
    }

    /// Returns whether a body only enqueues its work on devices with queues.
    pub(crate) fn has_queued(&self) -> bool {
        self.fabric.has_queued()
    }

    /// Returns the code for an executor whose devices have queues. The first call makes it.
    pub(crate) fn queue_code(&self) -> &Code {
        if !self.has_queued() {
            return &self.code;
        }
        self.queue_code.get_or_init(|| {
            let lowered = self.fabric.lower(&self.schedule, true);
            lowered.expect("what the schedule is made of was checked when it was compiled")
        })
    }

    /// Returns the node with this name, or with this path (`loop/body/mul`). The first call sorts the names.
    pub(crate) fn node(&self, name: &str) -> Result<NodeId> {
        let shape = self.schedule.shape();
        let by_name = self.by_name.get_or_init(|| shape.ids().map(|node| (shape.name_of(node).clone(), node)).collect());
        let node = by_name.get(name).copied().or_else(|| self.inner_node(name));
        node.ok_or_else(|| unknown_node(shape, name))
    }

    /// Returns the node of an inner graph by its path.
    fn inner_node(&self, path: &str) -> Option<NodeId> {
        let (mut schedule, mut around, mut rest) = (&self.schedule, None, path);
        loop {
            let find = |name: &str| schedule.shape().ids().find(|&node| &**schedule.shape().name_of(node) == name);
            let Some((name, behind)) = rest.split_once('/') else {
                return find(rest).map(|node| NodeId(self.first_node(around) + node.0));
            };
            let (role, behind) = behind.split_once('/')?;
            let node = find(name)?;
            let is_it =
                |inner: &InnerSchedule| inner.around() == around && inner.node() == node && inner.role().to_string() == role;
            let inner = self.schedule.inner().iter().position(is_it)?;
            (schedule, around, rest) = (self.schedule.inner()[inner].schedule(), Some(inner), behind);
        }
    }

    /// Returns the number of a graph's first node, among the nodes of all graphs.
    fn first_node(&self, inner: Option<usize>) -> u32 {
        inner.map_or(0, |inner| self.code.scopes[inner].first_node)
    }

    /// Returns the schedule of a node's graph, and the node in it.
    pub(crate) fn locate(&self, node: NodeId) -> (&Schedule, NodeId) {
        match self.code.scope_of(node) {
            None => (&self.schedule, node),
            Some(scope) => (self.schedule.inner()[scope].schedule(), NodeId(node.0 - self.first_node(Some(scope)))),
        }
    }

    /// Returns the name of a node. For a node of an inner graph, returns its path.
    pub(crate) fn name_of(&self, node: NodeId) -> Name {
        let (schedule, local) = self.locate(node);
        let name = schedule.shape().name_of(local);
        match self.code.scope_of(node) {
            None => name.clone(),
            Some(scope) => format!("{}/{name}", self.schedule.inner_path(scope)).into(),
        }
    }

    /// Returns the direct predecessors of a node in its graph.
    pub(crate) fn predecessors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (schedule, local) = self.locate(node);
        schedule.predecessors(local).iter().map(move |before| NodeId(before.0 + node.0 - local.0))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.schedule.fmt(f)?;
        self.0.details.iter().try_for_each(|(_, detail)| write!(f, "\n{detail}"))
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&self.0.schedule).finish()
    }
}
