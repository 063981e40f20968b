//! The choices of a simulated executor: which node or operation runs next, which nodes fail, and whether
//! all is in order.

use std::sync::Arc;

use crate::device::sanitize::Sanitizer;
use crate::device::sim::{Chooser, Order};
use crate::error::{BoxError, Error, Kind};
use crate::graph::NodeId;
use crate::name::Name;
use crate::sim::Faults;
use crate::sync::{Mutex, lock};

/// How many nodes or operations one poll runs before it lets other tasks run.
pub(crate) const STEPS_MAX: usize = 256;

/// The first choices have names, for the error of a test.
const NAMES_MAX: usize = 8;

pub(crate) struct Choices {
    chooser: Mutex<Chooser>,
    /// The names of the nodes and operations that were chosen first.
    names: Mutex<Vec<Name>>,
    faults: Faults,
    /// Checks the order of the executor's nodes and operations.
    pub(crate) sanitizer: Arc<Sanitizer>,
}

impl Choices {
    pub(crate) fn new(order: Order, faults: Faults) -> Self {
        Self { chooser: Mutex::new(Chooser::new(order)), names: Mutex::default(), faults, sanitizer: Sanitizer::new() }
    }

    /// Chooses the next of `among` alternatives. Returns an error, once, if the choices to replay do not fit.
    pub(crate) fn choose(&self, among: usize) -> (usize, Option<Error>) {
        let mut chooser = lock(&self.chooser);
        let is_known = chooser.misfit.is_some();
        let choice = chooser.choose(among);
        let misfit = chooser.misfit.clone().filter(|_| !is_known);
        (choice, misfit.map(|fault| Kind::Simulation { fault }.into()))
    }

    /// Notes the name of the node or operation that was chosen among several.
    pub(crate) fn note(&self, among: usize, name: impl FnOnce() -> Option<Name>) {
        let mut names = lock(&self.names);
        if among > 1 && names.len() < NAMES_MAX {
            names.extend(name());
        }
    }

    /// Returns the names of the nodes and operations that were chosen first among several.
    pub(crate) fn names(&self) -> Vec<Name> {
        lock(&self.names).clone()
    }

    /// Returns the choices so far, each with the number of alternatives.
    pub(crate) fn made(&self) -> Vec<(u32, u32)> {
        lock(&self.chooser).made.clone()
    }

    /// Returns the fault that is to be injected at a node.
    pub(crate) fn injected(&self, node: NodeId) -> Option<BoxError> {
        self.faults.does_fail(node).then(|| "a fault was injected".into())
    }
}
