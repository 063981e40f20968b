//! Exclusive access to an engine without workers, in *turns*: one word. A *sweep* ends the ready operations
//! of cancelled flows, and runs the engine's own.
//!
//! ```text
//!  event    word before        word after         then
//!  begin    no TURN            TURN               the thread has a turn
//!  begin    TURN               unchanged          another turn goes on
//!  post     no TURN            TURN | POSTED      the thread has a turn, and empties the inbox
//!  post     TURN               TURN | POSTED      the turn that goes on empties the inbox
//!  nudge    no TURN            TURN | NUDGED      the thread has a turn, and sweeps
//!  nudge    TURN               TURN | NUDGED      the turn that goes on sweeps
//!  wait     TURN               TURN | AWAITED     the end of the turn wakes the future
//!  end      TURN               0                  the turn is over
//!  end      TURN | AWAITED     0                  the turn is over; the thread wakes the futures
//!  end      POSTED or NUDGED   without these      the thread empties the inbox, sweeps if nudged, ends again
//! ```
//!
//! A bit stays set until an end of the turn takes it; other bits are not changed.

use super::tokens::{Entering, Turn};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// A turn goes on.
const TURN: u32 = 1;
/// The inbox is not empty.
const POSTED: u32 = 2;
/// A future waits until nothing is pending.
const AWAITED: u32 = 4;
/// The turn has to sweep.
const NUDGED: u32 = 8;

#[derive(Default)]
pub(crate) struct Exclusive {
    word: AtomicU32,
    /// Operations that were pushed during a turn: by its thread inside of an operation, or by another thread.
    inbox: Mutex<Vec<Entering>>,
}

/// The work to do before a turn ends.
#[derive(Default)]
pub(crate) struct More {
    pub(crate) posted: Vec<Entering>,
    pub(crate) is_nudged: bool,
}

impl Exclusive {
    /// Begins a turn, unless one goes on.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Turn> {
        // ORDERING: Acquire pairs with the Release at the end of the last turn.
        (self.word.fetch_or(TURN, Ordering::Acquire) & TURN == 0).then_some(Turn(()))
    }

    /// Returns whether a turn goes on. A caller that has the lock under which turns begin finds one that has
    /// begun, unless it is over.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        // ORDERING: Acquire pairs with the Release at the end of a turn.
        self.word.load(Ordering::Acquire) & TURN != 0
    }

    /// Puts an operation into the inbox. If no turn goes on, begins one: then the caller empties the inbox.
    pub(crate) fn post(&self, operation: Entering) -> Option<Turn> {
        lock(&self.inbox).push(operation);
        // ORDERING: AcqRel: Acquire pairs with the end of the last turn. Release pairs with the Acquire in
        // `end`: the thread that takes the mark finds the operation in the inbox.
        (self.word.fetch_or(TURN | POSTED, Ordering::AcqRel) & TURN == 0).then_some(Turn(()))
    }

    /// Returns true if `is_it` is for an operation in the inbox ahead of `end`, or for any if that is not
    /// there.
    pub(super) fn any_posted_before(&self, end: u32, is_it: impl FnMut(u32) -> bool) -> bool {
        let inbox = lock(&self.inbox);
        inbox.iter().map(|posted| posted.0.number).take_while(|&posted| posted != end).any(is_it)
    }

    /// Asks the turn that goes on for a sweep. If there is none, begins one: then the caller sweeps.
    pub(crate) fn nudge(&self) -> Option<Turn> {
        // ORDERING: AcqRel: Acquire pairs with the end of the last turn. Release pairs with the Acquire in
        // `end`: the thread that takes the mark sees the ready lists.
        (self.word.fetch_or(TURN | NUDGED, Ordering::AcqRel) & TURN == 0).then_some(Turn(()))
    }

    /// Ends a turn, if the word has no other mark.
    #[inline]
    pub(crate) fn end_at_once(&self, turn: Turn) -> Result<(), Turn> {
        // ORDERING: Release pairs with the Acquire in `begin`. Relaxed on failure: the caller ends the turn
        // by `end`.
        let ended = self.word.compare_exchange(TURN, 0, Ordering::Release, Ordering::Relaxed);
        ended.map(drop).map_err(|_| turn)
    }

    /// Ends a turn, if no operation was posted and no thread nudged meanwhile. Returns whether futures wait
    /// until nothing is pending; or the turn, which goes on, and the work to do.
    pub(crate) fn end(&self, turn: Turn) -> Result<bool, (Turn, More)> {
        let Err(turn) = self.end_at_once(turn) else { return Ok(false) };
        // ORDERING: AcqRel: Acquire pairs with the Release in `post` and `nudge`.
        let before = self.word.fetch_and(!(POSTED | NUDGED), Ordering::AcqRel);
        if before & (POSTED | NUDGED) != 0 {
            let posted = std::mem::take(&mut *lock(&self.inbox));
            return Err((turn, More { posted, is_nudged: before & NUDGED != 0 }));
        }
        // ORDERING: AcqRel: Release pairs with `begin`, Acquire with the wait in `is_over`. Relaxed on
        // failure: a bit was set just now, and the caller ends again.
        let ended = self.word.compare_exchange(TURN | AWAITED, 0, Ordering::AcqRel, Ordering::Relaxed);
        ended.map(|_| true).map_err(|_| (turn, More::default()))
    }

    /// Returns true if no turn goes on. Otherwise the end of the turn wakes the futures that wait.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the end. AcqRel: either this sees the end, or the end
        // takes the mark.
        self.word.load(Ordering::Acquire) & TURN == 0 || self.word.fetch_or(AWAITED, Ordering::AcqRel) & TURN == 0
    }
}
