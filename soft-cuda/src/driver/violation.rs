//! Violations, which the test can read.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::lock;
use crate::wire::ViolationKind;

/// The most violations that are kept, so that a loop of a million races does not use up the memory.
const KEPT: usize = 1000;

/// The name of an operation in a report.
#[derive(Clone)]
pub(crate) enum Name {
    Kernel(Arc<str>),
    Other(&'static str),
}

/// One operation, as shown in a report.
#[derive(Clone)]
pub(crate) struct Label {
    pub(crate) name: Name,
    pub(crate) device: u32,
    /// The number of the stream; None for the host.
    pub(crate) stream: Option<u32>,
    pub(crate) operation: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Kernel(name) => write!(f, "kernel `{name}`")?,
            Name::Other(name) => f.write_str(name)?,
        }
        match self.stream {
            Some(stream) => write!(f, " (device {}, stream {stream}, operation {})", self.device, self.operation),
            None => write!(f, " (device {}, host)", self.device),
        }
    }
}

pub(crate) struct Violation {
    pub(crate) kind: ViolationKind,
    pub(crate) text: String,
}

/// The violations of one device, in the order in which they were found.
#[derive(Default)]
pub(crate) struct Violations {
    list: Mutex<Vec<Violation>>,
}

impl Violations {
    pub(crate) fn add(&self, kind: ViolationKind, text: String) {
        let mut list = lock(&self.list);
        if list.len() < KEPT {
            list.push(Violation { kind, text });
        }
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Violation)) {
        lock(&self.list).iter().for_each(&mut visit);
    }

    pub(crate) fn clear(&self) {
        lock(&self.list).clear();
    }
}
