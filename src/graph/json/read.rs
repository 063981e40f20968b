//! From text to a shape: first the graphs are read, outer before inner. Then they are put together, inner
//! before outer.

use std::sync::Arc;

use super::fault::{fault, quoted};
use super::forms::{GraphForm, Object};
use crate::error::{Kind, Result};
use crate::graph::{Backend, Control, NESTING_MAX, NODES_MAX, Shape, check};

/// A graph that was read, without the graphs inside its loops and branches.
struct Known<'a> {
    form: GraphForm<'a>,
    /// The place of the graph in the file: empty, or a path that ends with a dot.
    place: String,
    /// The number of the first graph in its loops and branches. The others follow, in the order of the file.
    first: usize,
}

/// A graph that is not read yet.
struct Unknown<'a> {
    text: &'a str,
    place: String,
    depth: usize,
    /// The number of states of the loop or branch around. None for the outermost graph.
    states: Option<u32>,
}

pub(super) fn shape(text: &str) -> Result<Shape> {
    if let Some(why) = no_json(text) {
        return Err(fault("", &why));
    }
    let mut known: Vec<Known<'_>> = Vec::new();
    let mut unknown = vec![Unknown { text, place: String::new(), depth: 0, states: None }];
    let mut nodes = 0;
    while known.len() < unknown.len() {
        let Unknown { text: inner, ref place, depth, states } = unknown[known.len()];
        let (place, form) = (place.clone(), form(text, inner, place)?);
        check_states(&form, &place, states)?;
        nodes += form.nodes.len();
        if nodes > NODES_MAX {
            let what = "the number of nodes in all graphs".into();
            return Err(Kind::Limit { what, got: nodes, limit: NODES_MAX }.into());
        }
        let first = unknown.len();
        add_inner(&form, &place, depth, &mut unknown)?;
        known.push(Known { form, place, first });
    }
    let mut shapes: Vec<Option<Arc<Shape>>> = (0..known.len()).map(|_| None).collect();
    while let Some(Known { form, place, first }) = known.pop() {
        let mut inner = shapes[first..].iter_mut();
        let mut inner = || inner.next().and_then(Option::take).expect("graphs inside come before those around");
        let controls = form.nodes.iter().map(|node| Some(Arc::new(node.control(&mut inner)?))).collect();
        // Only graphs that come before this one remain, which include those around it.
        let around = || known.iter().filter(|other| place.starts_with(&other.place));
        let is_around = |name: &str| around().any(|other| other.form.nodes.iter().any(|node| node.name == name));
        let shape = form.shape(&place, controls, is_around)?;
        check(&shape)
            .map_err(|error| if place.is_empty() { error } else { fault(place.trim_end_matches('.'), &error.to_string()) })?;
        shapes[known.len()] = Some(Arc::new(shape));
    }
    let outermost = shapes.swap_remove(0).expect("every graph was assembled");
    Ok(Arc::into_inner(outermost).expect("nothing else has the outermost graph"))
}

/// Returns a description of a text whose first bytes cannot begin JSON. Otherwise returns None.
pub(crate) fn no_json(text: &str) -> Option<String> {
    let start = text.trim_start_matches([' ', '\t', '\n', '\r']);
    let is_word = |word: &&str| start.starts_with(*word);
    match start.chars().next() {
        None => Some("the text is empty: it should be JSON".into()),
        Some('\u{feff}') => Some("the text begins with a byte order mark: save it as UTF-8 without one".into()),
        _ if text.chars().take(4).any(|char| char == '\0') => Some("the text is UTF-16, or binary: save it as UTF-8".into()),
        Some('{' | '[' | '"' | '-' | '0'..='9') => None,
        Some(_) if ["true", "false", "null"].iter().any(is_word) => None,
        Some(_) => {
            let line = start.chars().take_while(|&char| char != '\n').map(|char| if char.is_control() { ' ' } else { char });
            Some(format!("the text is not JSON: it begins with {}", quoted(&line.take(100).collect::<String>())))
        }
    }
}

/// Reads one graph: `inner`, a part of `text`.
fn form<'a>(text: &str, inner: &'a str, place: &str) -> Result<GraphForm<'a>> {
    let at = |error: &serde_json::Error| located(error, text, inner.as_ptr().addr() - text.as_ptr().addr());
    let mut reader = serde_json::Deserializer::from_str(inner);
    let Object::<GraphForm<'a>>(form) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." || path == "?" { place.trim_end_matches('.').to_owned() } else { format!("{place}{path}") };
        fault(&path, &at(&error.into_inner()))
    })?;
    reader.end().map_err(|error| fault(place, &at(&error)))?;
    Ok(form)
}

fn check_states(form: &GraphForm<'_>, place: &str, states: Option<u32>) -> Result<()> {
    for (node, index) in form.nodes.iter().zip(0..) {
        for (input, at) in node.inputs.iter().zip(0..) {
            let Some(state) = input.state.filter(|&state| states.is_none_or(|states| state >= states)) else { continue };
            let (index, at): (u32, u32) = (index, at);
            let why = match states {
                Some(states) => format!("there is no state {state}: the loop or branch around has {states}, counted from 0"),
                None => "only graphs in loops and branches have states".into(),
            };
            return Err(fault(&format!("{place}nodes[{index}].inputs[{at}].state"), &why));
        }
    }
    Ok(())
}

/// Returns the message of an error, with the line and the column in the whole text.
fn located(error: &serde_json::Error, text: &str, start: usize) -> String {
    let message = error.to_string();
    let Some((what, _)) = message.rsplit_once(" at line ").filter(|_| start > 0 && error.line() > 0) else { return message };
    let before = &text[..start];
    let line = error.line() + before.matches('\n').count();
    let first = before.rfind('\n').map_or(before.len(), |end| before.len() - end - 1);
    let column = error.column() + if error.line() == 1 { first } else { 0 };
    format!("{what} at line {line} column {column}")
}

/// Adds the graphs in the loops and branches of a graph to the graphs to read.
fn add_inner<'a>(form: &GraphForm<'a>, place: &str, depth: usize, unknown: &mut Vec<Unknown<'a>>) -> Result<()> {
    for (index, node) in form.nodes.iter().enumerate() {
        // The first input of a branch is its selector.
        let states = node.inputs.len() - usize::from(node.branch.is_some() && !node.inputs.is_empty());
        for (key, text) in node.inner() {
            let place = format!("{place}nodes[{index}].{key}");
            if depth == NESTING_MAX {
                return Err(fault(&place, &format!("graphs are nested more than {NESTING_MAX} deep")));
            }
            let (place, states) = (place + ".", Some(states as u32));
            unknown.push(Unknown { text: text.get(), place, depth: depth + 1, states });
        }
    }
    Ok(())
}

impl Control {
    /// Returns the default backend of a loop or a branch: `Gpu` if a node in it has a backend other than
    /// `Cpu`.
    pub(super) fn backend(&self) -> Backend {
        let is_device = self.inner().any(|(_, shape)| shape.nodes().iter().any(|node| node.backend != Backend::Cpu));
        if is_device { Backend::Gpu } else { Backend::Cpu }
    }
}
