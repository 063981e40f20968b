//! What kernels do through their stream, on a GPU: every call enqueues on one CUDA stream.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::driver::OUT_OF_MEMORY;
use super::gpu::Device;
use super::lane::CudaLane;
use super::memory::{Block, Dropped, Landing, Use, Visit};
use crate::device::kernel::{Code, Launch, PARAMS_MAX};
use crate::device::queue::{Arg, HostMemory, Memory, MemoryArg, Queue};
use crate::error::{Error, Kind, Result};
use crate::sync::Ordering;

/// A lane of a GPU that takes work. Only who has the device's submission path uses it.
pub(super) struct Submission {
    device: Arc<Device>,
    lane: u32,
}

impl Submission {
    pub(super) fn new(device: Arc<Device>, lane: u32) -> Self {
        Self { device, lane }
    }

    fn lane(&self) -> &CudaLane {
        &self.device.lanes[self.lane as usize]
    }

    /// The point of the node that is being submitted.
    fn now(&self) -> Use {
        (self.lane, self.device.issued(self.lane))
    }

    /// Returns the block of this device that stands behind some memory, noting that it is used.
    pub(super) fn used<'a>(&self, memory: &'a dyn Memory) -> Result<&'a Block> {
        match memory.as_any().downcast_ref::<Block>() {
            Some(block) if Arc::ptr_eq(&block.device, &self.device) => {
                block.touch(self.now());
                Ok(block)
            }
            _ => Err(self.foreign(memory.device_name())),
        }
    }

    fn foreign(&self, buffer: String) -> Error {
        Kind::ForeignBuffer { buffer, stream: self.device.name() }.into()
    }

    /// Says that others get at the thread's context.
    pub(super) fn lend(&self) {
        self.device.is_lent.store(true, Ordering::Relaxed);
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.lane().stream
    }
}

/// Halves a pattern as long as it is the same twice.
fn shortest(pattern: &[u8]) -> &[u8] {
    match pattern.split_at(pattern.len() / 2) {
        (half, other) if half == other && !half.is_empty() => shortest(half),
        _ => pattern,
    }
}

impl Queue for Submission {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn device_name(&self) -> String {
        self.device.name()
    }

    fn alloc(&mut self, bytes: usize) -> Result<Box<dyn Memory>> {
        let (driver, mut address) = (self.device.driver, 0);
        // SAFETY: it writes one address. An empty buffer has an address too.
        let code = unsafe { (driver.alloc)(&mut address, bytes.max(1), self.stream().cu_stream()) };
        if code == OUT_OF_MEMORY {
            return Err(Kind::OutOfMemory { bytes, device: self.device.name() }.into());
        }
        self.device.check(code)?;
        Ok(Box::new(Block::new(self.device.clone(), address, bytes, self.now())))
    }

    fn upload(&mut self, from: &[u8], to: &dyn Memory) -> Result<()> {
        let (driver, to) = (self.device.driver, self.used(to)?);
        let staged = self.device.take_host(from.len())?;
        // SAFETY: the block is ours, has room for the bytes, and is not part of what they are read from.
        unsafe { staged.start.copy_from_nonoverlapping(std::ptr::NonNull::from(from).cast(), from.len()) };
        // SAFETY: both blocks have the bytes, and are kept until the copy is done.
        let code = unsafe { (driver.copy_up)(to.address, staged.start.as_ptr().cast(), from.len(), self.stream().cu_stream()) };
        self.device.keep(Dropped::host(staged, self.now()));
        self.device.check(code)
    }

    fn download(&mut self, from: &dyn Memory) -> Result<Box<dyn HostMemory>> {
        let (driver, from) = (self.device.driver, self.used(from)?);
        let block = self.device.take_host(from.bytes)?;
        let to = block.start.as_ptr().cast();
        let landing = Landing { device: self.device.clone(), block: Some(block), written: self.now() };
        // SAFETY: both blocks have the bytes, and are kept until the copy is done.
        self.device.check(unsafe { (driver.copy_down)(to, from.address, from.bytes, self.stream().cu_stream()) })?;
        // ORDERING: Relaxed: only who has the path touches it.
        self.device.must_mark.store(true, Ordering::Relaxed);
        Ok(Box::new(landing))
    }

