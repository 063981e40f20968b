//! Exchanges of two ranks: each sends, and receives what the other one sends. MPI's own collectives take up
//! to three times as long between two ranks.
//!
//! A message says its length, and one that is never received does no harm. So it does not matter if the other
//! rank has begun something else: the comparison finds that.

use std::ffi::c_int;
use std::sync::Arc;

use super::calls::{Calls, Handle, Memory};
use super::comm::{Comm, count_message};
use super::path::{Buffers, LandingOf, Probe, Step};
use super::progress::{Progress, Request};

/// The tags of these messages, on the communicator of the comparisons, which has no others.
pub(super) const COMPARISONS: c_int = 0;
pub(super) const VALUES: c_int = 1;

/// Sends memory to a rank, and receives from it. Exchanges of the same tag are begun in the same order on
/// both ranks.
///
/// # Safety
/// The buffers keep the memory.
pub(super) unsafe fn exchange<H: Handle>(
    progress: &Arc<Progress<H>>,
    kept: &Arc<Comm<H>>,
    (peer, tag): (u32, c_int),
    (from, buffers): (Memory, Buffers),
    landing: LandingOf,
) -> Request<H> {
    count_message(&kept.sent);
    count_message(&kept.received);
    let comm = kept.comparisons();
    let start = move |calls: &Calls<H>, _: &mut Buffers| {
        // SAFETY: the caller promises it.
        let sent = unsafe { calls.send(from, peer, tag, comm) }?;
        Ok(Step::Probe(Probe { from: peer, tag, comm, landing, is_matched: None, beside: Some(sent) }))
    };
    progress.request(Box::new(start), buffers.on(kept.clone()))
}
