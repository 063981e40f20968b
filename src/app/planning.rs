//! An epoch as a problem for the room `phases`, and as a graph of one item.

use std::collections::{BTreeMap, HashMap};

use super::description::App;
use super::fault::{Warning, quoted};
use super::order::is_before;
use super::parts::{Connection, PassId};
use super::ports::Mode;
use super::schedule::{Delivery, Dependency, Epoch, Link, Reason, Role, RunnableId};
use crate::error::Result;
use crate::graph::{Backend, NodeId, Shape};
use crate::name::Name;
use crate::phases::{Phasing, Work};

/// An epoch with its phases planned. Node `i` of the phasing is runnable `i` of the epoch.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// let plan = app.auto(epoch, 3)?;
/// println!("{}", plan.phasing);
/// assert_eq!(plan.rows(&app, epoch), [vec![], vec!["decode"], vec!["detect"], vec!["track"]]);
/// // Both direct connections need a `fifo-size` of 2.
/// assert_eq!((plan.too_small(&app).len(), plan.messages_in_flight()), (2, 4));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EpochPlan {
    /// The phases, the period and the loads.
    pub phasing: Phasing,
    /// The capacity that each direct connection of the epoch needs, by its position in
    /// [`App::connections`].
    pub capacities: Vec<(u32, u32)>,
    /// What the plan does not keep, or may not be meant.
    pub warnings: Vec<Warning>,
}

impl EpochPlan {
    /// Returns the phase of a runnable; 0 if it is not pipelined.
    ///
    /// # Panics
    ///
    /// May panic if the runnable is not one of the epoch that was planned.
    pub fn phase_of(&self, runnable: RunnableId) -> u32 {
        self.phasing.phase_of(NodeId(runnable.0))
    }

    /// Returns the most messages that its connections hold at once.
    pub fn messages_in_flight(&self) -> u64 {
        self.capacities.iter().map(|&(_, capacity)| u64::from(capacity)).sum()
    }

    /// Returns the connections whose capacity in the file, or else 1, is smaller than they need: the position
    /// of each, and the `fifo-size` that it needs.
    ///
    /// # Panics
    ///
    /// May panic if the plan is not one of this application.
    pub fn too_small(&self, app: &App) -> Vec<(u32, u32)> {
        let declared = |number: u32| app.connections()[number as usize].fifo_size.unwrap_or(1);
        self.capacities.iter().copied().filter(|&(number, needed)| declared(number) < needed).collect()
    }

    /// Returns the phases as the rows of `passes`: a component with all its passes in one phase by its name,
    /// and single passes by theirs.
    ///
    /// # Panics
    ///
    /// May panic if the plan is not one of this application and this epoch.
    pub fn rows(&self, app: &App, epoch: &Epoch) -> Vec<Vec<Name>> {
        let mut phases: BTreeMap<u32, BTreeMap<u32, Vec<PassId>>> = BTreeMap::new();
        for (runnable, number) in epoch.runnables.iter().zip(0..).filter(|(runnable, _)| runnable.role != Role::Submittee) {
            let component = app.passes()[runnable.pass.index()].component;
            phases.entry(component.0).or_default().entry(self.phase_of(RunnableId(number))).or_default().push(runnable.pass);
        }
        let depth = phases.values().flat_map(BTreeMap::keys).max().copied().unwrap_or(0);
        let mut rows = vec![Vec::new(); depth as usize + 1];
        for (component, phases) in phases {
            let component = &app.components()[component as usize];
            for (phase, passes) in phases {
                let is_whole = passes.len() == component.passes().len();
                let names = passes.iter().map(|pass| app.passes()[pass.index()].name.clone());
                let names: Vec<Name> = if is_whole { vec![component.name.clone()] } else { names.collect() };
                rows[phase as usize].extend(names);
            }
        }
        rows.iter_mut().for_each(|row| row.sort());
        rows
    }
}

/// Whether a work has the phases of the file.
#[derive(Clone, Copy, PartialEq)]
enum Phases {
    Written,
    Free,
}

