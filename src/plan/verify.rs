//! Whether programs keep every edge: a happens-before check that reads the programs and the shape, and shares nothing with the code
//! that made them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use super::{EXACT_NODES_MAX, Point, Schedule, Step};
use crate::error::{Error, Kind, Result};
use crate::graph::{NodeId, Shape};

/// No node.
const NONE: u32 = u32::MAX;

/// Checks that programs are a correct plan of `shape`: each node is run once, no wait is for ever, every edge is ordered, values are
/// released after they were read on that stream, and (up to 4,096 nodes) no wait could be left out.
///
/// `programs` holds the steps of stream 0, 1, ... The check walks what happens before what, and needs no clock per stream: a search
/// backwards for each edge that neither its stream nor a wait of its own orders. O(n + m) apart from those.
///
/// # Errors
/// The first thing that is wrong: it names the nodes of the edge that is not ordered, or of the wait that is redundant. For all of
/// them [`Error::is_invalid_plan`](crate::Error::is_invalid_plan) is true.
///
/// # Panics
/// If a step names a node that is not of the shape.
///
/// # Examples
/// ```
/// use anabranch::{Backend, PerOperator, Shape, Step, verify};
///
/// let mut shape = Shape::new();
/// let [a, b, c] = ["a", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(a, 0, b);
/// shape.read(a, 0, c);
/// let schedule = shape.schedule(&PerOperator)?;
/// schedule.verify()?;
///
/// let without_waits: Vec<Vec<Step>> = (0..schedule.streams())
///     .map(|stream| schedule.steps(stream).iter().copied().filter(|step| !matches!(step, Step::Wait(_))).collect())
///     .collect();
/// let error = verify(&shape, &without_waits).unwrap_err();
/// assert_eq!(error.to_string(), "nothing orders node 'c' after 'a', which it depends on: its stream needs a wait");
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn verify<P: AsRef<[Step]>>(shape: &Shape, programs: &[P]) -> Result<()> {
    let past = Past::read(shape, programs)?;
    past.check_edges()?;
    past.check_releases(programs)?;
    if shape.nodes().len() <= EXACT_NODES_MAX { past.check_waits() } else { Ok(()) }
}

impl Schedule {
    /// Checks this schedule with [`verify`], which shares no code with the compiler.
    ///
    /// # Errors
    /// As [`verify`]; for a schedule of this library that is a defect of the library.
    pub fn verify(&self) -> Result<()> {
        let programs: Vec<&[Step]> = (0..self.streams()).map(|stream| self.steps(stream)).collect();
        verify(self.shape(), &programs)
    }
}

/// What the programs say of one node.
#[derive(Clone, Copy)]
struct Spot {
    stream: u32,
    /// Its place among the nodes of its stream.
    index: u32,
    /// The node before it on its stream.
    before: u32,
    /// Where its waits begin, and end.
    waits: (u32, u32),
    /// Its place in an order that all programs keep.
    place: u32,
}

/// What comes before each node.
struct Past<'a> {
    shape: &'a Shape,
    spots: Vec<Spot>,
    /// For each wait the node whose point it is for.
    waited: Vec<NodeId>,
    /// The wait that is left out, to see whether it is missed.
    without: Cell<usize>,
    order: Vec<NodeId>,
    /// For each node the sources of its edges.
    sources: Vec<Vec<NodeId>>,
}

impl<'a> Past<'a> {
    fn read<P: AsRef<[Step]>>(shape: &'a Shape, programs: &[P]) -> Result<Self> {
        let blank = Spot { stream: NONE, index: 0, before: NONE, waits: (0, 0), place: NONE };
        let count = shape.nodes().len();
        let mut past = Self {
            shape,
            spots: vec![blank; count],
            waited: Vec::new(),
            without: Cell::new(usize::MAX),
            order: Vec::with_capacity(count),
            sources: vec![Vec::new(); count],
        };
        shape.edges().iter().for_each(|edge| past.sources[edge.target.index()].push(edge.source));
        let recorders = recorders(programs);
        for (stream, program) in programs.iter().enumerate() {
            past.read_program(stream as u32, program.as_ref(), &recorders)?;
        }
        if let Some(node) = shape.ids().find(|node| past.spots[node.index()].stream == NONE) {
            return Err(Kind::RunCount { node: shape.name(node).clone(), count: 0 }.into());
        }
        past.put_in_order()?;
        Ok(past)
    }

