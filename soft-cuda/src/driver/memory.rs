//! The allocations of one device, found by address.
//!
//! No address is reused while its memory is in quarantine. So an access to freed memory is not mistaken for
//! one to another allocation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::allocation::{Allocation, Residence};
use super::device::{self, Device};
use super::{lock, read, write};
use crate::code::{Code, Outcome};

/// The number of freed bytes that are kept from reuse.
const QUARANTINE_BYTES: usize = 256 << 20;

/// The memory that a device reports, in bytes.
pub(crate) const TOTAL_BYTES: u64 = 16 << 30;

#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) pinned_allocations: u64,
    pub(crate) pinned_bytes: u64,
}

#[derive(Default)]
struct Quarantine {
    /// The addresses of freed allocations, the oldest first.
    starts: VecDeque<usize>,
    bytes: usize,
}

pub(crate) struct Memory {
    /// By first address, including freed ones in quarantine.
    allocations: RwLock<BTreeMap<usize, Arc<Allocation>>>,
    quarantine: Mutex<Quarantine>,
    tally: Mutex<Tally>,
    limit_bytes: AtomicU64,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            allocations: RwLock::default(),
            quarantine: Mutex::default(),
            tally: Mutex::default(),
            limit_bytes: AtomicU64::new(TOTAL_BYTES),
        }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        // ORDERING: Relaxed: a number that guards no other data.
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit_bytes(&self, limit: u64) {
        // ORDERING: Relaxed: a number that guards no other data.
        self.limit_bytes.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn tally(&self) -> Tally {
        *lock(&self.tally)
    }

    pub(crate) fn allocate(&self, device: &'static Device, residence: Residence, len: usize) -> Outcome<Arc<Allocation>> {
        self.count_in(residence, len as u64)?;
        let allocation = match Allocation::new(device, residence, len) {
            Ok(allocation) => Arc::new(allocation),
            Err(code) => {
                self.count_out(residence, len as u64);
                return Err(code);
            }
        };
        write(&self.allocations).insert(allocation.start(), allocation.clone());
        Ok(allocation)
    }

    /// Returns the allocation, live or freed, that contains the address.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Allocation>> {
        let allocations = read(&self.allocations);
        let (_, allocation) = allocations.range(..=address).next_back()?;
        allocation.range().contains(&address).then(|| allocation.clone())
    }

    /// Takes a freed allocation into quarantine, and drops the oldest ones there if there is too much.
    pub(crate) fn retire(&self, allocation: &Allocation) {
        self.count_out(allocation.residence, allocation.len() as u64);
        let mut quarantine = lock(&self.quarantine);
        quarantine.starts.push_back(allocation.start());
        quarantine.bytes += allocation.len();
        let mut dropped = Vec::new();
        while quarantine.bytes > QUARANTINE_BYTES
            && let Some(start) = quarantine.starts.pop_front()
        {
            if let Some(oldest) = write(&self.allocations).remove(&start) {
                quarantine.bytes -= oldest.len();
                dropped.push(oldest);
            }
        }
        drop(quarantine);
        // Unmapping is slow and needs no lock.
        drop(dropped);
    }

    /// Forgets everything. Returns the allocations that were never freed.
    pub(crate) fn clear(&self) -> Vec<Arc<Allocation>> {
        *lock(&self.quarantine) = Quarantine::default();
        let all = std::mem::take(&mut *write(&self.allocations));
        let peak_bytes = self.tally().peak_bytes;
        *lock(&self.tally) = Tally { peak_bytes, ..Tally::default() };
        all.into_values().filter(|allocation| !lock(&allocation.history).is_freed()).collect()
    }

    pub(crate) fn forget_peak(&self) {
        let mut tally = lock(&self.tally);
        tally.peak_bytes = tally.bytes;
    }

    fn count_in(&self, residence: Residence, len: u64) -> Outcome {
        let mut tally = lock(&self.tally);
        match residence {
            Residence::Device => {
                let bytes = tally.bytes.checked_add(len).ok_or(Code::OUT_OF_MEMORY)?;
                if bytes > self.limit_bytes() {
                    return Err(Code::OUT_OF_MEMORY);
                }
                tally.allocations += 1;
                tally.bytes = bytes;
                tally.peak_bytes = tally.peak_bytes.max(bytes);
            }
            Residence::Pinned => {
                tally.pinned_allocations += 1;
                tally.pinned_bytes += len;
            }
        }
        Ok(())
    }

    fn count_out(&self, residence: Residence, len: u64) {
        let mut tally = lock(&self.tally);
        let (allocations, bytes) = match residence {
            Residence::Device => {
                let Tally { allocations, bytes, .. } = &mut *tally;
                (allocations, bytes)
            }
            Residence::Pinned => {
                let Tally { pinned_allocations, pinned_bytes, .. } = &mut *tally;
                (pinned_allocations, pinned_bytes)
            }
        };
        *allocations = allocations.saturating_sub(1);
        *bytes = bytes.saturating_sub(len);
    }
}

/// Returns the allocation that contains the address, on this device or, because addresses are unified, on any
/// other.
pub(crate) fn find(device: &Device, address: usize) -> Option<Arc<Allocation>> {
    let here = device.memory.find(address);
    here.or_else(|| {
        device::created().filter(|other| other.ordinal != device.ordinal).find_map(|other| other.memory.find(address))
    })
}
