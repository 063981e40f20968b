//! A scope as a node of a graph: an async node, which runs the pipelines of the scope's groups one after the
//! other on the executor that polls it.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::batch::Step;
use super::draft::Draft;
use super::group::{Group, GroupRun, Own, Stages, State};
use super::memory::Block;
use super::plan::ScopePlan;
use super::results::{Declared, Given, Results};
use super::scope::Scope;
use super::streaming::Streaming;
use crate::error::{BoxError, Error, Result};
use crate::graph::{Detail, Graph, Job, JobFuture, Made, Shared, SharedContext};
use crate::name::Name;
use crate::run::items::Items;
use crate::runtime::{Core, core_here};
use crate::sync::OnceLock;
use crate::{Pipeline, Plan};

impl Graph {
    /// Adds a scope: a node that is an array program, and streams through less memory than its arrays need.
    /// `build` declares stores and operations, and returns the results: see [`Results`].
    ///
    /// It runs on the executor of the graph, as a part of the run: it fails, is cancelled and is dropped with
    /// it. Several scopes run at once.
    ///
    /// # Errors
    /// Of `compile`: a mistake in the scope; with [`Streaming::strict`], that it does not stream as a whole:
    /// the source of the error, a [`NotStreaming`](crate::scope::NotStreaming), has all reasons; that it
    /// needs more memory than [`memory_max`](Streaming::memory_max) allows.
    ///
    /// Of the run: the error of an operation. It names the operation and its batch.
    ///
    /// # Examples
    /// A heat equation on rows, two steps at a time. Each step reads a halo of one row.
    /// ```
    /// use anabranch::scope::{Array, Streaming, Tile, TileMut};
    /// use anabranch::{Executor, Graph, inputs};
    ///
    /// fn step(u: Tile<f32, 2>, mut v: TileMut<f32, 2>) {
    ///     for i in v.range(0) {
    ///         for j in v.range(1) {
    ///             let near = [[i.wrapping_sub(1), j], [i + 1, j], [i, j.wrapping_sub(1)], [i, j + 1]];
    ///             let sum: f32 = near.iter().map(|&at| u.get(at).copied().unwrap_or(0.0)).sum();
    ///             v[[i, j]] = 0.5 * u[[i, j]] + 0.125 * sum;
    ///         }
    ///     }
    /// }
    ///
    /// let mut g = Graph::new();
    /// let heat = g.scope("heat", Streaming::strict(), |s| {
    ///     let (u, v, w) = (s.store("u", [6000, 400]), s.store("v", [6000, 400]), s.store("w", [6000, 400]));
    ///     s.write("begin", (), &u, |mut u: TileMut<f32, 2>| u.fill(1.0));
    ///     for (from, to) in [(&u, &v), (&v, &w)] {
    ///         s.write("step", from.halo([1, 0], [1, 0]), to, step);
    ///     }
    ///     s.keep(&w)
    /// });
    /// g.output("heat", &heat);
    ///
    /// let plan = g.compile()?;
    /// let scope = plan.scope("heat").expect("the graph has it");
    /// assert!(scope.peak_bytes() < scope.unstreamed_bytes());
    /// let mut outputs = futures::executor::block_on(Executor::host()?.run(&plan, inputs! {}))?;
    /// let heat = outputs.take::<Array<f32, 2>>("heat")?;
    /// assert_eq!((heat[[3000, 200]], heat[[0, 0]]), (1.0, 0.59375));
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn scope<R: Results>(
        &mut self,
        name: impl Into<Name>,
        streaming: Streaming,
        build: impl FnOnce(&mut Scope) -> R,
    ) -> R::Values {
        let name = name.into();
        let mut scope = Scope { draft: Draft::new(self.full_name_of(&name), streaming) };
        let results = build(&mut scope);
        let mut draft = scope.draft;
        let mut job = self.job(name);
        let mut declared = Declared { draft: &mut draft, job: &mut job, given: Vec::new(), values: Vec::new() };
        let values = results.declare(&mut declared);
        let given = declared.given;
        draft.given.drain(..).for_each(|read| read(&mut job));
        let planned = match draft.take_mistake() {
            Some(mistake) => Err(mistake),
            None => ScopePlan::new(draft, given).map(Arc::new),
        };
        match planned {
            Ok(plan) => {
                job.detail(plan.clone());
                job.end(Box::new(ScopeJob(plan)));
            }
            Err(error) => job.fail(error),
        }
        values
    }
}

