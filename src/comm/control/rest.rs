//! The worlds that ranks have left, as rank 0 knows: when a communicator can be freed.
//!
//! `MPI_Comm_free` frees the number of a communicator for the next one. A message that no rank has received
//! could then be taken for one of the next world, so the sums of sent and received messages must agree.

use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Rest(BTreeMap<u32, Sum>);

struct Sum {
    ranks: u32,
    sent: u64,
    received: u64,
    is_whole: bool,
}

impl Rest {
    /// Notes that one more of the `size` ranks has left a world, and has no operation in flight there.
    /// Returns whether the communicator can be freed.
    pub(super) fn note(&mut self, world: u32, messages: Option<(u64, u64)>, size: u32) -> bool {
        let sum = self.0.entry(world).or_insert(Sum { ranks: 0, sent: 0, received: 0, is_whole: true });
        sum.ranks += 1;
        match messages {
            Some((sent, received)) => (sum.sent, sum.received) = (sum.sent + sent, sum.received + received),
            None => sum.is_whole = false,
        }
        if sum.ranks < size {
            return false;
        }
        let is_free = sum.is_whole && sum.sent == sum.received;
        self.0.remove(&world);
        is_free
    }
}
