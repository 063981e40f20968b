//! Loops and branches for policies and pictures: the shapes of their inner graphs.

use std::fmt;
use std::sync::Arc;

use super::shape::Shape;

/// The role of an inner graph in its loop or branch.
///
/// # Examples
/// The inner graphs of a loop:
/// ```
/// use anabranch::Graph;
/// use anabranch::graph::Role;
///
/// let mut g = Graph::new();
/// let x = g.input::<f64>("x");
/// let is_large = |c: &mut Graph, x| c.task("is large", &x, |x: &f64| *x > 1.0);
/// let end = g.repeat("loop", &x, is_large, |b, x| b.task("halve", &x, |x: &f64| x / 2.0));
///
/// let control = g.shape().nodes()[0].control.as_ref().expect("it is a loop");
/// let roles: Vec<Role> = control.inner().map(|(role, _)| role).collect();
/// assert_eq!(roles, [Role::Condition, Role::Body]);
/// assert_eq!(Role::Arm(2).to_string(), "arm 2");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Role {
    /// The condition of a loop, evaluated before each iteration.
    Condition,
    /// The body of a loop.
    Body,
    /// An arm of a branch, by its number.
    Arm(u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition => f.write_str("condition"),
            Self::Body => f.write_str("body"),
            Self::Arm(arm) => write!(f, "arm {arm}"),
        }
    }
}

/// The kind of a node with inner graphs.
///
/// # Examples
/// A loop in a shape, for a simulation:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::graph::{Backend, Control, Shape};
///
/// let mut body = Shape::new();
/// body.node("step", Backend::Gpu);
/// let body = Arc::new(body);
/// let control = Control::Repeat { condition: None, body, iterations: 5, max_iterations: None };
/// assert_eq!((control.remark(), control.takes_us(|_| 20.0)), ("5 times".to_string(), 100.0));
///
/// let mut shape = Shape::new();
/// let train = shape.node("train", Backend::Cpu);
/// shape.nodes_mut()[train.index()].control = Some(Arc::new(control));
/// println!("{}", shape.schedule()?);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Control {
    /// A loop.
    Repeat {
        /// The condition, evaluated before each iteration. None if it has no nodes.
        condition: Option<Arc<Shape>>,
        /// The graph that is repeated.
        body: Arc<Shape>,
        /// The expected number of iterations, for simulations.
        iterations: u64,
        /// The most iterations. One more is an error.
        max_iterations: Option<u64>,
    },
    /// A branch.
    Branch {
        /// The graphs of which at most one runs.
        arms: Vec<Arc<Shape>>,
        /// The arm that simulations take. With None they take no arm.
        taken: Option<u32>,
    },
}

impl Control {
    /// Returns the inner graphs.
    pub fn inner(&self) -> impl Iterator<Item = (Role, &Arc<Shape>)> {
        let (condition, body, arms) = match self {
            Self::Repeat { condition, body, .. } => (condition.as_ref(), Some(body), &[][..]),
            Self::Branch { arms, .. } => (None, None, &arms[..]),
        };
        let arms = arms.iter().zip(0..).map(|(arm, number)| (Role::Arm(number), arm));
        condition.map(|shape| (Role::Condition, shape)).into_iter().chain(body.map(|shape| (Role::Body, shape))).chain(arms)
    }

    /// Returns the duration in microseconds, if an inner graph takes as long as `inner_us` returns. A
    /// condition runs once more than the body.
    pub fn takes_us(&self, inner_us: impl Fn(Role) -> f64) -> f64 {
        match self {
            Self::Repeat { condition, iterations, .. } => {
                let condition_us = condition.as_ref().map_or(0.0, |_| inner_us(Role::Condition));
                let iterations = *iterations as f64;
                iterations * inner_us(Role::Body) + (iterations + 1.0) * condition_us
            }
            Self::Branch { taken, .. } => taken.map_or(0.0, |arm| inner_us(Role::Arm(arm))),
        }
    }

    /// Returns a short description of the loop or branch: `5 times`, `arm 1 of 3`.
    pub fn remark(&self) -> String {
        match self {
            Self::Repeat { iterations: 1, .. } => "once".into(),
            Self::Repeat { iterations, .. } => format!("{iterations} times"),
            Self::Branch { taken: Some(taken), arms } => format!("arm {taken} of {}", arms.len()),
            Self::Branch { taken: None, arms } => format!("none of {} arm{}", arms.len(), if arms.len() == 1 { "" } else { "s" }),
        }
    }

    /// Moves the inner graphs to `into`.
    fn take_inner(&mut self, into: &mut Vec<Arc<Shape>>) {
        match self {
            Self::Repeat { condition, body, .. } => {
                into.extend(condition.take());
                into.push(std::mem::take(body));
            }
            Self::Branch { arms, .. } => into.append(arms),
        }
    }
}

/// Drops the graphs level by level: they may be nested deeper than the stack allows.
impl Drop for Control {
    fn drop(&mut self) {
        let mut open = Vec::new();
        self.take_inner(&mut open);
        while let Some(shape) = open.pop() {
            let Some(mut shape) = Arc::into_inner(shape) else { continue };
            for node in shape.nodes_mut() {
                if let Some(mut control) = node.control.take().and_then(Arc::into_inner) {
                    control.take_inner(&mut open);
                }
            }
        }
    }
}
