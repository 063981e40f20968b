//! The channel on which ranks compare collectives: two communicators apart from that of the operations, one
//! for the comparisons, and one for the reports after a comparison that has found a difference.
//!
//! Two ranks exchange frames: the number of each, and the value if that is small. Few ranks gather frames of
//! one size. Many reduce the numbers.

use std::sync::Arc;

use super::calls::{Called, Calls, Handle, Memory};
use super::comm::Comm;
use super::engine::Lists;
use super::pair::{COMPARISONS, exchange};
use super::path::{Buffers, LandingOf, Step};
use super::progress::{Progress, Request};
use crate::comm::control::Waits;
use crate::comm::engine::{Answer, CheckFuture, Checks};
use crate::comm::native::{Element, Operation};
use crate::comm::op::{OpFault, Place};
use crate::comm::wire::Wire;

pub(super) struct Channel<H: Handle> {
    pub(super) progress: Arc<Progress<H>>,
    pub(super) comm: Arc<Comm<H>>,
    pub(super) waits: Arc<Waits>,
    pub(super) place: Place,
}

/// The most ranks whose comparisons carry bytes. Among few ranks, a gather of few bytes takes no longer than
/// a reduction; it takes longer with more ranks.
const CARRYING_MAX: u32 = 16;

/// What a rank gives to a comparison that carries bytes: a number, and the bytes.
const FRAME: usize = 64;
/// The largest frame of two ranks. MPI sends larger ones less fast: they have to be asked for. And bytes that
/// are carried are copied four times.
const FRAME_OF_TWO: usize = 2048;

impl<H: Handle> Checks for Channel<H> {
    fn room(&self) -> usize {
        match self.place.size {
            2 => FRAME_OF_TWO - 8,
            ..=CARRYING_MAX => FRAME - 8,
            _ => 0,
        }
    }

    fn compare(&self, number: u64, carried: &[u8]) -> CheckFuture<Answer> {
        if let Err(ended) = self.progress.path.check_open() {
            return Box::pin(async move { Err(ended.into()) });
        }
        match self.place.size {
            2 => self.exchange_frames(number, carried),
            ..=CARRYING_MAX => self.gather_frames(number, carried),
            _ => self.reduce_numbers(number),
        }
    }

    fn gather(&self, bytes: Vec<u8>) -> CheckFuture<Vec<Vec<u8>>> {
        let (progress, size, kept) = (self.progress.clone(), self.place.size as usize, self.comm.clone());
        Box::pin(async move {
            let comm = kept.reports();
            let counts = gather_counts(&progress, &kept, bytes.len(), size).await?;
            let lists = Lists::new(counts)?;
            let (mut gathered, at) = (vec![0; lists.total], lists.memory());
            let (from, into) = (Memory::to_read(&bytes), Memory::of(&mut gathered));
            // SAFETY: the request keeps the memory and the lists.
            let start = move |calls: &Calls<H>| unsafe { calls.all_gather_parts(from, into, at, comm) };
            let request = request(&progress, &kept, (bytes, lists, gathered), start);
            let (_, lists, gathered) = request.await?.others::<(Vec<u8>, Lists, Vec<u8>)>();
            let mut rest = &gathered[..];
            let mut split = |count: usize| rest.split_off(..count).unwrap_or_default().to_vec();
            Ok(lists.counts.iter().map(|&count| split(count as usize)).collect())
        })
    }
}

impl<H: Handle> Channel<H> {
    fn exchange_frames(&self, number: u64, carried: &[u8]) -> CheckFuture<Answer> {
        let rank = self.place.rank;
        let frame = [&number.to_le_bytes(), carried].concat();
        let from = Memory::to_read(&frame);
        let landing: LandingOf = Box::new(|bytes| <Vec<u8> as Wire>::landing(bytes, None));
        let wait = self.waits.collective();
        let (to, given) = ((1 - rank, COMPARISONS), (from, Buffers::of(frame, 0)));
        // SAFETY: the buffers keep the frame.
        let exchanged = unsafe { exchange(&self.progress, &self.comm, to, given, landing) };
        Box::pin(async move {
            let mut other: Vec<u8> = *exchanged.await?.value()?.downcast().expect("it was received as this");
            drop(wait);
            if other.get(..8) != Some(&number.to_le_bytes()) {
                return Ok(Answer::Different);
            }
            other.drain(..8);
            Ok(Answer::Same(if rank == 0 { vec![Vec::new(), other] } else { vec![other, Vec::new()] }))
        })
    }

