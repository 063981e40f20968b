//! Vector clocks: which operations are known to precede others.
//!
//! Every stream, every node of an executable graph and the host have a component of their own. Components are
//! numbered over the whole process, so that clocks of different devices can be joined.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;

/// For each component, the last tick up to which everything has happened before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// In the order of components.
    ticks: Vec<(u32, u64)>,
}

/// Returns a new component.
pub(crate) fn new_component() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // ORDERING: Relaxed: the numbers only have to differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Clock {
    /// Returns true if tick `tick` of the component has happened before.
    pub(crate) fn covers(&self, component: u32, tick: u64) -> bool {
        match self.place(component) {
            Ok(at) => self.ticks[at].1 >= tick,
            Err(_) => tick == 0,
        }
    }

    /// Advances a component by one and returns its new tick.
    pub(crate) fn advance(&mut self, component: u32) -> u64 {
        match self.place(component) {
            Ok(at) => {
                self.ticks[at].1 += 1;
                self.ticks[at].1
            }
            Err(at) => {
                self.ticks.insert(at, (component, 1));
                1
            }
        }
    }

    /// Adds everything that happened before `other` to this clock.
    pub(crate) fn join(&mut self, other: &Clock) {
        let mut at = 0;
        for &(component, tick) in &other.ticks {
            // Both lists are sorted, and have mostly the same components: the next one is near.
            at += self.ticks[at..].iter().take_while(|own| own.0 < component).count();
            match self.ticks.get_mut(at) {
                Some(own) if own.0 == component => own.1 = own.1.max(tick),
                _ => self.ticks.insert(at, (component, tick)),
            }
        }
    }

    fn place(&self, component: u32) -> Result<usize, usize> {
        self.ticks.binary_search_by_key(&component, |&(number, _)| number)
    }
}

/// Everything that the host has seen. All threads of the host count as one, so each is taken to know what any
/// of them has seen.
pub(crate) struct HostClock {
    component: u32,
    /// Changes with the clock. No two clocks have the same version, even of different host clocks.
    version: AtomicU64,
    clock: Mutex<Clock>,
}

impl HostClock {
    pub(crate) fn new() -> Self {
        Self::from_clock(Clock::default())
    }

    pub(crate) fn from_clock(clock: Clock) -> Self {
        Self { component: new_component(), version: AtomicU64::new(new_version()), clock: Mutex::new(clock) }
    }

    pub(crate) fn version(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `join` and `act`: a thread that sees the version finds
        // at least that clock behind the lock.
        self.version.load(Ordering::Acquire)
    }

    /// Records that the host has seen everything in a clock.
    pub(crate) fn join(&self, seen: &Clock) {
        let mut clock = lock(&self.clock);
        clock.join(seen);
        // ORDERING: Release pairs with the Acquire in `version`.
        self.version.store(new_version(), Ordering::Release);
    }

    /// Performs an action of the host. Returns its component, its tick and the clock of everything before it.
    pub(crate) fn act(&self) -> (u32, u64, Clock) {
        let mut clock = lock(&self.clock);
        let tick = clock.advance(self.component);
        // ORDERING: Release pairs with the Acquire in `version`.
        self.version.store(new_version(), Ordering::Release);
        (self.component, tick, clock.clone())
    }

    pub(crate) fn snapshot(&self) -> Clock {
        lock(&self.clock).clone()
    }

    /// Adds the host's clock to a clock that includes it up to version `seen`.
    pub(crate) fn tell(&self, clock: &mut Clock, seen: &mut u64) {
        let version = self.version();
        if *seen != version {
            clock.join(&lock(&self.clock));
            *seen = version;
        }
    }
}

fn new_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // ORDERING: Relaxed: the numbers only have to differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A clock that is kept for later, or None if order is not tracked.
pub(crate) type Kept = Option<Arc<Clock>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_clock_covers_what_either_covered() {
        let (mut left, mut right) = (Clock::default(), Clock::default());
        left.advance(3);
        right.advance(1);
        right.advance(1);
        left.join(&right);
        assert!(left.covers(3, 1) && left.covers(1, 2));
        assert!(!left.covers(1, 3) && !left.covers(2, 1));
    }
}
