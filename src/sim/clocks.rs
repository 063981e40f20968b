//! The order that each stream is known to be in: a vector clock, which advances at records and waits
//! (Mattern, "Virtual time and global states of distributed systems", 1989). Order in time is not enough to
//! rule out a race: a wait must have caused it.

use std::collections::HashMap;

use crate::plan::Point;

/// The most counts that the clocks of one simulation may hold.
const NUMBERS_MAX: usize = 1 << 26;

pub(super) struct Clocks {
    /// For each stream, the number of ended works of every stream that it knows of.
    streams: Vec<Vec<u32>>,
    points: HashMap<Point, Vec<u32>>,
}

impl Clocks {
    /// Returns the clocks of these streams. Returns None if they would be too large.
    pub(super) fn new(streams: usize, records: usize) -> Option<Self> {
        let numbers = streams.saturating_mul(streams.saturating_add(records));
        (numbers <= NUMBERS_MAX).then(|| Self { streams: vec![vec![0; streams]; streams], points: HashMap::new() })
    }

    /// Counts the end of a work on the stream.
    pub(super) fn tick(&mut self, stream: u32) {
        self.streams[stream as usize][stream as usize] += 1;
    }

    pub(super) fn record(&mut self, point: Point) {
        self.points.insert(point, self.streams[point.stream as usize].clone());
    }

    pub(super) fn pass(&mut self, stream: u32, point: Point) {
        let Some(known) = self.points.get(&point) else { return };
        for (mine, &theirs) in self.streams[stream as usize].iter_mut().zip(known) {
            *mine = theirs.max(*mine);
        }
    }

    /// Returns whether `stream` knows that the work with number `index` on `other` has ended.
    pub(super) fn knows(&self, stream: u32, other: u32, index: u32) -> bool {
        self.streams[stream as usize][other as usize] > index
    }
}
