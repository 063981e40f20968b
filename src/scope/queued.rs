//! Batches of kernels: copies on the device before and behind the work of a closure.

use super::AXES_MAX;
use super::batch::{Batch, Step};
use super::body::{Body, Landing};
use super::device_memory::DeviceMemory;
use super::device_tile::{DeviceTile, DeviceTileMut, Parts};
use super::group::{Access, GroupRun, Own};
use super::memory::{Range, Storage, len};
use crate::device::{DeviceStream, Element};
use crate::error::{BoxError, Result};

impl Step {
    /// Makes the memory of the group on the device, and that of stores that begin with the group.
    pub(super) fn allocate(&self, s: &mut DeviceStream, bytes_of: &[u64]) -> Result<(), BoxError> {
        let run = self.run();
        for &store in &run.group.begins {
            if let Some(Own::Device(memory)) = &run.wholes[store as usize] {
                let _ = memory.set(DeviceMemory::new(s, bytes_of[store as usize])?);
            }
        }
        let _ = run.device.set(DeviceMemory::new(s, run.group.device.bytes)?);
        Ok(())
    }

    /// Enqueues the batch of a kernel at this step, if it has one and nothing has failed.
    pub(super) fn enqueue(&self, op: usize, s: &mut DeviceStream) -> Result<Option<Landing>, BoxError> {
        let run = self.run();
        let Some(batch) = self.batch(op, self.number).filter(|_| !run.has_failed()) else { return Ok(None) };
        let failing = run.failing(self.number, op, batch.number());
        #[cfg(debug_assertions)]
        let _claimed = batch.claim();
        batch.begin(s)?;
        let kernel = run.program[run.group.ops[op].number].body.kernel().expect("it is a kernel");
        let landing = kernel.enqueue(s, batch)?;
        batch.end(s)?;
        failing.pass();
        Ok(landing)
    }

    /// Brings what the batch of a kernel has copied to the host to where it belongs.
    pub(super) fn land(&self, op: usize, landing: &Option<Landing>) {
        let run = self.run();
        let (Some(batch), Some(landing)) = (self.batch(op, self.number).filter(|_| !run.has_failed()), landing) else { return };
        let failing = run.failing(self.number, op, batch.number());
        #[cfg(debug_assertions)]
        let _claimed = batch.claim();
        let body = &run.program[run.group.ops[op].number].body;
        let state = matches!(body, Body::Fold(..)).then(|| run.fold_state(op));
        body.kernel().expect("it is a kernel").land(landing, batch, state);
        batch.publish_all();
        failing.pass();
    }
}

/// A place on the device: the memory, and the byte in it.
#[derive(Clone, Copy)]
struct At<'r> {
    memory: &'r DeviceMemory,
    byte: u64,
}

impl At<'_> {
    /// Returns the place so many bytes further.
    fn plus(self, bytes: u64) -> Self {
        Self { byte: self.byte + bytes, ..self }
    }
}

impl GroupRun {
    /// Returns where a storage begins.
    fn device_base(&self, storage: &Storage) -> At<'_> {
        debug_assert_eq!(storage.apart, 0, "groups whose steps have any memory have no kernels");
        let memory = match (storage.at, &self.wholes[storage.store as usize]) {
            (Some(_), _) => self.device.get(),
            (None, Some(Own::Device(memory))) => memory.get(),
            (None, _) => None,
        };
        At { memory: memory.expect("it is made before the first step"), byte: storage.at.unwrap_or(0) }
    }

    fn device_gathered(&self, own: u64, slot: usize) -> At<'_> {
        let memory = self.device.get().expect("it is made before the first step");
        At { memory, byte: self.group.device.gathered(own, slot) }
    }

    /// Returns where the elements of an access are for a kernel.
    fn device_find(&self, access: &Access, ranges: &[Range], slot: usize) -> At<'_> {
        let storage = &self.group.storages[access.storage as usize];
        match storage.slice(ranges) {
            Some(byte) => self.device_base(storage).plus(byte),
            None => self.device_gathered(access.gathered.expect("what is not always a slice is gathered"), slot),
        }
    }
}

impl<'a> Batch<'a> {
    /// Calls `each` for all accesses to stores on the device.
    fn each_on_device(
        &self,
        mut each: impl FnMut(u32, &'a Access, &'a Storage, &[Range]) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        for (access, at) in self.accesses().iter().zip(0..) {
            let Some(access) = access else { continue };
            let storage = &self.run().group.storages[access.storage as usize];
            if storage.is_on_device {
                each(at, access, storage, &self.ranges::<AXES_MAX>(at)[..access.axes.len()])?;
            }
        }
        Ok(())
    }

