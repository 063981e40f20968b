//! How a pipeline is split into phases, and the planning problem that its graph is.

use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::graph::{Backend, Graph, Links, Maker, NodeId, Stays};
use crate::phases::{PHASE_MAX, Phasing, Work};

/// How the nodes of a pipeline get their phases.
///
/// ```
/// use anabranch::pipe::Phases;
/// use anabranch::{Pipeline, Ranked};
///
/// let halves = Pipeline::new("halves", &Ranked::default(), |g, x| {
///     let y = g.task("square", &x, |x: &u32| x * x);
///     g.task("half", &y, |y: &u32| y / 2)
/// })?;
/// assert_eq!(halves.phase_of("half"), Some(1));
/// assert_eq!(halves.phases(Phases::Each)?.phase_of("half"), Some(2));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Phases {
    /// As [`phase`](crate::graph::NodeMut::phase) said for each node. A node without a phase is in the latest
    /// phase of those that it depends on, or else in the first. Phases without nodes are left out: 1 and 5
    /// are 1 and 2. Without any there is one phase.
    #[default]
    Written,
    /// A phase for each node. Nodes that read one feedback are in one phase, with all on paths between them.
    /// So are those on paths from the maker of a feedback to its readers. A cycle through a feedback is
    /// split: the feedback is as many items old as the cycle has phases.
    Each,
    /// The split with the shortest period, by the costs of the nodes
    /// ([`cost_us`](crate::graph::NodeMut::cost_us)), with at most `depth` phases. Written phases do not
    /// count. The age of a [feedback](crate::Graph::feedback) follows from the phases, so the results of a
    /// graph with feedback can depend on the costs.
    Auto {
        /// The most phases.
        depth: u32,
    },
}

/// Returns the phase of each node, counted from 0; and the planner's answer, if it was asked.
pub(super) fn phases_of(graph: &Graph, phases: Phases, costs_us: &[f64], cpus: u32) -> Result<(Arc<[u32]>, Option<Phasing>)> {
    let phasing = match phases {
        Phases::Written => return Ok((written(graph)?, None)),
        Phases::Each => work_of(graph, costs_us, cpus)?.each()?,
        Phases::Auto { depth } => work_of(graph, costs_us, cpus)?.auto(depth)?,
    };
    let phase_of = graph.shape().ids().map(|node| phasing.phase_of(node).max(1) - 1).collect();
    Ok((phase_of, Some(phasing)))
}

/// Returns the written phases, without gaps. A node without one is where the latest of those is that it
/// reads.
fn written(graph: &Graph) -> Result<Arc<[u32]>> {
    let shape = graph.shape();
    let (mut phases, links) = (vec![0; shape.nodes().len()], Links::new(shape));
    for node in shape.topological_order() {
        let before = links.into.of(node).iter().map(|source| phases[source.index()]);
        let latest = before.max().unwrap_or(1).max(1);
        phases[node.index()] = shape.nodes()[node.index()].phase.unwrap_or(latest);
        let phase = phases[node.index()];
        if phase == 0 || phase > PHASE_MAX {
            return Err(Kind::PhaseRange { node: shape.name_of(node).clone(), phase, max: PHASE_MAX }.into());
        }
    }
    let mut used = phases.clone();
    used.sort_unstable();
    used.dedup();
    Ok(phases.iter().map(|phase| used.partition_point(|used| used < phase) as u32).collect())
}

/// Returns the planning problem of a graph: CPU nodes share `cpus` lanes, and each device does one node at a
/// time.
pub(super) fn work_of(graph: &Graph, costs_us: &[f64], cpus: u32) -> Result<Work> {
    let (shape, mut work) = (graph.shape(), Work::new());
    let cpu = work.resource("CPU", cpus);
    let mut devices = std::collections::BTreeMap::new();
    let nodes: Vec<NodeId> = shape
        .ids()
        .zip(shape.nodes())
        .map(|(id, node)| {
            let resource = match node.backend {
                Backend::Cpu => cpu,
                Backend::Gpu | Backend::Mixed => {
                    let device = node.devices().first().copied().unwrap_or(0);
                    *devices.entry(device).or_insert_with(|| work.resource(format!("GPU {device}"), 1))
                }
            };
            work.node(node.name.clone(), resource, costs_us[id.index()])
        })
        .collect();
    for edge in shape.edges() {
        let bytes = if edge.is_data() { graph.values[graph.value_of(edge) as usize].of.size } else { 0 };
        work.edge(nodes[edge.source.index()], nodes[edge.target.index()], bytes.into());
    }
    for between in &graph.between {
        let Stays::Feedback { from: Some(from), .. } = between.is else { continue };
        let readers = graph.inputs[between.input as usize].readers.iter().map(|reader| nodes[reader.index()]);
        // All get the same value, so it is as old for one as for the others.
        work.together(&readers.clone().collect::<Vec<_>>());
        let value = &graph.values[from as usize];
        let Maker::Node(maker) = value.maker else { continue };
        readers.for_each(|reader| work.feedback(nodes[maker.index()], reader, value.of.size.into()));
    }
    Ok(work)
}
