//! A happens-before check: whether programs keep every edge. It reads the programs and the shape. It shares
//! no code with the compiler.

use std::cell::Cell;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::search::Search;
use super::{EXACT_NODES_MAX, NONE, Point, Schedule, Step, StreamKind};
use crate::error::{Error, Kind, Result};
use crate::graph::{NodeId, Rows, Shape, check_ids};
use crate::name::Name;

impl Shape {
    /// Checks that programs are a correct plan of this shape: each node runs once (on device streams once for
    /// each device that it spans), no wait lasts for ever, every edge is ordered, each stream releases a
    /// value after its last read, and (up to 4,096 nodes) no wait is redundant.
    ///
    /// `programs` has the kind and the steps of stream 0, 1, and so on. The points of a stream are recorded
    /// after its nodes, and count from 1. A reader of a node that spans several devices comes after the part
    /// on its own stream, if there is one; else after the parts on the same device, if there are any; else
    /// after all parts. A node that reads only the shape and type of a value of a `gpu` or `mixed` node does
    /// not wait for it.
    ///
    /// The check has no clock per stream. It searches a path for each edge that is not ordered by its stream
    /// or by a wait of its target, from both ends. O(n + m) apart from those searches.
    ///
    /// # Errors
    /// The first fault. The error names the nodes of the unordered edge or of the redundant wait, or the
    /// stream whose step names an unknown node. For all of these errors,
    /// [`Error::is_invalid_plan`](crate::Error::is_invalid_plan) is true. If the shape itself names unknown
    /// nodes, [`Error::is_invalid_graph`](crate::Error::is_invalid_graph) is true.
    ///
    /// # Examples
    /// ```
    /// use anabranch::graph::{Backend, Shape};
    /// use anabranch::plan::{Step, StreamKind};
    /// use anabranch::policy::PerOperator;
    ///
    /// let mut shape = Shape::new();
    /// let [a, b, c] = ["a", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
    /// shape.read(a, 0, b);
    /// shape.read(a, 0, c);
    /// let schedule = shape.schedule_with(&PerOperator)?;
    /// schedule.verify()?;
    ///
    /// let without_waits: Vec<(StreamKind, Vec<Step>)> = (0..schedule.streams())
    ///     .map(|stream| {
    ///         let steps = schedule.steps(stream).iter().copied().filter(|step| !matches!(step, Step::Wait(_)));
    ///         (schedule.kind(stream), steps.collect())
    ///     })
    ///     .collect();
    /// let error = shape.verify_programs(&without_waits).unwrap_err();
    /// assert_eq!(error.to_string(), "nothing orders node 'c' after 'a', which it depends on: its stream needs a wait");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn verify_programs<P: AsRef<[Step]>>(&self, programs: &[(StreamKind, P)]) -> Result<()> {
        let past = self.ordered(programs)?;
        if self.nodes().len() <= EXACT_NODES_MAX { past.check_waits() } else { Ok(()) }
    }

    /// The same check, except that redundant waits are allowed.
    pub(crate) fn verify_order<P: AsRef<[Step]>>(&self, programs: &[(StreamKind, P)]) -> Result<()> {
        self.ordered(programs).map(|_| ())
    }

    fn ordered<P: AsRef<[Step]>>(&self, programs: &[(StreamKind, P)]) -> Result<Past<'_>> {
        check_ids(self)?;
        check_steps(self, programs)?;
        let past = Past::read(self, programs)?;
        past.check_edges()?;
        past.check_releases(programs)?;
        Ok(past)
    }

    /// Returns the shape with only the edges within phases.
    fn in_phases(&self, phases: &[u32]) -> Self {
        let (mut shape, phase) = (Self::new(), |node: NodeId| phases[node.index()]);
        self.nodes().iter().for_each(|node| _ = shape.push(node.clone()));
        let inside = self.edges().iter().filter(|edge| phase(edge.source) == phase(edge.target));
        inside.for_each(|&edge| shape.edge(edge));
        shape
    }
}

/// Checks that the steps of programs name nodes of `shape`.
pub(crate) fn check_steps<P: AsRef<[Step]>>(shape: &Shape, programs: &[(StreamKind, P)]) -> Result<()> {
    let nodes = shape.nodes().len();
    for (stream, (_, program)) in programs.iter().enumerate() {
        for step in program.as_ref() {
            let (does, node) = match *step {
                Step::Run(node) => ("runs", node),
                Step::Release(node) => ("releases", node),
                Step::Wait(_) | Step::Record(_) => continue,
            };
            if node.index() >= nodes {
                let fault = format!("{does} node number {}, counted from 0, and the graph has {nodes}", node.index());
                return Err(Kind::Program { stream: stream as u32, fault }.into());
            }
        }
    }
    Ok(())
}

