//! A GPU's primary context and its streams, by our own calls. cudarc has objects for both, but its calls cast
//! the driver's codes to an enum. Its objects are made only for a library that requests a stream, and release
//! nothing. This file releases the handles, once no library holds them.
//!
//! The context turns the driver's codes into errors. After a fatal code the device is lost, and every later
//! call is refused.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUstream};
use cudarc::driver::{CudaContext, CudaStream};

use super::driver::{Driver, OUT_OF_MEMORY, SUCCESS};
use crate::device::queue::Fault;
use crate::error::{Error, Kind, Result};
use crate::sync::{Mutex, OnceLock, lock};

/// The stream does not wait for the default stream.
const NON_BLOCKING: u32 = 1;

/// The primary context of a GPU, retained.
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    ordinal: u32,
    device: c_int,
    handle: CUcontext,
    /// The fault that lost the device.
    lost: OnceLock<Fault>,
    /// cudarc's objects, once a library has requested a stream.
    lent: Mutex<Option<CudarcObjects>>,
}

struct CudarcObjects {
    /// A second retain.
    context: Arc<CudaContext>,
    /// cudarc orders the uses of its slices by events while it has a stream of its own. This one has no work.
    own: Arc<CudaStream>,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Context {}
// SAFETY: any thread may use the driver's handles, and the lent object is behind a lock.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context of a GPU, and makes it current on this thread.
    pub(super) fn retain(driver: &'static Driver, ordinal: u32) -> Result<Self> {
        let (mut device, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: the call writes one number, and `device` outlives it.
        driver.check(unsafe { (driver.device_get)(&mut device, ordinal as c_int) })?;
        // SAFETY: the call writes one handle, and `handle` outlives it.
        driver.check(unsafe { (driver.context_retain)(&mut handle, device) })?;
        let context = Self { driver, ordinal, device, handle, lost: OnceLock::new(), lent: Mutex::default() };
        context.make_current()?;
        Ok(context)
    }

    pub(super) fn handle(&self) -> CUcontext {
        self.handle
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Makes the context current on this thread, unless the device is lost.
    pub(super) fn make_current(&self) -> Result<()> {
        self.alive()?;
        self.check(self.set_current())
    }

    /// Makes the context current on this thread, even on a lost device: calls that free memory need it.
    /// Returns the driver's code.
    pub(super) fn set_current(&self) -> u32 {
        // SAFETY: `self` retains the context.
        unsafe { (self.driver.set_context)(self.handle) }
    }

    /// Returns the device's name in errors.
    pub(super) fn device_name(&self) -> String {
        format!("CUDA device {}", self.ordinal)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns an error if the device is lost.
    pub(super) fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |fault| Err(self.error(fault)))
    }

    /// Turns the driver's code into an error. After a fatal code the device is lost.
    pub(super) fn check(&self, code: u32) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(&self.driver.fault(code))) }
    }

    /// Returns the error for a fault. After a fatal fault the device is lost.
    pub(super) fn error(&self, fault: &Fault) -> Error {
        let Fault { code, name, is_fatal } = fault.clone();
        if !is_fatal {
            return Kind::Driver { code, name }.into();
        }
        let _ = self.lost.set(fault.clone());
        Kind::DeviceLost { device: self.device_name(), code, name }.into()
    }

    /// Allocates `room` bytes of page-locked memory of the host, for a request of `bytes`. The context is
    /// current on this thread.
    pub(super) fn host_alloc(&self, bytes: usize, room: usize, flags: u32) -> Result<NonNull<u8>> {
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the call writes one pointer, and `start` outlives it.
        match unsafe { (self.driver.host_alloc)(&mut start, room, flags) } {
            OUT_OF_MEMORY => return Err(Kind::NoPinnedMemory { bytes, device: self.device_name() }.into()),
            code => self.check(code)?,
        }
        Ok(NonNull::new(start.cast()).expect("a successful allocation is not null"))
    }

    /// Returns cudarc's object for the context.
    ///
    /// # Panics
    /// If the driver refuses cudarc the context, or one more stream in it.
    fn lend(&self) -> Arc<CudaContext> {
        lock(&self.lent).get_or_insert_with(|| self.cudarc_objects()).context.clone()
    }

    fn cudarc_objects(&self) -> CudarcObjects {
        let context = CudaContext::new(self.ordinal as usize).expect("the driver gives cudarc the context that is retained");
        // Without this, the next call would wait for all work of the context.
        // SAFETY: the context is new, so it has no slices.
        unsafe { context.disable_event_tracking() };
        let own = context.new_stream().expect("the driver makes a stream");
        // SAFETY: the context has no slices yet.
        unsafe { context.enable_event_tracking() };
        CudarcObjects { context, own }
    }

    /// Takes back the lent objects. Returns false if a library still holds one.
    pub(super) fn regain(&self) -> bool {
        let mut lent = lock(&self.lent);
        // Our own stream has a clone of the context.
        let is_over = |lent: &mut CudarcObjects| Arc::get_mut(&mut lent.own).is_some() && Arc::strong_count(&lent.context) == 2;
        let Some(objects) = lent.take_if(is_over) else { return lent.is_none() };
        let own = Arc::into_inner(objects.own).expect("only this thread has it");
        // SAFETY: no code uses the stream any more.
        let _ = unsafe { (self.driver.stream_destroy)(own.cu_stream()) };
        // SAFETY: `own` is forgotten below, so this becomes the only owner of its clone.
        drop(unsafe { std::ptr::read(own.context()) });
        // Dropping them would cast the driver's codes to an enum.
        std::mem::forget(own);
        if let Some(context) = Arc::into_inner(objects.context) {
            std::mem::forget(context);
            self.release();
        }
        // Otherwise a library has upgraded a weak reference, and its drop releases the context.
        true
    }

    fn release(&self) {
        // SAFETY: each call ends one retain, of `retain` or of `lend`, whose owner is gone. Only a lost
        // device returns an error.
        let _ = unsafe { (self.driver.context_release)(self.device) };
    }
}