    /// Enqueues what comes before the closure's work: elements that are no slice are gathered, and those that
    /// an update of another store begins with are copied.
    fn begin(&self, s: &mut DeviceStream) -> Result<(), BoxError> {
        let run = self.run();
        self.each_on_device(|_, access, storage, ranges| {
            if storage.slice(ranges).is_some() || (access.is_written && !access.is_updated) {
                return Ok(());
            }
            let (base, gathered) = (run.device_base(storage), run.device_find(access, ranges, self.slot));
            storage.try_pieces(ranges, |from, to, bytes| {
                // SAFETY: both lie in memory that this batch may use, and do not overlap.
                unsafe { copy(s, base.plus(from), gathered.plus(to), bytes) }
            })
        })?;
        self.each_on_device(|at, access, storage, ranges| {
            let Some(from) = access.copies_from else { return Ok(()) };
            let bytes = len(ranges) * storage.element_bytes;
            // SAFETY: this batch reads the one and writes the other.
            unsafe { copy(s, self.device_found(from), self.device_found(at), bytes) }
        })
    }

    /// Enqueues what comes behind the closure's work: what it has written is brought to where it belongs.
    fn end(&self, s: &mut DeviceStream) -> Result<(), BoxError> {
        let run = self.run();
        self.each_on_device(|_, access, storage, ranges| {
            if !access.is_written {
                return Ok(());
            }
            let base = run.device_base(storage);
            if storage.slice(ranges).is_some() {
                return storage.copies(ranges).into_iter().flatten().try_for_each(|(from, to, bytes)| {
                    // SAFETY: both lie in the storage, and do not overlap. The copy belongs to the tile that
                    // this batch writes.
                    unsafe { copy(s, base.plus(from), base.plus(to), bytes) }
                });
            }
            let written = run.device_find(access, ranges, self.slot);
            storage.try_pieces(ranges, |to, from, bytes| {
                // SAFETY: both lie in memory that this batch may use, and do not overlap.
                unsafe { copy(s, written.plus(from), base.plus(to), bytes) }
            })
        })
    }

    fn device_found(&self, at: u32) -> At<'a> {
        let access = self.access(at);
        self.run().device_find(access, &self.ranges::<AXES_MAX>(at)[..access.axes.len()], self.slot)
    }

    /// Returns the tile on the device of a use that reads.
    pub(super) fn device_tile<T: Element, const N: usize>(&self, at: u32) -> DeviceTile<'a, T, N> {
        let (At { memory, byte }, place) = (self.device_found(at), self.place::<N>(at));
        // SAFETY: the use is of a store of `T`, and the memory has its elements. No batch that writes one of
        // them runs before this one has ended.
        DeviceTile::new(unsafe { memory.read(byte, place.len()) }, place)
    }

    /// Returns the tile on the device of the use that writes. It is called once for each batch.
    pub(super) fn device_target<T: Element, const N: usize>(&self, at: u32) -> DeviceTileMut<'a, T, N> {
        let (At { memory, byte }, place) = (self.device_found(at), self.place::<N>(at));
        // SAFETY: the use is of a store of `T`, and the memory has its elements. No other batch that uses one
        // of them runs before this one has ended; and this one uses the store only here.
        DeviceTileMut::new(unsafe { memory.write(byte, place.len()) }, place)
    }

    /// Returns the parts that a kernel makes for a reduction.
    pub(super) fn parts<A: Element>(&self) -> Parts<'a, A> {
        let (rows, parts) = self.leaves();
        let own = self.parts_at().expect("a reduction by a kernel has room for its parts");
        let At { memory, byte } = self.run().device_gathered(own, self.slot);
        // SAFETY: the room is for values of `A`, as many as there are leaves. Only this batch uses it.
        Parts::new(unsafe { memory.write(byte, parts as usize) }, rows as usize)
    }
}

/// Enqueues a copy of bytes.
///
/// # Safety
/// The memories have so many bytes there, which do not overlap. No other batch that may run before this one
/// has ended writes the first ones, or uses the others.
unsafe fn copy(s: &mut DeviceStream, from: At<'_>, to: At<'_>, bytes: u64) -> Result<(), BoxError> {
    // SAFETY: the caller promises it.
    let from = unsafe { from.memory.read::<u8>(from.byte, bytes as usize) };
    // SAFETY: the caller promises it.
    let mut to = unsafe { to.memory.write::<u8>(to.byte, bytes as usize) };
    Ok(s.copy(&from, &mut to)?)
}
