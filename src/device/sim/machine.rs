//! Programs as a discrete-event simulation: streams advance until they wait for a point or a slot; ends of
//! work move the clock.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use super::Chooser;

/// One step of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Goes on once the point was recorded.
    Wait { stream: u32, seq: u32 },
    /// Takes a slot of the work's engine for as long as it costs.
    Work(u32),
    /// Says that this stream has reached a point.
    Record { seq: u32 },
}

/// What takes a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// The number of the engine.
    pub(crate) engine: u32,
    /// Where the work stands if nobody chooses: lower comes first.
    pub(crate) place: u32,
}

/// Is told what happens, in the order of time.
pub(crate) trait Player {
    /// A stream begins with a work. Returns how long it takes, in microseconds.
    fn start(&mut self, stream: u32, work: u32, now_us: f64) -> f64;
    fn end(&mut self, stream: u32, work: u32, now_us: f64);
    fn record(&mut self, stream: u32, seq: u32, now_us: f64);
    /// A stream goes on behind a point that it has waited for.
    fn pass(&mut self, stream: u32, point: (u32, u32), now_us: f64);
}

/// A machine with the programs of one simulation.
pub(crate) struct Machine<'a> {
    programs: &'a [Vec<Op>],
    works: &'a [Work],
    hand_off_us: f64,
    engines: Vec<Engine>,
    /// For each stream its next step.
    next: Vec<usize>,
    recorded: HashMap<(u32, u32), f64>,
    /// The streams that wait for each point.
    waiting: HashMap<(u32, u32), Vec<u32>>,
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
    now_us: f64,
    chooser: Chooser,
}

/// Slots, and who wants one.
struct Engine {
    free: u32,
    ready: Ready,
}

/// Streams that have come to a work: in order they come by place, else the chooser picks by number.
enum Ready {
    ByPlace(BinaryHeap<Reverse<(u32, u32)>>),
    Listed(Vec<u32>),
}

#[derive(PartialEq)]
struct Event {
    at_us: f64,
    count: u64,
    stream: u32,
    /// The work that ends; none if the stream goes on behind a wait.
    work: Option<u32>,
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_us.total_cmp(&other.at_us).then(self.count.cmp(&other.count))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Machine<'a> {
    /// Returns a machine whose engines have these many slots each; a stream that has waited goes on
    /// `hand_off_us` after the record.
    pub(crate) fn new(programs: &'a [Vec<Op>], works: &'a [Work], slots: &[u32], hand_off_us: f64, chooser: Chooser) -> Self {
        let ready = || if chooser.is_in_order() { Ready::ByPlace(BinaryHeap::new()) } else { Ready::Listed(Vec::new()) };
        let engines = slots.iter().map(|&free| Engine { free, ready: ready() }).collect();
        Self {
            programs,
            works,
            hand_off_us,
            engines,
            next: vec![0; programs.len()],
            recorded: HashMap::new(),
            waiting: HashMap::new(),
            events: BinaryHeap::new(),
            count: 0,
            now_us: 0.0,
            chooser,
        }
    }

    /// Carries the programs out. Returns the choices made, and the first stream that waits for ever, if one
    /// does.
    pub(crate) fn run(mut self, player: &mut dyn Player) -> (Chooser, Option<u32>) {
        (0..self.programs.len() as u32).for_each(|stream| self.advance(stream, player));
        loop {
            self.fill_slots(player);
            let Some(Reverse(event)) = self.events.pop() else { break };
            self.now_us = event.at_us;
            self.take_place(&event, player);
            // What happens at one time happens before slots are given out again, so that all have their
            // chance.
            while self.events.peek().is_some_and(|Reverse(event)| event.at_us <= self.now_us) {
                let Some(Reverse(event)) = self.events.pop() else { break };
                self.take_place(&event, player);
            }
        }
        let stuck = (0..self.programs.len()).find(|&stream| self.next[stream] < self.programs[stream].len());
        (self.chooser, stuck.map(|stream| stream as u32))
    }

    fn take_place(&mut self, event: &Event, player: &mut dyn Player) {
        if let Some(work) = event.work {
            self.engines[self.works[work as usize].engine as usize].free += 1;
            player.end(event.stream, work, self.now_us);
            self.next[event.stream as usize] += 1;
        }
        self.advance(event.stream, player);
    }

    /// Lets a stream go on to its next work, or to a point that nobody has recorded.
    fn advance(&mut self, stream: u32, player: &mut dyn Player) {
        while let Some(&op) = self.programs[stream as usize].get(self.next[stream as usize]) {
            match op {
                Op::Work(work) => {
                    return self.engines[self.works[work as usize].engine as usize]
                        .ready
                        .push(stream, self.works[work as usize].place);
                }
                Op::Record { seq } => self.record((stream, seq), player),
                Op::Wait { stream: other, seq } => match self.recorded.get(&(other, seq)) {
                    // Point 0 is always reached.
                    None if seq > 0 => return self.waiting.entry((other, seq)).or_default().push(stream),
                    Some(&at_us) if at_us + self.hand_off_us > self.now_us => {
                        return self.push(at_us + self.hand_off_us, stream, None);
                    }
                    _ => player.pass(stream, (other, seq), self.now_us),
                },
            }
            self.next[stream as usize] += 1;
        }
    }

    fn record(&mut self, point: (u32, u32), player: &mut dyn Player) {
        player.record(point.0, point.1, self.now_us);
        self.recorded.insert(point, self.now_us);
        for waiter in self.waiting.remove(&point).unwrap_or_default() {
            self.push(self.now_us + self.hand_off_us, waiter, None);
        }
    }

    fn push(&mut self, at_us: f64, stream: u32, work: Option<u32>) {
        self.count += 1;
        self.events.push(Reverse(Event { at_us, count: self.count, stream, work }));
    }

    /// Gives free slots to streams that want one, engine after engine.
    fn fill_slots(&mut self, player: &mut dyn Player) {
        for engine in 0..self.engines.len() {
            while self.engines[engine].free > 0 {
                let Some(stream) = self.engines[engine].ready.take(&mut self.chooser) else { break };
                let Op::Work(work) = self.programs[stream as usize][self.next[stream as usize]] else {
                    unreachable!("a stream is ready at a work only")
                };
                self.engines[engine].free -= 1;
                let cost_us = player.start(stream, work, self.now_us);
                self.push(self.now_us + cost_us, stream, Some(work));
            }
        }
    }
}

impl Ready {
    fn push(&mut self, stream: u32, place: u32) {
        match self {
            Self::ByPlace(heap) => heap.push(Reverse((place, stream))),
            Self::Listed(list) => list.push(stream),
        }
    }

    fn take(&mut self, chooser: &mut Chooser) -> Option<u32> {
        match self {
            Self::ByPlace(heap) => heap.pop().map(|Reverse((_, stream))| stream),
            Self::Listed(list) if list.is_empty() => None,
            Self::Listed(list) => Some(list.swap_remove(chooser.choose(list.len()))),
        }
    }
}
