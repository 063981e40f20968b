//! Control flow as nodes: `repeat` and `branch`. Each is one node to its graph, and has inner graphs that the closures build.
//!
//! A state lies in a cell that the inner graphs read, and that is the node's value to the graph around. What an inner graph gives is moved
//! there between two iterations, all at once; who reads a state by reference and who takes it is settled when the graph is compiled.

use std::marker::PhantomData;
use std::sync::Arc;

use super::body::ControlBody;
use super::builder::{Graph, NodeWork};
use super::inner::{InnerId, Role};
use super::nested::Control;
use super::select::{Condition, Select, Test};
use super::source::{Use, Value};
use super::states::States;
use super::values::{Maker, Transfer};
use super::{Backend, NodeId, Shape};
use crate::value::Cells;

/// A loop or a branch of a graph.
pub(crate) struct ControlNode {
    pub(crate) node: NodeId,
    pub(crate) states: Vec<State>,
    pub(crate) flow: Flow,
}

/// One value that goes in and comes out.
#[derive(Clone)]
pub struct State {
    /// Where it lies: for the inner graphs, and as the node's value for the graph around.
    pub(crate) offset: u32,
    /// Where a value waits while states change places, if they do.
    pub(crate) spare: u32,
    /// Where its first value comes from, and whether that is taken from there.
    pub(crate) first: u32,
    pub(crate) is_taken: bool,
    pub(crate) transfer: &'static Transfer,
}

/// What a control does with its inner graphs.
#[derive(Clone)]
pub(crate) enum Flow {
    Repeat {
        /// None if the condition has no nodes.
        condition: Option<InnerId>,
        test: Test,
        body: Inner,
        max_iterations: u64,
    },
    Branch {
        selector: u32,
        select: fn(Cells<'_>, u32) -> i64,
        arms: Vec<Inner>,
    },
}

/// An inner graph that gives new states.
#[derive(Clone)]
pub(crate) struct Inner {
    pub(crate) id: InnerId,
    pub(crate) results: Vec<Origin>,
}

/// Where a new state comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is an old one.
    State(u32),
    /// A node of the inner graph gives it: the value's number there, and where it lies.
    Node { value: u32, offset: u32 },
    /// It lies in a graph around.
    Around(u32),
    /// It is a mistake, which was noted.
    Nowhere,
}

impl Flow {
    /// Returns the inner graphs, with what they give.
    pub(crate) fn inner(&self) -> impl Iterator<Item = (InnerId, Role)> + '_ {
        let (condition, body, arms) = match self {
            Self::Repeat { condition, body, .. } => (*condition, Some(body.id), &[][..]),
            Self::Branch { arms, .. } => (None, None, &arms[..]),
        };
        let arms = arms.iter().zip(0..).map(|(arm, number)| (arm.id, Role::Arm(number)));
        condition.map(|id| (id, Role::Condition)).into_iter().chain(body.map(|id| (id, Role::Body))).chain(arms)
    }
}

