//! The clocks of everything that orders work, by key, and the ticks of strands.

use std::collections::HashMap;

use super::clock::{Clock, Epoch};

/// Something that orders work. It has a clock, and can be a strand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    /// All work whose end the host has seen.
    Host,
    /// All work of a lane, by device and number.
    Lane(u32, u32),
    /// A stream within one submission, by the lane and the place of the stream.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Stream(u32, u32, u32),
    /// An event, by the driver's handle.
    Event(usize),
    /// The beginning of a run or an engine, and its end: what follows all of its parts.
    Base(u64),
    /// A program of a run.
    Program(u64, u32),
    /// A place of a run where programs meet, in one iteration.
    Gate(u64, u32, u32),
    /// The writes of a variable, by its address.
    Written(usize),
    /// The reads of a variable since its last write.
    Read(usize),
    /// An operation of an engine, by its place in a ring.
    Operation(u64, u32),
}

/// The most strands with clocks of their own. All others share the last one: races between them are missed.
const STRANDS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Order {
    clocks: HashMap<Key, Clock>,
    strands: HashMap<Key, u32>,
    /// The last tick of each strand.
    ticks: Vec<u32>,
}

impl Order {
    pub(super) fn clock(&self, key: Key) -> Clock {
        self.clocks.get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn learn(&mut self, key: Key, clock: &Clock) {
        // Work that uses no buffers costs no clocks.
        if !clock.is_empty() {
            self.clocks.entry(key).or_default().join(clock);
        }
    }

    pub(super) fn set(&mut self, key: Key, clock: Clock) {
        self.clocks.insert(key, clock);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(Key) -> bool) {
        self.clocks.retain(|&key, _| is_kept(key));
    }

    /// Ticks the strand of a key.
    pub(super) fn tick(&mut self, key: Key) -> Epoch {
        let new = self.strands.len().min(STRANDS_MAX - 1) as u32;
        let strand = *self.strands.entry(key).or_insert(new);
        if self.ticks.len() <= strand as usize {
            self.ticks.resize(strand as usize + 1, 0);
        }
        self.ticks[strand as usize] += 1;
        Epoch { strand, tick: self.ticks[strand as usize] }
    }
}
