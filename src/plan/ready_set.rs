//! `ReadySet`: a stream for each run of dependent device work. Any number of nodes can hand a stream on.

use super::stream_set::{StreamSet, Uses};
use super::{Assignment, Policy, Ranked, needs};
use crate::error::Result;
use crate::graph::{Links, NodeId, Shape, kahn_order};

/// Gives independent nodes their own streams. Each node has a set of the streams that are free after it: its
/// own, and those in the sets of its producers that no node has used since. A consumer takes the lowest of
/// them. This is the algorithm that DALI released as Executor 2.0.
///
/// Two nodes share a stream only if one depends on the other, and numbers have no gaps. Unlike in
/// [`PerOperator`](crate::policy::PerOperator), a stream is not lost when a node has no consumer for it at
/// once. `cpu` nodes that read GPU memory get a stream. Other `cpu` nodes may pass a stream on and keep none.
///
/// O((n + m) log n) as long as the producers of a node have mostly the same free streams: their sets share
/// the common part. On a wavefront they do not, and the cost of a node grows with the width. After 130
/// million steps over entries, about two seconds (a wavefront of 400,000 nodes), the policy gives up and uses
/// the streams of [`Ranked`], and the plan says so.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::ReadySet;
///
/// # let mut shape = Shape::new();
/// # let names = ["load", "left", "right", "join"];
/// # let [load, left, right, join] = names.map(|name| shape.node(name, Backend::Gpu));
/// # for (from, to) in [(load, left), (load, right), (left, join), (right, join)] {
/// #     shape.read(from, 0, to);
/// # }
/// let schedule = shape.schedule_with(&ReadySet)?;
/// assert_eq!([load, left, join].map(|node| schedule.stream_of(node)), [0, 0, 0]);
/// assert_eq!(schedule.stream_of(right), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadySet;

/// The most steps over entries of sets for one graph: about two seconds.
const STEPS_MAX: u64 = 1 << 27;

impl Policy for ReadySet {
    fn name(&self) -> &str {
        "ready-set"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        if let Some(assignment) = assign_within(shape, STEPS_MAX) {
            return Ok(assignment);
        }
        let mut assignment = Ranked::default().assign(shape)?;
        assignment.set_remark("as ranked: its sets of free streams grew too large");
        Ok(assignment)
    }
}

/// Returns the assignment. None if it takes more than `steps_max` steps over entries.
fn assign_within(shape: &Shape, steps_max: u64) -> Option<Assignment> {
    let links = Links::new(shape);
    let order = kahn_order(&links);
    let needs = needs::stream_needs(shape);
    let contributes = needs::contributes(shape, &links, &order, &needs);
    let mut streams = Streams { links: &links, uses: Uses::default(), ready: vec![StreamSet::default(); links.nodes()] };
    let mut readers: Vec<u32> = links.ids().map(|node| links.out.of(node).len() as u32).collect();
    let mut assignment = Assignment::none(shape);
    for node in order.into_iter().filter(|node| contributes[node.index()]) {
        let stream = streams.take(node, needs[node.index()]);
        if streams.uses.steps.get() > steps_max {
            return None;
        }
        if let Some(stream) = stream.filter(|_| needs[node.index()]) {
            assignment.set(node, stream);
        }
        for producer in links.into.of(node) {
            readers[producer.index()] -= 1;
            if readers[producer.index()] == 0 {
                streams.ready[producer.index()] = StreamSet::default();
            }
        }
    }
    Some(assignment)
}

struct Streams<'a> {
    links: &'a Links,
    uses: Uses,
    /// For each node, the streams that are free after it.
    ready: Vec<StreamSet>,
}

impl Streams<'_> {
    /// Gives `node` the lowest stream that is free after one of its producers. If there is none and the node
    /// `needs` one, gives it a new stream.
    fn take(&mut self, node: NodeId, needs: bool) -> Option<u32> {
        let producers = self.links.into.of(node).iter().map(|producer| &self.ready[producer.index()]);
        let free = producers.clone().filter_map(|ready| ready.first(&self.uses)).min();
        let mut ready = producers.fold(StreamSet::default(), |all, ready| all.union(ready, &self.uses));
        let stream = free.or_else(|| {
            needs.then(|| {
                self.uses.counts.push(1);
                self.uses.counts.len() as u32 - 1
            })
        });
        if let Some(stream) = stream {
            self.uses.counts[stream as usize] += 1;
            ready = ready.union(&StreamSet::of(stream, self.uses.counts[stream as usize]), &self.uses);
        }
        self.ready[node.index()] = ready;
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Backend;

    #[test]
    fn it_gives_up_where_its_sets_grow_too_large() {
        // A wavefront: each of two producers of a node has streams that the other does not have. Seen to fail
        // with a limit that is not checked.
        let (side, mut shape) = (40, Shape::new());
        let ids: Vec<NodeId> = (0..side * side).map(|node| shape.node(node.to_string(), Backend::Gpu)).collect();
        for (node, &id) in ids.iter().enumerate() {
            ids[..node]
                .get(node.wrapping_sub(1))
                .filter(|_| node % side > 0)
                .into_iter()
                .for_each(|&left| shape.read(left, 0, id));
            node.checked_sub(side).into_iter().for_each(|above| shape.read(ids[above], 0, id));
        }
        assert!(assign_within(&shape, 10 * (side * side) as u64).is_none());
        assert_eq!(assign_within(&shape, STEPS_MAX), ReadySet.assign(&shape).ok());
    }
}