impl App {
    /// Returns an epoch as a work, with the phases of the file. Node `i` is runnable `i`.
    ///
    /// # Panics
    ///
    /// May panic if the epoch is not one of this application. If it does not, the work means nothing.
    pub fn work(&self, epoch: &Epoch) -> Work {
        self.work_of(epoch, Phases::Written)
    }

    /// Plans an epoch with the phases of the file.
    ///
    /// # Errors
    ///
    /// As for [`Work::written`].
    ///
    /// # Panics
    ///
    /// As for [`App::work`].
    pub fn written(&self, epoch: &Epoch) -> Result<EpochPlan> {
        let phasing = self.work(epoch).written()?;
        let direct = epoch.links.iter().filter(|link| self.is_direct(link));
        let capacities = direct.map(|link| (link.connection, link.capacity)).collect();
        let warnings = self.warnings_of(epoch, &phasing);
        Ok(EpochPlan { phasing, capacities, warnings })
    }

    /// Plans an epoch with at most `depth` phases, whatever the rows of the file are. The passes of a
    /// component that is in one row stay in one phase, because they share its members. The ends of a
    /// singleton do, too.
    ///
    /// # Errors
    ///
    /// As for [`Work::auto`].
    ///
    /// # Panics
    ///
    /// As for [`App::work`].
    pub fn auto(&self, epoch: &Epoch, depth: u32) -> Result<EpochPlan> {
        let phasing = self.work_of(epoch, Phases::Free).auto(depth)?;
        let mut capacities = Vec::new();
        for link in epoch.links.iter().filter(|link| self.is_direct(link)) {
            let Some((source, target)) = self.ends(epoch, link) else { continue };
            let [from, to] = [source, target].map(|end| phasing.phase_of(NodeId(end.0)));
            capacities.push((link.connection, Link::needed_at(to.saturating_sub(from))));
        }
        let warnings = self.warnings_of(epoch, &phasing);
        Ok(EpochPlan { phasing, capacities, warnings })
    }

    /// Returns the graph of one item of an epoch: a node for each pass, with its name and cost, on the GPU if
    /// the pass is on a device. A first pass reads the last passes of those components that are connected to
    /// its own by direct connections, in the order of the input ports. Each other pass reads the passes that
    /// it depends on. Indirect connections are left out.
    ///
    /// A node has the [phase](crate::graph::NodeShape::phase) of its row, and none in row 0.
    /// [`Graph::from_shape`](crate::Graph::from_shape) makes a graph of it that runs one item. In a
    /// [`Pipeline`](crate::Pipeline), [`Graph::add_shape`](crate::Graph::add_shape) makes one that runs items
    /// in these phases. `docs/app-json.md` says what of a description can run.
    ///
    /// # Panics
    ///
    /// May panic if the epoch is not one of this application.
    pub fn shape(&self, epoch: &Epoch) -> Shape {
        let mut shape = Shape::new();
        shape.set_name(&epoch.name);
        let mut nodes: HashMap<PassId, NodeId> = HashMap::new();
        for runnable in &epoch.runnables {
            let pass = &self.passes()[runnable.pass.index()];
            let backend = if pass.processor.is_device() { Backend::Gpu } else { Backend::Cpu };
            let node = *nodes.entry(runnable.pass).or_insert_with(|| shape.node(&pass.name, backend));
            let node = &mut shape.nodes_mut()[node.index()];
            // The submittee comes last, and its cost counts.
            node.cost_us = runnable.cost_us();
            node.phase = (runnable.row > 0).then_some(runnable.row);
        }
        let node_of = |end: RunnableId| nodes[&epoch.runnables[end.index()].pass];
        for link in epoch.links.iter().filter(|link| self.is_direct(link)) {
            if let Some((source, target)) = self.ends(epoch, link) {
                shape.read(node_of(source), 0, node_of(target));
            }
        }
        for &(source, target) in &epoch.by_item {
            shape.read(node_of(source), 0, node_of(target));
        }
        for Dependency { source, target, reason } in &epoch.dependencies {
            match reason {
                Reason::Component => shape.read(node_of(*source), 0, node_of(*target)),
                Reason::Declared if is_in_one_row(epoch, *source, *target) => shape.order(node_of(*source), node_of(*target)),
                _ => {}
            }
        }
        shape
    }

