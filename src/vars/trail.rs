//! What devices may still be doing to a variable: who wrote it last, and who has read it since.

use std::sync::Arc;

use smallvec::SmallVec;

use super::done::{Done, Fate};
use super::op::Job;
use super::place::How;
use crate::bridge::shielded;
use crate::error::Error;
use crate::sync::{Mutex, OnceLock, lock};

/// A variable's last uses by devices. Nothing, for one that only hosts use.
pub(super) struct Trail(OnceLock<Box<Mutex<Uses>>>);

#[derive(Default)]
struct Uses {
    /// Kept when it is over, too, until the host writes.
    write: Option<Write>,
    /// The newest on each lane.
    reads: SmallVec<[Arc<Done>; 2]>,
}

/// Who had it alone last.
#[derive(Clone)]
struct Write {
    done: Arc<Done>,
    /// None if it has left the variable as it was.
    fate: Option<Fate>,
}

/// What an operation comes after on devices.
pub(super) struct Needs(SmallVec<[Need; 4]>);

/// One of them.
pub(super) struct Need {
    pub(super) done: Arc<Done>,
    /// It wrote what is read: if it fails, so does who reads it.
    pub(super) input: Option<Fate>,
}

impl Trail {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns true if a device has ever used it.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns why the device has not written what it should have, if that is known.
    pub(super) fn failure(&self) -> Option<Error> {
        let uses = lock(self.0.get()?);
        uses.write.as_ref()?.fate.as_ref()?.get().cloned()
    }

    /// Returns true if no device is about to write it.
    #[inline]
    pub(super) fn is_written(&self) -> bool {
        !self.has_begun() || self.find(How::READ, |done, _| (!done.is_over()).then_some(())).is_none()
    }

    /// Calls `each` with what who uses the variable so comes after, until that returns something.
    fn find<R>(&self, how: How, mut each: impl FnMut(&Arc<Done>, Option<&Fate>) -> Option<R>) -> Option<R> {
        let uses = lock(self.0.get()?);
        let found = uses.write.as_ref().and_then(|write| each(&write.done, write.fate.as_ref().filter(|_| how.is_read())));
        let reads = || uses.reads.iter().filter(|_| how.is_alone()).find_map(|read| each(read, None));
        found.or_else(reads)
    }

    /// Notes a use by a device.
    pub(super) fn note(&self, how: How, done: &Arc<Done>, fate: &Fate) {
        let mut uses = lock(self.0.get_or_init(Box::default));
        let old = std::mem::take(&mut *uses);
        if how.is_alone() {
            uses.write = Some(Write { done: done.clone(), fate: how.changes().then(|| fate.clone()) });
        } else {
            // Readers that go in together may be noted in another order than submitted.
            let is_newer = |read: &&Arc<Done>| read.berth == done.berth && read.stamp.point > done.stamp.point;
            let newest = old.reads.iter().find(is_newer).unwrap_or(done);
            let others = old.reads.iter().filter(|read| read.berth != done.berth && !read.is_over());
            uses.reads = others.chain([newest]).cloned().collect();
            uses.write = old.write.clone();
        }
        drop(uses);
        // An error of the user's, perhaps.
        let _ = shielded(|| drop(old));
    }

    /// Forgets all: the host has written, after all of it.
    pub(super) fn clear(&self) {
        if let Some(uses) = self.0.get() {
            let old = std::mem::take(&mut *lock(uses));
            let _ = shielded(|| drop(old));
        }
    }
}

impl Needs {
    /// Returns what an operation comes after that has been granted what it asked for.
    pub(super) fn of(job: &Job) -> Self {
        let mut needs: SmallVec<[Need; 4]> = SmallVec::new();
        for asked in &job.asked {
            // SAFETY: its request stands in the variable's queue.
            let trail = &unsafe { asked.place() }.trail;
            let _ = trail.find(asked.how(), |done, input| {
                match needs.iter_mut().find(|need| Arc::ptr_eq(&need.done, done)) {
                    Some(need) => need.input = need.input.take().or(input.cloned()),
                    None => needs.push(Need { done: done.clone(), input: input.cloned() }),
                }
                None::<()>
            });
        }
        Self(needs)
    }

    /// Returns something that an operation comes after and that is not over.
    pub(super) fn pending(job: &Job) -> Option<Arc<Done>> {
        job.asked.iter().find_map(|asked| {
            // SAFETY: as in `of`.
            let trail = &unsafe { asked.place() }.trail;
            trail.find(asked.how(), |done, _| (!done.is_over()).then(|| done.clone()))
        })
    }

    pub(super) fn list(&self) -> &[Need] {
        &self.0
    }

    /// Drops them. What they hold is foreign, each for itself.
    pub(super) fn let_go(self) {
        self.0.into_iter().for_each(|need| _ = shielded(|| drop(need)));
    }
}
