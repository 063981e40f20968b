//! Inner graphs in schedules: each has its own schedule, by the same policy. All are in one list, outer
//! before inner, so no function recurses.

use std::sync::Arc;

use super::{InnerSchedule, Policy, Ranked, Schedule};
use crate::error::{Error, Kind, Result};
use crate::graph::{NODES_MAX, NodeId, Role, Shape, check, take_last};

/// An inner graph, in some form.
#[derive(Debug)]
pub(crate) struct Nested<T> {
    /// The place of the graph around it in the list. None if that is the outermost graph.
    pub(crate) around: Option<u32>,
    pub(crate) node: NodeId,
    pub(crate) role: Role,
    pub(crate) graph: T,
}

/// The shape of a graph, and those of all inner graphs.
pub(crate) type Shapes = (Arc<Shape>, Vec<Nested<Arc<Shape>>>);

impl<T> Nested<T> {
    /// Returns the same inner graph in another form.
    pub(super) fn map<U>(&self, change: impl FnOnce(&T) -> U) -> Nested<U> {
        Nested { around: self.around, node: self.node, role: self.role, graph: change(&self.graph) }
    }
}

/// The inner graphs of one graph: the node of each, and what it is there.
pub(super) type InnerGraphs<T> = Vec<(NodeId, Role, T)>;

/// Returns all inner graphs of a graph, at any depth, from those of the graph itself on. Each comes after the
/// graph around it.
pub(super) fn nested<T>(of_outermost: InnerGraphs<T>, inner_of: impl Fn(&T) -> InnerGraphs<T>) -> Vec<Nested<T>> {
    let inside = |around: Option<u32>, inner: InnerGraphs<T>| {
        inner.into_iter().map(move |(node, role, graph)| Nested { around, node, role, graph })
    };
    let mut all: Vec<Nested<T>> = inside(None, of_outermost).collect();
    let mut next = 0;
    while next < all.len() {
        let inner = inner_of(&all[next].graph);
        all.extend(inside(Some(next as u32), inner));
        next += 1;
    }
    all
}

impl Shape {
    /// Returns the inner graphs of the nodes.
    fn inner(&self) -> InnerGraphs<Arc<Shape>> {
        let controls = self.ids().filter_map(|node| Some((node, self.nodes()[node.index()].control.as_ref()?)));
        let inner = controls.flat_map(|(node, control)| control.inner().map(move |(role, shape)| (node, role, shape.clone())));
        inner.collect()
    }

    /// Compiles the shape, and the shapes of all inner graphs, to a schedule with the streams that [`Ranked`]
    /// gives.
    ///
    /// # Errors
    /// As [`Shape::schedule_with`].
    pub fn schedule(&self) -> Result<Schedule> {
        self.schedule_with(&Ranked::default())
    }

    /// Compiles the shape, and the shapes of all inner graphs, to a schedule with the streams that `policy`
    /// gives.
    ///
    /// # Errors
    /// If the shape is not valid (a cycle, an edge to an unknown node, two nodes of one name), or the policy
    /// gives no valid answer: it left a `gpu` or `mixed` node without a stream, used a label above 2³⁰,
    /// refused, or panicked.
    pub fn schedule_with(&self, policy: &dyn Policy) -> Result<Schedule> {
        let (shape, inner) = Arc::new(self.clone()).checked_shapes()?;
        Schedule::with_inner(shape, inner, policy, None)
    }

    /// Compiles a valid shape as [`Shape::schedule_with`] does, with the orders in which nodes start to
    /// communicate. `starts` returns that of an inner graph, by its path.
    pub(crate) fn schedule_in_order(self, policy: &dyn Policy, starts: impl Fn(&str) -> Vec<NodeId>) -> Result<Schedule> {
        let (shape, mut inner) = Arc::new(self).valid_shapes()?;
        for at in 0..inner.len() {
            let starts = starts(&path(at, &shape, |at| inner[at].map(Arc::clone)));
            if !starts.is_empty() {
                Arc::make_mut(&mut inner[at].graph).set_starts(starts);
            }
        }
        Schedule::with_inner(shape, inner, policy, None)
    }

    /// Returns all inner graphs, at any depth. Each comes after the graph around it.
    pub(crate) fn nested(&self) -> Vec<Nested<Arc<Shape>>> {
        nested(self.inner(), |shape| shape.inner())
    }

    /// Checks the shape, and the shapes of all inner graphs. Returns them with the orders that make each
    /// taker the last reader.
    pub(crate) fn checked_shapes(self: &Arc<Self>) -> Result<Shapes> {
        self.shapes(check)
    }

    /// Does the same for a shape that is known to be valid: it was made of one that was checked.
    pub(crate) fn valid_shapes(self: &Arc<Self>) -> Result<Shapes> {
        self.shapes(|_| Ok(()))
    }

    fn shapes(self: &Arc<Self>, check: fn(&Self) -> Result<()>) -> Result<Shapes> {
        check(self)?;
        let shape = take_last(self)?;
        let mut inner = self.nested();
        for at in 0..inner.len() {
            let graph = &inner[at].graph;
            let checked = check(graph).and_then(|()| take_last(graph)).map_err(|fault| within(&shape, &inner, at, fault))?;
            inner[at].graph = checked;
        }
        Ok((shape, inner))
    }
}

impl Schedule {
    /// Compiles shapes that passed [`check`]. In a pipeline, the nodes of the outermost shape have phases.
    pub(super) fn with_inner(
        shape: Arc<Shape>,
        inner: Vec<Nested<Arc<Shape>>>,
        policy: &dyn Policy,
        phases: Option<Arc<[u32]>>,
    ) -> Result<Self> {
        let nodes = inner.iter().map(|nested| nested.graph.nodes().len()).sum::<usize>() + shape.nodes().len();
        if nodes > NODES_MAX {
            return Err(Kind::Limit { what: "the number of nodes in all graphs".into(), got: nodes, limit: NODES_MAX }.into());
        }
        let mut schedule = Self::new(shape.clone(), policy, phases)?;
        for (at, nested) in inner.iter().enumerate() {
            let scheduled = Self::new(nested.graph.clone(), policy, None).map_err(|fault| within(&shape, &inner, at, fault))?;
            schedule.inner.push(InnerSchedule(nested.map(|_| scheduled)));
        }
        schedule.time_controls();
        Ok(schedule)
    }

    /// Returns the path of an inner graph, by its place in [`Schedule::inner`]: `loop/body`.
    ///
    /// # Panics
    /// If `inner` is not less than the number of inner graphs.
    pub fn inner_path(&self, inner: usize) -> String {
        path(inner, self.shape(), |inner| self.inner[inner].0.map(|schedule| schedule.shape().clone()))
    }
}

/// Returns an error of an inner graph with the path of that graph.
pub(super) fn within(shape: &Shape, inner: &[Nested<Arc<Shape>>], at: usize, fault: Error) -> Error {
    fault.within(path(at, shape, |at| inner[at].map(Arc::clone)))
}

/// Returns the path of an inner graph, from the outermost shape on.
fn path(inner: usize, outermost: &Shape, nested: impl Fn(usize) -> Nested<Arc<Shape>>) -> String {
    let all = std::iter::successors(Some(nested(inner)), |inner| Some(nested(inner.around? as usize)));
    let names = all.map(|inner| {
        let around = inner.around.map(|around| nested(around as usize).graph);
        let shape = around.as_deref().unwrap_or(outermost);
        format!("{}/{}", shape.name_of(inner.node), inner.role)
    });
    let mut names: Vec<String> = names.collect();
    names.reverse();
    names.join("/")
}