    fn is_direct(&self, link: &Link) -> bool {
        link.delivery != Delivery::AcrossEpochs && self.connections()[link.connection as usize].is_direct()
    }

    /// Returns the runnable that ends the pass that sends, and the one that begins the pass that receives.
    fn ends(&self, epoch: &Epoch, link: &Link) -> Option<(RunnableId, RunnableId)> {
        let Connection { source, target, .. } = &self.connections()[link.connection as usize];
        let [source, target] = [source, target].map(|end| &self.components()[end.component.index()]);
        Some((epoch.ends_of(source.last())?.1, epoch.ends_of_component(target)?.0))
    }

    fn work_of(&self, epoch: &Epoch, phases: Phases) -> Work {
        let mut work = Work::new();
        let engines: Vec<_> = epoch.engines.iter().map(|engine| work.resource(&engine.name, engine.lanes)).collect();
        for runnable in &epoch.runnables {
            work.node(&runnable.name, engines[runnable.engine.index()], runnable.cost_us());
        }
        let node = |id: RunnableId| NodeId(id.0);
        for &Dependency { source, target, reason } in &epoch.dependencies {
            let is_edge = match reason {
                Reason::Component | Reason::Submission | Reason::Connection(_) => true,
                Reason::Declared => is_in_one_row(epoch, source, target),
                Reason::Singleton(_) => false,
            };
            if is_edge {
                let bytes = if let Reason::Connection(number) = reason { self.bytes(number) } else { 0 };
                work.edge(node(source), node(target), bytes);
            }
        }
        epoch.by_item.iter().for_each(|&(source, target)| work.edge(node(source), node(target), 0));
        for link in epoch.links.iter().filter(|link| matches!(link.delivery, Delivery::ByItem | Delivery::Inverted)) {
            if let Some((source, target)) = self.ends(epoch, link).filter(|_| self.is_direct(link)) {
                work.edge(node(source), node(target), self.bytes(link.connection));
            }
        }
        self.add_feedback(epoch, phases, &mut work);
        self.add_groups(epoch, phases, &mut work);
        if phases == Phases::Written {
            for (runnable, number) in epoch.runnables.iter().zip(0..) {
                if runnable.row == 0 { work.unpipelined(NodeId(number)) } else { work.phase(NodeId(number), runnable.row) }
            }
        }
        work
    }

    fn bytes(&self, connection: u32) -> u64 {
        let source = self.connections()[connection as usize].source;
        self.components()[source.component.index()].outputs[source.port as usize].bytes.unwrap_or(0)
    }

    /// Adds the indirect connections. With free phases, one that closes no cycle binds nothing.
    fn add_feedback(&self, epoch: &Epoch, phases: Phases, work: &mut Work) {
        let is_mixed = epoch.runnables.iter().any(|runnable| runnable.row > 0);
        let is_indirect = |link: &&Link| !self.is_direct(link) && link.delivery != Delivery::AcrossEpochs;
        let indirect = epoch.links.iter().filter(is_indirect).filter_map(|link| Some((link, self.ends(epoch, link)?)));
        let indirect: Vec<(&Link, (RunnableId, RunnableId))> = indirect.collect();
        let is_bound: Vec<bool> = match phases {
            Phases::Written => {
                let is_bound = |link: &Link| link.delivery == Delivery::Feedback && (link.offset.is_some() || !is_mixed);
                indirect.iter().map(|(link, _)| is_bound(link)).collect()
            }
            Phases::Free => {
                // Cycles of these edges are an error of the work.
                let pairs: Vec<(u32, u32)> = indirect.iter().map(|(_, (source, target))| (target.0, source.0)).collect();
                is_before(epoch.runnables.len(), &self.item_edges(epoch), &pairs)
            }
        };
        for ((link, (source, target)), _) in indirect.into_iter().zip(is_bound).filter(|(_, is_bound)| *is_bound) {
            work.feedback(NodeId(source.0), NodeId(target.0), self.bytes(link.connection));
        }
    }

