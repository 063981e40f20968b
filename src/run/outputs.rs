//! The outputs of a run: values by name.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Foreign, Kind, Result};
use crate::plan::Plan;

type AnyOutput = Foreign<Arc<dyn Any + Send + Sync>>;

/// The outputs of a finished run.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let (low, high) = (g.task("low", (), || 1), g.task("high", (), || 9.5));
/// g.output("low", &low);
/// g.output("high", &high);
///
/// let exec = Executor::inline();
/// let mut outputs = futures::executor::block_on(exec.run(&g.compile()?, Inputs::new()))?;
/// assert_eq!(outputs.names().collect::<Vec<_>>(), ["low", "high"]);
/// assert_eq!(*outputs.take::<f64>("high")?, 9.5);
/// assert!(outputs.take::<String>("low").is_err(), "it is an i32");
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Outputs {
    plan: Plan,
    /// None where the value was taken.
    values: SmallVec<[Option<AnyOutput>; 2]>,
}

impl Outputs {
    /// Returns the outputs of a run of the plan, in the order of the plan's ports.
    pub(super) fn new(plan: &Plan, values: impl Iterator<Item = Arc<dyn Any + Send + Sync>>) -> Self {
        let mut outputs = Self { plan: plan.clone(), values: SmallVec::new() };
        // One by one: `collect` is made for many.
        values.for_each(|value| outputs.values.push(Some(Foreign::new(value))));
        outputs
    }

    /// Takes the output of this name out.
    ///
    /// # Errors
    /// If the plan has no such output, it is of another type, or it was taken before.
    pub fn take<T: Send + Sync + 'static>(&mut self, name: &str) -> Result<Arc<T>> {
        let ports = &self.plan.inner().outputs;
        let Some(index) = ports.iter().position(|port| *port.name == *name) else {
            let elsewhere = self.plan.inner().elsewhere.outputs.iter().find(|(other, _)| **other == *name);
            if let Some((name, rank)) = elsewhere {
                return Err(Kind::OutputElsewhere { name: name.clone(), rank: *rank }.into());
            }
            let known = ports.iter().map(|port| port.name.clone()).collect();
            return Err(Kind::UnknownPort { what: "output", name: name.into(), known }.into());
        };
        let value = self.values[index].take().ok_or_else(|| Kind::OutputTaken { name: name.into() }.into())?;
        value.into_inner().downcast::<T>().map_err(|value| {
            self.values[index] = Some(Foreign::new(value));
            let (expected, asked) = (self.plan.inner().outputs[index].of.name, std::any::type_name::<T>());
            Kind::OutputType { name: name.into(), expected, asked }.into()
        })
    }

    /// Returns the names of all outputs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plan.inner().outputs.iter().map(|port| &*port.name)
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
