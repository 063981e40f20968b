//! The checks that a shape must pass before a policy gets it. They are linear and do not recurse. The first
//! mistake is reported.

use std::collections::HashSet;
use std::sync::Arc;

use super::links::{Links, kahn_order};
use super::shape::Link;
use super::{COST_US_MAX, Control, DEVICE_MAX, NAME_BYTES_MAX, NODES_MAX, NodeId, NodeShape, Shape};
use crate::error::{Error, Kind, Result};
use crate::name::Name;

/// Checks names, costs, edges, and that there is no cycle.
pub(crate) fn check(shape: &Shape) -> Result<()> {
    check_size(shape)?;
    check_names(shape)?;
    for node in shape.nodes() {
        if !(0.0..=COST_US_MAX).contains(&node.cost_us) {
            return Err(Kind::Cost { node: node.name.clone(), cost_us: node.cost_us }.into());
        }
        check_devices(node)?;
    }
    check_edges(shape)?;
    check_takes(shape)?;
    check_acyclic(shape)
}

/// Checks that the nodes have numbers.
pub(crate) fn check_size(shape: &Shape) -> Result<()> {
    let (what, got, limit) = ("the number of nodes".into(), shape.nodes().len(), NODES_MAX);
    if got <= limit { Ok(()) } else { Err(Kind::Limit { what, got, limit }.into()) }
}

fn check_names(shape: &Shape) -> Result<()> {
    let mut seen: HashSet<&str> = HashSet::with_capacity(shape.nodes().len());
    for (node, number) in shape.nodes().iter().zip(0..) {
        check_name(&node.name)?;
        if node.name.is_empty() {
            return Err(Kind::NoName { number }.into());
        }
        if !seen.insert(&node.name) {
            return Err(Kind::DuplicateName { name: node.name.clone() }.into());
        }
    }
    Ok(())
}

pub(crate) fn check_name(name: &Name) -> Result<()> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let start: String = name.chars().take(24).collect();
    Err(Kind::Limit { what: format!("the length in bytes of the name '{start}...'"), got: name.len(), limit: NAME_BYTES_MAX }
        .into())
}

fn check_devices(node: &NodeShape) -> Result<()> {
    let Some(devices) = node.devices.as_deref().filter(|devices| !devices.is_empty()) else { return Ok(()) };
    let mut sorted = devices.to_vec();
    sorted.sort_unstable();
    if let Some(&device) = sorted.last().filter(|&&device| device > DEVICE_MAX) {
        return Err(Kind::DeviceOrdinal { node: node.name.clone(), device, limit: DEVICE_MAX }.into());
    }
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Kind::DeviceTwice { node: node.name.clone(), device: pair[0] }.into()),
        None => Ok(()),
    }
}

/// Checks that edges, states and outputs name nodes of the shape.
pub(crate) fn check_ids(shape: &Shape) -> Result<()> {
    let nodes = shape.nodes().len();
    let unknown = |what: String, id: NodeId| Err(Kind::UnknownNodeId { what, id: id.0, nodes }.into());
    for edge in shape.edges() {
        match (shape.nodes().get(edge.source.index()), shape.nodes().get(edge.target.index())) {
            (Some(_), Some(_)) => {}
            (Some(source), None) => return unknown(format!("an edge from node '{}'", source.name), edge.target),
            (None, Some(target)) => return unknown(format!("an edge to node '{}'", target.name), edge.source),
            (None, None) => return unknown("an edge".into(), edge.source),
        }
    }
    if let Some((state, target)) = shape.state_reads().find(|(_, target)| target.index() >= nodes) {
        return unknown(format!("a read of state {state}"), target);
    }
    if let Some(&(node, input)) = shape.taken_inputs().iter().find(|(node, _)| node.index() >= nodes) {
        return unknown(format!("a take of input {input}"), node);
    }
    match shape.outputs().iter().find(|(node, _)| node.index() >= nodes) {
        Some(&(node, _)) => unknown("an output".into(), node),
        None => Ok(()),
    }
}

fn check_edges(shape: &Shape) -> Result<()> {
    check_ids(shape)?;
    match shape.edges().iter().find(|edge| edge.source == edge.target) {
        Some(edge) => Err(Kind::SelfEdge { node: shape.name_of(edge.source).clone() }.into()),
        None => Ok(()),
    }
}

/// Checks that only loops and branches take inputs, and only inputs that are states of theirs.
fn check_takes(shape: &Shape) -> Result<()> {
    let takes = shape.taken_inputs();
    let reads = if takes.is_empty() { Vec::new() } else { shape.reads() };
    for &(node, input) in takes {
        let taker = &shape.nodes()[node.index()];
        let fault = match (taker.control.as_deref(), reads[node.index()].len() as u32) {
            (None, _) => "takes an input, but is no loop or branch: the body of any other node says what it takes".into(),
            (_, count) if input >= count => {
                format!("takes its input {input}, counted from 0, but has {count}: take one of these")
            }
            (Some(Control::Branch { .. }), _) if input == 0 => "takes its selector: let it only read that".into(),
            _ => continue,
        };
        return Err(Kind::Body { node: taker.name.clone(), fault }.into());
    }
    Ok(())
}