impl Schedule {
    /// Checks this schedule, and those of inner graphs, with [`Shape::verify_programs`], which shares no code
    /// with the compiler.
    ///
    /// The schedule of a pipeline orders only the nodes of each phase. In an item, phases come one after the
    /// other: [`Pipeline::verify`](crate::Pipeline::verify) checks that.
    ///
    /// # Errors
    /// Those of [`Shape::verify_programs`]. For a schedule of this library, an error is a defect of the
    /// library.
    pub fn verify(&self) -> Result<()> {
        self.verify_one()?;
        for (number, inner) in self.inner().iter().enumerate() {
            let within = |fault: Error| fault.within(self.inner_path(number));
            inner.schedule().verify_one().map_err(within)?;
        }
        Ok(())
    }

    fn verify_one(&self) -> Result<()> {
        let programs: Vec<(StreamKind, &[Step])> =
            (0..self.streams()).map(|stream| (self.kind(stream), self.steps(stream))).collect();
        match self.phases() {
            Some(phases) => self.shape().in_phases(phases).verify_programs(&programs),
            None => self.shape().verify_programs(&programs),
        }
    }
}

/// A spot: one node in one program. A node that runs on several streams has a spot for each. The first spot
/// has the node's number. The others are numbered after all nodes.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    node: NodeId,
    pub(super) stream: u32,
    /// The number of the node among the nodes of its stream.
    pub(super) index: u32,
    /// The previous spot on its stream.
    before: u32,
    /// The start and the end of its waits.
    pub(super) waits: (u32, u32),
    /// Its place in an order that all programs keep.
    pub(super) place: u32,
}

/// The predecessors of each spot.
pub(super) struct Past<'a> {
    shape: &'a Shape,
    kinds: Vec<StreamKind>,
    pub(super) spots: Vec<Spot>,
    /// For each node with several spots, the spots after the first.
    further: HashMap<NodeId, Vec<NodeId>>,
    /// For each wait, the spot whose point it waits for.
    waited: Vec<NodeId>,
    /// The wait that is left out, in the check whether it is redundant.
    pub(super) without: Cell<usize>,
    order: Vec<NodeId>,
    /// For each spot, its direct successors.
    pub(super) after: Rows<NodeId>,
    /// For each node, the sources of the edges that make it wait.
    sources: Rows<NodeId>,
}

impl<'a> Past<'a> {
    fn read<P: AsRef<[Step]>>(shape: &'a Shape, programs: &[(StreamKind, P)]) -> Result<Self> {
        let blank = |node| Spot { node, stream: NONE, index: 0, before: NONE, waits: (0, 0), place: NONE };
        let count = shape.nodes().len();
        let waiting = shape.edges().iter().filter(|edge| !shape.is_submission(edge));
        let mut past = Self {
            shape,
            kinds: programs.iter().map(|program| program.0).collect(),
            spots: shape.ids().map(blank).collect(),
            further: HashMap::new(),
            waited: Vec::new(),
            without: Cell::new(usize::MAX),
            order: Vec::with_capacity(count),
            after: Rows::with_capacity(0),
            sources: Rows::sorted(count, waiting.map(|edge| (edge.target.0, edge.source))),
        };
        let (mut points, mut recorders) = (Vec::new(), Rows::with_capacity(programs.len()));
        for (stream, (_, program)) in programs.iter().enumerate() {
            recorders.push(past.read_program(stream as u32, program.as_ref(), &mut points)?);
        }
        for (wait, (point, before)) in points.into_iter().enumerate() {
            let no_record = || Kind::NoRecord { node: past.name(before).clone(), stream: point.stream, seq: point.seq }.into();
            let of_stream = if point.stream < recorders.count() { recorders.row(point.stream) } else { &[] };
            past.waited[wait] = of_stream.get(point.seq as usize - 1).copied().ok_or_else(no_record)?;
        }
        shape.ids().try_for_each(|node| past.check_count(node))?;
        past.put_in_order()?;
        Ok(past)
    }

