//! In debug builds: which memory the running batches use. Two of them that use the same memory, one to write
//! it, are a defect of the library, and panic.

use crate::sync::{Mutex, lock};

/// The claims of all running batches.
#[derive(Default)]
pub(super) struct Claims(Mutex<Running>);

#[derive(Default)]
struct Running {
    claims: Vec<Claim>,
    last: u64,
}

/// Some memory that a batch uses.
struct Claim {
    batch: u64,
    addresses: std::ops::Range<usize>,
    is_written: bool,
}

/// Ends the claims of a batch when it is dropped.
pub(super) struct Claimed<'r> {
    of: &'r Claims,
    batch: u64,
}

impl Claims {
    /// Claims memory for a batch: addresses, and whether they are written.
    pub(super) fn claim(&self, memory: Vec<(std::ops::Range<usize>, bool)>) -> Claimed<'_> {
        let mut running = lock(&self.0);
        running.last += 1;
        let batch = running.last;
        for (addresses, is_written) in &memory {
            let clash = running.claims.iter().find(|claim| {
                let is_both = claim.addresses.start < addresses.end && addresses.start < claim.addresses.end;
                is_both && (claim.is_written || *is_written)
            });
            assert!(clash.is_none(), "two batches use the same memory at the same time: please report this");
        }
        running.claims.extend(memory.into_iter().map(|(addresses, is_written)| Claim { batch, addresses, is_written }));
        Claimed { of: self, batch }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        lock(&self.of.0).claims.retain(|claim| claim.batch != self.batch);
    }
}
