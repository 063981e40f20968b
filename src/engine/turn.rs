//! Who has an engine without workers to itself: one word.
//!
//! ```text
//!          begin                 end
//!   0 ───────────────▶ ALONE ───────────▶ 0          what others post meanwhile sets POSTED: then the end is refused, and who has the
//!                        │ post                      turn does that first; NUDGED is the same for who has nothing to post but a look
//!                        ▼                           around; who waits until nothing is pending sets AWAITED
//!                  ALONE|POSTED ──end──▶ ALONE, and the inbox
//! ```

use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// A thread has the engine.
const ALONE: u32 = 1;
/// The inbox is not empty.
const POSTED: u32 = 2;
/// Somebody waits for the end of the turn.
const AWAITED: u32 = 4;
/// Who has the engine is to look for what is over.
const NUDGED: u32 = 8;

/// The turn of an engine that has no workers.
pub(super) struct Turn {
    word: AtomicU32,
    /// Operations that were pushed while a thread had the engine: the same one inside of an operation, or
    /// another.
    inbox: Mutex<Vec<u32>>,
}

/// What comes of giving a turn back.
pub(super) enum End {
    Over {
        is_awaited: bool,
    },
    /// The turn is not over.
    More(More),
}

/// What is to be done before a turn ends.
#[derive(Default)]
pub(super) struct More {
    /// Operations that were posted.
    pub(super) posted: Vec<u32>,
    /// Whether somebody asks to look for what is over.
    pub(super) is_nudged: bool,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self { word: AtomicU32::new(0), inbox: Mutex::default() }
    }

    /// Asks for the engine. If this returns true, it is for the caller to [end](Turn::end) its turn.
    #[inline]
    #[must_use]
    pub(super) fn begin(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release of whoever had it before.
        self.word.fetch_or(ALONE, Ordering::Acquire) & ALONE == 0
    }

    /// Puts an operation into the inbox. Returns true if the caller has the engine now, as after
    /// [`Turn::begin`].
    #[must_use]
    pub(super) fn post(&self, number: u32) -> bool {
        lock(&self.inbox).push(number);
        // ORDERING: AcqRel: as in `begin`; and whoever takes the mark sees the inbox.
        self.word.fetch_or(ALONE | POSTED, Ordering::AcqRel) & ALONE == 0
    }

    /// Returns true if one of the first operations in the inbox is searched for.
    pub(super) fn any_posted(&self, first: usize, mut is_it: impl FnMut(u32) -> bool) -> bool {
        lock(&self.inbox).iter().take(first).any(|&number| is_it(number))
    }

    /// Has whoever has the engine look for what is over. Returns true if that is the caller, as after
    /// [`Turn::begin`].
    #[must_use]
    pub(super) fn nudge(&self) -> bool {
        // ORDERING: AcqRel: as in `post`.
        self.word.fetch_or(ALONE | NUDGED, Ordering::AcqRel) & ALONE == 0
    }

    /// Gives the engine back, if nothing was posted meanwhile and nobody waits.
    #[inline]
    #[must_use]
    pub(super) fn end_at_once(&self) -> bool {
        // ORDERING: Release: pairs with `begin`.
        self.word.compare_exchange(ALONE, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Gives the engine back, if nothing was posted meanwhile.
    #[must_use]
    pub(super) fn end(&self) -> End {
        if self.end_at_once() {
            return End::Over { is_awaited: false };
        }
        // ORDERING: AcqRel: as in `post` and `begin`.
        let before = self.word.fetch_and(!(POSTED | NUDGED), Ordering::AcqRel);
        if before & (POSTED | NUDGED) != 0 {
            return End::More(More { posted: std::mem::take(&mut lock(&self.inbox)), is_nudged: before & NUDGED != 0 });
        }
        // ORDERING: AcqRel: as in `is_over`.
        match self.word.compare_exchange(ALONE | AWAITED, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => End::Over { is_awaited: true },
            // Something was asked of it just now.
            Err(_) => End::More(More::default()),
        }
    }

    /// Returns true if nobody has the engine; else whoever ends the turn is told.
    pub(super) fn is_over(&self) -> bool {
        // ORDERING: Acquire: who sees that it is over sees what was done. AcqRel: of "wait" and "end" one
        // sees the other.
        self.word.load(Ordering::Acquire) & ALONE == 0 || self.word.fetch_or(AWAITED, Ordering::AcqRel) & ALONE == 0
    }
}
