//! Which of a run's futures were woken: wakers for many futures in one allocation, and a stack of those that
//! rang. A future is on the stack at most once; whoever pops it polls it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::Lane;
use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// "The stack is empty", and "this is its last entry".
const NONE: u32 = u32::MAX;

/// The wake flags of `n` futures that one task polls.
pub(crate) struct WakeSet {
    /// The index of the future that rang last.
    top: AtomicU32,
    bells: Box<[Bell]>,
    /// Rung whenever a future is pushed, so that someone polls.
    lane: Arc<Lane>,
}

/// One future's flag, and the data pointer of its waker.
struct Bell {
    /// The set that owns this bell; set once, in `new`, before any waker exists.
    set: NonNull<WakeSet>,
    index: u32,
    is_rung: AtomicBool,
    /// Whether the future is to be made when it is popped next. A waker of an earlier one may ring before
    /// there is another.
    is_due: AtomicBool,
    next: AtomicU32,
}

// SAFETY: `set` is only read, and points to the set that owns the bell.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl WakeSet {
    pub(crate) fn new(futures: usize, lane: Arc<Lane>) -> Arc<Self> {
        Arc::new_cyclic(|weak: &std::sync::Weak<Self>| {
            let set = NonNull::new(weak.as_ptr().cast_mut()).expect("an Arc's address is not null");
            let bell = |index| Bell {
                set,
                index,
                is_rung: AtomicBool::new(false),
                is_due: AtomicBool::new(false),
                next: AtomicU32::new(NONE),
            };
            Self { top: AtomicU32::new(NONE), bells: (0..futures as u32).map(bell).collect(), lane }
        })
    }

    /// Returns a waker that puts future `index` on the stack and rings the lane.
    pub(crate) fn waker(self: &Arc<Self>, index: u32) -> Waker {
        std::mem::forget(self.clone());
        let bell: *const Bell = &self.bells[index as usize];
        // SAFETY: the vtable's functions keep RawWaker's contract; the waker owns the count that was
        // forgotten above.
        unsafe { Waker::from_raw(RawWaker::new(bell.cast(), &VTABLE)) }
    }

    /// Says that there is to be a future number `index`, and wakes it.
    pub(crate) fn begin(&self, index: u32) {
        // ORDERING: Release: whoever takes note of it sees what led to it, whoever's wake brought him here. A
        // swap, because loom does not see that a store comes after the swap of a poll that was too early.
        self.bells[index as usize].is_due.swap(true, Ordering::Release);
        self.wake(index);
    }

    /// Returns true once for each [`WakeSet::begin`].
    pub(crate) fn is_begun(&self, index: u32) -> bool {
        // ORDERING: Acquire pairs with the Release in `begin`.
        self.bells[index as usize].is_due.swap(false, Ordering::Acquire)
    }

    /// Puts future `index` on the stack, unless it is there, and rings the lane.
    pub(crate) fn wake(&self, index: u32) {
        let bell = &self.bells[index as usize];
        // ORDERING: AcqRel, so that what was done before this wake is seen by the poll that an earlier wake
        // causes.
        if bell.is_rung.swap(true, Ordering::AcqRel) {
            return;
        }
        // ORDERING: Relaxed, as `next`: the exchange below publishes.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            bell.next.store(top, Ordering::Relaxed);
            // ORDERING: Release publishes `next` and what led to the wake to the Acquire in `pop_all`.
            match self.top.compare_exchange_weak(top, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => top = found,
            }
        }
        self.lane.ring();
    }

    /// Returns true if some future was woken. A poll asks after it registered its waker.
    pub(crate) fn has_woken(&self) -> bool {
        // ORDERING: pairs with the fence in `Lane::ring`: of "push, ring" and "register, ask" one side sees
        // the other.
        fence(Ordering::SeqCst);
        self.top.load(Ordering::Relaxed) != NONE
    }

    /// Takes all woken futures off the stack, and gives each to `poll`. A future that is woken meanwhile is
    /// pushed again.
    pub(crate) fn pop_all(&self, mut poll: impl FnMut(u32)) {
        let mut woken = self.take();
        while let Some(index) = self.pop(&mut woken) {
            poll(index);
        }
    }

    /// Takes all woken futures off the stack.
    pub(crate) fn take(&self) -> Woken {
        // ORDERING: Acquire pairs with the Release in `wake`.
        Woken(self.top.swap(NONE, Ordering::Acquire))
    }

    /// Returns the next of those that were taken. If it is woken from here on, it is pushed again.
    pub(crate) fn pop(&self, woken: &mut Woken) -> Option<u32> {
        let index = woken.0;
        if index == NONE {
            return None;
        }
        let bell = &self.bells[index as usize];
        // ORDERING: Relaxed: it does not change until the flag is cleared; `take` has acquired it.
        woken.0 = bell.next.load(Ordering::Relaxed);
        // ORDERING: a swap and AcqRel, to see what was done before a wake that found the flag still set; from
        // here on a wake pushes again.
        bell.is_rung.swap(false, Ordering::AcqRel);
        Some(index)
    }
}

/// Woken futures that were taken off the stack and not polled yet.
pub(crate) struct Woken(u32);

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == NONE
    }
}

impl Default for Woken {
    fn default() -> Self {
        Self(NONE)
    }
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// Returns the bell and the set behind a waker's data pointer.
///
/// # Safety
/// `data` comes from [`WakeSet::waker`], and the caller has a count of the set.
unsafe fn bell<'a>(data: *const ()) -> (&'a Bell, *const WakeSet) {
    // SAFETY: the waker's count keeps the set, and so its bells, alive.
    let bell = unsafe { &*data.cast::<Bell>() };
    (bell, bell.set.as_ptr())
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned has a count.
    let (_, set) = unsafe { bell(data) };
    // SAFETY: `set` came from an Arc that is alive.
    unsafe { Arc::increment_strong_count(set) };
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker that is used up has a count.
    unsafe { wake_by_ref(data) };
    // SAFETY: and gives it up.
    unsafe { drop_waker(data) };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker has a count.
    let (bell, set) = unsafe { bell(data) };
    // SAFETY: as above.
    unsafe { &*set }.wake(bell.index);
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker has a count.
    let (_, set) = unsafe { bell(data) };
    // SAFETY: it is given up here.
    unsafe { Arc::decrement_strong_count(set) };
}
