//! A variable's queue: requests to read and to write, granted strictly in the order in which they entered.
//! Neighbouring reads are granted together.
//!
//! A queue is a chain of requests, each linked to the next, as in the fair reader-writer lock of
//! Mellor-Crummey and Scott (PPoPP 1991). No thread spins or locks: a thread that finds a link missing marks
//! the request, and the thread that sets the link does the rest. See README.md in `engine/`.
//!
//! ```text
//!  tail   the last request, or 0
//!  gate   the number of granted reads │ the write that waits for them, or 0
//!  link   of each request: the next one, whether that writes, and GRANTED, HAS_LEFT, WRITES of its own
//! ```

use crate::sync::{AtomicU64, Ordering, fence};

/// The id of a request: the slot of its operation, and its number among the operation's requests. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(u64);

const NUMBER_BITS: u32 = 16;
const ID_BITS: u32 = 40;
const ID: u64 = (1 << ID_BITS) - 1;
/// The most requests of an operation.
pub(crate) const REQUESTS_MAX: usize = 1 << NUMBER_BITS;
/// The most operations that may be pending: as many readers as a gate can count.
pub(crate) const OPERATIONS_MAX: usize = (1 << READER_BITS) - 2;

impl RequestId {
    pub(crate) fn new(operation: u32, number: usize) -> Self {
        debug_assert!((operation as usize) < OPERATIONS_MAX && number < REQUESTS_MAX);
        Self((u64::from(operation) + 1) << NUMBER_BITS | number as u64)
    }

    pub(crate) fn operation(self) -> u32 {
        ((self.0 >> NUMBER_BITS) - 1) as u32
    }

    pub(crate) fn number(self) -> usize {
        self.0 as usize & (REQUESTS_MAX - 1)
    }
}

/// One operation's request for one variable.
pub(crate) struct Request {
    link: AtomicU64,
}

/// The next request writes.
const WRITE_BEHIND: u64 = 1 << ID_BITS;
/// The request reads, and is granted. Not set for writes.
const GRANTED: u64 = 1 << (ID_BITS + 1);
/// The request has left before the next one was linked. The thread that links it releases both.
const HAS_LEFT: u64 = 1 << (ID_BITS + 2);
/// The request writes. Never changes.
const WRITES: u64 = 1 << (ID_BITS + 3);

impl Request {
    #[inline]
    pub(crate) fn new(is_write: bool) -> Self {
        Self { link: AtomicU64::new(if is_write { WRITES } else { 0 }) }
    }

    #[inline]
    pub(crate) fn is_write(&self) -> bool {
        // ORDERING: Relaxed: the bit never changes.
        self.link.load(Ordering::Relaxed) & WRITES != 0
    }

    /// Returns true if it reads, and is granted.
    pub(crate) fn is_granted_read(&self) -> bool {
        // ORDERING: Acquire pairs with `let_in`: an inspection sees, too, that the write ahead has left.
        self.link.load(Ordering::Acquire) & GRANTED != 0
    }

    /// Returns the next request, if it is linked.
    pub(crate) fn behind(&self) -> Option<Link> {
        // ORDERING: Acquire pairs with the Release in `Queue::enter`: the next operation is in its slot.
        let link = self.link.load(Ordering::Acquire);
        some(link & ID).map(|id| Link { id, is_write: link & WRITE_BEHIND != 0 })
    }
}

/// The link to the request behind another.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) id: RequestId,
    pub(crate) is_write: bool,
}

/// The requests of an engine, and the calls when their states change.
pub(crate) trait Requests {
    /// Returns a request that is in a queue.
    fn request(&self, id: RequestId) -> &Request;

    /// Called once when the request is granted.
    fn granted(&mut self, id: RequestId);

    /// Called once when the request has left, and no other thread will use it any more.
    fn done_with(&mut self, id: RequestId);
}

/// The queue of one variable.
#[derive(Default)]
pub(crate) struct Queue {
    tail: AtomicU64,
    gate: AtomicU64,
}

/// At the tail of a queue that is held: no id of a request.
const HELD: u64 = u64::MAX;

const READER_BITS: u32 = 64 - ID_BITS;
const READERS: u64 = (1 << READER_BITS) - 1;

