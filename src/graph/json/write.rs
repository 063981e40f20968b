//! From a shape to text: inner graphs first. The text of an inner graph becomes a part of the graph around.

use std::cell::LazyCell;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::forms::{BranchForm, GraphForm, InputForm, NodeForm, OutputForm, RepeatForm, iterations_expected};
use super::ranks::{ExchangeForm, RanksForm};
use crate::graph::shape::Link;
use crate::graph::{Communication, Control, Edge, EdgeKind, NESTING_MAX, NodeId, NodeShape, Shape};

/// The indentation of the text of an inner graph in that of the graph around.
const BODY: &str = "\n        ";
const ARM: &str = "\n          ";
/// The start of the name that is written for an unknown node.
const UNKNOWN: &str = "node number ";

pub(super) fn json(shape: &Shape) -> String {
    // The graphs, outer before inner. With each, the number of the first graph inside it, and its depth.
    let mut graphs: Vec<(Option<Arc<Shape>>, usize, usize)> = vec![(None, 0, 0)];
    let mut next = 0;
    while next < graphs.len() {
        let (graph, depth, first) = (graphs[next].0.clone(), graphs[next].2, graphs.len());
        graphs[next].1 = first;
        let nodes = graph.as_deref().unwrap_or(shape).nodes().iter();
        let inner = nodes.filter_map(|node| node.control.as_ref()).flat_map(|control| control.inner());
        graphs.extend(inner.map(|(_, shape)| (Some(shape.clone()), 0, depth + 1)));
        next += 1;
    }
    // A text that is nested too deep to be read again has no line breaks: its indentation would grow without
    // bound.
    let is_pretty = graphs.last().is_none_or(|deepest| deepest.2 <= NESTING_MAX);
    let mut texts: Vec<Option<Box<RawValue>>> = (0..graphs.len()).map(|_| None).collect();
    while let Some((graph, first, _)) = graphs.pop() {
        let graph = graph.as_deref().unwrap_or(shape);
        let inner = inner_of(graph, &mut texts[first..], is_pretty);
        let form = form(graph, &inner);
        let text = if is_pretty { serde_json::to_string_pretty(&form) } else { serde_json::to_string(&form) };
        let text = text.expect("the form has string keys only");
        if graphs.is_empty() {
            return text;
        }
        texts[graphs.len()] = Some(RawValue::from_string(text).expect("it was just written"));
    }
    unreachable!("the outermost graph comes last")
}

/// Returns the texts of the inner graphs of each loop or branch, indented for their place.
fn inner_of(graph: &Shape, texts: &mut [Option<Box<RawValue>>], is_pretty: bool) -> Vec<Vec<Box<RawValue>>> {
    let mut texts = texts.iter_mut();
    let mut inner = |control: &Control| {
        let margin = if let Control::Branch { .. } = control { ARM } else { BODY };
        let taken = control.inner().map(|_| texts.next().and_then(Option::take).expect("graphs inside come before those around"));
        taken.map(|text| if is_pretty { moved(&text, margin) } else { text }).collect()
    };
    graph.nodes().iter().map(|node| node.control.as_deref().map_or_else(Vec::new, &mut inner)).collect()
}

/// Indents a text. No string in JSON contains a line end, so every line end is between tokens.
fn moved(text: &RawValue, margin: &str) -> Box<RawValue> {
    RawValue::from_string(text.get().replace('\n', margin)).expect("only spaces were added")
}

