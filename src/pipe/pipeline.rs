//! A pipeline: the graph of one item, its phases, and how many items are in flight.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::answers::{Answers, Recorder};
use super::phased::{Phases, phases_of, work_of};
use crate::error::{Kind, Result};
use crate::graph::{Graph, NODES_MAX, Outlets, Value};
use crate::name::Name;
use crate::phases::{Beat, Phasing};
use crate::plan::{OverItems, Pipelining, Plan, Schedule, Wanted};
use crate::policy::Policy;
use crate::run::port::Typed;
use crate::runtime::{Core, Timeline};
use crate::value::Cells;
use crate::value::args::Data;

/// The most items of one pipeline in flight.
const IN_FLIGHT_MAX: u32 = 1 << 16;

/// A graph that runs once for each item of a stream, for several items at once: `I` is an item, `T` its
/// results. Immutable and cheap to clone; [`Executor::pipe`](crate::Executor::pipe) runs it.
///
/// Each node has a *phase*. While one phase handles item k, the phase before it handles item k + 1. A phase
/// in which a node holds a [state](Graph::state) or gives a [feedback](Graph::feedback) its value has the
/// items in order, one at a time. Every other phase handles several items side by side, as they come
/// ([`serial`](Pipeline::serial) forbids that).
///
/// # Examples
/// ```
/// use anabranch::pipe::Phases;
/// use anabranch::{Executor, Pipeline, Ranked};
/// use futures::{StreamExt, TryStreamExt, stream};
///
/// let sums = Pipeline::new("sums", &Ranked::default(), |g, line| {
///     let mut total = g.state("total", || 0);
///     let number = g.try_task("parse", &line, |line: &String| Ok(line.parse::<i64>()?));
///     g.task("add", (&mut total, &number), |total: &mut i64, number: &i64| {
///         *total += number;
///         *total
///     })
/// })?
/// .phases(Phases::Each)?
/// .in_flight(4)?;
///
/// let exec = Executor::host()?;
/// let lines = stream::iter(["1", "2", "three", "4"]).map(String::from);
/// let results: Vec<_> = futures::executor::block_on(exec.pipe(&sums, lines).collect());
/// assert_eq!(results.iter().flatten().collect::<Vec<_>>(), [&1, &3, &7]);
/// assert!(results[2].is_err());
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Pipeline<I, T> {
    inner: Arc<Inner<T>>,
    item: PhantomData<fn(I)>,
}

struct Inner<T> {
    definition: Arc<Definition<T>>,
    split: Arc<Split>,
    settings: Settings,
    /// With the phases that were asked for.
    phased: Form,
    /// Where phases that only continue another are one with it: for workers, async nodes and simulations.
    joined: Form,
    /// In one phase: for all others.
    merged: Form,
}

/// A form in which a pipeline can run.
#[derive(Clone)]
struct Form {
    plan: Plan,
    pipelining: Arc<Pipelining>,
}

/// What never changes.
struct Definition<T> {
    name: Name,
    graph: Graph,
    answers: Answers,
    /// In one phase.
    plan: Plan,
    take: Arc<dyn Fn(Cells<'_>) -> T + Send + Sync>,
}

/// What the items in flight, the beat and the order of items do not change.
struct Split {
    /// From 0 on.
    phases: Arc<[u32]>,
    costs_us: Arc<[f64]>,
    plan: Plan,
    /// The joined phase of each phase, and the plan with these. None if nothing is joined. Found once a
    /// setting lets them be joined, before a run needs it: a mistake is an error of the setting.
    joined: OnceLock<Option<(Vec<u32>, Plan)>>,
    phasing: OnceLock<Phasing>,
}

#[derive(Clone, Copy)]
struct Settings {
    /// None until it was set.
    slots: Option<u32>,
    phases: Phases,
    beat: Beat,
    is_serial: bool,
    cpus: u32,
}

impl Settings {
    fn wanted(&self, slots: u32) -> Wanted {
        Wanted { slots, is_lockstep: self.beat == Beat::Lockstep, is_serial: self.is_serial }
    }
}

impl Split {
    fn depth(&self) -> u32 {
        self.phases.iter().max().map_or(1, |last| last + 1)
    }
}

impl<T> Definition<T> {
    /// Returns the plan with these phases, from 0 on.
    fn in_phases(&self, phases: Arc<[u32]>) -> Result<Plan> {
        let merged = self.plan.inner();
        let is_split = merged.has_queued() || phases.iter().any(|&phase| phase > 0);
        if is_split { merged.in_phases(phases, &self.answers.replay()) } else { Ok(self.plan.clone()) }
    }