    /// Returns the edges of one item: those within a frame, and those from phase to phase.
    fn item_edges(&self, epoch: &Epoch) -> Vec<(u32, u32)> {
        let within =
            epoch.dependencies.iter().filter(|dependency| !matches!(dependency.reason, Reason::Singleton(_) | Reason::Declared));
        let links = epoch.links.iter().filter(|link| self.is_direct(link)).filter_map(|link| self.ends(epoch, link));
        let within = within.map(|dependency| (dependency.source.0, dependency.target.0));
        within.chain(links.chain(epoch.by_item.iter().copied()).map(|(source, target)| (source.0, target.0))).collect()
    }

    /// Keeps submitters and submittees in one phase, and with free phases also what shares memory.
    fn add_groups(&self, epoch: &Epoch, phases: Phases, work: &mut Work) {
        let nodes: Vec<NodeId> = (0..epoch.runnables.len() as u32).map(NodeId).collect();
        let component = |node: &NodeId| self.passes()[epoch.runnables[node.index()].pass.index()].component;
        for group in nodes.chunk_by(|a, b| component(a) == component(b)) {
            let rows = group.iter().map(|node| epoch.runnables[node.index()].row);
            if phases == Phases::Free && rows.clone().max() == rows.min() {
                work.together(group);
                continue;
            }
            let pass = |node: &NodeId| epoch.runnables[node.index()].pass;
            group.chunk_by(|a, b| pass(a) == pass(b)).filter(|pair| pair.len() > 1).for_each(|pair| work.together(pair));
        }
        let singletons = epoch.links.iter().filter(|link| self.connections()[link.connection as usize].mode == Mode::Singleton);
        for link in singletons.filter(|link| phases == Phases::Free && self.is_direct(link)) {
            if let Some((source, target)) = self.ends(epoch, link) {
                work.together(&[NodeId(source.0), NodeId(target.0)]);
            }
        }
    }

    /// Returns the warnings of a plan: its own, and those about the epoch.
    fn warnings_of(&self, epoch: &Epoch, phasing: &Phasing) -> Vec<Warning> {
        let mut warnings = self.unkept(epoch);
        warnings.extend(phasing.warnings().iter().map(|text| Warning::new(&epoch.place, text.clone())));
        let (needed_us, given_us) = (phasing.period_us(), epoch.period_ns as f64 / 1e3);
        if needed_us > given_us {
            let text = format!("the phases need a period of {needed_us} us, and the epoch has {given_us} us");
            warnings.push(Warning::new(&epoch.place, text));
        }
        warnings
    }

    /// Returns a warning for each thing in an epoch that a plan of phases cannot keep.
    fn unkept(&self, epoch: &Epoch) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut add = |text: String| warnings.push(Warning::new(&epoch.place, text));
        let mut holders: BTreeMap<u32, Vec<PassId>> = BTreeMap::new();
        for runnable in &epoch.runnables {
            runnable.mutexes.iter().for_each(|&mutex| holders.entry(mutex).or_default().push(runnable.pass));
        }
        for passes in holders.values_mut() {
            passes.dedup();
            if let [first, second, ..] = passes[..] {
                let [first, second] = [first, second].map(|pass| quoted(&self.passes()[pass.index()].name));
                add(format!(
                    "{first} and {second} hold one mutex, and the plan of phases may let them overlap; the simulation of the hyperepoch does not"
                ));
            }
        }
        for group in &epoch.alias_groups {
            add(format!(
                "the components of alias group {} take turns, and the plan of phases runs all of them in each period",
                quoted(&group.name)
            ));
        }
        for Dependency { source, target, reason } in &epoch.dependencies {
            let [source_name, target_name] = [source, target].map(|end| quoted(&epoch.runnables[end.index()].name));
            match reason {
                Reason::Declared if !is_in_one_row(epoch, *source, *target) => add(format!(
                    "{target_name} comes after {source_name} of another phase, which the plan of phases does not keep"
                )),
                Reason::Singleton(_) => add(format!(
                    "{target_name} comes after {source_name}, which reads the only slot between them; the plan of phases does not keep that"
                )),
                _ => {}
            }
        }
        warnings
    }
}

/// Whether two runnables are in one phase, or one of them in none.
fn is_in_one_row(epoch: &Epoch, source: RunnableId, target: RunnableId) -> bool {
    let [source, target] = [source, target].map(|end| epoch.runnables[end.index()].row);
    source == target || source == 0 || target == 0
}
