//! A variable's queue: requests to read and to write, strictly first come, first served; neighbouring reads
//! go together.
//!
//! A queue is a chain of requests, each of which knows only the one behind it, as in the fair reader-writer
//! lock of Mellor-Crummey and Scott (PPoPP 1991). Nobody spins and nobody locks: who comes to a gap that
//! another is about to close leaves the rest to it. See README.md beside this file.

use crate::sync::{AtomicU64, Ordering};

/// A request, by the place of its operation and its number among that operation's; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(u64);

const NUMBER_BITS: u32 = 16;
const ID_BITS: u32 = 40;
const ID: u64 = (1 << ID_BITS) - 1;
/// How many requests an operation may make.
pub(crate) const REQUESTS_MAX: usize = 1 << NUMBER_BITS;
/// How many operations there may be at once: as many readers fit into a gate.
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
    /// The request behind this one, and how far this one is.
    link: AtomicU64,
}

/// The request behind is one to write.
const WRITE_BEHIND: u64 = 1 << ID_BITS;
/// It is one to read, and was let in. Of one to write nobody asks it.
const GRANTED: u64 = 1 << (ID_BITS + 1);
/// It was let go before anybody stood behind it, though somebody is about to: he goes on where it left off.
const LEFT: u64 = 1 << (ID_BITS + 2);
/// It is itself one to write. Never changes.
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

    /// Returns the request directly behind this one, if there is one.
    pub(crate) fn behind(&self) -> Option<Link> {
        // ORDERING: Acquire pairs with the AcqRel in `Queue::enter`: the request behind is in its slot.
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

/// Where requests are found, and who hears of them.
pub(crate) trait Requests {
    fn request(&self, id: RequestId) -> &Request;

    /// It is its turn.
    fn granted(&mut self, id: RequestId);

    /// It was let go and nobody will look at it any more.
    fn done_with(&mut self, id: RequestId);
}

/// The end of a variable's queue, and who is inside.
pub(crate) struct Queue {
    /// The last request, or 0.
    tail: AtomicU64,
    /// How many read, and in the upper bits the one that waits to write until none does, or 0.
    gate: AtomicU64,
}

const READER_BITS: u32 = 64 - ID_BITS;
const READERS: u64 = (1 << READER_BITS) - 1;

impl Queue {
    pub(crate) fn new() -> Self {
        Self { tail: AtomicU64::new(0), gate: AtomicU64::new(0) }
    }

    /// Has `look` done among those who read, if nobody stands in the queue.
    ///
    /// Who enters while it is done finds one more that reads: a writer waits at the gate. Who had entered
    /// before is at the tail, and then this leaves without a look.
    pub(crate) fn glance<R>(&self, requests: &mut impl Requests, look: impl FnOnce() -> R) -> Option<R> {
        // ORDERING: AcqRel: of two who step to the gate, the second sees what the first did before: a writer
        // its own place at the tail.
        self.gate.fetch_add(1, Ordering::AcqRel);
        // ORDERING: Acquire: who finds nobody sees what the last one wrote.
        let seen = (self.tail.load(Ordering::Acquire) == 0).then(look);
        self.go_out(0, requests);
        seen
    }

    /// Puts a request at the end. It is granted here or later, once.
    pub(crate) fn enter(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        let is_write = request.is_write();
        // ORDERING: AcqRel here and in all that follows: each of these words hands over what its last holder
        // did to the next.
        let Some(ahead_id) = some(self.tail.swap(id.0, Ordering::AcqRel)) else { return self.come_first(id, is_write, requests) };
        let behind = if is_write { WRITE_BEHIND } else { 0 };
        let seen = requests.request(ahead_id).link.fetch_or(id.0 | behind, Ordering::AcqRel);
        if seen & LEFT != 0 {
            requests.done_with(ahead_id);
            self.come_first(id, is_write, requests);
        } else if seen & (GRANTED | WRITES) == GRANTED && !is_write {
            self.let_in(id, requests);
        }
    }

    /// Ends a request that was granted.
    pub(crate) fn leave(&self, id: RequestId, request: &Request, requests: &mut impl Requests) {
        let mut seen = request.link.load(Ordering::Acquire);
        let is_write = seen & WRITES != 0;
        if seen & ID == 0 {
            // ORDERING: AcqRel: who comes next sees what was done.
            if self.tail.compare_exchange(id.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                requests.done_with(id);
                if !is_write {
                    self.go_out(0, requests);
                }
                return;
            }
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

    /// A request finds nobody ahead but readers that are inside.
    fn come_first(&self, id: RequestId, is_write: bool, requests: &mut impl Requests) {
        if !is_write {
            return self.let_in(id, requests);
        }
        // One step, also where nothing changes: whoever comes to the gate behind it sees that the queue has
        // somebody.
        let waits = |gate: u64| if gate & READERS == 0 { gate } else { gate + (id.0 << READER_BITS) };
        let before = self.change_gate(waits);
        if before & READERS == 0 {
            requests.granted(id);
        }
    }

    /// A writer has left: it is the next one's turn.
    fn pass(&self, id: RequestId, requests: &mut impl Requests) {
        if requests.request(id).is_write() {
            requests.granted(id);
        } else {
            self.let_in(id, requests);
        }
    }

    /// Lets a reader in, and those right behind it.
    fn let_in(&self, mut id: RequestId, requests: &mut impl Requests) {
        loop {
            self.gate.fetch_add(1, Ordering::AcqRel);
            let seen = requests.request(id).link.fetch_or(GRANTED, Ordering::AcqRel);
            requests.granted(id);
            // Whoever comes behind it later sees that it is inside.
            match some(seen & ID) {
                Some(behind) if seen & WRITE_BEHIND == 0 => id = behind,
                _ => return,
            }
        }
    }

    /// A reader has left. `writer` is the one behind it, or 0. The last one out lets the writer in that
    /// waits, and touches nothing after that.
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
        let mut gate = self.gate.load(Ordering::Relaxed);
        loop {
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
