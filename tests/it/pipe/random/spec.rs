//! A random pipeline as data: its nodes, what they read, and which of them fail for which items.

use anabranch::pipe::{Beat, Phases};

use crate::support::Dice;

/// A value that a node reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Read {
    Item,
    Node(usize),
}

/// The outcome of a node for one item.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Fate {
    Ok,
    Error,
    Panic,
}

/// How a graph is run over items.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Way {
    Pipeline,
    /// As a plain plan. Its nodes have no states and no feedback.
    Stream {
        is_ordered: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) reads: Vec<Read>,
    /// The last read, so that it may be taken. It is the state of a loop or a branch.
    pub(super) last: Read,
    pub(super) takes: bool,
    /// Whether a loop or a branch begins with a copy of the last, which it may take.
    pub(super) copies: bool,
    pub(super) kind: usize,
    pub(super) has_state: bool,
    pub(super) phase: u32,
    /// The number of pending polls of an async node, or of the step of a loop or a branch.
    pub(super) yields: usize,
    /// The iterations of a loop. None if its result decides.
    pub(super) times: Option<u64>,
    pub(super) feedbacks: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Feedback {
    pub(super) readers: Vec<usize>,
    pub(super) maker: usize,
}

/// A node that waits for one of an earlier item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemEdge {
    pub(super) source: usize,
    pub(super) target: usize,
    /// The distance to the earlier item.
    pub(super) items: u32,
}

/// A pipeline as data.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) seed: u64,
    pub(super) way: Way,
    pub(super) nodes: Vec<Node>,
    pub(super) feedbacks: Vec<Feedback>,
    pub(super) item_edges: Vec<ItemEdge>,
    /// The second result; the first is that of the last node.
    pub(super) second: Option<Read>,
    pub(super) phases: Phases,
    pub(super) beat: Beat,
    pub(super) slots: u32,
    pub(super) is_serial: bool,
    /// The percentage of nodes and items that fail.
    pub(super) failing: u64,
}

pub(super) const TASK: usize = 0;
pub(super) const KERNEL: usize = 1;
pub(super) const TRY_TASK: usize = 2;
pub(super) const ASYNC: usize = 3;
pub(super) const LOOP: usize = 4;
pub(super) const BRANCH: usize = 5;

