//! From a graph to a plan: the checks that need values, then the schedule, then the code that hosts run.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::code::Code;
use super::lower::{Facts, Lowering};
use super::programs::Programs;
use super::segments::Segments;
use super::{Policy, Schedule};
use crate::error::{Kind, Result};
use crate::graph::{Body, Graph, InputPort, Maker, NodeId, OutputPort, Shape, Sharer, check, unknown_node};
use crate::value::{Arena, Layout};

/// The most memory that the values of one run may take in place; what is behind a `Vec` or a `Box` does not count.
const FRAME_BYTES_MAX: usize = 1 << 31;

/// A graph compiled by a stream policy: one program per stream. Immutable and cheap to clone; any number of runs of it can be
/// under way at once.
///
/// Prints itself as a table of its programs.
#[derive(Clone)]
pub struct Plan(Arc<PlanInner>);

pub(crate) struct PlanInner {
    pub(crate) schedule: Schedule,
    pub(crate) code: Code,
    /// The same for devices with queues, once it is asked for.
    queue_code: OnceLock<Code>,
    facts: Vec<Facts>,
    pub(crate) layout: Layout,
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) outputs: Vec<OutputPort>,
    by_name: OnceLock<HashMap<Arc<str>, NodeId>>,
}

/// An input, and what becomes of it.
#[derive(Clone)]
pub(crate) struct PlanInput {
    pub(crate) port: InputPort,
    pub(crate) is_shared: bool,
    pub(crate) taker: Option<NodeId>,
}

impl Graph {
    /// Compiles the graph: `policy` gives each node its stream, the plan what must wait for what.
    ///
    /// A graph can be compiled any number of times; plans do not change when the graph grows.
    ///
    /// # Errors
    /// The first mistake made while building (a name used twice, a value of another graph), a circle, a value or an input that
    /// nothing reads, a value taken by value that is shared, a policy without a valid answer. The error names the nodes.
    pub fn compile(&self, policy: &dyn Policy) -> Result<Plan> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.layout.size() > FRAME_BYTES_MAX {
            let what = "the size in bytes of one run's values".into();
            return Err(Kind::Limit { what, got: self.layout.size(), limit: FRAME_BYTES_MAX }.into());
        }
        let shape = self.compiled_shape();
        check(&shape)?;
        self.check_values()?;
        let schedule = Schedule::new(shape, policy)?;
        let facts = self.facts();
        let code = lower(&schedule, &self.bodies, &facts)?;
        let inputs = self.inputs.iter().map(|port| {
            let value = &self.values[port.value as usize];
            PlanInput { port: port.clone(), is_shared: value.sharer.is_some(), taker: value.taker }
        });
        Ok(Plan(Arc::new(PlanInner {
            code,
            queue_code: OnceLock::new(),
            facts,
            layout: self.layout,
            inputs: inputs.collect(),
            outputs: self.outputs.clone(),
            by_name: OnceLock::new(),
            schedule,
        })))
    }

    /// What can only be said once the whole graph is there: is every value read, and does nobody take what is shared?
    fn check_values(&self) -> Result<()> {
        for value in &self.values {
            let name = || self.maker_name(value.maker);
            match (value.is_read, value.maker) {
                (true, _) => {}
                (false, Maker::Node(_)) => return Err(Kind::UnusedNode { node: name() }.into()),
                (false, Maker::Input(_)) => return Err(Kind::UnusedInput { name: name() }.into()),
            }
            if let (Some(taker), Some(sharer)) = (value.taker, value.sharer) {
                let sharer = match sharer {
                    Sharer::Output(output) => format!("the output '{}'", self.outputs[output as usize].name),
                    Sharer::Async(node) => format!("the async node '{}'", self.shape().name_of(node)),
                };
                return Err(Kind::TakenShared { value: name(), taker: self.shape().name_of(taker).clone(), sharer }.into());
            }
        }
        Ok(())
    }

    /// The shape with what only the whole graph tells: where values are read, and that takers come last.
    fn compiled_shape(&self) -> Arc<Shape> {
        let orders = self.take_orders();
        if orders.is_empty() && self.shape().is_memory_settled() {
            return self.shared_shape().clone();
        }
        let mut shape = self.shape().clone();
        shape.settle_memory();
        orders.into_iter().for_each(|(reader, taker)| shape.order(reader, taker));
        Arc::new(shape)
    }

    /// Edges from every other reader of a taken value to its taker.
    fn take_orders(&self) -> Vec<(NodeId, NodeId)> {
        let taken: HashMap<NodeId, NodeId> = self
            .values
            .iter()
            .filter_map(|value| match (value.maker, value.taker) {
                (Maker::Node(node), Some(taker)) => Some((node, taker)),
                _ => None,
            })
            .collect();
        let mut orders = Vec::new();
        if !taken.is_empty() {
            let reads = self.shape().edges().iter().filter(|edge| edge.is_data());
            let orders_of = |source, reader| taken.get(&source).map(|&taker| (reader, taker));
            orders.extend(reads.filter_map(|edge| orders_of(edge.source, edge.target)));
        }
        for port in &self.inputs {
            let taker = self.values[port.value as usize].taker;
            orders.extend(taker.into_iter().flat_map(|taker| port.readers.iter().map(move |&reader| (reader, taker))));
        }
        orders.retain(|(reader, taker)| reader != taker);
        orders
    }

    fn facts(&self) -> Vec<Facts> {
        let mut facts: Vec<Facts> = self
            .works
            .iter()
            .zip(self.bodies.iter())
            .map(|(work, body)| {
                let value = &self.values[work.value as usize];
                let is_shared = value.sharer.is_some();
                let is_queued = body.is_queued();
                Facts { is_async: work.is_async, is_queued, is_shared, is_taken: value.taker.is_some(), is_in_place: !is_shared }
            })
            .collect();
        for edge in self.shape().edges() {
            if edge.is_data() && facts[edge.source.index()].is_shared {
                facts[edge.target.index()].is_in_place = false;
            }
        }
        // An input may be given as an `Arc`.
        self.inputs.iter().flat_map(|port| &port.readers).for_each(|reader| facts[reader.index()].is_in_place = false);
        facts
    }
}

