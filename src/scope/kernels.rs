//! Closures as bodies of kernels: work on tiles of the device, copies to the host, and reductions.

use std::marker::PhantomData;

use super::batch::Batch;
use super::bodies::FoldParts;
use super::body::{FoldState, Kernel, Landing};
use super::place::Queued;
use crate::device::{DeviceStream, Element, HostBuffer};
use crate::error::BoxError;
use crate::value::args::KernelFn;

/// What the closures of kernels return.
pub(super) type Enqueued = Result<(), BoxError>;

/// A closure on tiles of the device.
pub(super) struct Launched<P, F> {
    pub(super) params: P,
    pub(super) work: F,
}

impl<P: Send + Sync, F: KernelFn<Queued, DeviceStream, P, Enqueued>> Kernel for Launched<P, F> {
    fn enqueue(&self, s: &mut DeviceStream, batch: Batch<'_>) -> Result<Option<Landing>, BoxError> {
        let Ok(returned) = self.work.call(s, &self.params, batch);
        returned.map(|()| None)
    }
}

/// A copy of tiles to the host: of which use, and to which.
pub(super) struct Downloaded<T, const N: usize> {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) element: PhantomData<fn() -> T>,
}

impl<T: Element, const N: usize> Kernel for Downloaded<T, N> {
    fn enqueue(&self, s: &mut DeviceStream, batch: Batch<'_>) -> Result<Option<Landing>, BoxError> {
        let elements = s.download::<T>(&batch.device_tile::<T, N>(self.from))?;
        Ok(Some(Box::new(elements)))
    }

    fn lands(&self) -> bool {
        true
    }

    fn land(&self, landing: &Landing, batch: Batch<'_>, _: Option<&FoldState>) {
        let elements: &HostBuffer<T> = landing.downcast_ref().expect("it is what was enqueued");
        batch.target::<T, N>(self.to).as_mut_slice().copy_from_slice(elements);
    }
}

/// A closure whose kernels make a part of each leaf.
pub(super) struct PartsByKernel<P, F, A> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) value: PhantomData<fn() -> A>,
}

impl<P, F, A> Kernel for PartsByKernel<P, F, A>
where
    P: Send + Sync,
    F: KernelFn<Queued, DeviceStream, P, Enqueued>,
    A: Element,
{
    fn enqueue(&self, s: &mut DeviceStream, batch: Batch<'_>) -> Result<Option<Landing>, BoxError> {
        let Ok(returned) = self.work.call(s, &self.params, batch);
        returned?;
        let parts = s.download::<A>(&batch.parts::<A>())?;
        Ok(Some(Box::new(parts)))
    }

    fn lands(&self) -> bool {
        true
    }

    fn land(&self, landing: &Landing, batch: Batch<'_>, state: Option<&FoldState>) {
        let parts: &HostBuffer<A> = landing.downcast_ref().expect("it is what was enqueued");
        FoldParts::put(state.expect("a reduction has a state"), batch.slot, parts);
    }
}
