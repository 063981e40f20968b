//! The inputs of a run: values by name.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use crate::error::{Foreign, Kind, Result};
use crate::name::Name;
use crate::plan::PlanInner;
use crate::value::args::Data;
use crate::value::{Access, Frame};

/// The values for a plan's inputs, by name. Usually written [`inputs!`](crate::inputs).
#[derive(Default)]
pub struct Inputs {
    /// Each with its name, and the name of its type.
    given: Vec<(Name, &'static str, Given)>,
}

enum Given {
    Owned(Foreign<Box<dyn Any + Send + Sync>>),
    Shared(Foreign<Arc<dyn Any + Send + Sync>>),
}

impl Inputs {
    /// Returns no inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    pub fn with<T: Data>(mut self, name: impl Into<Name>, value: T) -> Self {
        self.given.push((name.into(), type_name::<T>(), Given::Owned(Foreign::new(Box::new(value)))));
        self
    }

    /// Adds a value that the caller shares with the run. A node cannot take it by value.
    pub fn with_arc<T: Data>(mut self, name: impl Into<Name>, value: Arc<T>) -> Self {
        self.given.push((name.into(), type_name::<T>(), Given::Shared(Foreign::new(value))));
        self
    }

    /// Checks names and types: every input of the plan once, and nothing else.
    pub(super) fn check(&self, plan: &PlanInner) -> Result<()> {
        if plan.is_pipelined {
            // It may have come to the caller in a span.
            return Err(Kind::OnlyInPipeline { what: "a plan of a pipeline".into() }.into());
        }
        for (name, type_name, given) in &self.given {
            let Some(input) = plan.inputs.iter().find(|input| *input.port.name == **name) else {
                let known = plan.inputs.iter().map(|input| input.port.name.clone()).collect();
                return Err(Kind::UnknownPort { what: "input", name: name.to_string(), known }.into());
            };
            let type_id = match given {
                Given::Owned(value) => (***value).type_id(),
                Given::Shared(value) => (***value).type_id(),
            };
            if type_id != input.port.of.id {
                let (name, expected) = (input.port.name.clone(), input.port.of.name);
                return Err(Kind::InputType { name, expected, given: type_name }.into());
            }
            if let (Given::Shared(..), Some(taker)) = (given, input.taker) {
                let taker = plan.schedule.shape().name_of(taker).clone();
                return Err(Kind::InputShared { name: input.port.name.clone(), taker }.into());
            }
            if self.given.iter().filter(|(other, ..)| other == name).count() > 1 {
                return Err(Kind::InputTwice { name: name.to_string() }.into());
            }
        }
        match plan.inputs.iter().find(|input| !self.given.iter().any(|(name, ..)| *name == *input.port.name)) {
            Some(missing) => Err(Kind::MissingInput { name: missing.port.name.clone() }.into()),
            None => Ok(()),
        }
    }

    /// Moves checked inputs into a run's cells.
    pub(super) fn fill(self, plan: &PlanInner, frame: &Frame) {
        for (name, _, given) in self.given {
            let input = plan.inputs.iter().find(|input| *input.port.name == *name).expect("names were checked");
            // SAFETY: the run has not started, so no other thread touches the frame. The offset is that of
            // the input's slot.
            let cells = unsafe { frame.cells(if input.is_shared { Access::Share } else { Access::Tagged }) };
            match given {
                Given::Owned(value) => (input.port.of.transfer.fill)(cells, input.port.offset, value.into_inner()),
                Given::Shared(value) => (input.port.of.transfer.fill_shared)(cells, input.port.offset, value.into_inner()),
            }
        }
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.given.iter().map(|(name, type_name, _)| (name, type_name))).finish()
    }
}

/// Gives a run its inputs by name: `inputs! { "path" => path, "side" => 224u32 }`.
///
/// Each value is moved in; to share one with the run use [`Inputs::with_arc`]. Names and types are checked
/// when the run starts.
#[macro_export]
macro_rules! inputs {
    ($($name:expr => $value:expr),* $(,)?) => {
        $crate::Inputs::new()$(.with($name, $value))*
    };
}
