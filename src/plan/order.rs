//! The orders in which policies visit a graph. Ties are broken by the order of the input, so equal inputs
//! give equal plans. No function recurses.

use crate::graph::{Edge, Links, NodeId, Shape};

/// Frontier order, the visit order of NNC's static schedule: layers from the sources. A lone successor that
/// becomes ready takes the place of its predecessor instead of waiting for the next layer. So straight runs
/// stay together. O(n + m).
pub(super) fn frontier_order(links: &Links) -> Vec<NodeId> {
    let mut missing = links.in_degrees();
    let mut order = Vec::with_capacity(links.nodes());
    let mut frontier: Vec<NodeId> = links.ids().filter(|node| missing[node.index()] == 0).collect();
    let mut next = Vec::new();
    while !frontier.is_empty() {
        for mut node in frontier.drain(..) {
            loop {
                order.push(node);
                let targets = links.out.of(node);
                let before = next.len();
                links.satisfy(node, &mut missing, |target| next.push(target));
                if targets.len() > 1 || next.len() == before {
                    break;
                }
                node = next.pop().expect("the lone target was just pushed");
            }
        }
        std::mem::swap(&mut frontier, &mut next);
    }
    order
}

/// Returns the rank of each node: the number of edges of the longest path that follows it.
///
/// NNC defines the rank over filtered edges: those that no longer path bypasses. A longest path never uses an
/// edge that a longer path bypasses. So all edges give the same rank.
pub(super) fn ranks(links: &Links, order: &[NodeId]) -> Vec<u32> {
    let mut ranks = vec![0; links.nodes()];
    for &node in order.iter().rev() {
        let below = links.out.of(node).iter().map(|target| ranks[target.index()] + 1).max();
        ranks[node.index()] = below.unwrap_or(0);
    }
    ranks
}

/// Returns the edges whose targets wait for the end of their sources. None if these are all edges. An edge
/// between phases makes no node wait: the later phase of an item begins after the earlier one.
pub(super) fn waiting_links(shape: &Shape, phases: Option<&[u32]>) -> Option<Links> {
    let waits = |edge: &&Edge| !shape.is_submission(edge) && is_in_one_phase(edge, phases);
    if shape.edges().iter().all(|edge| waits(&edge)) {
        return None;
    }
    let waiting = shape.edges().iter().filter(waits);
    let edges: Vec<_> = waiting.map(|edge| (edge.source, edge.target, edge.is_data())).collect();
    Some(Links::of(shape.nodes().len(), edges.into_iter()))
}

/// Returns the edges within phases of a shape whose nodes have phases.
pub(super) fn links_in_phases(shape: &Shape, phases: &[u32]) -> Links {
    let inside = shape.edges().iter().filter(|edge| is_in_one_phase(edge, Some(phases)));
    let edges: Vec<_> = inside.map(|edge| (edge.source, edge.target, edge.is_data())).collect();
    Links::of(shape.nodes().len(), edges.into_iter())
}

fn is_in_one_phase(edge: &Edge, phases: Option<&[u32]>) -> bool {
    phases.is_none_or(|phases| phases[edge.source.index()] == phases[edge.target.index()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Backend, kahn_order};

    fn shape(nodes: u32, edges: &[(u32, u32)]) -> Shape {
        let mut shape = Shape::new();
        for node in 0..nodes {
            shape.node(format!("n{node}"), Backend::Cpu);
        }
        for &(source, target) in edges {
            shape.order(NodeId(source), NodeId(target));
        }
        shape
    }

    fn numbers(nodes: &[NodeId]) -> Vec<u32> {
        nodes.iter().map(|node| node.0).collect()
    }

    #[test]
    fn frontier_order_runs_along_straight_parts() {
        // 0 forks to 1 and 2; 1 -> 3 is straight; 2 -> 4 is not, because 4 also waits for 3.
        let shape = shape(5, &[(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)]);
        assert_eq!(numbers(&frontier_order(&Links::new(&shape))), [0, 1, 3, 2, 4]);
    }

    #[test]
    fn ranks_count_the_longest_path_to_an_end() {
        let links = Links::new(&shape(4, &[(0, 1), (1, 2), (0, 2), (0, 3)]));
        let order = kahn_order(&links);
        assert_eq!(ranks(&links, &order), [2, 1, 0, 0]);
    }
}
