//! Dropped memory, and the points that must pass before it can be freed.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

use super::host_memory::HostBlock;
use super::lane::CudaLane;
use crate::device::queue::Timeline;

/// A point on a stream. The number of the stream's lane comes first.
pub(super) type Point = (u32, u64);

/// A point on a lane of another device. The host will be told when it passes.
pub(super) struct Visit {
    pub(super) lane: Arc<CudaLane>,
    pub(super) point: u64,
}

/// Dropped memory. It is kept until no queued work uses it.
pub(super) struct Dropped {
    pub(super) what: Memories,
    pub(super) uses: SmallVec<[Point; 2]>,
    pub(super) visits: Vec<Visit>,
}

pub(super) enum Memories {
    /// Its address, and its size in bytes.
    Device(CUdeviceptr, usize),
    Host(HostBlock),
}

impl Dropped {
    /// Returns memory of the host.
    pub(super) fn host(block: HostBlock, uses: &[Point]) -> Self {
        Self { what: Memories::Host(block), uses: SmallVec::from_slice(uses), visits: Vec::new() }
    }

    /// Returns true if all work of other devices that uses the memory has ended.
    pub(super) fn is_left(&self) -> bool {
        have_ended(&self.visits)
    }
}

/// Returns true if these uses by other devices have ended.
pub(super) fn have_ended(visits: &[Visit]) -> bool {
    visits.iter().all(|visit| visit.lane.reached() >= visit.point)
}
