//! When each node ran, laid out as boxes that never cover each other. Drawn by `svg`.
//!
//! A row is a stream of the plan. Many runs of the plan overlap, so a row has lanes, and a box lies in the
//! first that is free. Nodes that wait for files hold no thread and can be very many at once: they have lanes
//! of their own.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use anabranch::exec::NodeSpan;
use anabranch::plan::Schedule;

/// What there is to draw. Times are in milliseconds since the first node started.
pub(crate) struct Timeline {
    /// The nodes of the plan, in its order.
    pub(crate) nodes: Vec<Node>,
    /// The streams of the plan.
    pub(crate) rows: Vec<Row>,
    /// Every node of every run, by start.
    pub(crate) boxes: Vec<NodeBox>,
    /// The number of runs.
    pub(crate) runs: usize,
    /// The end of the last node.
    pub(crate) end_ms: f64,
    /// The part in which boxes are wide enough to be told apart: all of a short timeline, the middle of a
    /// long one.
    pub(crate) window: Range<f64>,
}

/// A node of the plan.
pub(crate) struct Node {
    pub(crate) name: String,
    /// Whether it waits, rather than computes.
    pub(crate) is_awaited: bool,
}

/// A stream of the plan, and how many lanes the boxes of the window take.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) label: String,
    /// Indices of its nodes.
    pub(crate) nodes: Vec<usize>,
    pub(crate) computed_lanes: usize,
    pub(crate) awaited_lanes: usize,
}

/// One node of one run. `node` and `row` are indices.
pub(crate) struct NodeBox {
    pub(crate) node: usize,
    pub(crate) row: usize,
    pub(crate) run: usize,
    pub(crate) lane: usize,
    pub(crate) start_ms: f64,
    pub(crate) end_ms: f64,
    pub(crate) is_ok: bool,
}

/// How many runs the window holds for each node that computes at once.
const RUNS_PER_NODE: f64 = 20.0;

impl Timeline {
    /// Lays out `spans` of runs of one plan, whose nodes named in `awaited` wait rather than compute.
    pub(crate) fn new(spans: &[NodeSpan], schedule: &Schedule, awaited: &[&str]) -> Self {
        let names = schedule.order().iter().map(|node| schedule.shape().nodes()[node.index()].name.to_string());
        let nodes: Vec<Node> = names.map(|name| Node { is_awaited: awaited.contains(&&*name), name }).collect();
        let mut rows: Vec<Row> =
            (0..schedule.streams()).map(|stream| Row { label: schedule.stream_name(stream), ..Row::default() }).collect();
        for (index, node) in schedule.order().iter().enumerate() {
            rows[schedule.stream_of(*node) as usize].nodes.push(index);
        }
        let (mut boxes, runs) = boxes(spans, &nodes);
        let end_ms = boxes.iter().map(|place| place.end_ms).fold(0.0, f64::max);
        assign_lanes(&mut boxes, &nodes);
        let computing = boxes.iter().filter(|place| !nodes[place.node].is_awaited);
        let computed_ms: f64 = computing.map(|place| place.end_ms - place.start_ms).sum();
        let share = RUNS_PER_NODE * (computed_ms / end_ms).max(1.0) / runs as f64;
        // A little more than the whole is better seen whole.
        let width = if share > 0.7 { end_ms } else { end_ms * share };
        let window = (end_ms - width) / 2.0..(end_ms + width) / 2.0;
        let mut timeline = Self { nodes, rows, boxes, runs, end_ms, window };
        timeline.count_lanes();
        timeline
    }

    /// Returns the boxes that are in the window, if only in part.
    pub(crate) fn in_window(&self) -> impl Iterator<Item = &NodeBox> {
        self.boxes.iter().filter(|place| place.end_ms > self.window.start && place.start_ms < self.window.end)
    }

    /// Returns true if the window leaves something out.
    pub(crate) fn is_cut(&self) -> bool {
        self.window.start > 0.0
    }

    fn count_lanes(&mut self) {
        let mut lanes = vec![[0; 2]; self.rows.len()];
        for place in self.in_window() {
            let count = &mut lanes[place.row][usize::from(self.nodes[place.node].is_awaited)];
            *count = (place.lane + 1).max(*count);
        }
        for (row, [computed, awaited]) in self.rows.iter_mut().zip(lanes) {
            (row.computed_lanes, row.awaited_lanes) = (computed, awaited);
        }
    }
}