impl Drop for Context {
    /// A device ends only after all lent objects are back.
    fn drop(&mut self) {
        debug_assert!(lock(&self.lent).is_none(), "a library still uses the context");
        self.release();
    }
}

pub(super) struct Stream {
    pub(super) context: Arc<Context>,
    handle: CUstream,
    /// cudarc's object for the stream, once a library has requested one.
    lent: Mutex<Option<Arc<CudaStream>>>,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Stream {}
// SAFETY: any thread may use the driver's handles, and the lent object is behind a lock.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream of a context that is current on this thread.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the call writes one handle, and `handle` outlives it.
        context.check(unsafe { (context.driver.stream_create)(&mut handle, NON_BLOCKING) })?;
        Ok(Self { context: context.clone(), handle, lent: Mutex::default() })
    }

    pub(super) fn handle(&self) -> CUstream {
        self.handle
    }

    /// Waits until all work of the stream has ended, or the device is lost. Returns the driver's code. A lost
    /// device writes no more.
    pub(super) fn synchronize(&self) -> u32 {
        // SAFETY: `self` owns the stream.
        unsafe { (self.context.driver.stream_synchronize)(self.handle) }
    }

    /// Returns cudarc's object for the stream.
    ///
    /// # Panics
    /// If the driver refuses cudarc the context, or one more stream in it.
    pub(super) fn lend(&self) -> Arc<CudaStream> {
        let mut lent = lock(&self.lent);
        let stream = lent.get_or_insert_with(|| {
            let context = self.context.lend();
            // SAFETY: the stream is of this context, and is destroyed only after `regain` has taken the
            // object back.
            unsafe { context.wrap_borrowed_stream(self.handle) }
        });
        stream.clone()
    }

    /// Takes back the lent object. Returns false if a library still holds it.
    pub(super) fn regain(&self) -> bool {
        let mut lent = lock(&self.lent);
        let is_over = lent.as_mut().is_none_or(|stream| Arc::get_mut(stream).is_some());
        if is_over {
            // The object borrows the stream, so its drop makes no driver call.
            *lent = None;
        }
        is_over
    }
}

impl Drop for Stream {
    /// A device ends only after all lent objects are back.
    fn drop(&mut self) {
        debug_assert!(lock(&self.lent).is_none(), "a library still uses the stream");
        // Any thread may drop a stream. Only a lost device returns errors, for this call and the next.
        let _ = self.context.set_current();
        // SAFETY: `self` owns the stream. No library holds it, because `Opened::end` waits for that before it
        // drops a lane.
        let _ = unsafe { (self.context.driver.stream_destroy)(self.handle) };
    }
}