    /// Returns the form with joined phases, or the one with the phases themselves if none are joined.
    fn joined(&self, split: &Split, phased: &Form, settings: &Settings) -> Result<Form> {
        // Then every phase waits for the item before, or for other phases.
        if settings.is_serial || settings.beat == Beat::Lockstep {
            return Ok(phased.clone());
        }
        // The number of items in flight changes no join.
        let joined = match split.joined.get() {
            Some(joined) => joined,
            None => {
                let joined = self.find_joined(split, &phased.pipelining)?;
                split.joined.get_or_init(|| joined)
            }
        };
        Ok(match joined {
            Some((joined_of, plan)) => Form { plan: plan.clone(), pipelining: Arc::new(phased.pipelining.joined(joined_of)) },
            None => phased.clone(),
        })
    }

    fn find_joined(&self, split: &Split, phased: &Pipelining) -> Result<Option<(Vec<u32>, Plan)>> {
        let Some(joined_of) = phased.joined_of(&self.graph, &split.phases) else { return Ok(None) };
        let phases = split.phases.iter().map(|&phase| joined_of[phase as usize]).collect();
        Ok(Some((joined_of, self.in_phases(phases)?)))
    }
}

impl<I: Data, T: Send + 'static> Pipeline<I, T> {
    /// Returns the pipeline of a graph. `build` adds the nodes, as to any [`Graph`], and returns the results:
    /// a [`Value`], or a tuple of up to eight. They are moved out of each item. The policy is asked once.
    ///
    /// # Errors
    /// As [`Graph::compile`]; or a node in an earlier phase than one that it reads.
    pub fn new<O: Outlets<Item = T>>(
        name: impl Into<Name>,
        policy: &dyn Policy,
        build: impl FnOnce(&mut Graph, Value<I>) -> O,
    ) -> Result<Self> {
        let (name, mut graph) = (name.into(), Graph::new());
        graph.set_name(&name);
        let item = graph.input::<I>("the item");
        let built = graph.lend(|graph| {
            let results = build(graph, item);
            results.declare(graph)
        });
        let keys = built.ok_or_else(|| Kind::Replaced { of: format!("the pipeline '{name}'"), node: None }.into())?;
        graph.check_ports()?;
        let recorder = Recorder::new(policy);
        let plan = graph.compile_piped(&recorder)?;
        let answers = recorder.into_answers();
        // Phases keep also the orders that only the compiler finds.
        graph.set_shape(plan.schedule().shape().clone());
        let mut costs_us = vec![0.0; graph.shape().nodes().len()];
        plan.schedule().spans().iter().for_each(|span| costs_us[span.node.index()] = span.end_us - span.start_us);
        let definition = Definition { name, graph, answers, plan, take: Arc::new(move |cells| O::take(&keys, cells)) };
        let settings = Settings { slots: None, phases: Phases::Written, beat: Beat::Elastic, is_serial: false, cpus: cpus() };
        Self::split(Arc::new(definition), None, settings, costs_us.into())
    }

    /// Splits the pipeline into phases. The first of the settings: others are checked against the phases.
    ///
    /// # Errors
    /// If the phases do not fit the graph: the error names the nodes. If more items must be in flight than
    /// [`in_flight`](Pipeline::in_flight) has said.
    pub fn phases(self, phases: Phases) -> Result<Self> {
        self.split_again(Settings { phases, ..self.inner.settings }, self.inner.split.costs_us.clone())
    }

    /// Sets the most items in flight: begun, and not taken yet. Each has memory of its own. The default is
    /// twice the number of phases, and at least 4 (fewer if the graph has millions of nodes).
    ///
    /// # Errors
    /// If a feedback, or lockstep, needs more.
    pub fn in_flight(self, items: u32) -> Result<Self> {
        self.with(|settings| settings.slots = Some(items))
    }

    /// Sets when a phase begins an item. The default is [`Beat::Elastic`]: as soon as it can. Where nodes
    /// wait for a core or a device, a run has no order of its own: on few cores it can be slower than
    /// lockstep.
    ///
    /// # Errors
    /// If lockstep needs more items in flight than [`in_flight`](Pipeline::in_flight) has said.
    pub fn beat(self, beat: Beat) -> Result<Self> {
        self.with(|settings| settings.beat = beat)
    }

    /// Lets every phase have the items in order, one at a time.
    pub fn serial(self) -> Self {
        self.with(|settings| settings.is_serial = true).expect("that fits any number of items in flight")
    }

    /// Sets how many CPU nodes run at once, for [`Phases::Auto`], [`phasing`](Pipeline::phasing) and
    /// [`simulation`](Pipeline::simulation), and splits the pipeline again. The default is the number of
    /// cores.
    ///
    /// # Errors
    /// As [`Pipeline::phases`]; or if it is 0.
    pub fn cpus(self, cpus: u32) -> Result<Self> {
        if cpus == 0 {
            return Err(Kind::Setting { what: "the number of CPU nodes at once", must: "1 or more", got: 0 }.into());
        }
        self.split_again(Settings { cpus, ..self.inner.settings }, self.inner.split.costs_us.clone())
    }

