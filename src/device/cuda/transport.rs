//! A stream of a GPU for a library that moves memory between GPUs, such as NCCL, and the memory that the
//! library writes. The stream is not a lane: the host learns the end of its work by events.
//!
//! The host starts work here only after all work that made its memory has ended, and passes the results on
//! only after the work here has ended. So no lane knows this stream.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUevent};

use super::context::{Context, Stream};
use super::driver::{Driver, NOT_READY, OUT_OF_MEMORY};
use super::events::Events;
use super::memory::{Allocation, Section};
use crate::device::queue::Memory;
use crate::error::{Kind, Result};

/// The stream, with its events. One thread uses it, on which [`Transport::open`] was called.
pub(crate) struct Transport {
    stream: Stream,
    events: Events,
}

/// A place in the stream, behind some work.
pub(crate) struct Mark(CUevent);

impl Transport {
    /// Makes a stream of a GPU, whose context becomes current on this thread.
    pub(crate) fn open(ordinal: u32) -> Result<Self> {
        let context = Arc::new(Context::retain(Driver::with_device(ordinal)?, ordinal)?);
        Ok(Self { stream: Stream::new(&context)?, events: Events::default() })
    }

    /// Returns the stream as libraries take it.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.handle().cast()
    }

    /// Returns the address of memory of this GPU.
    ///
    /// # Errors
    /// If another device has it.
    pub(crate) fn address(&self, memory: &dyn Memory) -> Result<u64> {
        self.section(memory).map(|section| section.address)
    }

    /// Allocates memory for work of this stream. It belongs to the device that has `beside`.
    ///
    /// # Errors
    /// If there is not that much memory, or another GPU has `beside`.
    pub(crate) fn alloc(&self, beside: &dyn Memory, bytes: usize) -> Result<(Box<dyn Memory>, u64)> {
        let device = &self.section(beside)?.allocation.device;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the call writes one address, and `address` outlives it. An empty buffer has an address,
        // too.
        let code = unsafe { (device.driver.alloc)(&mut address, bytes.max(1), self.stream.handle()) };
        if code == OUT_OF_MEMORY {
            // The next attempt finds memory that only waits to be freed.
            device.request_collection();
            return Err(Kind::OutOfMemory { bytes, device: device.context.device_name() }.into());
        }
        device.context.check(code)?;
        // No work of a lane uses it before the host has seen the end of the work here.
        let allocation = Allocation::new(device.clone(), address, bytes, (0, 0));
        Ok((Box::new(Section::of(Arc::new(allocation))), address))
    }

    /// Marks the place behind all work that is queued.
    pub(crate) fn mark(&mut self) -> Result<Mark> {
        let context = &self.stream.context;
        let event = self.events.take(context)?;
        // SAFETY: the event and the stream belong to `context`, which the stream retains.
        let recorded = unsafe { (context.driver.event_record)(event, self.stream.handle()) };
        context.check(recorded).inspect_err(|_| self.events.give_back(event))?;
        Ok(Mark(event))
    }

    /// Returns whether all work before a mark has ended. A mark is not used again after it has passed.
    ///
    /// # Errors
    /// If the work has failed, or the device is lost.
    pub(crate) fn has_passed(&mut self, mark: &Mark) -> Result<bool> {
        let context = &self.stream.context;
        // SAFETY: the event belongs to this stream's context, and is not destroyed before `self` is dropped.
        let code = unsafe { (context.driver.event_query)(mark.0) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.events.give_back(mark.0);
        context.check(code).map(|()| true)
    }

    /// Waits until all work has ended, or the device is lost.
    pub(crate) fn wait(&self) {
        let _ = self.stream.synchronize();
    }

    fn section<'m>(&self, memory: &'m dyn Memory) -> Result<&'m Section> {
        let context = &self.stream.context;
        let own = memory.as_any().downcast_ref::<Section>();
        let own = own.filter(|section| section.allocation.device.context.ordinal() == context.ordinal());
        own.ok_or_else(|| Kind::ForeignBuffer { buffer: memory.device_name(), stream: context.device_name() }.into())
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        let context = &self.stream.context;
        // Only a lost device returns an error.
        let _ = context.set_current();
        self.events.destroy(context.driver);
    }
}