/// Returns a box for each span, by start and not yet in a lane, and the number of runs.
fn boxes(spans: &[NodeSpan], nodes: &[Node]) -> (Vec<NodeBox>, usize) {
    let mut sorted: Vec<&NodeSpan> = spans.iter().collect();
    sorted.sort_by_key(|span| span.start);
    let origin = sorted.first().map_or_else(Instant::now, |span| span.start);
    let ms = |time: Instant| (time - origin).as_secs_f64() * 1e3;
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(index, node)| (&*node.name, index)).collect();

    let mut runs: HashMap<u64, usize> = HashMap::new();
    let mut boxes = Vec::with_capacity(sorted.len());
    for span in sorted {
        let Some(&node) = index.get(&*span.node) else { continue };
        let next = runs.len();
        let (run, row) = (*runs.entry(span.run).or_insert(next), span.stream as usize);
        boxes.push(NodeBox { node, row, run, lane: 0, start_ms: ms(span.start), end_ms: ms(span.end), is_ok: span.is_ok });
    }
    (boxes, runs.len())
}

/// Gives each box the first lane of its row that is free.
fn assign_lanes(boxes: &mut [NodeBox], nodes: &[Node]) {
    let mut free_from: HashMap<(usize, bool), Vec<f64>> = HashMap::new();
    for place in boxes {
        let lanes = free_from.entry((place.row, nodes[place.node].is_awaited)).or_default();
        place.lane = lanes.iter().position(|&free| free <= place.start_ms).unwrap_or(lanes.len());
        if place.lane == lanes.len() {
            lanes.push(0.0);
        }
        lanes[place.lane] = place.end_ms;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch::graph::NodeId;
    use anabranch::{Graph, HostStream};

    use super::*;

    #[test]
    fn boxes_never_cover_each_other() {
        let timeline = timeline(&(0..40).map(|run| (run, run * 3)).collect::<Vec<_>>());
        assert_eq!((timeline.runs, timeline.boxes.len()), (40, 80));
        let places = |place: &NodeBox| (place.row, timeline.nodes[place.node].is_awaited, place.lane);
        for (index, a) in timeline.boxes.iter().enumerate() {
            for b in timeline.boxes[..index].iter().filter(|b| places(a) == places(b)) {
                assert!(a.start_ms >= b.end_ms, "{} in lane {} of row {}", a.start_ms, a.lane, a.row);
            }
        }
    }

    #[test]
    fn runs_are_told_apart_by_their_number() {
        assert_eq!(timeline(&[(7, 0), (8, 20), (9, 20), (10, 60)]).runs, 4);
    }

    #[test]
    fn a_long_timeline_shows_its_middle() {
        assert!(!timeline(&[(0, 0)]).is_cut());
        let long = timeline(&(0..1000).map(|run| (run, run * 12)).collect::<Vec<_>>());
        assert!(long.is_cut() && long.in_window().count() < 100);
        assert!((long.window.start + long.window.end - long.end_ms).abs() < 1e-6);
    }

    /// Runs of two nodes, each given by its number and its start in milliseconds: 5 ms of reading, then 5 ms
    /// of work.
    fn timeline(runs: &[(u64, u64)]) -> Timeline {
        let mut graph = Graph::new();
        let read = graph.task("read", (), || 0u32);
        let work = graph.kernel("work", &read, |_: &mut HostStream, read: &u32| *read);
        graph.output("work", &work);
        let plan = graph.compile().expect("two nodes and an edge");
        let origin = Instant::now();
        let span = |run, id: NodeId, stream, start_ms| {
            let at = |ms| origin + Duration::from_millis(ms);
            let (start, end) = (at(start_ms), at(start_ms + 5));
            let mut span = NodeSpan::new(&plan, id, stream, start, end);
            span.run = run;
            span
        };
        let ids: Vec<NodeId> = plan.schedule().shape().ids().collect();
        let both = |&(run, start)| [span(run, ids[0], 1, start), span(run, ids[1], 0, start + 5)];
        let spans: Vec<NodeSpan> = runs.iter().flat_map(both).collect();
        Timeline::new(&spans, plan.schedule(), &["read"])
    }
}