    /// Sets what leaves the phases as they are.
    fn with(self, set: impl FnOnce(&mut Settings)) -> Result<Self> {
        let Inner { definition, split, settings, .. } = &*self.inner;
        let mut settings = *settings;
        set(&mut settings);
        Self::with_arrows(definition.clone(), split.clone(), settings)
    }

    fn split_again(&self, settings: Settings, costs_us: Arc<[f64]>) -> Result<Self> {
        Self::split(self.inner.definition.clone(), Some(&self.inner.split), settings, costs_us)
    }

    /// Finds the phases, and compiles their plan if they are not those of `last`.
    fn split(definition: Arc<Definition<T>>, last: Option<&Split>, settings: Settings, costs_us: Arc<[f64]>) -> Result<Self> {
        let (phases, phasing) = phases_of(&definition.graph, settings.phases, &costs_us, settings.cpus)?;
        let (plan, joined) = match last.filter(|last| last.phases == phases) {
            Some(last) => (last.plan.clone(), last.joined.clone()),
            None => (definition.in_phases(phases.clone())?, OnceLock::new()),
        };
        let split = Split { phases, costs_us, plan, joined, phasing: phasing.map_or_else(OnceLock::new, OnceLock::from) };
        Self::with_arrows(definition, Arc::new(split), settings)
    }

    /// Draws the arrows between phases.
    fn with_arrows(definition: Arc<Definition<T>>, split: Arc<Split>, settings: Settings) -> Result<Self> {
        let (depth, most) = (split.depth(), in_flight_max(&split.plan));
        let slots = settings.slots.unwrap_or((2 * depth).max(4).min(most.max(depth)));
        check_in_flight(&split.plan, slots)?;
        let queued = &split.plan.inner().queue_code().queued;
        let phased = Pipelining::new(&definition.graph, &split.phases, queued, settings.wanted(slots))?;
        let merged = Form { plan: definition.plan.clone(), pipelining: Arc::new(phased.merged()) };
        let phased = Form { plan: split.plan.clone(), pipelining: Arc::new(phased) };
        let joined = definition.joined(&split, &phased, &settings)?;
        let inner = Inner { definition, split, settings, phased, joined, merged };
        Ok(Self { inner: Arc::new(inner), item: PhantomData })
    }

    /// Returns the programs of one item. In a pipeline of several phases they are those of one schedule
    /// iteration: every phase handles an item of its own.
    ///
    /// They have the phases that were asked for. Without workers, a run has one phase if no node is async and
    /// nothing is simulated. In all other runs, a phase that only continues another is joined to it. That is
    /// quicker, with the same results, and the stream that an error or a span names can be another than here.
    pub fn schedule(&self) -> &Schedule {
        self.inner.split.plan.schedule()
    }

    /// Plans again with the times that nodes really took. Nodes that the timeline does not know keep their
    /// costs. With [`Phases::Auto`] the nodes may change their phases, and so a feedback its age. The
    /// timeline knows the runs of this pipeline, and of all that settings make of the same one:
    /// `pipeline.clone().in_flight(8)?` can be planned by the runs of `pipeline`. For nodes on a GPU it has
    /// the time to enqueue their work.
    ///
    /// A timeline without a run of the pipeline leaves the costs as they are. So make it the
    /// [observer](crate::exec::ExecutorBuilder::observer) of an executor, and run the pipeline there first.
    ///
    /// # Errors
    /// As [`Pipeline::phases`].
    pub fn retime(self, timeline: &Timeline) -> Result<Self> {
        let Inner { definition, split, settings, .. } = &*self.inner;
        let took = timeline.costs_of_graph_us(&definition.plan).into_iter().zip(&*split.costs_us);
        let costs_us = took.map(|(took, &known)| took.unwrap_or(known)).collect();
        self.split_again(*settings, costs_us)
    }

    /// Returns the phase of a node, from 1 on. None if there is no such node.
    pub fn phase_of(&self, node: &str) -> Option<u32> {
        let shape = self.inner.definition.graph.shape();
        let node = shape.ids().find(|&id| &**shape.name_of(id) == node)?;
        Some(self.inner.split.phases[node.index()] + 1)
    }

    /// Returns the most items in flight, which [`in_flight`](Pipeline::in_flight) sets. The memory of their
    /// values is bounded by it; the pipeline prints the bound (what lies behind a `Vec` or a `Box` does not
    /// count).
    pub fn max_in_flight(&self) -> u32 {
        self.inner.phased.pipelining.slots
    }

    /// Returns how a run goes on an executor: in one phase where one thread does everything anyway.
    pub(crate) fn for_core(&self, core: &Core) -> (&Plan, &Arc<Pipelining>) {
        let Inner { joined, merged, .. } = &*self.inner;
        let is_alone = core.pool.is_none() && core.choices.is_none() && merged.plan.inner().code.asyncs.is_empty();
        let Form { plan, pipelining } = if is_alone { merged } else { joined };
        (plan, pipelining)
    }

