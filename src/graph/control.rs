//! Control flow as nodes: `repeat` and `branch`. In its graph, each is one node. Closures build its inner
//! graphs.
//!
//! A state lies in one cell. The inner graphs read it there, and the graph around reads it as the node's
//! value. Between two iterations, the results of an inner graph move to the cells of the states, all at once.
//! Compiling decides which nodes read a state by reference, and which node takes it.

use std::fmt;
use std::sync::Arc;

use super::around::Unfinished;
use super::body::Body;
use super::builder::{Graph, NodeWork};
use super::condition::Condition;
use super::control_node::{ControlKind, ControlNode, Inner, Origin, State};
use super::handle::Value;
use super::nested::{Control, Role};
use super::select::{Select, Test};
use super::states::States;
use super::values::{Maker, Transfer, Use};
use super::{Backend, NodeId};
use crate::device::StreamMut;
use crate::name::Name;
use crate::value::{Call, Cells, Outcome, TypedBody};

impl Graph {
    /// Adds a loop: while `condition` holds, `body` makes new states from the old ones. Returns the last
    /// states.
    ///
    /// The states are a value, or a tuple of up to eight values. Each closure builds an inner graph: it gets
    /// the graph and, as values in it, the states. The value that `condition` returns decides whether the
    /// loop goes on. The values that `body` returns are the new states. A condition is a `bool`, a comparison
    /// of a residual with its tolerance ([`above`](crate::graph::above), for which NaN is an error), or
    /// [`times`](crate::graph::times)`(n)`.
    ///
    /// The loop evaluates the condition before each iteration, and so once more than the body. **States are
    /// simultaneous**: all new states are made before any old one is dropped. Inner graphs may read values of
    /// the graphs around them, which do not change during the loop. A body may [`take`](crate::take) a state
    /// if the loop took its first value, and if the body gives a new state that has no other owner. Then an
    /// iteration needs no memory.
    ///
    /// # Errors
    /// Of the run: the error of an inner node, which it names as `loop/body/node`; a condition that is NaN;
    /// more iterations than [`max_iterations`](crate::graph::NodeMut::max_iterations).
    ///
    /// # Examples
    /// ```
    /// use anabranch::graph::above;
    /// use anabranch::{Executor, Graph, inputs};
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
    /// let plan = g.compile()?;
    /// let exec = Executor::inline();
    /// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "a" => 2.0 }))?;
    /// assert!((*outputs.take::<f64>("root")? - 2f64.sqrt()).abs() < 1e-12);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn repeat<S, K, C, B>(&mut self, name: impl Into<Name>, states: S, condition: C, body: B) -> S::Values
    where
        S: States,
        K: Condition,
        C: FnOnce(&mut Graph, S::Values) -> K,
        B: FnOnce(&mut Graph, S::Values) -> S::Values,
    {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let states = states.enter(self, node);
        let (at, values) = self.add_control::<S>(node, states.clone());
        let ask = |inner: &mut Graph| {
            let views = S::values(inner, None, &states);
            condition(inner, views).settle(inner)
        };
        let give = |inner: &mut Graph| {
            let views = S::values(inner, None, &states);
            S::origins(body(inner, views), inner)
        };
        self.make_loop(at, ask, give);
        values
    }

    /// Makes a control a loop. The value that `ask` returns is the condition; `give` returns the new states.
    pub(super) fn make_loop(
        &mut self,
        at: usize,
        ask: impl FnOnce(&mut Graph) -> Test,
        give: impl FnOnce(&mut Graph) -> Vec<Origin>,
    ) {
        let node = self.controls[at].node;
        let Some((asked, test)) = self.within(node, Role::Condition, ask) else { return };
        let Some((id, results)) = self.within(node, Role::Body, give) else { return };
        self.settle_spares(at, &results);
        let shape = |id| self.inner.get(id).shared_shape().clone();
        let condition = Some(asked).filter(|&id| !shape(id).nodes().is_empty());
        let iterations = if let Test::Times(times) = test { times } else { 1 };
        let control = Control::Repeat { condition: condition.map(shape), body: shape(id), iterations, max_iterations: None };
        self.controls[at].flow = ControlKind::Repeat { condition, test, body: Inner { id, results } };
        self.shape_mut().nodes_mut()[node.index()].control = Some(Arc::new(control));
    }