impl Graph {
    /// Adds a loop: while `condition` holds, `body` makes new states of the old ones. Returns the last states.
    ///
    /// The states are a value, or a tuple of up to four. Both closures build an inner graph: they get it and the states as values of it; what
    /// `condition` returns says whether to go on, and what `body` returns are the new states. A condition is a
    /// value: a `bool`, or how a residual compares to its tolerance ([`above`](crate::above)), of which NaN is an error; or [`times`](crate::times)`(n)`.
    ///
    /// The condition is asked before each iteration, and once more at the end. **States are simultaneous**: all new ones are made before any old one is gone. Inner graphs
    /// may read values of the graphs around them; those keep the value that they have. A body may [`take`](crate::take) a state, if it
    /// was taken into the loop to begin with and the body gives one that nothing else holds: then an iteration needs no memory.
    ///
    /// # Errors
    /// Of the run: the error of an inner node, which names it as `loop/body/node`; a condition that is NaN; more iterations than
    /// [`max_iterations`](crate::NodeMut::max_iterations).
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, Single, above, inputs};
    ///
    /// // Newton's method: while |x² - a| > 1e-12, x becomes (x + a/x) / 2.
    /// let mut g = Graph::new();
    /// let a = g.input::<f64>("a");
    /// let root = g.repeat(
    ///     "newton",
    ///     &a,
    ///     |c, x| c.task("residual", (&x, &a), |x: &f64, a: &f64| above((x * x - a).abs(), 1e-12)),
    ///     |b, x| b.task("step", (&x, &a), |x: &f64, a: &f64| 0.5 * (x + a / x)),
    /// );
    /// g.output("root", &root);
    ///
    /// let plan = g.compile(&Single)?;
    /// let mut outputs = futures::executor::block_on(Executor::inline().run(&plan, inputs! { "a" => 2.0 }))?;
    /// assert!((*outputs.take::<f64>("root")? - 2f64.sqrt()).abs() < 1e-12);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn repeat<S, K, C, B>(&mut self, name: impl Into<Arc<str>>, states: S, condition: C, body: B) -> S::Values
    where
        S: States,
        K: Condition,
        C: FnOnce(&mut Graph, S::Values) -> K,
        B: FnOnce(&mut Graph, S::Values) -> S::Values,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let states = states.enter(self, node);
        let ask = |inner: &mut Graph| {
            let views = S::views(inner, &states);
            condition(inner, views).settle(inner)
        };
        let give = |inner: &mut Graph| {
            let views = S::views(inner, &states);
            S::origins(body(inner, views), inner)
        };
        let (flow, control) = self.looped(node, ask, give);
        self.add_control::<S>(node, states, flow, control)
    }

    /// Builds the inner graphs of a loop: what `ask` returns says whether to go on, what `give` returns are the new states.
    pub(super) fn looped(
        &mut self,
        node: NodeId,
        ask: impl FnOnce(&mut Graph) -> Test,
        give: impl FnOnce(&mut Graph) -> Vec<Origin>,
    ) -> (Flow, Control) {
        let (asked, test) = self.within(node, Role::Condition, ask);
        let (id, results) = self.within(node, Role::Body, give);
        let shape = |id| self.inner.get(id).graph.shared_shape().clone();
        let condition = Some(asked).filter(|&id| !shape(id).nodes().is_empty());
        let iterations = if let Test::Times(times) = test { times } else { 1 };
        let control = Control::Repeat { condition: condition.map(shape), body: shape(id), iterations, max_iterations: None };
        (Flow::Repeat { condition, test, body: Inner { id, results }, max_iterations: u64::MAX }, control)
    }

    /// Begins a branch, to which arms are added; [`Branch::join`] ends it. `selector` says which arm is taken, counted from 0; `None`, or -1, takes none of them, and the
    /// states come out as they went in. The selector is a `usize`, an `Option<usize>`, an `i64` or an `i32`.
    ///
    /// # Errors
    /// Of the run: the error of an inner node, which names it as `branch/arm 0/node`; a selector beyond the arms.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, Single, inputs};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input::<f64>("x");
    /// let side = g.task("side", &x, |x: &f64| if *x < 0.0 { Some(0) } else { None });
    /// let y = g.branch("abs", &side, &x).arm(|a, x| a.task("negate", &x, |x: &f64| -x)).join();
    /// g.output("y", &y);
    ///
    /// let plan = g.compile(&Single)?;
    /// for x in [-2.5, 2.5] {
    ///     let mut outputs = futures::executor::block_on(Executor::inline().run(&plan, inputs! { "x" => x }))?;
    ///     assert_eq!(*outputs.take::<f64>("y")?, 2.5);
    /// }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn branch<S: States, T: Select>(&mut self, name: impl Into<Arc<str>>, selector: &Value<T>, states: S) -> Branch<'_, S> {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let selector = self.read_value(selector, node, Use::Read).offset();
        let states = states.enter(self, node);
        let flow = Flow::Branch { selector, select: T::select_at, arms: Vec::new() };
        Branch { graph: self, node, open: Some((states, flow)), kind: PhantomData }
    }

    fn add_control<S: States>(&mut self, node: NodeId, states: Vec<State>, flow: Flow, control: Control) -> S::Values {
        let first = self.values.len() as u32;
        let values = S::gives(self, node, &states);
        self.close_control(node, first, states, flow, control);
        values
    }

    /// Ends a loop or a branch. Its values are there: as many as it has states, from `first` on.
    pub(super) fn close_control(&mut self, node: NodeId, first: u32, mut states: Vec<State>, flow: Flow, control: Control) {
        // A state that comes out in another's place needs one to wait in.
        for results in flow.givers().iter().map(|giver| &giver.results) {
            for ((state, origin), number) in states.iter_mut().zip(results).zip(0..) {
                if state.spare == u32::MAX && matches!(origin, Origin::State(other) if *other != number) {
                    state.spare = (state.transfer.place)(&mut self.layout);
                }
            }
        }
        let outs = states.iter().map(|state| (state.offset, state.transfer)).collect();
        self.bodies.push(ControlBody { outs }, |body| body);
        self.works.push(NodeWork { value: first, values: states.len() as u32, is_async: false, is_control: true });
        self.shape_mut().nodes_mut()[node.index()].control = Some(Arc::new(control));
        self.controls.push(ControlNode { node, states, flow });
    }

    /// Returns a branch as policies see it.
    pub(super) fn branched(&self, flow: &Flow, taken: Option<u32>) -> Control {
        let shape = |(id, _)| -> Arc<Shape> { self.inner.get(id).graph.shared_shape().clone() };
        Control::Branch { arms: flow.inner().map(shape).collect(), taken }
    }

    /// Finds out where a new state comes from that an inner graph gives.
    pub(super) fn origin<T: Send + Sync + 'static>(&mut self, given: &Value<T>) -> Origin {
        if !self.owns(given) {
            return match self.read_around(given, Use::Keep) {
                Some(slot) => Origin::Around(slot.offset()),
                None => {
                    self.foreign_result();
                    Origin::Nowhere
                }
            };
        }
        self.own_origin(given.index)
    }

    /// The same of a value of this graph, by its number.
    pub(super) fn own_origin(&mut self, value: u32) -> Origin {
        match self.give(value) {
            Maker::Input(state) => Origin::State(state),
            Maker::Node(_) => Origin::Node { value, offset: self.values[value as usize].offset },
        }
    }

    /// Notes that an inner graph gives a value to its control: it is kept until the graph is done.
    pub(super) fn give(&mut self, value: u32) -> Maker {
        let info = &mut self.values[value as usize];
        info.is_read = true;
        let maker = info.maker;
        if let Maker::Node(node) = maker {
            let output = value - self.works[node.index()].value;
            self.shape_mut().output(node, output);
        }
        maker
    }
}

