//! A policy's answers for a graph and its inner graphs, kept. A pipeline is compiled again whenever its
//! phases change, and the streams of its nodes stay what they were.

use std::cell::{Cell, RefCell};

use crate::error::Result;
use crate::graph::Shape;
use crate::policy::{Assignment, Policy};

/// What a policy answered, graph after graph, in the order in which a compilation asks.
pub(super) struct Answers {
    name: String,
    all: Vec<Assignment>,
}

/// Asks a policy and keeps its answers.
pub(super) struct Recorder<'a> {
    policy: &'a dyn Policy,
    all: RefCell<Vec<Assignment>>,
}

/// Gives kept answers again.
pub(super) struct Replay<'a> {
    answers: &'a Answers,
    next: Cell<usize>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(policy: &'a dyn Policy) -> Self {
        Self { policy, all: RefCell::default() }
    }

    /// Returns the answers, after a compilation that succeeded.
    pub(super) fn into_answers(self) -> Answers {
        Answers { name: self.policy.name().to_owned(), all: self.all.into_inner() }
    }
}

impl Policy for Recorder<'_> {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let answer = self.policy.assign(shape)?;
        self.all.borrow_mut().push(answer.clone());
        Ok(answer)
    }
}

impl Answers {
    pub(super) fn replay(&self) -> Replay<'_> {
        Replay { answers: self, next: Cell::new(0) }
    }
}

impl Policy for Replay<'_> {
    fn name(&self) -> &str {
        &self.answers.name
    }

    fn assign(&self, _: &Shape) -> Result<Assignment> {
        let next = self.next.replace(self.next.get() + 1);
        Ok(self.answers.all[next].clone())
    }
}
