//! The worlds of this process that the control connection watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::message::ALL;
use crate::comm::health::Health;
use crate::error::WorldFault;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

#[derive(Default)]
pub(super) struct Worlds {
    worlds: Mutex<BTreeMap<u32, Watched>>,
    has_broken: AtomicBool,
}

struct Watched {
    health: Arc<Health>,
    deadline: Duration,
    /// The first rank that has left, and when.
    left: Option<(u32, Instant)>,
}

impl Worlds {
    pub(super) fn add(&self, world: u32, health: Arc<Health>, deadline: Duration) {
        lock(&self.worlds).insert(world, Watched { health, deadline, left: None });
    }

    pub(super) fn remove(&self, world: u32) {
        lock(&self.worlds).remove(&world);
    }

    pub(super) fn has_broken(&self) -> bool {
        // ORDERING: Relaxed: it tells nothing else.
        self.has_broken.load(Ordering::Relaxed)
    }

    /// Breaks one world, or all. Returns whether one of them was whole before.
    pub(super) fn break_by(&self, world: u32, fault: &WorldFault) -> bool {
        let broken: Vec<Arc<Health>> = {
            let worlds = lock(&self.worlds);
            let meant = worlds.iter().filter(|(number, _)| world == ALL || **number == world);
            meant.map(|(_, watched)| watched.health.clone()).collect()
        };
        // ORDERING: Relaxed: as in `has_broken`.
        self.has_broken.store(true, Ordering::Relaxed);
        // All are broken, also behind the first that was whole.
        broken.iter().filter(|health| health.break_by(fault.clone())).count() > 0
    }

    pub(super) fn note_left(&self, world: u32, rank: u32) {
        let mut worlds = lock(&self.worlds);
        let meant = worlds.iter_mut().filter(|(number, _)| world == ALL || **number == world);
        meant.for_each(|(_, watched)| _ = watched.left.get_or_insert((rank, Instant::now())));
    }

    /// Returns the time between two beats.
    pub(super) fn period(&self) -> Duration {
        let least = lock(&self.worlds).values().map(|watched| watched.deadline).min();
        (least.unwrap_or(Duration::from_secs(10)) / 20).max(Duration::from_millis(5))
    }

    /// Returns the worlds that break, because a rank was silent for so long.
    pub(super) fn silenced(&self, silence: Duration) -> Vec<u32> {
        let worlds = lock(&self.worlds);
        worlds.iter().filter(|(_, watched)| silence > watched.deadline / 2).map(|(world, _)| *world).collect()
    }

    /// Returns the worlds in which an operation has waited for half of the deadline since a rank has left.
    /// What that rank had started before has ended by then.
    pub(super) fn left_waiting(&self) -> Vec<(u32, u32)> {
        let worlds = lock(&self.worlds);
        let waits = worlds.iter().filter_map(|(world, watched)| {
            let (rank, since) = watched.left?;
            let waited = watched.health.oldest_wait()?.elapsed().min(since.elapsed());
            (waited > watched.deadline / 2).then_some((*world, rank))
        });
        waits.collect()
    }
}
