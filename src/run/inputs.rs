//! The inputs of a run: values by name.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, Kind, Result};
use crate::graph::SharedContext;
use crate::name::Name;
use crate::plan::PlanInner;
use crate::value::args::Data;
use crate::value::{Access, Frame, Given};

/// The values for a plan's inputs, by name. Usually written [`inputs!`](crate::inputs).
///
/// # Examples
/// One value is moved in. The other one is shared with the caller:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::{Executor, Graph, Inputs};
///
/// # let mut g = Graph::new();
/// # let (table, key) = (g.input::<Vec<u32>>("table"), g.input::<usize>("key"));
/// # let found = g.task("found", (&table, &key), |table: &Vec<u32>, key: &usize| table[*key]);
/// # g.output("found", &found);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let table = Arc::new(vec![10, 20, 30]);
/// let inputs = Inputs::new().with("key", 1_usize).with_arc("table", table.clone());
/// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs))?;
/// assert_eq!(*outputs.take::<u32>("found")?, table[1]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Default)]
pub struct Inputs {
    /// Once checked, in the order of the plan's inputs.
    given: SmallVec<[(Name, Given); 2]>,
    /// What the nodes of the run share, once checked.
    context: Option<SharedContext>,
}

impl Inputs {
    /// Returns no inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    pub fn with<T: Data>(mut self, name: impl Into<Name>, value: T) -> Self {
        self.given.push((name.into(), Given::owned(value)));
        self
    }

    /// Adds a value that the caller shares with the run. A node cannot take it by value.
    pub fn with_arc<T: Data>(mut self, name: impl Into<Name>, value: Arc<T>) -> Self {
        self.given.push((name.into(), Given::shared(value)));
        self
    }

    /// Checks names and types: every input of the plan once, and nothing else. Puts them into its order.
    #[inline]
    pub(super) fn check(&mut self, plan: &PlanInner) -> Result<()> {
        if self.fits(plan) { Ok(()) } else { self.sort(plan) }
    }

    /// Makes the context of the run, if the plan has one.
    #[inline]
    pub(super) fn make_context(&mut self, plan: &PlanInner) {
        if let Some(context) = &plan.context {
            self.context.get_or_insert_with(|| (context.make)());
        }
    }

    /// Ends the context of a run that is not admitted: other ranks may wait for it, also if its inputs have a
    /// mistake.
    #[cold]
    pub(super) fn refuse(&mut self, plan: &PlanInner, error: &Error) {
        self.make_context(plan);
        self.context.take().into_iter().for_each(|context| context.end(&Err(error.clone())));
    }

    #[cold]
    fn sort(&mut self, plan: &PlanInner) -> Result<()> {
        self.given.retain(|(name, _)| !plan.elsewhere.inputs.iter().any(|other| **other == **name));
        self.find_mistake(plan)?;
        let place = |(name, _): &(Name, Given)| plan.inputs.iter().position(|input| *input.port.name == **name);
        self.given.sort_by_cached_key(place);
        debug_assert!(self.fits(plan), "it has no mistake, and is in order");
        Ok(())
    }

    /// Returns whether they are the inputs of the plan, in its order.
    #[inline(always)]
    fn fits(&self, plan: &PlanInner) -> bool {
        self.given.len() == plan.inputs.len()
            && !plan.is_pipelined
            && self.given.iter().zip(&plan.inputs).all(|((name, given), input)| {
                let may_be_shared = !given.is_shared() || input.taker.is_none();
                **name == *input.port.name && given.is_of(input.port.of.id_fn) && may_be_shared
            })
    }

    #[cold]
    fn find_mistake(&self, plan: &PlanInner) -> Result<()> {
        if plan.is_pipelined {
            // It may have come to the caller in a span.
            return Err(Kind::OnlyInPipeline { what: "a plan of a pipeline".into() }.into());
        }
        for (name, given) in &self.given {
            let Some(input) = plan.inputs.iter().find(|input| *input.port.name == **name) else {
                let known = plan.inputs.iter().map(|input| input.port.name.clone()).collect();
                return Err(Kind::UnknownPort { what: "input", name: name.to_string(), known }.into());
            };
            if !given.is_of(input.port.of.id_fn) {
                let (name, expected) = (input.port.name.clone(), input.port.of.name);
                return Err(Kind::InputType { name, expected, given: given.type_name() }.into());
            }
            if let Some(taker) = input.taker.filter(|_| given.is_shared()) {
                let taker = plan.schedule.shape().name_of(taker).clone();
                return Err(Kind::InputShared { name: input.port.name.clone(), taker }.into());
            }
            if self.given.iter().filter(|(other, _)| other == name).count() > 1 {
                return Err(Kind::InputTwice { name: name.to_string() }.into());
            }
        }
        match plan.inputs.iter().find(|input| !self.given.iter().any(|(name, _)| *name == *input.port.name)) {
            Some(missing) => Err(Kind::MissingInput { name: missing.port.name.clone() }.into()),
            None => Ok(()),
        }
    }

    /// Moves checked inputs into a run's cells.
    #[inline]
    pub(super) fn fill(&mut self, plan: &PlanInner, frame: &Frame) {
        for ((_, given), input) in self.given.drain(..).zip(&plan.inputs) {
            assert!(given.is_of(input.port.of.id_fn), "types were checked");
            // SAFETY: the run has not started, so no other thread touches the frame. The offset is that of
            // the input's slot.
            let cells = unsafe { frame.cells(if input.is_shared { Access::Share } else { Access::Tagged }) };
            given.fill(cells, input.port.offset);
        }
        self.make_context(plan);
        if let (Some(context), Some(shared)) = (&plan.context, self.context.take()) {
            // SAFETY: the run has not started, so no other thread touches the frame. The slot is the
            // context's.
            unsafe { frame.cells(Access::Tagged) }.put(context.slot, shared);
        }
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.given.iter().map(|(name, given)| (name, given.type_name()))).finish()
    }
}

/// Gives a run its inputs by name: `inputs! { "path" => path, "side" => 224u32 }`.
///
/// Each value is moved in; to share one with the run use [`Inputs::with_arc`]. Names and types are checked
/// when the run starts.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let (path, side) = (g.input::<String>("path"), g.input::<u32>("side"));
/// let said = g.task("say", (&path, &side), |path: &String, side: &u32| format!("{path}: {side}"));
/// g.output("said", &said);
/// let (exec, plan) = (Executor::inline(), g.compile()?);
///
/// let run = exec.run(&plan, inputs! { "path" => "a.png".to_string(), "side" => 224_u32 });
/// assert_eq!(*futures::executor::block_on(run)?.take::<String>("said")?, "a.png: 224");
///
/// let run = exec.run(&plan, inputs! { "path" => "a.png".to_string() });
/// let error = futures::executor::block_on(run).unwrap_err();
/// assert!(error.to_string().contains("side"));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[macro_export]
macro_rules! inputs {
    ($($name:expr => $value:expr),* $(,)?) => {
        $crate::Inputs::new()$(.with($name, $value))*
    };
}