impl Plan {
    /// Returns the plan of a scope, by the name of its node; None if the graph has no such scope. That of a
    /// scope in a loop is its path: `loop/body/scope`.
    pub fn scope(&self, name: &str) -> Option<&ScopePlan> {
        let detail: &dyn Any = self.inner().detail(name)?;
        detail.downcast_ref()
    }
}

impl Detail for ScopePlan {}

struct ScopeJob(Arc<ScopePlan>);

impl Job for ScopeJob {
    fn start(&self, given: Vec<Shared>, _: Option<SharedContext>) -> JobFuture {
        let core = core_here().expect("an executor polls its nodes");
        Box::pin(run(self.0.clone(), core, given))
    }
}

/// Runs the groups of a scope, and returns the results.
async fn run(plan: Arc<ScopePlan>, core: Arc<Core>, given: Vec<Shared>) -> Result<Vec<Made>, BoxError> {
    let scalars = (0..plan.scalars).map(|_| OnceLock::new()).collect();
    let state = Arc::new(State { scalars, given });
    let mut wholes: Vec<Option<Own>> = plan.stores.iter().map(|_| None).collect();
    for (group, stages) in &plan.groups {
        for &store in &group.begins {
            let whole = &plan.stores[store as usize];
            wholes[store as usize] = Some(if whole.is_on_device {
                Own::Device(Arc::new(OnceLock::new()))
            } else {
                let block = Block::new(whole.bytes, whole.align);
                let instead = "keep less, or set a `memory_max`";
                let none = || plan.no_memory(format!("store '{}', which is whole,", whole.name), whole.bytes, instead);
                Own::Host(Arc::new(block.ok_or_else(none)?))
            });
        }
        run_group(&plan, &core, group, stages, &state, &wholes).await?;
        group.ends.iter().for_each(|&store| wholes[store as usize] = None);
    }
    let state = Arc::into_inner(state).expect("all steps have ended, and dropped what they had");
    Ok(results(&plan, state, &mut wholes))
}

/// Returns the results of a scope that is over.
fn results(plan: &ScopePlan, mut state: State, wholes: &mut [Option<Own>]) -> Vec<Made> {
    let mut result = |given: &Given| -> Made {
        match *given {
            Given::Nothing => Box::new(()),
            Given::Scalar(scalar) => state.scalars[scalar as usize].take().expect("all operations have ended"),
            Given::Store { store, make } => {
                let root = plan.roots.of(store) as usize;
                match wholes[root].take() {
                    Some(Own::Host(block)) => make(block, &plan.stores[root].extents),
                    _ => unreachable!("what is kept is on the host, until here"),
                }
            }
        }
    };
    plan.results.iter().map(&mut result).collect()
}

async fn run_group(
    plan: &ScopePlan,
    core: &Arc<Core>,
    group: &Arc<Group>,
    stages: &Stages,
    state: &Arc<State>,
    wholes: &[Option<Own>],
) -> Result<()> {
    let run = GroupRun::new(plan.program.clone(), group.clone(), state.clone(), wholes.to_vec());
    let none = || plan.no_memory("the tiles".into(), group.host.bytes, "set a `memory_max`, or a smaller one");
    let run = Arc::new(run.ok_or_else(none)?);
    for (pipeline, steps) in stages {
        run_stage(core, pipeline, *steps, &run).await.map_err(|error| of_operation(&run, plan, error))?;
    }
    Ok(())
}

/// Runs the steps of a pipeline.
async fn run_stage(core: &Arc<Core>, pipeline: &Pipeline<Step, ()>, steps: u64, run: &Arc<GroupRun>) -> Result<()> {
    let (plan, pipelining) = pipeline.for_core(core);
    let mut items = Items::nested(core, plan, pipelining.clone(), pipeline.port());
    let mut next = 0..steps;
    let mut source = || Poll::Ready(next.next().map(|number| Ok(Step { number, run: run.clone() })));
    let mut first = Ok(());
    while let Some(ended) = poll_fn(|cx| items.poll_next(cx, |_| source())).await {
        if let (Err(error), Ok(())) = (ended, &first) {
            first = Err(error);
            // The other steps end before the scope does.
            items.cancel();
        }
    }
    first
}

/// Returns the error of a step as one of an operation, and its batch.
fn of_operation(run: &GroupRun, plan: &ScopePlan, error: Error) -> Error {
    let Some((op, batch)) = error.item().and_then(|step| run.failed_at(step)) else { return error };
    let op = &run.group.ops[op];
    let place = op.tile(batch).map_or_else(String::new, |tile| format!(", at {tile:?}"));
    error.in_batch(format!("{}/{}", plan.name, run.program[op.number].name).into(), (batch, op.batches), place)
}