impl Plan {
    /// Returns the programs: which stream runs which node, in which order, waiting for what.
    pub fn schedule(&self) -> &Schedule {
        &self.0.schedule
    }

    /// Returns whether both are the same plan: clones of one are.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks the programs with [`verify`](crate::verify), which shares no code with the compiler.
    ///
    /// # Errors
    /// As [`verify`](crate::verify); for a plan of this library that is a defect of the library.
    pub fn verify(&self) -> Result<()> {
        self.0.schedule.verify()
    }

    pub(crate) fn inner(&self) -> &PlanInner {
        &self.0
    }
}

/// Turns a schedule into code. A host runs a node on one stream, whatever devices it spans.
fn lower(schedule: &Schedule, bodies: &Arena<dyn Body>, facts: &[Facts]) -> Result<Code> {
    let on_host = schedule.on_first_streams()?;
    let schedule = on_host.as_ref().unwrap_or(schedule);
    Ok(Lowering { schedule, bodies, facts, programs: Programs::of(schedule), segments: None }.lower())
}

/// The same for devices with queues, with segments drawn together.
fn lower_segments(schedule: &Schedule, bodies: &Arena<dyn Body>, facts: &[Facts]) -> Result<Code> {
    let on_host = schedule.on_first_streams()?;
    let schedule = on_host.as_ref().unwrap_or(schedule);
    let segments = Segments::new(schedule, facts);
    let programs = Programs::drawn_together(schedule, &segments);
    Ok(Lowering { schedule, bodies, facts, programs, segments: Some(&segments) }.lower())
}

impl PlanInner {
    /// Compiles the same graph again, with other costs and another policy.
    pub(crate) fn recompile(&self, costs_us: &[Option<f64>], policy: &dyn Policy) -> Result<Plan> {
        let mut shape = Shape::clone(self.schedule.shape());
        for (node, cost_us) in shape.nodes_mut().iter_mut().zip(costs_us) {
            node.cost_us = cost_us.unwrap_or(node.cost_us);
        }
        let schedule = Schedule::new(Arc::new(shape), policy)?;
        Ok(Plan(Arc::new(Self {
            code: lower(&schedule, &self.code.bodies, &self.facts)?,
            queue_code: OnceLock::new(),
            facts: self.facts.clone(),
            layout: self.layout,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            by_name: OnceLock::new(),
            schedule,
        })))
    }

    /// Returns the code for an executor whose devices have queues; made when it is asked for first.
    pub(crate) fn queue_code(&self) -> &Code {
        if !self.facts.iter().any(|facts| facts.is_queued) {
            return &self.code;
        }
        self.queue_code.get_or_init(|| {
            let lowered = lower_segments(&self.schedule, &self.code.bodies, &self.facts);
            lowered.expect("what the schedule is made of was checked when it was compiled")
        })
    }

    /// Returns the node of this name; the names are put in order when the first one is asked for.
    pub(crate) fn node(&self, name: &str) -> Result<NodeId> {
        let shape = self.schedule.shape();
        let by_name = self.by_name.get_or_init(|| shape.ids().map(|node| (shape.name_of(node).clone(), node)).collect());
        by_name.get(name).copied().ok_or_else(|| unknown_node(shape, name))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.schedule.fmt(f)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&self.0.schedule).finish()
    }
}
