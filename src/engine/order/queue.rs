//! A variable's queue: requests to read and to write, granted strictly in the order in which they entered.
//! Neighbouring reads are granted together.
//!
//! A queue is a chain of requests, each of which is linked to the next, as in the fair reader-writer lock of
//! Mellor-Crummey and Scott (PPoPP 1991). No thread spins or locks: a thread that finds a link missing marks
//! the request, and the thread that sets the link does the rest. See README.md in `engine/`.
//!
//! ```text
//!  tail   the last request, or 0
//!  gate   the number of granted reads │ the write that waits for them, or 0
//!  link   of each request: the next one, whether that writes, and GRANTED, LEFT, WRITES of its own
//! ```

use crate::sync::{AtomicU64, Ordering};

/// A request: the slot of its operation, and its number among that operation's; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(u64);

const NUMBER_BITS: u32 = 16;
const ID_BITS: u32 = 40;
const ID: u64 = (1 << ID_BITS) - 1;
/// The most requests of an operation.
pub(crate) const REQUESTS_MAX: usize = 1 << NUMBER_BITS;
/// The most operations at once: as many readers as a gate can count.
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
const LEFT: u64 = 1 << (ID_BITS + 2);
/// The request writes. Never changes.
const WRITES: u64 = 1 << (ID_BITS + 3);

impl Request {
    #[inline]
    pub(crate) fn new(is_write: bool) -> Self {
        Self { link: AtomicU64::new(if is_write { WRITES } else { 0 }) }
    }

    pub(crate) fn is_write(&self) -> bool {
        // ORDERING: Relaxed: the bit never changes.
        self.link.load(Ordering::Relaxed) & WRITES != 0
    }

    /// Returns true if it reads, and is granted.
    pub(crate) fn is_granted_read(&self) -> bool {
        // ORDERING: Relaxed: a snapshot.
        self.link.load(Ordering::Relaxed) & GRANTED != 0
    }

    /// Returns the next request, if it is linked.
    pub(crate) fn behind(&self) -> Option<Link> {
        // ORDERING: Acquire pairs with the AcqRel in `Queue::enter`: the next operation is in its slot.
        let link = self.link.load(Ordering::Acquire);
        some(link & ID).map(|id| Link { id, is_write: link & WRITE_BEHIND != 0 })
    }
}

/// A request that stands behind another.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) id: RequestId,
    pub(crate) is_write: bool,
}

/// Finds requests, and hears what becomes of them.
pub(crate) trait Requests {
    fn request(&self, id: RequestId) -> &Request;

    /// The request is granted.
    fn granted(&mut self, id: RequestId);

    /// The request has left, and no thread will look at it any more.
    fn done_with(&mut self, id: RequestId);
}

/// The queue of one variable.
pub(crate) struct Queue {
    tail: AtomicU64,
    gate: AtomicU64,
}

const READER_BITS: u32 = 64 - ID_BITS;
const READERS: u64 = (1 << READER_BITS) - 1;

// ORDERING: AcqRel in all read-modify-writes of `tail`, `gate` and `link`: each hands over to the next holder
// of the word what the last one did. The loads say what they pair with.
impl Queue {
    pub(crate) fn new() -> Self {
        Self { tail: AtomicU64::new(0), gate: AtomicU64::new(0) }
    }

    /// Calls `look` as a reader, if the queue is empty.
    ///
    /// A request that enters meanwhile finds one more reader at the gate, so a write waits there. One that
    /// entered before is at the tail, and then `look` is not called.
    pub(crate) fn glance<R>(&self, requests: &mut impl Requests, look: impl FnOnce() -> R) -> Option<R> {
        // ORDERING: AcqRel: of a glance and a write at the gate, the second sees what the first did before:
        // the write's place at the tail.
        self.gate.fetch_add(1, Ordering::AcqRel);
        // ORDERING: Acquire pairs with the exchange in `leave`: an empty queue shows what the last write
        // wrote.
        let seen = (self.tail.load(Ordering::Acquire) == 0).then(look);
        self.go_out(0, requests);
        seen
    }

