//! How items get into the memory of an iteration, and results out of it: one typed value, or values by name.

use std::marker::PhantomData;
use std::sync::Arc;

use super::inner::Item;
use super::inputs::Inputs;
use super::outputs::Outputs;
use crate::error::Result;
use crate::plan::PlanInner;
use crate::value::{Access, Cells, Frame, Slot};

pub(crate) trait Port {
    type Item;
    type Output;

    /// Stores an item in a frame that no step uses.
    ///
    /// # Errors
    /// If the item does not fit the plan. It is not stored then.
    fn fill(&self, plan: &PlanInner, frame: &Frame, item: Self::Item) -> Result<()>;
    /// Moves the results of an item out.
    ///
    /// # Safety
    /// The item is done, and no other begins in its iteration meanwhile.
    unsafe fn take(&self, item: Item<'_>) -> Self::Output;
    /// Drops the rest of an item that has failed.
    ///
    /// # Safety
    /// As for [`take`](Port::take).
    unsafe fn discard(&self, item: Item<'_>);
}

/// The item and the results of a pipeline.
pub(crate) struct Typed<I, T> {
    /// The cell of the item, and how it is stored there.
    pub(crate) offset: u32,
    pub(crate) access: Access,
    pub(crate) take: Arc<dyn Fn(Cells<'_>) -> T + Send + Sync>,
    pub(crate) item: PhantomData<fn(I)>,
}

impl<I: Send + Sync + 'static, T> Port for Typed<I, T> {
    type Item = I;
    type Output = T;

    #[inline]
    fn fill(&self, _: &PlanInner, frame: &Frame, item: I) -> Result<()> {
        // SAFETY: no step uses the frame, and the offset is that of a `Cell<I>` in its layout.
        unsafe { frame.cells(self.access) }.put(Slot::at(self.offset), item);
        Ok(())
    }

    #[inline]
    unsafe fn take(&self, item: Item<'_>) -> T {
        // SAFETY: the caller promises that no step touches the cells.
        (self.take)(unsafe { item.at.frame.cells(Access::Tagged) })
    }

    unsafe fn discard(&self, _: Item<'_>) {}
}

/// The inputs and the outputs of a plan.
pub(crate) struct Named;

impl Port for Named {
    type Item = Inputs;
    type Output = Outputs;

    fn fill(&self, plan: &PlanInner, frame: &Frame, mut item: Inputs) -> Result<()> {
        item.check(plan)?;
        item.fill(plan, frame);
        Ok(())
    }

    unsafe fn take(&self, item: Item<'_>) -> Outputs {
        // SAFETY: the caller promises that no step touches the cells.
        let values = unsafe { item.values() };
        let outputs = values.outputs();
        values.drop_rest();
        outputs
    }

    unsafe fn discard(&self, item: Item<'_>) {
        // SAFETY: the caller promises that no step touches the cells.
        unsafe { item.values() }.drop_inputs();
    }
}