fn node_form<'a>(node: &NodeShape, inner: &'a [Box<RawValue>]) -> NodeForm<'a> {
    let (mut repeat, mut branch) = (None, None);
    match node.control.as_deref() {
        None => {}
        Some(Control::Repeat { condition, iterations, max_iterations, .. }) => {
            let (last, first) = inner.split_last().expect("a loop has a body");
            let condition = condition.as_ref().map(|_| &*first[0]);
            let is_said = condition.is_none() || *iterations != iterations_expected(*max_iterations);
            let iterations = is_said.then_some(*iterations);
            repeat = Some(RepeatForm { condition, body: last, iterations, max_iterations: *max_iterations });
        }
        Some(Control::Branch { taken, .. }) => {
            branch = Some(BranchForm { arms: inner.iter().map(|arm| &**arm).collect(), taken: *taken });
        }
    }
    let communication = node.communication.as_deref();
    let is_own = node.control.as_ref().is_none_or(|control| control.backend() != node.backend);
    NodeForm {
        name: node.name.to_string(),
        backend: is_own.then_some(node.backend),
        repeat,
        branch,
        inputs: Vec::new(),
        after: Vec::new(),
        devices: node.devices.as_ref().map(|devices| devices.to_vec()),
        command: node.command.as_ref().map(|command| command.to_string()),
        cost_us: node.cost_us,
        bytes: node.bytes,
        ranks: node.ranks.map(RanksForm::of),
        exchange: communication.map(|of| ExchangeForm::of(&of.exchange)),
        of: communication.filter(|of| of.of != Communication::ANY).map(|of| of.of.to_string()),
        operator: communication.and_then(|of| of.operator.as_ref()).map(ToString::to_string),
    }
}

fn form<'a>(shape: &Shape, inner: &'a [Vec<Box<RawValue>>]) -> GraphForm<'a> {
    // An unknown node gets a name that is longer than any similar name of a node. So no node has it, and
    // reading the text fails.
    let marks = LazyCell::new(|| {
        let lengths = shape.nodes().iter().filter(|node| node.name.starts_with(UNKNOWN)).map(|node| node.name.len());
        "?".repeat(lengths.max().unwrap_or(0))
    });
    let unknown = |node: NodeId| format!("{UNKNOWN}{}{}", node.index(), *marks);
    let name = |node: NodeId| shape.nodes().get(node.index()).map_or_else(|| unknown(node), |node| node.name.to_string());
    let mut nodes: Vec<NodeForm<'a>> = shape.nodes().iter().zip(inner).map(|(node, inner)| node_form(node, inner)).collect();
    // An order-only edge can be at the end, in its place, if no link that belongs to a node follows it.
    let own = shape.edges().iter().rposition(Edge::is_data).map_or(0, |last| last + 1);
    // The places among all links: of those that are written with each node, and of those at the end.
    let mut places: Vec<[Vec<u32>; 2]> = vec![Default::default(); nodes.len()];
    let (mut edges, mut last, mut behind_unknown) = (0, Vec::new(), Vec::new());
    for (link, place) in shape.links().zip(0..) {
        edges += usize::from(matches!(link, Link::Edge(_)));
        let (before, target) = match link {
            Link::State { target, .. } => (target, target),
            Link::Edge(Edge { source, target, .. }) => (source, target),
        };
        if target.index() >= nodes.len() {
            behind_unknown.push((name(before), name(target)));
            continue;
        }
        let target = target.index();
        let take = shape.is_taken(NodeId(target as u32), nodes[target].inputs.len() as u32);
        match link {
            Link::State { state, .. } => {
                let input = InputForm { node: None, state: Some(state), output: 0, memory: None, metadata: false, take };
                nodes[target].inputs.push(input);
                places[target][0].push(place);
            }
            Link::Edge(Edge { source, kind: EdgeKind::Data { output, memory, metadata }, .. }) => {
                let input = InputForm { node: Some(name(source)), state: None, output, memory, metadata, take };
                nodes[target].inputs.push(input);
                places[target][0].push(place);
            }
            Link::Edge(Edge { source, .. }) if edges <= own => {
                nodes[target].after.push(name(source));
                places[target][1].push(place);
            }
            Link::Edge(_) => last.push(place),
        }
    }
    let places: Vec<u32> = places.into_iter().flatten().flatten().chain(last).collect();
    let mut edges: Vec<_> = shape.edges()[own..].iter().map(|edge| (name(edge.source), name(edge.target))).collect();
    edges.append(&mut behind_unknown);
    let outputs = shape.outputs().iter().map(|&(node, output)| OutputForm { node: name(node), output }).collect();
    GraphForm {
        name: shape.name().map(str::to_owned),
        nodes,
        edges,
        edge_order: if places.is_sorted() { Vec::new() } else { places },
        outputs: shape.has_outputs().then_some(outputs),
    }
}
