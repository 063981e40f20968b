//! Where values die: for each node, the last reader on every stream that reads it.

use super::order::Links;
use super::parts::Numbers;
use crate::graph::{NodeId, Shape};

/// The values that can go once a node has run, and how many streams must let go of each.
pub(super) struct Releases {
    /// For each node, the number of streams that read it; 0 for outputs, which nobody releases.
    pub(super) counts: Vec<u32>,
    starts: Vec<u32>,
    values: Vec<NodeId>,
}

impl Releases {
    /// Returns the nodes whose values the stream of this part of a reader no longer needs after it.
    pub(super) fn after(&self, reader: NodeId) -> &[NodeId] {
        &self.values[self.starts[reader.index()] as usize..self.starts[reader.index() + 1] as usize]
    }
}

/// Finds the last data consumer of each node on every stream that has one; `stream_of` names the streams of
/// the nodes' parts, which are numbered in issue order. O(n + m).
pub(super) fn after_last_readers(shape: &Shape, links: &Links, numbers: &Numbers, stream_of: &[u32], streams: usize) -> Releases {
    let mut is_output = vec![false; links.nodes()];
    shape.outputs().iter().for_each(|&(node, _)| is_output[node.index()] = true);
    let mut counts = vec![0u32; links.nodes()];
    let mut pairs: Vec<(NodeId, NodeId)> = Vec::with_capacity(links.nodes());
    // For each stream the index in `pairs` of the last reader found there: of this node if it is `first` or
    // above.
    let mut last = vec![usize::MAX; streams];
    for node in links.ids().filter(|node| !is_output[node.index()]) {
        let first = pairs.len();
        let readers = links.out.of(node).iter().zip(&links.is_data[links.out.range(node)]);
        for reader in readers.filter(|(_, is_data)| **is_data).flat_map(|(&reader, _)| numbers.parts(reader)) {
            let last = &mut last[stream_of[reader.index()] as usize];
            match pairs[first..].get_mut(last.wrapping_sub(first)) {
                Some((later, _)) if *later < reader => *later = reader,
                Some(_) => {}
                None => {
                    *last = pairs.len();
                    pairs.push((reader, node));
                }
            }
        }
        counts[node.index()] = (pairs.len() - first) as u32;
    }
    by_reader(counts, &pairs, stream_of.len())
}

fn by_reader(counts: Vec<u32>, pairs: &[(NodeId, NodeId)], parts: usize) -> Releases {
    let mut starts = vec![0u32; parts + 1];
    for (reader, _) in pairs {
        starts[reader.index()] += 1;
    }
    let mut sum = 0;
    for count in &mut starts {
        sum += *count;
        *count = sum;
    }
    let mut values = vec![NodeId(0); pairs.len()];
    for (reader, value) in pairs.iter().rev() {
        let place = &mut starts[reader.index()];
        *place -= 1;
        values[*place as usize] = *value;
    }
    Releases { counts, starts, values }
}
