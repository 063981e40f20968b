//! The points of a simulation: when each was recorded, and which streams wait for it.

use smallvec::SmallVec;

use crate::graph::Rows;
use crate::plan::{Point, Step, StreamKind};

/// No stream.
const NONE: u32 = u32::MAX;

pub(super) struct Points {
    /// For each stream the numbers of its points, ascending.
    numbers: Rows<u32>,
    /// For each point the time at which it was recorded.
    recorded_us: Vec<Option<f64>>,
    /// For each point the streams that wait for it: the first and the last of a list.
    waiting: Vec<(u32, u32)>,
    /// For each stream the next one in its list.
    next: Vec<u32>,
}

impl Points {
    /// Returns the points that programs record, each stream its own in ascending order.
    pub(super) fn of(programs: &[(StreamKind, Vec<Step>)]) -> Self {
        let mut numbers = Rows::with_capacity(programs.len());
        let number = |step: &Step| if let Step::Record(point) = step { Some(point.seq) } else { None };
        programs.iter().for_each(|(_, steps)| numbers.push(steps.iter().filter_map(number)));
        let count = numbers.items().len();
        Self { numbers, recorded_us: vec![None; count], waiting: vec![(NONE, NONE); count], next: vec![NONE; programs.len()] }
    }

    pub(super) fn count(&self) -> usize {
        self.recorded_us.len()
    }

    /// Returns the place of a point in the lists. None if no stream records it.
    fn place(&self, point: Point) -> Option<usize> {
        if point.stream >= self.numbers.count() {
            return None;
        }
        let numbers = self.numbers.row(point.stream);
        // Nearly always they count from 1.
        let at = (point.seq as usize).checked_sub(1).filter(|&at| numbers.get(at) == Some(&point.seq));
        let at = at.or_else(|| numbers.binary_search(&point.seq).ok())?;
        Some(self.numbers.range(point.stream).start + at)
    }

    /// Returns the time at which a point was recorded.
    pub(super) fn recorded_us(&self, point: Point) -> Option<f64> {
        self.recorded_us[self.place(point)?]
    }

    /// Lets a stream wait for a point. It waits for ever if no stream records the point.
    pub(super) fn wait(&mut self, point: Point, stream: u32) {
        let Some(place) = self.place(point) else { return };
        let (first, last) = self.waiting[place];
        match last {
            NONE => self.waiting[place] = (stream, stream),
            last => {
                self.next[last as usize] = stream;
                self.waiting[place] = (first, stream);
            }
        }
    }

    /// Records a point. Returns the streams that wait for it, in the order in which they came.
    pub(super) fn record(&mut self, point: Point, now_us: f64) -> SmallVec<[u32; 4]> {
        let place = self.place(point).expect("the point is in a program");
        self.recorded_us[place] = Some(now_us);
        let (mut stream, _) = std::mem::replace(&mut self.waiting[place], (NONE, NONE));
        let mut waiters = SmallVec::new();
        while stream != NONE {
            waiters.push(stream);
            stream = std::mem::replace(&mut self.next[stream as usize], NONE);
        }
        waiters
    }
}
