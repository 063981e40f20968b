//! `ReadySet`: a stream for each run of dependent device work, handed on through any number of nodes.

use super::order::{Links, kahn_order};
use super::stream_set::StreamSet;
use super::{Assignment, Policy, needs};
use crate::error::Result;
use crate::graph::{NodeId, Shape};

/// Gives independent nodes streams of their own. Every node knows which streams are free after it: its own, and those that its
/// producers knew of and nobody has used since; a consumer takes the lowest of them. What DALI released as Executor 2.0.
///
/// Two nodes share a stream only if one depends on the other, and numbers have no gaps. Unlike [`PerOperator`](super::PerOperator)
/// a stream is not lost when a node has no consumer for it at once. `cpu` nodes that read GPU memory get a stream; other `cpu` nodes may
/// pass one on and keep none.
///
/// O((n + m) log n) as long as the producers of a node know of mostly the same free streams: their sets share what they have in
/// common. On a wavefront they do not; one of 10⁶ nodes took 4 s where other shapes took 0.1 to 0.6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadySet;

impl Policy for ReadySet {
    fn name(&self) -> &str {
        "ready-set"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let links = Links::new(shape);
        let order = kahn_order(&links);
        let needs = needs::stream_needs(shape);
        let contributes = needs::contributes(shape, &links, &order, &needs);
        let mut streams = Streams { links: &links, uses: Vec::new(), ready: vec![StreamSet::default(); links.nodes()] };
        let mut readers: Vec<u32> = links.ids().map(|node| links.out.of(node).len() as u32).collect();
        let mut assignment = Assignment::none(shape);
        for node in order.into_iter().filter(|node| contributes[node.index()]) {
            let stream = streams.take(node, needs[node.index()]);
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
        Ok(assignment)
    }
}

struct Streams<'a> {
    links: &'a Links,
    /// How often each stream was used.
    uses: Vec<u32>,
    /// For each node, the streams that are free after it.
    ready: Vec<StreamSet>,
}

impl Streams<'_> {
    /// Gives `node` the lowest stream that is free after one of its producers, or a new one if there is none and it `needs` one.
    fn take(&mut self, node: NodeId, needs: bool) -> Option<u32> {
        let producers = self.links.into.of(node).iter().map(|producer| &self.ready[producer.index()]);
        let free = producers.clone().filter_map(|ready| ready.first(&self.uses)).min();
        let mut ready = producers.fold(StreamSet::default(), |all, ready| all.union(ready, &self.uses));
        let stream = free.or_else(|| {
            needs.then(|| {
                self.uses.push(1);
                self.uses.len() as u32 - 1
            })
        });
        if let Some(stream) = stream {
            self.uses[stream as usize] += 1;
            ready = ready.union(&StreamSet::of(stream, self.uses[stream as usize]), &self.uses);
        }
        self.ready[node.index()] = ready;
        stream
    }
}
