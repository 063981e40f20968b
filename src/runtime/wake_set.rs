//! The wakers of a run's futures, in one allocation. A future that is woken is made ready once: its program
//! gets a ticket in the pool, or its index goes on a stack for the task that polls an inline run.

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Lane, Parking};
use crate::device::host::{Pool, Ticket};
use crate::sync::{AtomicU32, Ordering, fence};

/// "The stack is empty", and "this is its last entry".
const NONE: u32 = u32::MAX;

pub(crate) struct WakeSet {
    futures: Box<[Wakeable]>,
    resumes: Resumes,
    /// The newest index on the stack of an inline run.
    top: AtomicU32,
}

/// How a woken future is made ready.
pub(crate) enum Resumes {
    /// By a worker: the program of the run in this slot gets a ticket.
    Worker { pool: Arc<Pool>, slot: u16 },
    /// By the task that polls an inline run: it is on the stack, and the lane is rung.
    Poll(Arc<Lane>),
}

/// One future, and the data of its wakers.
struct Wakeable {
    /// The set that owns it; set once, in `new`, before any waker exists.
    set: NonNull<WakeSet>,
    index: u32,
    /// The program that is parked at it.
    program: u32,
    parking: Parking,
    /// The index below it on the stack.
    next: AtomicU32,
}

// SAFETY: `set` is only read, and points to the set that owns the future; all else is Send.
unsafe impl Send for Wakeable {}
// SAFETY: `set` is only read, and points to the set that owns the future; all else is Sync.
unsafe impl Sync for Wakeable {}

impl WakeSet {
    /// Returns the set of the futures at which these programs park.
    pub(crate) fn new(programs: impl Iterator<Item = u32>, resumes: Resumes) -> Arc<Self> {
        Arc::new_cyclic(|weak: &std::sync::Weak<Self>| {
            let set = NonNull::new(weak.as_ptr().cast_mut()).expect("an Arc's address is not null");
            let future = |(program, index)| {
                let (parking, next) = (Parking::new(), AtomicU32::new(NONE));
                Wakeable { set, index, program, parking, next }
            };
            Self { futures: programs.zip(0..).map(future).collect(), resumes, top: AtomicU32::new(NONE) }
        })
    }

    pub(crate) fn waker(self: &Arc<Self>, index: u32) -> Waker {
        std::mem::forget(self.clone());
        let future: *const Wakeable = &self.futures[index as usize];
        // SAFETY: the vtable's functions keep RawWaker's contract; the waker owns the count of the set that
        // was forgotten above.
        unsafe { Waker::from_raw(RawWaker::new(future.cast(), &VTABLE)) }
    }

    pub(crate) fn parking(&self, index: u32) -> &Parking {
        &self.futures[index as usize].parking
    }

    pub(crate) fn resume(&self, index: u32) {
        let future = &self.futures[index as usize];
        match &self.resumes {
            Resumes::Worker { pool, slot } => pool.submit(Ticket::new(*slot, future.program, 1)),
            Resumes::Poll(lane) => {
                self.push(future);
                lane.ring();
            }
        }
    }

    /// ```text
    ///  top   push          next of the pushed   top
    ///  NONE  a             NONE                 a
    ///  a     b             a                    b
    /// ```
    fn push(&self, future: &Wakeable) {
        // ORDERING: Relaxed: the exchange below decides.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // ORDERING: Relaxed: the exchange publishes it; a future is on the stack at most once.
            future.next.store(top, Ordering::Relaxed);
            // ORDERING: Release pairs with the Acquire in `take`: it publishes `next` and the reason of the
            // wake.
            match self.top.compare_exchange_weak(top, future.index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }

    /// Returns true if the stack is not empty. A poll asks after it has registered its waker.
    pub(crate) fn has_woken(&self) -> bool {
        // ORDERING: pairs with the fence in `Lane::ring`: of "push, ring" and "register, load" one side sees
        // the other.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: the fence orders it.
        self.top.load(Ordering::Relaxed) != NONE
    }

    /// Empties the stack. Calls `each` with the programs on it, the newest first.
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        // ORDERING: Acquire pairs with the Release in `push`.
        let mut index = self.top.swap(NONE, Ordering::Acquire);
        while index != NONE {
            let future = &self.futures[index as usize];
            // ORDERING: Relaxed: the swap has acquired it, and it changes only when the future parks again.
            index = future.next.load(Ordering::Relaxed);
            each(future.program);
        }
    }
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// Returns the future and the set behind a waker's data pointer.
///
/// # Safety
/// `data` comes from [`WakeSet::waker`], and the caller has a count of the set.
unsafe fn future<'a>(data: *const ()) -> (&'a Wakeable, *const WakeSet) {
    // SAFETY: the caller's count keeps the set, and so its futures, alive.
    let future = unsafe { &*data.cast::<Wakeable>() };
    (future, future.set.as_ptr())
}

/// # Safety
/// `data` is of a waker that lives meanwhile.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned has a count of the set.
    let (_, set) = unsafe { future(data) };
    // SAFETY: `set` came from an Arc, which the cloned waker's count keeps alive.
    unsafe { Arc::increment_strong_count(set) };
    RawWaker::new(data, &VTABLE)
}

/// # Safety
/// `data` is of a waker that this uses up.
unsafe fn wake(data: *const ()) {
    // SAFETY: the waker that is used up has a count of the set until the next line.
    unsafe { wake_by_ref(data) };
    // SAFETY: the waker that is used up has a count of the set, and gives it up here.
    unsafe { drop_waker(data) };
}

/// # Safety
/// `data` is of a waker that lives meanwhile.
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker has a count of the set.
    let (future, set) = unsafe { future(data) };
    if future.parking.wake() {
        // SAFETY: the waker's count keeps the set alive.
        unsafe { &*set }.resume(future.index);
    }
}

/// # Safety
/// `data` is of a waker that this uses up.
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker has a count of the set.
    let (_, set) = unsafe { future(data) };
    // SAFETY: the dropped waker's count is given up here, and `set` is not used again.
    unsafe { Arc::decrement_strong_count(set) };
}