pub(super) fn mix(seed: u64, words: impl Iterator<Item = u64>) -> u64 {
    words.fold(seed.wrapping_mul(0x9e37_79b9), |sum, word| (sum.rotate_left(7) ^ word).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the outcome of a node for an item.
pub(super) fn fate(seed: u64, failing: u64, kind: usize, node: usize, item: u64) -> Fate {
    let chance = Dice::new(mix(seed, [node as u64, item].into_iter())).below(100) as u64;
    match chance {
        chance if chance >= failing => Fate::Ok,
        // A plain task can only panic.
        chance if chance % 2 == 0 || kind == TASK => Fate::Panic,
        _ => Fate::Error,
    }
}

/// Returns whether a loop without a number of iterations goes on.
pub(super) fn goes_on(word: u64) -> bool {
    !word.is_multiple_of(3)
}

/// Returns the arm that a branch takes.
pub(super) fn which(word: u64) -> Option<usize> {
    [Some(0), Some(1), None][(word % 3) as usize]
}

impl Node {
    pub(super) fn reads_value(&self, read: Read) -> bool {
        self.reads.contains(&read) || self.last == read
    }

    /// Returns whether a loop goes on after `iterations` iterations.
    pub(super) fn goes_on(&self, iterations: u64, word: u64) -> bool {
        self.times.map_or_else(|| goes_on(word), |times| iterations < times)
    }
}

impl Spec {
    pub(super) fn random(seed: u64) -> Self {
        Self::of_way(None, seed)
    }

    /// If no way is given, it is random, too.
    pub(super) fn of_way(way: Option<Way>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let phases = [Phases::Written, Phases::Each, Phases::Auto { depth: 1 + dice.below(4) as u32 }][dice.below(3)];
        let stream = Way::Stream { is_ordered: dice.below(2) == 0 };
        let mut spec = Self {
            seed,
            way: way.unwrap_or(if dice.below(3) == 0 { stream } else { Way::Pipeline }),
            nodes: Vec::new(),
            feedbacks: Vec::new(),
            item_edges: Vec::new(),
            second: None,
            phases,
            beat: [Beat::Elastic, Beat::Elastic, Beat::Lockstep][dice.below(3)],
            slots: 1 + dice.below(9) as u32,
            is_serial: dice.below(4) == 0,
            failing: [0, 0, 10, 30][dice.below(4)],
        };
        let inner = dice.below(8);
        for _ in 0..inner {
            spec.add_node(&mut dice, None);
        }
        // The last node reads the values that no other node reads.
        let reads: Vec<Read> = spec.reads().filter(|&read| spec.readers(read) == 0).collect();
        spec.add_node(&mut dice, Some(reads));
        if spec.way == Way::Pipeline {
            spec.add_feedbacks(&mut dice);
            spec.add_item_edges(&mut Dice::new(seed ^ 0x17e3));
        }
        let open: Vec<Read> =
            spec.reads().filter(|&read| !spec.is_shared(read) && !spec.is_taken(read) && !spec.is_borrowed(read)).collect();
        let second = open.get(dice.below(open.len().max(1))).copied();
        spec.second = second.filter(|&read| read != Read::Node(spec.nodes.len() - 1));
        spec
    }

    fn reads(&self) -> impl Iterator<Item = Read> + use<> {
        std::iter::once(Read::Item).chain((0..self.nodes.len()).map(Read::Node))
    }

    fn readers(&self, read: Read) -> usize {
        self.nodes.iter().filter(|node| node.reads_value(read)).count()
    }

    fn is_taken(&self, read: Read) -> bool {
        self.nodes.iter().any(|node| node.takes && node.last == read)
    }

    /// Whether it may be the value of another node, which a loop or a branch has only read.
    fn is_borrowed(&self, read: Read) -> bool {
        let Read::Node(node) = read else { return false };
        let node = &self.nodes[node];
        node.kind >= LOOP && !node.takes && !node.copies
    }

    /// Whether an async node, a loop or a branch holds it as well.
    fn is_shared(&self, read: Read) -> bool {
        self.nodes.iter().any(|node| node.kind >= ASYNC && (node.reads.contains(&read) || node.last == read && !node.takes))
    }

    fn phase_of(&self, read: Read) -> u32 {
        if let Read::Node(node) = read { self.nodes[node].phase } else { 1 }
    }

    fn add_node(&mut self, dice: &mut Dice, all: Option<Vec<Read>>) {
        let open: Vec<Read> = self.reads().filter(|&read| !self.is_taken(read)).collect();
        let is_last = all.is_some();
        let mut reads = all.unwrap_or_else(|| (0..dice.below(4)).map(|_| open[dice.below(open.len())]).collect());
        let last = reads.pop().unwrap_or_else(|| open[dice.below(open.len())]);
        let is_own = !reads.contains(&last) && !self.is_shared(last) && !self.is_borrowed(last);
        let takes = !is_last && is_own && dice.below(2) == 0;
        // A value that is moved out of an item must be its own.
        let copies = !takes && (is_last && self.way == Way::Pipeline || dice.below(2) == 0);
        // A taker follows all readers of the value.
        let others = self.nodes.iter().filter(|node| takes && node.reads_value(last)).map(|node| node.phase);
        let phase =
            others.chain(reads.iter().chain([&last]).map(|&read| self.phase_of(read))).max().unwrap() + dice.below(2) as u32;
        let (kind, yields) = (dice.below(6), dice.below(3));
        let has_state = dice.below(3) == 0 && kind < LOOP && self.way == Way::Pipeline;
        let times = Some(dice.below(4) as u64).filter(|&times| times < 3);
        self.nodes.push(Node { reads, last, takes, copies, kind, has_state, phase, yields, times, feedbacks: Vec::new() });
    }

    fn add_item_edges(&mut self, dice: &mut Dice) {
        for _ in 0..[0, 0, 1, 3][dice.below(4)] {
            let [source, target] = [(); 2].map(|()| dice.below(self.nodes.len()));
            let items = 1 + dice.below(self.slots as usize + 1) as u32;
            self.item_edges.push(ItemEdge { source, target, items });
        }
    }

    fn add_feedbacks(&mut self, dice: &mut Dice) {
        let last = self.nodes.len() - 1;
        for number in 0..dice.below(3) {
            let first = dice.below(last + 1);
            let phase = self.nodes[first].phase;
            // Only written phases have to fit; others are computed.
            let is_written = self.phases == Phases::Written;
            let may_read = |node: &usize| *node != first && (!is_written || self.nodes[*node].phase == phase);
            let more = [0, 0, 3][dice.below(3)];
            let readers: Vec<usize> =
                [first].into_iter().chain((0..last).filter(may_read).filter(|_| dice.below(10) < more)).collect();
            let makers: Vec<usize> = (0..=last).filter(|&node| !is_written || self.nodes[node].phase >= phase).collect();
            let maker = makers[dice.below(makers.len())];
            if self.is_taken(Read::Node(maker)) {
                continue;
            }
            let number = number.min(self.feedbacks.len());
            readers.iter().for_each(|&reader| self.nodes[reader].feedbacks.push(number));
            self.feedbacks.push(Feedback { readers, maker });
        }
        // Pipelines begin with the written phases.
        if self.phases != Phases::Written && !self.feedbacks.is_empty() {
            self.nodes.iter_mut().for_each(|node| node.phase = 1);
        }
    }
}