    fn gather_frames(&self, number: u64, carried: &[u8]) -> CheckFuture<Answer> {
        let (mut own, count) = (vec![0_u8; FRAME], carried.len());
        own[..8].copy_from_slice(&number.to_le_bytes());
        own[8..8 + count].copy_from_slice(carried);
        let mut frames = vec![0_u8; FRAME * self.place.size as usize];
        let (from, into, comm) = (Memory::to_read(&own), Memory::of(&mut frames), self.comm.comparisons());
        // All ranks begin the comparisons in the same order, and so number them in the same way.
        let wait = self.waits.collective();
        // SAFETY: the request keeps both.
        let start = move |calls: &Calls<H>| unsafe { calls.all_gather(from, into, comm) };
        let request = request(&self.progress, &self.comm, (own, frames), start);
        Box::pin(async move {
            let (own, frames) = request.await?.others::<(Vec<u8>, Vec<u8>)>();
            drop(wait);
            if frames.chunks_exact(FRAME).any(|frame| frame[..8] != own[..8]) {
                return Ok(Answer::Different);
            }
            let carried = frames.chunks_exact(FRAME).map(|frame| frame[8..8 + count].to_vec());
            Ok(Answer::Same(carried.collect()))
        })
    }

    /// Finds the largest of the numbers and the largest of their complements, which is that of the smallest
    /// number: 16 bytes, whatever the number of ranks is.
    fn reduce_numbers(&self, number: u64) -> CheckFuture<Answer> {
        let (own, mut largest) = (vec![number, !number], vec![0_u64; 2]);
        let from = Memory::to_read(bytemuck::cast_slice(&own));
        let into = Memory::of(bytemuck::cast_slice_mut(&mut largest));
        let (comm, reduction) = (self.comm.comparisons(), (Element::U64, Operation::Max));
        let wait = self.waits.collective();
        // SAFETY: the request keeps both.
        let start = move |calls: &Calls<H>| unsafe { calls.all_reduce(from, into, reduction, comm) };
        let request = request(&self.progress, &self.comm, (own, largest), start);
        Box::pin(async move {
            let (_, largest) = request.await?.others::<(Vec<u64>, Vec<u64>)>();
            drop(wait);
            Ok(if largest[0] == !largest[1] { Answer::Same(Vec::new()) } else { Answer::Different })
        })
    }
}

/// Starts a request that keeps its memory and its communicator.
fn request<H: Handle>(
    progress: &Arc<Progress<H>>,
    comm: &Arc<Comm<H>>,
    memory: impl Send + 'static,
    start: impl FnOnce(&Calls<H>) -> Called<H> + Send + 'static,
) -> Request<H> {
    let buffers = Buffers::of(memory, 0).on(comm.clone());
    progress.request(Box::new(move |calls, _| Ok(Step::Request(start(calls)?))), buffers)
}

/// Returns the number of bytes that each rank gives.
async fn gather_counts<H: Handle>(
    progress: &Arc<Progress<H>>,
    kept: &Arc<Comm<H>>,
    bytes: usize,
    size: usize,
) -> Result<Vec<std::ffi::c_int>, OpFault> {
    let comm = kept.reports();
    let (own, mut counts) = (vec![super::calls::count(bytes)?], vec![0; size]);
    let (from, into) = (Memory::to_read(bytemuck::cast_slice(&own)), Memory::of(bytemuck::cast_slice_mut(&mut counts)));
    // SAFETY: the request keeps both.
    let start = move |calls: &Calls<H>| unsafe { calls.all_gather(from, into, comm) };
    let request = request(progress, kept, (own, counts), start);
    let (_, counts) = request.await?.others::<(Vec<std::ffi::c_int>, Vec<std::ffi::c_int>)>();
    Ok(counts)
}
