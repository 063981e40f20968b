//! The programs that become code. They are the programs of a schedule. For devices with queues, each segment
//! is merged into one node, alone in its own program.

use super::segments::Segments;
use super::{NONE, Point, Schedule, Step};
use crate::graph::{NodeId, Rows};

pub(super) struct Programs<'a> {
    schedule: &'a Schedule,
    /// The programs with merged segments, each with its stream of the schedule. None if there are no
    /// segments.
    drawn: Option<(Rows<Step>, Vec<u32>)>,
}

impl<'a> Programs<'a> {
    /// Merges each segment into its first node. Without segments, the programs are those of the schedule.
    pub(super) fn new(schedule: &'a Schedule, segments: Option<&Segments>) -> Self {
        let drawn = segments.map(|segments| {
            let mut drawing = Drawing { schedule, segments, programs: Vec::new(), place_of: vec![None; segments.of.len()] };
            drawing.split();
            drawing.drawn()
        });
        Self { schedule, drawn }
    }

    pub(super) fn count(&self) -> u32 {
        self.drawn.as_ref().map_or(self.schedule.streams(), |(steps, _)| steps.count())
    }

    pub(super) fn steps(&self, program: u32) -> &[Step] {
        self.drawn.as_ref().map_or_else(|| self.schedule.steps(program), |(steps, _)| steps.row(program))
    }

    /// Returns the stream of the schedule to which a program belongs.
    pub(super) fn stream(&self, program: u32) -> u32 {
        self.drawn.as_ref().map_or(program, |(_, streams)| streams[program as usize])
    }
}

struct Drawing<'a> {
    schedule: &'a Schedule,
    segments: &'a Segments,
    /// For each program its stream and its nodes: the first node of a segment, or consecutive nodes of the
    /// host.
    programs: Vec<(u32, Vec<Stop>)>,
    /// The program of each remaining node, and its place in the program.
    place_of: Vec<Option<(u32, u32)>>,
}

struct Stop {
    node: NodeId,
    /// The nodes that it waits for. A node of a segment is represented by the segment's first node.
    waits: Vec<NodeId>,
    releases: Vec<NodeId>,
    /// The number of its record in its program, if another program waits for it, or else [`NONE`].
    record: u32,
}

impl Drawing<'_> {
    /// Makes the programs: one for each segment, and one for each part of a stream between segments.
    fn split(&mut self) {
        for stream in 0..self.schedule.streams() {
            let mut is_open = false;
            for step in self.schedule.steps(stream) {
                match *step {
                    Step::Run(node) if self.segments.of[node.index()] != NONE => {
                        is_open = false;
                        if self.segments.lead(node) == node {
                            self.begin(stream);
                            self.push(node, self.waits_of_segment(node));
                        }
                    }
                    Step::Run(node) => {
                        if !std::mem::replace(&mut is_open, true) {
                            self.begin(stream);
                        }
                        self.push(node, self.waits_of_host(node));
                    }
                    Step::Release(value) if is_open => {
                        let stops = &mut self.programs.last_mut().expect("a release is behind a node").1;
                        stops.last_mut().expect("a program has a node").releases.push(value);
                    }
                    _ => {}
                }
            }
        }
        self.number_records();
    }

    fn begin(&mut self, stream: u32) {
        self.programs.push((stream, Vec::new()));
    }

    fn push(&mut self, node: NodeId, mut waits: Vec<NodeId>) {
        waits.sort_unstable();
        waits.dedup();
        let program = self.programs.len() as u32 - 1;
        let stops = &mut self.programs[program as usize].1;
        self.place_of[node.index()] = Some((program, stops.len() as u32));
        stops.push(Stop { node, waits, releases: Vec::new(), record: NONE });
    }

    fn waits_of_segment(&self, lead: NodeId) -> Vec<NodeId> {
        let segment = self.segments.of[lead.index()];
        let before = self.segments.members(segment).iter().flat_map(|&node| self.segments.before.of(node));
        before.filter(|source| self.segments.of[source.index()] != segment).map(|&source| self.segments.lead(source)).collect()
    }

    /// Returns the waits of a node of the host. It waits for the node before it on its own stream only if
    /// that node is in a segment. Otherwise both are in one program.
    fn waits_of_host(&self, node: NodeId) -> Vec<NodeId> {
        let is_own = |source: NodeId| {
            self.segments.of[source.index()] == NONE && self.schedule.stream_of(source) == self.schedule.stream_of(node)
        };
        let before = self.segments.before.of(node).iter();
        before.filter(|&&source| !is_own(source)).map(|&source| self.segments.lead(source)).collect()
    }

    fn number_records(&mut self) {
        let waits = self.programs.iter().flat_map(|(_, stops)| stops).flat_map(|stop| &stop.waits);
        let awaited: Vec<NodeId> = waits.copied().collect();
        for node in awaited {
            let (program, place) = self.place(node);
            self.programs[program as usize].1[place as usize].record = 0;
        }
        for (_, stops) in &mut self.programs {
            let recorded = stops.iter_mut().filter(|stop| stop.record != NONE);
            recorded.zip(1..).for_each(|(stop, seq)| stop.record = seq);
        }
    }

    fn place(&self, node: NodeId) -> (u32, u32) {
        self.place_of[node.index()].expect("the first node of a segment has a place")
    }

    fn point(&self, node: NodeId) -> Point {
        let (program, place) = self.place(node);
        Point { stream: program, seq: self.programs[program as usize].1[place as usize].record }
    }

    fn drawn(&self) -> (Rows<Step>, Vec<u32>) {
        let mut drawn = Rows::with_capacity(self.programs.len());
        for (_, stops) in &self.programs {
            drawn.push(stops.iter().flat_map(|stop| {
                let waits = stop.waits.iter().map(|&source| Step::Wait(self.point(source)));
                let record = (stop.record != NONE).then(|| Step::Record(self.point(stop.node)));
                let releases = stop.releases.iter().map(|&value| Step::Release(value));
                waits.chain([Step::Run(stop.node)]).chain(record).chain(releases)
            }));
        }
        (drawn, self.programs.iter().map(|(stream, _)| *stream).collect())
    }
}
