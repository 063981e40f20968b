//! The worlds of this process that the control connection watches.
//!
//! ```text
//!  a world      event                          next
//!  unknown      another rank says something    unknown    it is kept until this rank asks for the world
//!  unknown      this rank asks for it          being made
//!  being made   all ranks have asked for it    made       silent ranks count from now on
//!  made         this rank leaves it            left       its communicator stays
//!  left         all ranks have left it, whole  gone       its communicator is freed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::message::{ALL, NONE};
use super::waits::Waits;
use crate::comm::health::Health;
use crate::error::WorldFault;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The deadline of a process without a world.
const DEADLINE: Duration = Duration::from_secs(10);

/// Frees the communicator of a world.
pub(in crate::comm) type Free = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct Worlds {
    state: Mutex<State>,
    /// Whether a rank has died or hangs.
    has_lost: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The number of the next world that this rank asks for.
    next: u32,
    known: BTreeMap<u32, Watched>,
    /// The worlds that this rank has left.
    left: BTreeMap<u32, Free>,
    /// What other ranks have said of worlds for which this rank has not asked.
    early: BTreeMap<u32, Early>,
    /// The first rank that has died.
    died: Option<WorldFault>,
    /// The ranks that have come to their end.
    finished: BTreeSet<u32>,
    /// The shortest deadline of any world. It stays when the world is left: another rank may still have it.
    least: Option<Duration>,
}

struct Watched {
    health: Arc<Health>,
    waits: Arc<Waits>,
    deadline: Duration,
    /// When the world was made.
    made: Option<Instant>,
    free: Option<Free>,
}

#[derive(Default)]
struct Early {
    fault: Option<WorldFault>,
    /// The ranks that have left, and the number of collectives that each had started.
    left: Vec<(u32, u64)>,
}

impl Worlds {
    /// Adds a world that is being made. Returns its number.
    pub(super) fn add(&self, health: Arc<Health>, waits: Arc<Waits>, deadline: Duration) -> u32 {
        let (fault, world) = {
            let mut state = lock(&self.state);
            let world = state.next;
            state.next += 1;
            state.least = Some(state.least.map_or(deadline, |least| least.min(deadline)));
            let Early { fault, left } = state.early.remove(&world).unwrap_or_default();
            left.into_iter().for_each(|(rank, collectives)| waits.note_left(rank, collectives));
            // A rank that has left was there; another one that has finished will never be.
            let absent = state.finished.iter().find(|rank| !waits.has_left(**rank));
            let fault = state.died.clone().or(fault).or(absent.map(|rank| WorldFault::Left { rank: *rank }));
            let watched = Watched { health: health.clone(), waits, deadline, made: None, free: None };
            state.known.insert(world, watched);
            (fault, world)
        };
        fault.into_iter().for_each(|fault| _ = health.break_by(fault));
        world
    }

    /// Notes that a world was made.
    pub(super) fn note_made(&self, world: u32, free: Free) {
        if let Some(watched) = lock(&self.state).known.get_mut(&world) {
            (watched.made, watched.free) = (Some(Instant::now()), Some(free));
        }
    }

    /// Leaves a world. Returns the number of collectives that this rank has started.
    pub(super) fn leave(&self, world: u32) -> u64 {
        let watched = {
            let mut state = lock(&self.state);
            let mut watched = state.known.remove(&world);
            // The communicator of a broken world may have messages that will not be received.
            let whole = watched.as_mut().filter(|watched| watched.health.fault().is_none());
            if let Some(free) = whole.and_then(|watched| watched.free.take()) {
                state.left.insert(world, free);
            }
            watched
        };
        watched.map_or(0, |watched| watched.waits.collectives())
    }

    /// Returns the worlds that this rank has not left, each with the number of its collectives.
    pub(super) fn open(&self) -> Vec<(u32, u64)> {
        lock(&self.state).known.iter().map(|(world, watched)| (*world, watched.waits.collectives())).collect()
    }

    /// Returns what frees the communicator of a world that all ranks have left.
    pub(super) fn take_free(&self, world: u32) -> Option<Free> {
        lock(&self.state).left.remove(&world)
    }

    pub(super) fn has_lost(&self) -> bool {
        // ORDERING: Relaxed: it tells nothing else.
        self.has_lost.load(Ordering::Relaxed)
    }

    /// Breaks one world, or all. Returns whether one of them was whole before.
    pub(super) fn break_by(&self, world: u32, fault: &WorldFault) -> bool {
        if matches!(fault, WorldFault::Died { .. } | WorldFault::Silent { .. }) {
            // ORDERING: Relaxed: as in `has_lost`.
            self.has_lost.store(true, Ordering::Relaxed);
        }
        let (broken, _kept): (Vec<Arc<Health>>, _) = {
            let mut state = lock(&self.state);
            if world == ALL {
                state.died.get_or_insert_with(|| fault.clone());
            } else if world >= state.next && world != NONE {
                state.early.entry(world).or_default().fault.get_or_insert_with(|| fault.clone());
            }
            let meant = state.known.iter().filter(|(number, _)| world == ALL || **number == world);
            (meant.map(|(_, watched)| watched.health.clone()).collect(), state.left.remove(&world))
        };
        // All are broken, also behind the first that was whole.
        broken.iter().filter(|health| health.break_by(fault.clone())).count() > 0
    }

    pub(super) fn note_left(&self, world: u32, rank: u32, collectives: u64) {
        let mut state = lock(&self.state);
        if let Some(watched) = state.known.get(&world) {
            watched.waits.note_left(rank, collectives);
        } else if world >= state.next {
            state.early.entry(world).or_default().left.push((rank, collectives));
        }
    }

    /// Notes that a rank has come to its end. It has said which worlds it has left; it makes no further one.
    pub(super) fn note_finished(&self, rank: u32) {
        let absent: Vec<Arc<Health>> = {
            let mut state = lock(&self.state);
            state.finished.insert(rank);
            let unmade = state.known.values().filter(|watched| watched.made.is_none() && !watched.waits.has_left(rank));
            unmade.map(|watched| watched.health.clone()).collect()
        };
        absent.iter().for_each(|health| _ = health.break_by(WorldFault::Left { rank }));
    }

    /// Returns the shortest deadline.
    pub(super) fn least(&self) -> Duration {
        lock(&self.state).least.unwrap_or(DEADLINE)
    }

    /// Returns the time between two beats. It never grows.
    pub(super) fn period(&self) -> Duration {
        (self.least().min(DEADLINE) / 20).max(Duration::from_millis(5))
    }

    /// Returns the worlds that break, because a rank was silent for so long.
    pub(super) fn silenced(&self, silence: Duration) -> Vec<u32> {
        let state = lock(&self.state);
        let is_late = |watched: &Watched| {
            // A rank beats as often as a world needs once it has asked for the world.
            watched.made.is_some_and(|made| silence.min(made.elapsed()) > watched.deadline / 2)
        };
        state.known.iter().filter(|(_, watched)| is_late(watched)).map(|(world, _)| *world).collect()
    }

    /// Returns the worlds in which an operation waits for a rank that has left before its part.
    pub(super) fn left_waiting(&self) -> Vec<(u32, u32)> {
        let state = lock(&self.state);
        let unmet = |(world, watched): (&u32, &Watched)| Some((*world, watched.waits.unmet(watched.deadline / 2)?));
        state.known.iter().filter_map(unmet).collect()
    }
}