/// Adds edges so that each taker runs after all other readers. Checks that these edges close no cycle.
pub(crate) fn take_last(shape: &Arc<Shape>) -> Result<Arc<Shape>> {
    let orders = shape.take_orders();
    if orders.is_empty() {
        return Ok(shape.clone());
    }
    let mut ordered = Shape::clone(shape);
    orders.iter().for_each(|&(reader, taker, _)| ordered.order(reader, taker));
    check_acyclic(&ordered).map_err(|error| {
        let value = |link| match link {
            Link::Edge(edge) => format!("'{}'", shape.name_of(edge.source)),
            Link::State { state, .. } => format!("state {state}"),
        };
        explain_cycle(error, shape, orders.iter().map(|&(reader, taker, link)| (reader, taker, value(link))))
    })?;
    Ok(Arc::new(ordered))
}

/// Explains a cycle that exists only because one node takes a value that another reads. `takes` has the
/// orders of readers before takers that are not edges of `shape`, each with the value that both read.
pub(crate) fn explain_cycle(error: Error, shape: &Shape, takes: impl Iterator<Item = (NodeId, NodeId, String)>) -> Error {
    let Some(path) = error.cycle() else { return error };
    let name = |node: NodeId| shape.name_of(node);
    let steps: HashSet<(&str, &str)> = path.windows(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    let is_edge = |pair: (NodeId, NodeId)| shape.edges().iter().any(|edge| (edge.source, edge.target) == pair);
    let mut takes = takes.filter(|&(reader, taker, _)| steps.contains(&(&**name(reader), &**name(taker))));
    match takes.find(|&(reader, taker, _)| !is_edge((reader, taker))) {
        None => error,
        Some((reader, taker, value)) => {
            let (taker, reader) = (name(taker).clone(), name(reader).clone());
            Kind::TakeCycle { value, taker, reader, path: path.to_vec() }.into()
        }
    }
}

/// Checks that there is no cycle: a node without a place in the order lies on a cycle or depends on one.
fn check_acyclic(shape: &Shape) -> Result<()> {
    if shape.edges().iter().all(|edge| edge.source < edge.target) {
        return Ok(());
    }
    let links = Links::new(shape);
    let order = kahn_order(&links);
    if order.len() == links.nodes() {
        return Ok(());
    }
    let cycle = cycle_of(&links, &order);
    Err(Kind::Cycle { path: cycle.into_iter().map(|node| shape.name_of(node).clone()).collect() }.into())
}

/// Returns a cycle among the nodes that are not in the order. The first node comes again at the end. The
/// search walks backwards: each such node has such a predecessor, so a node comes twice at some point.
pub(crate) fn cycle_of(links: &Links, order: &[NodeId]) -> Vec<NodeId> {
    let mut is_open = vec![true; links.nodes()];
    order.iter().for_each(|node| is_open[node.index()] = false);
    let mut node = links.ids().find(|node| is_open[node.index()]).expect("a cycle leaves nodes unordered");
    let before = |node: NodeId| links.into.of(node).iter().rev().find(|source| is_open[source.index()]);
    let (mut path, mut is_seen) = (Vec::new(), vec![false; links.nodes()]);
    while !std::mem::replace(&mut is_seen[node.index()], true) {
        path.push(node);
        node = *before(node).expect("a node without one is in the order");
    }
    path.push(node);
    path.drain(..path.iter().position(|&first| first == node).expect("it comes twice"));
    path.reverse();
    path
}

/// Returns the error for an unknown node name. It has a similar name, or else some of the known names.
pub(crate) fn unknown_node(shape: &Shape, name: &str) -> Error {
    let near = near_name(shape.nodes().iter().map(|node| &*node.name), name).map(|near| near.to_owned().into());
    let some = shape.nodes().iter().take(8).map(|node| node.name.clone()).collect();
    let (name, nodes) = (name.chars().take(64).collect(), shape.nodes().len());
    Kind::UnknownNode { name, near, some, nodes }.into()
}

/// Returns the name that is most similar to another, if one is similar.
pub(super) fn near_name<'n>(names: impl Iterator<Item = &'n str>, name: &str) -> Option<&'n str> {
    let near = names.take(10_000).filter(|known| is_near(known, name));
    near.min_by_key(|known| known.len().abs_diff(name.len()))
}

/// Whether two names are similar, at low cost: they are equal but for case, for one letter or for two swapped
/// neighbours, or one contains the other.
fn is_near(known: &str, name: &str) -> bool {
    let (known, name) = (known.to_lowercase(), name.to_lowercase());
    let is_alike = 2 * known.len().min(name.len()) >= known.len().max(name.len());
    is_alike && (known.contains(&name) || name.contains(&known) || is_one_slip(known.as_bytes(), name.as_bytes()))
}

/// Whether two words of three letters or more are equal but for one letter, or for two swapped neighbours,
/// between a common start and a common end.
pub(crate) fn is_one_slip(a: &[u8], b: &[u8]) -> bool {
    if a.len().min(b.len()) < 3 {
        return false;
    }
    let begin = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[begin..], &b[begin..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([], [_]) | ([_], []) | ([_], [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_near;

    /// Seen to fail with words of one letter, and with neighbours that may be any two letters.
    #[test]
    fn near_are_names_that_differ_by_a_slip() {
        for (known, name) in [
            ("twice", "Twice"),
            ("twice", "twic"),
            ("twice", "twise"),
            ("twice", "wtice"),
            ("twice", "twiice"),
            ("solve", "solver"),
        ] {
            assert!(is_near(known, name) && is_near(name, known), "{known} {name}");
        }
        for (known, name) in [("a", "b"), ("ab", "ac"), ("twice", "thrice"), ("twice", "twoke"), ("twice", "")] {
            assert!(!is_near(known, name), "{known} {name}");
        }
    }
}