    /// Adds a request at the end. It is granted here or later, once.
    ///
    /// ```text
    ///  tail before   link of the one ahead    then
    ///  0             -                        it comes first
    ///  ahead         LEFT                     releases the one ahead, comes first
    ///  ahead         GRANTED, this reads      granted
    ///  ahead         else                     waits: the one ahead grants it
    /// ```
    pub(crate) fn enter(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        let is_write = request.is_write();
        // ORDERING: AcqRel: see above.
        let Some(ahead_id) = some(self.tail.swap(id.0, Ordering::AcqRel)) else { return self.come_first(id, is_write, requests) };
        let behind = if is_write { WRITE_BEHIND } else { 0 };
        // ORDERING: AcqRel: see above.
        let seen = requests.request(ahead_id).link.fetch_or(id.0 | behind, Ordering::AcqRel);
        if seen & LEFT != 0 {
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
    ///  none      another   link gets LEFT; a read goes out; if the link was set meanwhile, as below
    ///  behind    -         a write grants the next; a read goes out, with the next write if one is behind
    /// ```
    pub(crate) fn leave(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        // ORDERING: Acquire pairs with the AcqRel in `enter`: the next request is in its slot.
        let mut seen = request.link.load(Ordering::Acquire);
        let is_write = seen & WRITES != 0;
        if seen & ID == 0 {
            // ORDERING: AcqRel on success: the next request to enter sees what this one did.
            if self.tail.compare_exchange(id.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                requests.done_with(id);
                if !is_write {
                    self.go_out(0, requests);
                }
                return;
            }
            // ORDERING: AcqRel: see above.
            seen = request.link.fetch_or(LEFT, Ordering::AcqRel);
        }
        match some(seen & ID) {
            None if is_write => {}
            None => self.go_out(0, requests),
            Some(behind) => {
                requests.done_with(id);
                match (is_write, seen & WRITE_BEHIND != 0) {
                    (true, _) => self.pass(behind, requests),
                    (false, true) => self.go_out(behind.0, requests),
                    (false, false) => self.go_out(0, requests),
                }
            }
        }
    }

    /// A request has no request ahead, but readers may be inside.
    ///
    /// ```text
    ///  gate before           gate after            then
    ///  no readers            no readers            the write is granted
    ///  n readers             n readers │ write     the write waits
    /// ```
    fn come_first(&self, id: RequestId, is_write: bool, requests: &mut impl Requests) {
        if !is_write {
            return self.let_in(id, requests);
        }
        // A read-modify-write also where nothing changes: a glance behind it sees this write at the tail.
        let waits = |gate: u64| if gate & READERS == 0 { gate } else { gate + (id.0 << READER_BITS) };
        let before = self.change_gate(waits);
        if before & READERS == 0 {
            requests.granted(id);
        }
    }

    /// A write has left: grants the next request.
    fn pass(&self, id: RequestId, requests: &mut impl Requests) {
        if requests.request(id).is_write() {
            requests.granted(id);
        } else {
            self.let_in(id, requests);
        }
    }

    /// Grants a read, and those linked right behind it.
    fn let_in(&self, mut id: RequestId, requests: &mut impl Requests) {
        loop {
            // ORDERING: AcqRel: see above.
            self.gate.fetch_add(1, Ordering::AcqRel);
            // ORDERING: AcqRel: see above. A read that is linked later sees that this one is granted.
            let seen = requests.request(id).link.fetch_or(GRANTED, Ordering::AcqRel);
            requests.granted(id);
            match some(seen & ID) {
                Some(behind) if seen & WRITE_BEHIND == 0 => id = behind,
                _ => return,
            }
        }
    }

    /// A read has left. `writer` is the write behind it, or 0. The last read grants the write that waits, and
    /// touches nothing after that.
    ///
    /// ```text
    ///  gate before               gate after                     then
    ///  1 reader │ waiting        0                              the waiting write, or `writer`, is granted
    ///  n readers │ waiting       n - 1 readers │ waiting        (`writer` waits, if there is one)
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

    /// Changes the gate in one step, and returns what it was.
    fn change_gate(&self, change: impl Fn(u64) -> u64) -> u64 {
        // ORDERING: Relaxed: the exchange decides.
        let mut gate = self.gate.load(Ordering::Relaxed);
        loop {
            // ORDERING: AcqRel on success: see above.
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