    fn read_program(&mut self, stream: u32, program: &[Step], recorders: &HashMap<Point, NodeId>) -> Result<()> {
        let (mut index, mut before, mut first_wait) = (0, NONE, self.waited.len() as u32);
        let mut points = Vec::new();
        for step in program {
            match *step {
                Step::Wait(point) => points.push(point),
                Step::Run(node) => {
                    for point in points.drain(..) {
                        let name = || self.shape.name(node).clone();
                        let recorder = recorders.get(&point).copied();
                        let no_record = || Kind::NoRecord { node: name(), stream: point.stream, seq: point.seq };
                        self.waited.push(recorder.ok_or_else(no_record)?);
                    }
                    let waits = (first_wait, self.waited.len() as u32);
                    let spot = Spot { stream, index, before, waits, place: NONE };
                    if std::mem::replace(&mut self.spots[node.index()], spot).stream != NONE {
                        return Err(Kind::RunCount { node: self.shape.name(node).clone(), count: 2 }.into());
                    }
                    (index, before, first_wait) = (index + 1, node.0, waits.1);
                }
                Step::Record(_) | Step::Release(_) => {}
            }
        }
        Ok(())
    }

    fn waits_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (start, end) = self.spots[node.index()].waits;
        (start as usize..end as usize).filter(|wait| *wait != self.without.get()).map(|wait| self.waited[wait])
    }

    /// Returns what directly comes before a node: the one before it on its stream, and those that it waits for.
    fn before(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let before = Some(self.spots[node.index()].before).filter(|&before| before != NONE).map(NodeId);
        before.into_iter().chain(self.waits_of(node))
    }

    /// Finds an order that all programs keep; there is one unless they wait for each other in a circle.
    fn put_in_order(&mut self) -> Result<()> {
        let mut missing: Vec<usize> = self.shape.ids().map(|node| self.before(node).count()).collect();
        let mut after: Vec<Vec<NodeId>> = vec![Vec::new(); missing.len()];
        self.shape.ids().for_each(|node| self.before(node).for_each(|before| after[before.index()].push(node)));
        let mut ready: Vec<NodeId> = self.shape.ids().filter(|node| missing[node.index()] == 0).collect();
        while let Some(node) = ready.pop() {
            self.spots[node.index()].place = self.order.len() as u32;
            self.order.push(node);
            for next in &after[node.index()] {
                missing[next.index()] -= 1;
                if missing[next.index()] == 0 {
                    ready.push(*next);
                }
            }
        }
        match self.shape.ids().find(|node| missing[node.index()] > 0) {
            Some(node) => Err(Kind::WaitsForever { node: self.shape.name(node).clone() }.into()),
            None => Ok(()),
        }
    }

    fn check_edges(&self) -> Result<()> {
        // For each stream and each that it has waited for: up to which of its nodes.
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        let mut search = Search::new(self);
        for &target in &self.order {
            let stream = self.spots[target.index()].stream;
            for waited in self.waits_of(target) {
                let Spot { stream: other, index, .. } = self.spots[waited.index()];
                let known = known.entry((stream, other)).or_default();
                *known = index.max(*known);
            }
            for &source in &self.sources[target.index()] {
                let spot = self.spots[source.index()];
                let is_known = known.get(&(stream, spot.stream)).is_some_and(|&index| index >= spot.index);
                let is_ordered = match spot.stream == stream {
                    true => spot.index < self.spots[target.index()].index,
                    false => is_known || search.finds(source, self.before(target)),
                };
                if !is_ordered {
                    return Err(self.about(source, target, |earlier, later| Kind::NotOrdered { earlier, later }));
                }
            }
        }
        Ok(())
    }

    /// Checks that each wait is needed: without it some edge is not ordered, most often one into its own node.
    fn check_waits(&self) -> Result<()> {
        let mut search = Search::new(self);
        for &node in &self.order {
            let Spot { stream, waits, .. } = self.spots[node.index()];
            for wait in waits.0 as usize..waits.1 as usize {
                self.without.set(wait);
                // Those of the stream that is waited for come first: nearly always one of them misses the wait.
                let waited = self.spots[self.waited[wait].index()].stream;
                let sources = self.sources[node.index()].iter().map(|&source| (source, self.spots[source.index()].stream));
                let (near, far) = (sources.clone().filter(|(_, on)| *on == waited), sources.filter(|(_, on)| *on != waited));
                let mut others = near.chain(far).filter(|(_, on)| *on != stream);
                let is_missed = others.any(|(source, _)| !search.finds(source, self.before(node)));
                if !is_missed && self.check_edges().is_ok() {
                    return Err(self.about(self.waited[wait], node, |waited, node| Kind::RedundantWait { waited, node }));
                }
            }
        }
        Ok(())
    }

    /// Checks that no stream reads a value that it has released.
    fn check_releases<P: AsRef<[Step]>>(&self, programs: &[P]) -> Result<()> {
        // By stream and value: how many nodes the stream had run by the release.
        let mut released: HashMap<(u32, NodeId), u32> = HashMap::new();
        for (stream, program) in programs.iter().enumerate() {
            let mut index = 0;
            for step in program.as_ref() {
                match *step {
                    Step::Run(_) => index += 1,
                    Step::Release(value) => _ = released.insert((stream as u32, value), index),
                    Step::Wait(_) | Step::Record(_) => {}
                }
            }
        }
        for edge in self.shape.edges().iter().filter(|edge| edge.is_data()) {
            let reader = self.spots[edge.target.index()];
            if released.get(&(reader.stream, edge.source)).is_some_and(|&index| index <= reader.index) {
                return Err(self.about(edge.source, edge.target, |value, reader| Kind::ReleasedEarly { value, reader }));
            }
        }
        Ok(())
    }

    fn about(&self, one: NodeId, other: NodeId, kind: fn(Arc<str>, Arc<str>) -> Kind) -> Error {
        kind(self.shape.name(one).clone(), self.shape.name(other).clone()).into()
    }
}