/// A branch that is being built; made by [`Graph::branch`].
#[must_use = "a branch is there once it is joined: call `join`"]
pub struct Branch<'g, S: States> {
    graph: &'g mut Graph,
    node: NodeId,
    /// None once it is joined.
    open: Option<(Vec<State>, Flow)>,
    kind: PhantomData<fn(S)>,
}

impl<S: States> Branch<'_, S> {
    /// Adds an arm: `build` gets an inner graph and the states, and returns what comes out if the arm is taken.
    pub fn arm(mut self, build: impl FnOnce(&mut Graph, S::Values) -> S::Values) -> Self {
        let (states, mut flow) = self.open.take().expect("only `join` takes it, and the branch with it");
        if let Flow::Branch { arms, .. } = &mut flow {
            let (id, results) = self.graph.within(self.node, Role::Arm(arms.len() as u32), |inner| {
                let views = S::views(inner, &states);
                let given = build(inner, views);
                S::origins(given, inner)
            });
            arms.push(Inner { id, results });
        }
        self.open = Some((states, flow));
        self
    }

    /// Ends the branch. Returns what comes out of it: what the arm gives, or what went in.
    pub fn join(mut self) -> S::Values {
        let (states, flow) = self.open.take().expect("a branch is joined once");
        self.close(states, flow)
    }

    fn close(&mut self, states: Vec<State>, flow: Flow) -> S::Values {
        let control = self.graph.branched(&flow, None);
        self.graph.add_control::<S>(self.node, states, flow, control)
    }
}

impl<S: States> Drop for Branch<'_, S> {
    fn drop(&mut self) {
        if let Some((states, flow)) = self.open.take() {
            // The node is there, so it must be whole.
            self.close(states, flow);
            self.graph.not_joined(self.node);
        }
    }
}
