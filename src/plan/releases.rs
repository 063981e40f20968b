//! The last reader of each node's value, on every stream that reads it.

use super::parts::Numbers;
use crate::graph::{Links, NodeId, Rows, Shape};

/// For each node, the values that it is the last to read, and the number of streams that must release each
/// value.
pub(super) struct Releases {
    /// For each node, the number of streams that read its value. 0 for an output, which is not released.
    pub(super) counts: Vec<u32>,
    /// For each part of a reader, the nodes whose values its stream does not read any more after it.
    pub(super) after: Rows<NodeId>,
}

/// Finds the last reader of each node's value on every stream that reads it. `stream_of` has the stream of
/// each part. Parts are numbered in issue order. O(n + m).
pub(super) fn after_last_readers(shape: &Shape, links: &Links, numbers: &Numbers, stream_of: &[u32], streams: usize) -> Releases {
    let mut is_output = vec![false; links.nodes()];
    shape.outputs().iter().for_each(|&(node, _)| is_output[node.index()] = true);
    let mut counts = vec![0u32; links.nodes()];
    let mut pairs: Vec<(NodeId, NodeId)> = Vec::with_capacity(links.nodes());
    // For each stream, the index in `pairs` of its last reader. It belongs to the current node if it is
    // `first` or higher.
    let mut last = vec![usize::MAX; streams];
    for node in links.ids().filter(|node| !is_output[node.index()]) {
        let first = pairs.len();
        let readers = links.out.of(node).iter().zip(&links.is_data[links.out.range(node.0)]);
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
    let pairs = pairs.iter().map(|&(reader, value)| (reader.0, value));
    Releases { counts, after: Rows::sorted(stream_of.len(), pairs) }
}