    /// Reads the spots of one program. Adds the points that it waits for to `points`, each with the waiting
    /// spot. Returns the spots behind which its points are, in their order.
    fn read_program(
        &mut self,
        stream: u32,
        program: &[Step],
        points: &mut Vec<(Point, NodeId)>,
    ) -> Result<SmallVec<[NodeId; 4]>> {
        let (mut index, mut before, mut first_wait) = (0, NONE, points.len());
        let (mut waits, mut recorders) = (SmallVec::<[Point; 4]>::new(), SmallVec::new());
        let mut next = Point { stream, seq: 1 };
        let fault = |fault: String| Err(Kind::Program { stream, fault }.into());
        for step in program {
            match *step {
                // Point 0 is always reached.
                Step::Wait(point) => waits.extend(Some(point).filter(|point| point.seq > 0)),
                Step::Run(node) => {
                    let spot = self.new_spot(node);
                    points.extend(waits.drain(..).map(|point| (point, spot)));
                    self.waited.resize(points.len(), spot);
                    let waits = (first_wait as u32, points.len() as u32);
                    self.spots[spot.index()] = Spot { node, stream, index, before, waits, place: NONE };
                    (index, before, first_wait) = (index + 1, spot.0, points.len());
                }
                Step::Record(Point { stream: other, seq }) if (other, seq) != (stream, next.seq) => {
                    return fault(format!("records point {other}@{seq} where its next one is {stream}@{}", next.seq));
                }
                Step::Record(Point { seq, .. }) if before == NONE || !waits.is_empty() => {
                    return fault(format!("records point {stream}@{seq} where no node has just run: record points behind nodes"));
                }
                Step::Record(_) => {
                    recorders.push(NodeId(before));
                    next.seq += 1;
                }
                Step::Release(_) => {}
            }
        }
        match waits.first() {
            Some(point) => {
                fault(format!("ends with a wait for point {}@{}, and runs nothing behind it", point.stream, point.seq))
            }
            None => Ok(recorders),
        }
    }

    /// Returns the number for one more spot of `node`.
    fn new_spot(&mut self, node: NodeId) -> NodeId {
        if self.spots[node.index()].stream == NONE {
            return node;
        }
        let spot = NodeId(self.spots.len() as u32);
        self.spots.push(self.spots[node.index()]);
        self.further.entry(node).or_default().push(spot);
        spot
    }

