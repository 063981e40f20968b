//! The shadow of a block of memory: its last writes and the reads since, by bytes.

use std::ops::Range;
use std::sync::Arc;

use super::clock::{Clock, Epoch};
use super::sanitizer::Sanitizer;
use crate::error::{How, Race, Site, Use};
use crate::sync::{Mutex, lock};

pub(in crate::device) struct Shadow {
    sanitizer: Arc<Sanitizer>,
    size: usize,
    accesses: Mutex<Accesses>,
}

#[derive(Default)]
struct Accesses {
    made_by: Option<Arc<Site>>,
    all: Vec<Access>,
}

#[derive(Clone)]
struct Access {
    epoch: Epoch,
    bytes: Range<usize>,
    used: Use,
}

impl Shadow {
    pub(in crate::device) fn new(sanitizer: &Arc<Sanitizer>, size: usize) -> Arc<Self> {
        Arc::new(Self { sanitizer: sanitizer.clone(), size, accesses: Mutex::default() })
    }

    /// Whether this sanitizer orders the work that the memory belongs to.
    pub(in crate::device) fn is_of(&self, sanitizer: &Arc<Sanitizer>) -> bool {
        Arc::ptr_eq(&self.sanitizer, sanitizer)
    }

    /// Records a use, whose clock includes its own epoch. Returns the first earlier use that is not ordered
    /// before it.
    pub(in crate::device) fn note(&self, bytes: Range<usize>, used: Use, epoch: Epoch, clock: &Clock) -> Option<Race> {
        if bytes.is_empty() {
            return None;
        }
        let mut accesses = lock(&self.accesses);
        if used.how == How::Allocates {
            accesses.made_by = Some(used.site.clone());
        }
        let clashes = |earlier: &&Access| {
            let is_read = earlier.used.how == How::Reads && used.how == How::Reads;
            !is_read && overlap(&earlier.bytes, &bytes).is_some() && !clock.knows(earlier.epoch)
        };
        let race = accesses.all.iter().find(clashes).map(|earlier| Race {
            earlier: earlier.used.clone(),
            later: used.clone(),
            made_by: accesses.made_by.as_ref().map(|site| site.node.clone()),
            size: self.size,
            bytes: overlap(&earlier.bytes, &bytes).expect("they overlap"),
        });
        accesses.add(Access { epoch, bytes, used }, clock);
        race
    }
}

impl Accesses {
    /// Adds an access and removes those that it makes redundant: work ordered after it is ordered after them,
    /// too. A write is ordered after all other accesses, or they were reported.
    fn add(&mut self, new: Access, clock: &Clock) {
        let (is_write, mut all) = (new.used.how != How::Reads, Vec::with_capacity(self.all.len() + 1));
        for old in self.all.drain(..) {
            let is_replaced = is_write || old.used.how == How::Reads && clock.knows(old.epoch);
            if !is_replaced || overlap(&old.bytes, &new.bytes).is_none() {
                all.push(old);
                continue;
            }
            let (before, after) = (old.bytes.start..new.bytes.start, new.bytes.end..old.bytes.end);
            let left = [before, after].into_iter().filter(|bytes| !bytes.is_empty());
            all.extend(left.map(|bytes| Access { bytes, ..old.clone() }));
        }
        all.push(new);
        self.all = all;
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}