    pub(crate) fn port(&self) -> Typed<I, T> {
        let definition = &self.inner.definition;
        let (offset, access) = (definition.graph.inputs[0].offset, definition.plan.inner().inputs[0].access());
        Typed { offset, access, take: definition.take.clone(), item: PhantomData }
    }
}

impl<I, T> Pipeline<I, T> {
    /// Returns the number of phases.
    pub fn depth(&self) -> u32 {
        self.inner.split.depth()
    }

    /// Returns all forms: with the phases that were asked for, with joined ones, and in one.
    pub(super) fn over_items(&self) -> [OverItems<'_>; 3] {
        let Inner { definition, split, settings, phased, joined, merged } = &*self.inner;
        [phased, joined, merged].map(|Form { plan, pipelining }| OverItems {
            graph: &definition.graph,
            schedule: plan.schedule(),
            pipelining,
            phase_of: &split.phases,
            wanted: settings.wanted(pipelining.slots),
        })
    }

    pub(super) fn name(&self) -> &Name {
        &self.inner.definition.name
    }

    pub(super) fn costs_us(&self) -> &[f64] {
        &self.inner.split.costs_us
    }

    /// Returns how many CPU nodes run at once.
    pub(super) fn cores(&self) -> u32 {
        self.inner.settings.cpus
    }

    /// Returns when the nodes run, by their costs: the period, the latency, what bounds them, and a picture.
    /// Each phase handles one item at a time there. A run can be faster, because a phase without a state
    /// handles several items side by side: [`simulation`](Pipeline::simulation) shows a run. Its bytes are
    /// those of values in place: what lies behind a `Vec` or a `Box` does not count.
    ///
    /// # Errors
    /// If the costs are no numbers from 0 to 10¹².
    pub fn phasing(&self) -> Result<&Phasing> {
        let Inner { definition, split, settings, .. } = &*self.inner;
        let Split { phases, costs_us, phasing, .. } = &**split;
        if let Some(phasing) = phasing.get() {
            return Ok(phasing);
        }
        let mut work = work_of(&definition.graph, costs_us, settings.cpus)?;
        definition.graph.shape().ids().for_each(|node| work.phase(node, phases[node.index()] + 1));
        let found = work.written()?;
        Ok(phasing.get_or_init(|| found))
    }
}

/// Checks that a plan can have so many items in flight: a ticket can name each program of each. On any
/// device, a plan has no more programs than nodes.
pub(super) fn check_in_flight(plan: &Plan, slots: u32) -> Result<()> {
    if slots == 0 {
        return Err(Kind::TooFewSlots { slots, why: "an item needs one".into() }.into());
    }
    let limit = in_flight_max(plan);
    if slots > limit {
        let what = "the number of items in flight".into();
        return Err(Kind::Limit { what, got: slots as usize, limit: limit as usize }.into());
    }
    Ok(())
}

fn in_flight_max(plan: &Plan) -> u32 {
    let nodes = plan.inner().code.step_of.len().max(1);
    ((NODES_MAX / nodes) as u32).min(IN_FLIGHT_MAX)
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

impl<I, T> Clone for Pipeline<I, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), item: PhantomData }
    }
}

/// Its phases, the memory of the items in flight, how old its feedback is, and its programs.
impl<I, T> fmt::Display for Pipeline<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { definition, split, phased, .. } = &*self.inner;
        let Split { phases, plan, .. } = &**split;
        let graph = &definition.graph;
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let (depth, slots, bytes) = (split.depth(), phased.pipelining.slots, plan.inner().layout.size());
        writeln!(
            f,
            "pipeline {}: {depth} phase{}, {slots} item{} in flight × {bytes} bytes = {} bytes",
            definition.name,
            plural(depth),
            plural(slots),
            u64::from(slots) * bytes as u64
        )?;
        let shape = graph.shape();
        for phase in 0..depth {
            let nodes: Vec<&str> = shape.ids().filter(|id| phases[id.index()] == phase).map(|id| &**shape.name_of(id)).collect();
            writeln!(f, "phase {}   {}", phase + 1, nodes.join(" · "))?;
        }
        for feed in &phased.pipelining.feeds {
            let (name, lag) = (&graph.inputs[feed.input as usize].name, feed.lag);
            writeln!(f, "feedback '{name}' is from {lag} item{} before", plural(lag))?;
        }
        plan.fmt(f)
    }
}

impl<I, T> fmt::Debug for Pipeline<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.inner.definition.name)
            .field("phases", &self.inner.split.phases)
            .field("in_flight", &self.inner.phased.pipelining.slots)
            .finish()
    }
}
