//! The worlds of this process that the control connection watches.
//!
//! ```text
//!  a world      event                          next
//!  unknown      another rank says something    unknown    it is kept until this rank asks for the world
//!  unknown      this rank asks for it          being made
//!  being made   all ranks have asked for it    made       silent ranks count from now on
//!  made         this rank leaves it            left       its communicator stays, and it still hears of faults
//!  left         all ranks have left it, whole  gone       its communicator is freed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
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
    left: BTreeMap<u32, Departed>,
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

/// A world that this rank has left. No operation of a node or a flow waits there, because each has a handle
/// of the world. But operations that were dropped may be in flight: requests of MPI, whose memory stays until
/// they have completed, and operations of NCCL, whose thread ends them when it hears of a fault.
struct Departed {
    /// The operations in flight have it. Without any, nothing needs to hear of faults.
    health: Weak<Health>,
    deadline: Duration,
    /// None if the world is broken.
    free: Option<Free>,
}

impl Departed {
    /// Returns whether something is in flight in a world that is whole.
    fn is_in_flight(&self) -> bool {
        self.health.upgrade().is_some_and(|health| health.fault().is_none())
    }
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
        let (_kept, waits) = {
            let mut state = lock(&self.state);
            state.left.retain(|_, departed| departed.free.is_some() || departed.health.strong_count() > 0);
            let Some(Watched { health, waits, deadline, made, free }) = state.known.remove(&world) else { return 0 };
            // The communicator of a broken world may have messages that will not be received.
            let free = free.filter(|_| health.fault().is_none());
            if made.is_some() {
                state.left.insert(world, Departed { health: Arc::downgrade(&health), deadline, free });
            }
            (health, waits)
        };
        waits.collectives()
    }

    /// Returns the worlds that this rank has not left, each with the number of its collectives.
    pub(super) fn open(&self) -> Vec<(u32, u64)> {
        lock(&self.state).known.iter().map(|(world, watched)| (*world, watched.waits.collectives())).collect()
    }

    /// Returns the number of worlds that this rank has left, and whose communicators are not freed.
    pub(super) fn unfreed(&self) -> usize {
        lock(&self.state).left.values().filter(|departed| departed.free.is_some()).count()
    }

    /// Returns what frees the communicator of a world that all ranks have left.
    pub(super) fn take_free(&self, world: u32) -> Option<Free> {
        lock(&self.state).left.get_mut(&world)?.free.take()
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
        let (broken, _frees): (Vec<Arc<Health>>, Vec<_>) = {
            let mut state = lock(&self.state);
            if world == ALL {
                state.died.get_or_insert_with(|| fault.clone());
            } else if world >= state.next && world != NONE {
                state.early.entry(world).or_default().fault.get_or_insert_with(|| fault.clone());
            }
            let is_meant = |number: &u32| world == ALL || *number == world;
            let known = state.known.iter().filter(|(number, _)| is_meant(number)).map(|(_, watched)| watched.health.clone());
            let mut broken: Vec<Arc<Health>> = known.collect();
            let left = state.left.iter_mut().filter(|(number, _)| is_meant(number));
            let frees = left.map(|(_, departed)| {
                broken.extend(departed.health.upgrade());
                departed.free.take()
            });
            let frees = frees.collect();
            (broken, frees)
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
        let known = state.known.iter().filter(|(_, watched)| is_late(watched)).map(|(world, _)| *world);
        let is_late = |departed: &Departed| silence > departed.deadline / 2 && departed.is_in_flight();
        known.chain(state.left.iter().filter(|(_, departed)| is_late(departed)).map(|(world, _)| *world)).collect()
    }

    /// Returns the worlds in which an operation waits for a rank that has left before its part.
    pub(super) fn left_waiting(&self) -> Vec<(u32, u32)> {
        let state = lock(&self.state);
        let unmet = |(world, watched): (&u32, &Watched)| Some((*world, watched.waits.unmet(watched.deadline / 2)?));
        state.known.iter().filter_map(unmet).collect()
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use super::*;

    const DIED: WorldFault = WorldFault::Died { rank: 1 };

    /// A world that was made, and that its rank has left.
    fn left(worlds: &Worlds) -> (u32, Arc<Health>) {
        let health = Arc::<Health>::default();
        let world = worlds.add(health.clone(), Arc::default(), DEADLINE);
        worlds.note_made(world, Box::new(|| {}));
        worlds.leave(world);
        (world, health)
    }

    #[test]
    fn what_is_in_flight_in_a_world_that_was_left_hears_of_faults() {
        // Seen to fail when a world that was left was forgotten: the thread of NCCL waited for ever.
        let worlds = Worlds::default();
        let ((first, its_health), (second, other)) = (left(&worlds), left(&worlds));
        worlds.break_by(first, &WorldFault::Silent { rank: 1, ms: 1 });
        assert!(its_health.fault().is_some() && other.fault().is_none());
        assert!(worlds.take_free(first).is_none());
        assert_eq!(worlds.silenced(DEADLINE), [second]);
        worlds.break_by(ALL, &DIED);
        assert_eq!(other.fault(), Some(DIED));
        assert!(worlds.silenced(DEADLINE).is_empty());
    }

    #[test]
    fn a_world_that_was_left_is_freed_and_forgotten() {
        // Seen to fail when no world was forgotten.
        let worlds = Worlds::default();
        let (world, health) = left(&worlds);
        assert!(worlds.take_free(world).is_some());
        drop(health);
        left(&worlds);
        assert_eq!(lock(&worlds.state).left.len(), 1);
    }
}
