//! Exclusive access to an engine that has no workers: one word.
//!
//! ```text
//!  event        word before            word after           then
//!  begin        no ALONE               ALONE                has the engine
//!  post         no ALONE               ALONE | POSTED       has the engine, and enters what is in the inbox
//!  post         ALONE                  ALONE | POSTED       the thread that has the engine enters it
//!  nudge        no ALONE               ALONE | NUDGED       has the engine, and ends what is over
//!  nudge        ALONE                  ALONE | NUDGED       the thread that has the engine does so
//!  wait         ALONE                  ALONE | AWAITED      the thread that has the engine wakes at its end
//!  end          ALONE                  0
//!  end          ALONE | AWAITED        0                    wakes those that wait until nothing is pending
//!  end          POSTED or NUDGED       without these        does what was asked for, and ends again
//! ```

use super::tokens::{Entering, Turn};
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// A thread has the engine.
const ALONE: u32 = 1;
/// The inbox is not empty.
const POSTED: u32 = 2;
/// A future waits until nothing is pending.
const AWAITED: u32 = 4;
/// The thread that has the engine is to end what is over.
const NUDGED: u32 = 8;

/// The word, and the inbox.
pub(crate) struct Exclusive {
    word: AtomicU32,
    /// Operations that were pushed while a thread had the engine: the same one inside of an operation, or
    /// another.
    inbox: Mutex<Vec<Entering>>,
}

/// The outcome of an attempt to end a turn.
pub(crate) enum End {
    Over {
        is_awaited: bool,
    },
    /// The turn goes on.
    More(Turn, More),
}

/// What is to be done before a turn ends.
#[derive(Default)]
pub(crate) struct More {
    /// Operations that were posted.
    pub(crate) posted: Vec<Entering>,
    /// Whether to end what is over.
    pub(crate) is_nudged: bool,
}

impl Exclusive {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), inbox: Mutex::default() }
    }

    /// Begins a turn, unless another thread has one.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Turn> {
        // ORDERING: Acquire pairs with the Release of the last end.
        (self.word.fetch_or(ALONE, Ordering::Acquire) & ALONE == 0).then(Turn::new)
    }

    /// Puts an operation into the inbox. Returns a turn if no thread has one: then the caller empties it.
    pub(crate) fn post(&self, operation: Entering) -> Option<Turn> {
        lock(&self.inbox).push(operation);
        // ORDERING: AcqRel: Acquire as in `begin`; Release so that the thread that takes the mark sees the
        // inbox.
        (self.word.fetch_or(ALONE | POSTED, Ordering::AcqRel) & ALONE == 0).then(Turn::new)
    }

    /// Returns true if one of the first operations in the inbox is searched for.
    pub(super) fn any_posted(&self, first: usize, mut is_it: impl FnMut(u32) -> bool) -> bool {
        lock(&self.inbox).iter().take(first).any(|posted| is_it(posted.number()))
    }

    /// Has the thread that has the engine end what is over. Returns a turn if no thread has one.
    pub(crate) fn nudge(&self) -> Option<Turn> {
        // ORDERING: AcqRel: as in `post`, for the list of what is ready.
        (self.word.fetch_or(ALONE | NUDGED, Ordering::AcqRel) & ALONE == 0).then(Turn::new)
    }

    /// Ends a turn, if nothing was asked for meanwhile.
    #[inline]
    pub(crate) fn end_at_once(&self, turn: Turn) -> Result<(), Turn> {
        // ORDERING: Release pairs with `begin`. Relaxed on failure: the caller asks again.
        let ended = self.word.compare_exchange(ALONE, 0, Ordering::Release, Ordering::Relaxed);
        ended.map(drop).map_err(|_| turn)
    }

    /// Ends a turn, if no operation was posted and no thread nudged meanwhile.
    pub(crate) fn end(&self, turn: Turn) -> End {
        let turn = match self.end_at_once(turn) {
            Ok(()) => return End::Over { is_awaited: false },
            Err(turn) => turn,
        };
        // ORDERING: AcqRel: Acquire pairs with `post` and `nudge`.
        let before = self.word.fetch_and(!(POSTED | NUDGED), Ordering::AcqRel);
        if before & (POSTED | NUDGED) != 0 {
            let posted = std::mem::take(&mut *lock(&self.inbox));
            return End::More(turn, More { posted, is_nudged: before & NUDGED != 0 });
        }
        // ORDERING: AcqRel: Release pairs with `begin`, Acquire with the wait in `is_over`. Relaxed on
        // failure: something was asked for just now, and the caller ends again.
        match self.word.compare_exchange(ALONE | AWAITED, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => End::Over { is_awaited: true },
            Err(_) => End::More(turn, More::default()),
        }
    }

    /// Returns true if no thread has the engine. Otherwise the end of the turn wakes those that wait.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the end. AcqRel: of "wait" and "end" one sees the
        // other.
        self.word.load(Ordering::Acquire) & ALONE == 0 || self.word.fetch_or(AWAITED, Ordering::AcqRel) & ALONE == 0
    }
}