    /// Begins a branch. Add arms to it, and end it with [`Branch::join`]. The value of `selector` is the
    /// number of the arm that is taken, from 0 on. With `None` or -1 no arm is taken, and the states pass
    /// unchanged. A selector is a `usize`, an `Option<usize>`, an `i64` or an `i32`.
    ///
    /// # Errors
    /// Of the run: the error of an inner node, which it names as `branch/arm 0/node`; a selector that is not
    /// the number of an arm.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, inputs};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input::<f64>("x");
    /// let side = g.task("side", &x, |x: &f64| if *x < 0.0 { Some(0) } else { None });
    /// let y = g.branch("abs", &side, &x).arm(|a, x| a.task("negate", &x, |x: &f64| -x)).join();
    /// g.output("y", &y);
    ///
    /// let plan = g.compile()?;
    /// for x in [-2.5, 2.5] {
    ///     let exec = Executor::inline();
    ///     let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "x" => x }))?;
    ///     assert_eq!(*outputs.take::<f64>("y")?, 2.5);
    /// }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn branch<S: States, T: Select>(&mut self, name: impl Into<Name>, selector: &Value<T>, states: S) -> Branch<'_, S> {
        // Reports an unfinished branch now, because the new branch replaces its mark.
        if let (Some(_), Some(fault)) = (self.unfinished, self.fault()) {
            self.mistake(fault);
        }
        let node = self.shape_mut().node(name, Backend::Cpu);
        let offset = self.read_value(selector, node, Use::Read).offset();
        let states = states.enter(self, node);
        let (at, values) = self.add_control::<S>(node, states);
        self.controls[at].flow = ControlKind::Branch { selector: offset, select: T::select_at, arms: Vec::new() };
        self.unfinished = Some(Unfinished::Branch(node));
        Branch { graph: self, at, values }
    }

    fn add_control<S: States>(&mut self, node: NodeId, states: Vec<State>) -> (usize, S::Values) {
        let first = self.values.len() as u32;
        let values = S::values(self, Some(node), &states);
        (self.add_empty_control(node, first, states), values)
    }

    /// Adds a loop or a branch without inner graphs, through which its states pass unchanged. So the node is
    /// complete before user code runs. Its values exist already: one for each state, from `first` on. Returns
    /// its place among the controls.
    pub(super) fn add_empty_control(&mut self, node: NodeId, first: u32, states: Vec<State>) -> usize {
        let outs = states.iter().map(|state| (state.offset, state.transfer)).collect();
        self.bodies.push(ControlBody { outs }, |body| body);
        self.works.push(NodeWork { value: first, values: states.len() as u32, is_async: false, is_control: true });
        let control = Control::Branch { arms: Vec::new(), taken: None };
        self.shape_mut().nodes_mut()[node.index()].control = Some(Arc::new(control));
        let flow = ControlKind::Branch { selector: u32::MAX, select: |_, _| -1, arms: Vec::new() };
        self.controls.push(ControlNode { node, states, flow });
        self.controls.len() - 1
    }

    /// Adds an arm to a branch.
    pub(super) fn add_arm(&mut self, at: usize, build: impl FnOnce(&mut Graph) -> Vec<Origin>) {
        let node = self.controls[at].node;
        let number = self.controls[at].flow.givers().len() as u32;
        let Some((id, results)) = self.within(node, Role::Arm(number), build) else { return };
        self.settle_spares(at, &results);
        let shape = self.inner.get(id).shared_shape().clone();
        if let ControlKind::Branch { arms, .. } = &mut self.controls[at].flow {
            arms.push(Inner { id, results });
        }
        if let Some(Control::Branch { arms, .. }) = self.control_mut(node) {
            arms.push(shape);
        }
    }

    /// Returns a loop or a branch in the form that policies see.
    pub(super) fn control_mut(&mut self, node: NodeId) -> Option<&mut Control> {
        self.shape_mut().nodes_mut()[node.index()].control.as_mut().map(Arc::make_mut)
    }

    /// Gives a spare cell to each state that moves to the place of another state.
    fn settle_spares(&mut self, at: usize, results: &[Origin]) {
        for ((state, origin), number) in self.controls[at].states.iter_mut().zip(results).zip(0..) {
            if state.spare == u32::MAX && matches!(origin, Origin::State(other) if *other != number) {
                state.spare = (state.transfer.place)(&mut self.layout);
            }
        }
    }

    /// Returns the origin of a new state that an inner graph gives.
    pub(super) fn origin<T: Send + Sync + 'static>(&mut self, given: &Value<T>) -> Origin {
        if !self.owns(given) {
            return self.read_around(given, None, Some(Use::Keep)).map_or(Origin::Nowhere, |slot| Origin::Around(slot.offset()));
        }
        self.own_origin(given.index)
    }

    /// Returns the origin of a new state that is a value of this graph, by its number.
    pub(super) fn own_origin(&mut self, value: u32) -> Origin {
        match self.give(value) {
            Maker::Input(state) => Origin::State(state),
            Maker::Node(_) => Origin::Node { value, offset: self.values[value as usize].offset },
        }
    }

    /// Records that an inner graph gives a value to its control: the value is kept until the graph ends.
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