    /// Returns the spots of `node`.
    fn spots_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let further = if self.further.is_empty() { None } else { self.further.get(&node) };
        std::iter::once(node).chain(further.into_iter().flatten().copied())
    }

    /// Checks that `node` runs once. If it is on device streams, checks that it runs once on each of its
    /// devices.
    fn check_count(&self, node: NodeId) -> Result<()> {
        let is_run = self.spots[node.index()].stream != NONE;
        let got: SmallVec<[StreamKind; 4]> =
            self.spots_of(node).filter(|_| is_run).map(|spot| self.kinds[self.spots[spot.index()].stream as usize]).collect();
        let devices = self.shape.nodes()[node.index()].devices();
        let is_right = match got[..] {
            [StreamKind::Host] => true,
            [StreamKind::Device(_)] if devices.len() <= 1 => true,
            _ => got.len() == devices.len() && devices.iter().all(|&device| got.contains(&StreamKind::Device(device))),
        };
        match is_right {
            true => Ok(()),
            false if devices.len() <= 1 || got.is_empty() => {
                Err(Kind::RunCount { node: self.shape.name_of(node).clone(), count: got.len() as u32 }.into())
            }
            false => {
                Err(Kind::DeviceCount { node: self.shape.name_of(node).clone(), count: got.len(), devices: devices.len() }.into())
            }
        }
    }

    fn name(&self, spot: NodeId) -> &Name {
        self.shape.name_of(self.spots[spot.index()].node)
    }

    fn kind(&self, spot: NodeId) -> StreamKind {
        self.kinds[self.spots[spot.index()].stream as usize]
    }

    /// Returns the spots of `source` after which `reader` must come.
    fn seen_by(&self, reader: NodeId, source: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let stream = self.spots[reader.index()].stream;
        let is_own = move |spot: &NodeId| self.spots[spot.index()].stream == stream;
        let is_near = move |spot: &NodeId| self.kind(*spot) == self.kind(reader);
        let has_own = self.spots_of(source).any(|spot| is_own(&spot));
        let has_near = self.spots_of(source).any(|spot| is_near(&spot));
        self.spots_of(source).filter(move |spot| if has_own { is_own(spot) } else { !has_near || is_near(spot) })
    }

    fn waits_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let (start, end) = self.spots[node.index()].waits;
        (start as usize..end as usize).filter(|wait| *wait != self.without.get()).map(|wait| self.waited[wait])
    }

    /// Returns the direct predecessors of a spot: the previous spot on its stream, and those that it waits
    /// for.
    pub(super) fn before(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let before = Some(self.spots[node.index()].before).filter(|&before| before != NONE).map(NodeId);
        before.into_iter().chain(self.waits_of(node))
    }

    /// Finds an order that all programs keep, and the order of starts between ranks. If there is none,
    /// programs or ranks wait for each other in a cycle.
    fn put_in_order(&mut self) -> Result<()> {
        let all = || (0..self.spots.len() as u32).map(NodeId);
        let mut missing: Vec<usize> = all().map(|spot| self.before(spot).count()).collect();
        let after = Rows::sorted(missing.len(), all().flat_map(|spot| self.before(spot).map(move |before| (before.0, spot))));
        // Other ranks wait for the starts of communication in their order.
        let starts: HashMap<NodeId, NodeId> = self.shape.starts().windows(2).map(|pair| (pair[0], pair[1])).collect();
        starts.values().for_each(|spot| missing[spot.index()] += 1);
        let mut ready: Vec<NodeId> = all().filter(|spot| missing[spot.index()] == 0).collect();
        while let Some(node) = ready.pop() {
            self.spots[node.index()].place = self.order.len() as u32;
            self.order.push(node);
            let next_start = if starts.is_empty() { None } else { starts.get(&node) };
            for next in after.of(node).iter().chain(next_start) {
                missing[next.index()] -= 1;
                if missing[next.index()] == 0 {
                    ready.push(*next);
                }
            }
        }
        self.after = after;
        match missing.iter().position(|&missing| missing > 0) {
            Some(spot) => Err(Kind::WaitsForever { node: self.name(NodeId(spot as u32)).clone() }.into()),
            None => Ok(()),
        }
    }

    fn check_edges(&self) -> Result<()> {
        // For each stream, and each stream that it waited for, the number of the last node that is known to
        // have run.
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        let mut search = Search::new(self);
        for &target in &self.order {
            let stream = self.spots[target.index()].stream;
            for waited in self.waits_of(target) {
                let Spot { stream: other, index, .. } = self.spots[waited.index()];
                let known = known.entry((stream, other)).or_default();
                *known = index.max(*known);
            }
            for &node in self.sources.of(self.spots[target.index()].node) {
                for source in self.seen_by(target, node) {
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
        }
        Ok(())
    }

    /// Checks that each wait is needed: without it some edge is unordered, most often one into its own node.
    fn check_waits(&self) -> Result<()> {
        let mut search = Search::new(self);
        for &node in &self.order {
            let Spot { stream, waits, .. } = self.spots[node.index()];
            for wait in waits.0 as usize..waits.1 as usize {
                self.without.set(wait);
                // Sources on the stream of the wait come first: nearly always, the edge from one of them
                // needs the wait.
                let waited = self.spots[self.waited[wait].index()].stream;
                let sources = || {
                    let nodes = self.sources.of(self.spots[node.index()].node).iter();
                    let spots = nodes.flat_map(|&source| self.seen_by(node, source));
                    spots.map(|source| (source, self.spots[source.index()].stream))
                };
                let (near, far) = (sources().filter(|(_, on)| *on == waited), sources().filter(|(_, on)| *on != waited));
                let mut others = near.chain(far).filter(|(_, on)| *on != stream);
                let is_missed = others.any(|(source, _)| !search.finds(source, self.before(node)));
                if !is_missed && self.check_edges().is_ok() {
                    return Err(self.about(self.waited[wait], node, |waited, node| Kind::RedundantWait { waited, node }));
                }
            }
        }
        Ok(())
    }

    /// Checks that no stream reads a value after its release.
    fn check_releases<P: AsRef<[Step]>>(&self, programs: &[(StreamKind, P)]) -> Result<()> {
        // By stream and value: the number of nodes that the stream had run at the release.
        let mut released: HashMap<(u32, NodeId), u32> = HashMap::new();
        for (stream, (_, program)) in programs.iter().enumerate() {
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
            for spot in self.spots_of(edge.target) {
                let reader = self.spots[spot.index()];
                if released.get(&(reader.stream, edge.source)).is_some_and(|&index| index <= reader.index) {
                    return Err(self.about(edge.source, spot, |value, reader| Kind::ReleasedEarly { value, reader }));
                }
            }
        }
        Ok(())
    }

    fn about(&self, one: NodeId, other: NodeId, kind: fn(Name, Name) -> Kind) -> Error {
        kind(self.name(one).clone(), self.name(other).clone()).into()
    }
}