// ORDERING: AcqRel in all read-modify-writes of `tail`, `gate` and `link`: the thread that changes a word
// sees all that the threads before it did. The loads say what they pair with.
impl Queue {
    /// Calls `look` as a reader, if the queue is empty.
    ///
    /// A write that enters meanwhile finds one more reader at the gate, and waits there. A request that
    /// entered before is at the tail; then `look` is not called.
    pub(crate) fn glance<R>(&self, requests: &mut impl Requests, look: impl FnOnce() -> R) -> Option<R> {
        // ORDERING: Release and Acquire pair with `change_gate`: if a write came to the gate before, the load
        // below sees that write at the tail. SeqCst pairs with the fence in `hold`.
        self.gate.fetch_add(1, Ordering::SeqCst);
        // Loom knows no order of SeqCst accesses, but of fences.
        #[cfg(anabranch_loom)]
        fence(Ordering::SeqCst);
        // ORDERING: Acquire pairs with the exchange in `leave`: if the queue is empty, the value of the last
        // write is visible. SeqCst pairs with the fence in `hold`.
        let seen = (self.tail.load(Ordering::SeqCst) == 0).then(look);
        self.go_out(0, requests);
        seen
    }

    /// Holds queues for a write that is not in them. They are empty, and no request enters until
    /// [`Queue::let_go`]. Returns false, and holds none, if a glance goes on at one of them.
    ///
    /// ```text
    ///  tail    gate         event     tail    then
    ///  0       no reader    hold      HELD    the write may begin; a later glance finds the queue in use
    ///  0       readers      hold      0       false
    ///  HELD    any          let go    0
    /// ```
    #[inline]
    pub(crate) fn hold<'q>(queues: impl Iterator<Item = &'q Self> + Clone) -> bool {
        // ORDERING: Relaxed: the fence orders it before the loads of the gates.
        queues.clone().for_each(|queue| queue.tail.store(HELD, Ordering::Relaxed));
        // ORDERING: pairs with the SeqCst accesses in `glance`. Of "hold the tail, load the gate" and "count
        // a reader at the gate, load the tail" one side sees the other.
        fence(Ordering::SeqCst);
        // ORDERING: Acquire pairs with `go_out`: the readers that have left are done.
        let is_free = queues.clone().all(|queue| queue.gate.load(Ordering::Acquire) & READERS == 0);
        if !is_free {
            queues.for_each(Self::let_go);
        }
        is_free
    }

    /// Ends what `hold` began.
    #[inline]
    pub(crate) fn let_go(&self) {
        // ORDERING: Release pairs with the Acquire in `glance`: the value that was written is visible.
        self.tail.store(0, Ordering::Release);
    }

    /// Adds a request at the end. It is granted once, here or later.
    ///
    /// ```text
    ///  tail before   link of the one ahead    this      then
    ///  0             -                        any       comes first
    ///  ahead         HAS_LEFT                 any       releases the one ahead, comes first
    ///  ahead         GRANTED                  reads     is granted
    ///  ahead         GRANTED                  writes    waits: the readers grant it by the gate
    ///  ahead         else                     any       waits: the one ahead grants it
    /// ```
    pub(crate) fn enter(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        let is_write = request.is_write();
        // ORDERING: AcqRel: the swap orders the requests, and the one ahead is in its slot.
        let Some(ahead_id) = some(self.tail.swap(id.0, Ordering::AcqRel)) else { return self.come_first(id, is_write, requests) };
        let behind = if is_write { WRITE_BEHIND } else { 0 };
        // ORDERING: AcqRel: Release pairs with the Acquire in `leave` and `let_in`: this request is in its
        // slot. Acquire pairs with HAS_LEFT: what the request ahead did is visible.
        let seen = requests.request(ahead_id).link.fetch_or(id.0 | behind, Ordering::AcqRel);
        if seen & HAS_LEFT != 0 {
            requests.done_with(ahead_id);
            self.come_first(id, is_write, requests);
        } else if seen & (GRANTED | WRITES) == GRANTED && !is_write {
            self.let_in(id, requests);
        }
    }

    /// Ends a granted request.
    ///
    /// ```text
    ///  link      tail      then
    ///  none      this      tail becomes 0; a read goes out
    ///  none      another   link gets HAS_LEFT; a read goes out; if the link was set meanwhile: the next row
    ///  behind    -         a write grants the next; a read goes out, with the next write if one is behind
    /// ```
    pub(crate) fn leave(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        // ORDERING: Acquire pairs with the Release in `enter`: the next request is in its slot.
        let mut seen = request.link.load(Ordering::Acquire);
        let is_write = seen & WRITES != 0;
        if seen & ID == 0 {
            // ORDERING: AcqRel on success: the next request to enter sees what this one did. Relaxed on
            // failure: the change of the link decides.
            if self.tail.compare_exchange(id.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                requests.done_with(id);
                if !is_write {
                    self.go_out(0, requests);
                }
                return;
            }
            // ORDERING: AcqRel pairs with `enter`: the thread that links the next request sees HAS_LEFT and
            // what this request did; or this thread sees the next request in its slot.
            seen = request.link.fetch_or(HAS_LEFT, Ordering::AcqRel);
        }
        match some(seen & ID) {
            None if is_write => {}
            None => self.go_out(0, requests),
            Some(behind) => {
                requests.done_with(id);
                match (is_write, seen & WRITE_BEHIND != 0) {
                    (true, true) => requests.granted(behind),
                    (true, false) => self.let_in(behind, requests),
                    (false, true) => self.go_out(behind.0, requests),
                    (false, false) => self.go_out(0, requests),
                }
            }
        }
    }

    /// Grants a request that has no request ahead; a write waits if readers are inside.
    ///
    /// ```text
    ///  request    gate before           gate after            then
    ///  reads      n readers             n + 1 readers         the read is granted (see `let_in`)
    ///  writes     no readers            no readers            the write is granted
    ///  writes     n readers             n readers │ write     the write waits
    /// ```
    fn come_first(&self, id: RequestId, is_write: bool, requests: &mut impl Requests) {
        if !is_write {
            return self.let_in(id, requests);
        }
        // A read-modify-write even if nothing changes: a later glance sees this write at the tail.
        let waits = |gate: u64| if gate & READERS == 0 { gate } else { gate + (id.0 << READER_BITS) };
        let before = self.change_gate(waits);
        if before & READERS == 0 {
            requests.granted(id);
        }
    }

    /// Grants a read, and those linked right behind it.
    fn let_in(&self, mut id: RequestId, requests: &mut impl Requests) {
        loop {
            // ORDERING: AcqRel pairs with `change_gate`: the last reader that leaves sees all before it.
            self.gate.fetch_add(1, Ordering::AcqRel);
            // ORDERING: AcqRel pairs with `enter`: this sees the read behind in its slot; or a read that is
            // linked later sees that this one is granted.
            let seen = requests.request(id).link.fetch_or(GRANTED, Ordering::AcqRel);
            requests.granted(id);
            match some(seen & ID) {
                Some(behind) if seen & WRITE_BEHIND == 0 => id = behind,
                _ => return,
            }
        }
    }

    /// Takes a read that leaves off the gate. `writer` is the write behind it, or 0. The last read grants the
    /// write that waits, and does not use the queue after that.
    ///
    /// ```text
    ///  gate before               gate after                     then
    ///  1 reader  │ waiting       0                              the waiting write, or `writer`, is granted
    ///  n readers │ 0             n - 1 readers │ `writer`       `writer` waits, if there is one
    ///  n readers │ waiting       n - 1 readers │ waiting        (`writer` is 0: only one write can wait)
    /// ```
    fn go_out(&self, writer: u64, requests: &mut impl Requests) {
        let change = (writer << READER_BITS).wrapping_sub(1);
        let is_last = |gate: u64| gate & READERS == 1;
        let before = self.change_gate(|gate| if is_last(gate) { 0 } else { gate.wrapping_add(change) });
        if is_last(before)
            && let Some(writer) = some(before.wrapping_add(change) >> READER_BITS)
        {
            requests.granted(writer);
        }
    }

    /// Changes the gate in one step, and returns its old value.
    fn change_gate(&self, change: impl Fn(u64) -> u64) -> u64 {
        // ORDERING: Relaxed: the exchange below checks the value.
        let mut gate = self.gate.load(Ordering::Relaxed);
        loop {
            // ORDERING: AcqRel on success: the thread that grants the write at the gate sees what all readers
            // did. Relaxed on failure: the exchange checks the value again.
            match self.gate.compare_exchange_weak(gate, change(gate), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(found) => gate = found,
            }
        }
    }
}

fn some(id: u64) -> Option<RequestId> {
    (id != 0).then_some(RequestId(id))
}
