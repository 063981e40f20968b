//! An operation's closure with its type erased: in place if it is small, so that it needs no memory of its
//! own, else in a box.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::kernel::Enqueue;
use super::later::{Later, Rest};
use super::op::Job;
use crate::error::BoxError;
use crate::runtime::AsyncContext;

/// What an operation does.
pub(super) trait Work: Send + 'static {
    /// # Safety
    /// The operation has been granted all that it asked for, and has not ended.
    unsafe fn run(self) -> Result<Ran, BoxError>;
}

/// What came of running a work.
pub(super) enum Ran {
    Over,
    /// A future is left of it.
    Later(Rest, AsyncContext),
    /// The future waits for something.
    Parked(Arc<Later>),
    /// It is these operations, one after the other.
    Parts(Vec<Job>),
    /// It is a kernel, and is to be given a stream of a device.
    Enqueue(Box<dyn Enqueue>),
}

/// Does nothing.
pub(super) struct Nothing;

impl Work for Nothing {
    unsafe fn run(self) -> Result<Ran, BoxError> {
        Ok(Ran::Over)
    }
}

/// How much fits in place.
const WORDS: usize = 4;

type Space = MaybeUninit<[usize; WORDS]>;

/// A [`Work`] of any type.
pub(super) struct Body {
    space: Space,
    acts: &'static Acts,
}

/// What can be done with one type of work.
struct Acts {
    run: unsafe fn(*mut Space) -> Result<Ran, BoxError>,
    /// None if there is nothing to drop.
    drop: Option<unsafe fn(*mut Space)>,
}

// SAFETY: a work is Send, and nobody gets a reference to one.
unsafe impl Send for Body {}
// SAFETY: as above.
unsafe impl Sync for Body {}

impl Body {
    #[inline]
    pub(super) fn new<W: Work>(work: W) -> Self {
        let mut space = Space::uninit();
        if Of::<W>::IS_IN_PLACE {
            // SAFETY: it fits.
            unsafe { space.as_mut_ptr().cast::<W>().write(work) };
        } else {
            // SAFETY: a box fits.
            unsafe { space.as_mut_ptr().cast::<Box<W>>().write(Box::new(work)) };
        }
        Self { space, acts: &Of::<W>::ACTS }
    }

    /// Does it, in its place; after that there is nothing to do.
    ///
    /// # Safety
    /// As [`Work::run`].
    #[inline(always)]
    pub(super) unsafe fn run(&mut self) -> Result<Ran, BoxError> {
        let acts = std::mem::replace(&mut self.acts, &Of::<Nothing>::ACTS);
        // SAFETY: made for what lies there, which is used up.
        unsafe { (acts.run)(&raw mut self.space) }
    }

    pub(super) fn needs_drop(&self) -> bool {
        self.acts.drop.is_some()
    }

    /// Drops it undone.
    pub(super) fn forgo(&mut self) {
        let acts = std::mem::replace(&mut self.acts, &Of::<Nothing>::ACTS);
        if let Some(drop) = acts.drop {
            // SAFETY: made for what lies there, which is used up.
            unsafe { drop(&raw mut self.space) }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(drop) = self.acts.drop {
            // SAFETY: made for what lies there, which nobody uses again.
            unsafe { drop(&raw mut self.space) }
        }
    }
}

/// What is known of a type of work.
struct Of<W>(PhantomData<W>);

impl<W: Work> Of<W> {
    const IS_IN_PLACE: bool = size_of::<W>() <= size_of::<Space>() && align_of::<W>() <= align_of::<Space>();
    const ACTS: Acts = Acts { run: run::<W>, drop: if Self::HAS_DROP { Some(drop_in_place::<W>) } else { None } };
    const HAS_DROP: bool = std::mem::needs_drop::<W>() || !Self::IS_IN_PLACE;
}

/// # Safety
/// A `W` or a box of one lies there, is not used again, and may be run.
unsafe fn run<W: Work>(space: *mut Space) -> Result<Ran, BoxError> {
    // SAFETY: by the caller's promise.
    let work = unsafe { take::<W>(space) };
    // SAFETY: as above.
    unsafe { work.run() }
}

/// # Safety
/// A `W` or a box of one lies there, and is not used again.
unsafe fn drop_in_place<W: Work>(space: *mut Space) {
    // SAFETY: by the caller's promise.
    drop(unsafe { take::<W>(space) });
}

/// # Safety
/// As `drop_in_place`.
unsafe fn take<W: Work>(space: *mut Space) -> W {
    if Of::<W>::IS_IN_PLACE {
        // SAFETY: by the caller's promise.
        return unsafe { space.cast::<W>().read() };
    }
    // SAFETY: by the caller's promise.
    *unsafe { space.cast::<Box<W>>().read() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Add<const N: usize>(Arc<AtomicU64>, [u64; N]);

    impl<const N: usize> Work for Add<N> {
        unsafe fn run(self) -> Result<Ran, BoxError> {
            self.0.fetch_add(self.1.iter().sum(), Ordering::Relaxed);
            Ok(Ran::Over)
        }
    }

    /// Seen to fail (a leak) with a `run` that copies what it runs, and with a `forgo` that drops nothing.
    #[test]
    fn small_and_large_ones_are_run_or_dropped_once() {
        let total = Arc::new(AtomicU64::new(0));
        for fate in ["run", "forgo", "drop"] {
            let bodies = [
                Body::new(Add(total.clone(), [1])),
                Body::new(Add(total.clone(), [2; 3])),
                Body::new(Add(total.clone(), [3; 4])),
                Body::new(Add(total.clone(), [4; 100])),
            ];
            for mut body in bodies {
                assert!(body.needs_drop());
                match fate {
                    // SAFETY: it asks for nothing.
                    "run" => drop(unsafe { body.run() }.expect("it cannot fail")),
                    "forgo" => body.forgo(),
                    _ => continue,
                }
                assert!(!body.needs_drop());
            }
            assert_eq!((total.load(Ordering::Relaxed), Arc::strong_count(&total)), (1 + 6 + 12 + 400, 1));
        }
    }
}