/// Returns the node after which each point is recorded.
fn recorders<P: AsRef<[Step]>>(programs: &[P]) -> HashMap<Point, NodeId> {
    let mut recorders = HashMap::new();
    for program in programs {
        let mut last = None;
        for step in program.as_ref() {
            match *step {
                Step::Run(node) => last = Some(node),
                Step::Record(point) => recorders.extend(last.map(|node| (point, node))),
                Step::Wait(_) | Step::Release(_) => {}
            }
        }
    }
    recorders
}

/// A search backwards through what comes before.
struct Search<'a> {
    past: &'a Past<'a>,
    /// For each node the last search that came by.
    seen: Vec<u64>,
    searches: u64,
    found: Vec<NodeId>,
}

impl<'a> Search<'a> {
    fn new(past: &'a Past<'a>) -> Self {
        Self { past, seen: vec![0; past.spots.len()], searches: 0, found: Vec::new() }
    }

    /// Returns true if `source`, or a later node of its stream, is or comes before one of `starts`.
    fn finds(&mut self, source: NodeId, starts: impl Iterator<Item = NodeId>) -> bool {
        let wanted = self.past.spots[source.index()];
        self.searches += 1;
        self.found.clear();
        self.found.extend(starts);
        while let Some(node) = self.found.pop() {
            let spot = self.past.spots[node.index()];
            if spot.stream == wanted.stream && spot.index >= wanted.index {
                return true;
            }
            // What stands before the wanted node in an order that all programs keep does not come after it.
            let is_new = std::mem::replace(&mut self.seen[node.index()], self.searches) != self.searches;
            if is_new && spot.place > wanted.place {
                self.found.extend(self.past.before(node));
            }
        }
        false
    }
}