    fn fetch(&mut self, from: &dyn Memory) -> Result<Box<dyn Memory>> {
        let Some(from) = from.as_any().downcast_ref::<Block>() else { return Err(self.foreign(from.device_name())) };
        let to = self.alloc(from.bytes)?;
        if Arc::ptr_eq(&from.device, &self.device) {
            self.copy(from, &*to)?;
            return Ok(to);
        }
        let (driver, stream) = (self.device.driver, self.stream().cu_stream());
        let address = self.used(&*to)?.address;
        let contexts = [&self.device, &from.device].map(|device| device.context.cu_ctx());
        // SAFETY: both blocks have the bytes; the other device keeps its own until the visit is over.
        let copied = unsafe { (driver.copy_peer)(address, contexts[0], from.address, contexts[1], from.bytes, stream) };
        let (lane, point) = self.now();
        from.visit(Visit { lane: self.device.lanes[lane as usize].clone(), point });
        self.device.check(copied)?;
        // At the node's end, and not here: a mark says that all of the node is done.
        self.device.must_mark.store(true, Ordering::Relaxed);
        Ok(to)
    }

    fn copy(&mut self, from: &dyn Memory, to: &dyn Memory) -> Result<()> {
        let (from, to) = (self.used(from)?, self.used(to)?);
        // SAFETY: both blocks have the bytes: the lengths were compared.
        self.device.check(unsafe { (self.device.driver.copy)(to.address, from.address, from.bytes, self.stream().cu_stream()) })
    }

    fn fill(&mut self, pattern: &[u8], to: &dyn Memory) -> Result<()> {
        let (driver, to, stream) = (self.device.driver, self.used(to)?, self.stream().cu_stream());
        let pattern = shortest(pattern);
        let count = to.bytes / pattern.len();
        if count == 0 {
            return Ok(());
        }
        let code = match *pattern {
            // SAFETY: the block has `count` such patterns.
            [byte] => unsafe { (driver.fill_8)(to.address, byte, count, stream) },
            // SAFETY: as above.
            [a, b, c, d] => unsafe { (driver.fill_32)(to.address, u32::from_ne_bytes([a, b, c, d]), count, stream) },
            _ => {
                let bytes: Vec<u8> = pattern.iter().copied().cycle().take(to.bytes).collect();
                return self.upload(&bytes, to);
            }
        };
        self.device.check(code)
    }

    fn launch(&mut self, code: &Arc<Code>, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        let function = self.device.function(code)?;
        let (mut words, mut pointers) = ([0_u64; PARAMS_MAX], [std::ptr::null_mut::<c_void>(); PARAMS_MAX]);
        for ((arg, word), pointer) in args.iter().zip(&mut words).zip(&mut pointers) {
            *word = match arg {
                Arg::Number(bytes) => u64::from_ne_bytes(*bytes),
                Arg::Memory(MemoryArg(Some(memory))) => self.used(*memory)?.address,
                Arg::Memory(MemoryArg(None)) => return Err(self.foreign("the host device".into())),
            };
            *pointer = std::ptr::from_mut(word).cast();
        }
        let ([x, y, z], [i, j, k]) = (launch.grid, launch.block);
        let (driver, stream) = (self.device.driver, self.stream().cu_stream());
        // SAFETY: each pointer is to a word with a parameter of the type that the kernel was declared with; the driver copies them. What the
        // code does with its buffers is the promise of who wrote it.
        self.device.check(unsafe {
            (driver.launch)(function, x, y, z, i, j, k, launch.shared_bytes, stream, pointers.as_mut_ptr(), std::ptr::null_mut())
        })
    }
}
