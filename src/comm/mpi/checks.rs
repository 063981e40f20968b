//! The channel on which ranks compare collectives: two communicators apart from that of the operations, one
//! for the comparisons, and one for the reports after a comparison that has found a difference.

use std::sync::Arc;

use super::calls::{Calls, Handle, Memory};
use super::engine::Lists;
use super::path::{Buffers, Step};
use super::progress::{Progress, Request};
use crate::comm::engine::{CheckFuture, Checks};
use crate::comm::native::{Element, Operation};
use crate::comm::op::OpFault;

pub(super) struct Channel<H> {
    pub(super) progress: Arc<Progress<H>>,
    pub(super) size: u32,
    pub(super) comparisons: H,
    pub(super) reports: H,
}

impl<H: Handle> Checks for Channel<H> {
    /// The largest of the numbers and the largest of their complements, which is that of the smallest number:
    /// 16 bytes, whatever the number of ranks is.
    fn compare(&self, number: u64) -> CheckFuture<bool> {
        let (own, mut largest) = (vec![number, !number], vec![0_u64; 2]);
        let from = Memory::to_read(bytemuck::cast_slice(&own));
        let into = Memory::of(bytemuck::cast_slice_mut(&mut largest));
        let (comm, reduction) = (self.comparisons, (Element::U64, Operation::Max));
        // SAFETY: the buffers keep both.
        let start = move |calls: &Calls<H>| unsafe { calls.all_reduce(from, into, reduction, comm) };
        let buffers = Buffers::of((own, largest), 0);
        let request = self.progress.request(Box::new(move |calls, _| Ok(Step::Request(start(calls)?))), buffers);
        Box::pin(async move {
            let (_, largest) = request.await?.others::<(Vec<u64>, Vec<u64>)>();
            Ok(largest[0] == !largest[1])
        })
    }

    fn gather(&self, bytes: Vec<u8>) -> CheckFuture<Vec<Vec<u8>>> {
        let (progress, size, comm) = (self.progress.clone(), self.size as usize, self.reports);
        Box::pin(async move {
            let counts = gather_counts(&progress, comm, bytes.len(), size).await?;
            let lists = Lists::new(counts)?;
            let (mut gathered, at) = (vec![0; lists.total], lists.memory());
            let (from, into) = (Memory::to_read(&bytes), Memory::of(&mut gathered));
            // SAFETY: the buffers keep the memory and the lists.
            let start = move |calls: &Calls<H>| unsafe { calls.all_gather_parts(from, into, at, comm) };
            let buffers = Buffers::of((bytes, lists, gathered), 0);
            let request = progress.request(Box::new(move |calls, _| Ok(Step::Request(start(calls)?))), buffers);
            let (_, lists, gathered) = request.await?.others::<(Vec<u8>, Lists, Vec<u8>)>();
            let mut rest = &gathered[..];
            let mut split = |count: usize| rest.split_off(..count).unwrap_or_default().to_vec();
            Ok(lists.counts.iter().map(|&count| split(count as usize)).collect())
        })
    }
}

/// Returns the number of bytes that each rank gives.
async fn gather_counts<H: Handle>(
    progress: &Arc<Progress<H>>,
    comm: H,
    bytes: usize,
    size: usize,
) -> Result<Vec<std::ffi::c_int>, OpFault> {
    let (own, mut counts) = (vec![super::calls::count(bytes)?], vec![0; size]);
    let (from, into) = (Memory::to_read(bytemuck::cast_slice(&own)), Memory::of(bytemuck::cast_slice_mut(&mut counts)));
    // SAFETY: the buffers keep both.
    let start = move |calls: &Calls<H>| unsafe { calls.all_gather(from, into, comm) };
    let buffers = Buffers::of((own, counts), 0);
    let request: Request<H> = progress.request(Box::new(move |calls, _| Ok(Step::Request(start(calls)?))), buffers);
    let (_, counts) = request.await?.others::<(Vec<std::ffi::c_int>, Vec<std::ffi::c_int>)>();
    Ok(counts)
}