/// A branch that is being built. Made by [`Graph::branch`]. Its node is complete at every moment, even if
/// this value is forgotten. Only `join` marks its arms as complete.
///
/// # Examples
/// Arms that are added in a loop:
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let (size, price) = (g.input::<usize>("size"), g.input::<u32>("price"));
/// let mut branch = g.branch("discount", &size, &price);
/// for percent in [0, 10, 25] {
///     branch = branch.arm(|a, x| a.task("reduce", &x, move |x: &u32| x * (100 - percent) / 100));
/// }
/// let price = branch.join();
/// g.output("price", &price);
///
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let run = exec.run(&plan, inputs! { "size" => 2_usize, "price" => 80_u32 });
/// assert_eq!(*futures::executor::block_on(run)?.take::<u32>("price")?, 60);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "a branch is there once it is joined: call `join`"]
pub struct Branch<'g, S: States> {
    graph: &'g mut Graph,
    /// The place of the branch among the controls.
    at: usize,
    values: S::Values,
}

impl<S: States> fmt::Debug for Branch<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch").field("graph", &self.graph).finish_non_exhaustive()
    }
}

impl<S: States> Branch<'_, S> {
    /// Adds an arm. `build` gets an inner graph and the states. The values that it returns are those of the
    /// branch if the arm is taken.
    pub fn arm(self, build: impl FnOnce(&mut Graph, S::Values) -> S::Values) -> Self {
        let states = self.graph.controls[self.at].states.clone();
        self.graph.add_arm(self.at, |inner| {
            let views = S::values(inner, None, &states);
            S::origins(build(inner, views), inner)
        });
        self
    }

    /// Ends the branch. Returns its values: those of the taken arm, or the states unchanged.
    pub fn join(self) -> S::Values {
        self.graph.unfinished = None;
        self.values
    }
}

/// The body of a loop or a branch. The executor runs the inner graphs and does not call this body.
struct ControlBody {
    /// The offsets of the node's values.
    outs: Box<[(u32, &'static Transfer)]>,
}

impl TypedBody for ControlBody {
    fn run(&self, _: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        unreachable!("a control is no call")
    }
}

impl Body for ControlBody {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn release(&self, cells: Cells<'_>) {
        self.outs.iter().for_each(|(offset, transfer)| (transfer.clear)(cells, *offset));
    }

    /// Always true: values of any type may be shared.
    fn needs_release(&self) -> bool {
        true
    }
}
