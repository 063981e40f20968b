//! Sections: a new graph made of the nodes from some nodes to others. The values that it reads from outside
//! become inputs. Each input has the name of the node outside that makes the value.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use super::builder::{Graph, NodeWork};
use super::check::check_ids;
use super::control_node::ControlNode;
use super::ports::numbered;
use super::shape::Link;
use super::values::{Maker, OutputPort, Sharer};
use super::{Edge, NodeId, Shape, unknown_node};
use crate::error::{Kind, PortKind, Result};
use crate::name::Name;

impl Shape {
    /// Returns the shape of the nodes on the paths from any of `from` to any of `to`, inclusive. An empty
    /// `from` means every source, an empty `to` every sink. Nodes and edges keep their order, and the outputs
    /// of these nodes stay outputs.
    ///
    /// # Errors
    /// If no node has one of these names, or there is no path; if an edge or an output names a node that the
    /// shape does not have.
    pub fn section(&self, from: &[&str], to: &[&str]) -> Result<Shape> {
        check_ids(self)?;
        Ok(self.cut(&self.between(from, to)?).0)
    }

    /// Returns, for each node, whether it is on a path from one of `from` to one of `to`.
    fn between(&self, from: &[&str], to: &[&str]) -> Result<Vec<bool>> {
        let ids = self.ids_by_name();
        let find = |name: &&str| ids.get(name).copied().ok_or_else(|| unknown_node(self, name));
        let ends = |names: &[&str]| names.iter().map(find).collect::<Result<Vec<NodeId>>>();
        let after = reached(self, &ends(from)?, |edge| (edge.source, edge.target));
        let before = reached(self, &ends(to)?, |edge| (edge.target, edge.source));
        let is_in: Vec<bool> = after.into_iter().zip(before).map(|(after, before)| after && before).collect();
        if is_in.contains(&true) {
            return Ok(is_in);
        }
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Err(Kind::EmptySection { from: owned(from), to: owned(to) }.into())
    }

    fn ids_by_name(&self) -> HashMap<&str, NodeId> {
        self.ids().map(|node| (&**self.name_of(node), node)).collect()
    }

    /// Returns the shape of the nodes inside, and for each node its id in that shape.
    fn cut(&self, is_in: &[bool]) -> (Shape, Vec<Option<NodeId>>) {
        let mut shape = Shape::new();
        self.name().into_iter().for_each(|name| shape.set_name(name.to_owned()));
        let mut new: Vec<Option<NodeId>> = vec![None; is_in.len()];
        for node in self.ids().filter(|node| is_in[node.index()]) {
            let old = &self.nodes()[node.index()];
            let id = shape.node(old.name.clone(), old.backend);
            shape.nodes_mut()[id.index()].clone_from(old);
            new[node.index()] = Some(id);
        }
        let new_of = |node: NodeId| new[node.index()];
        // The number of values that each node has read so far, in the two shapes. The numbers differ, because
        // values from outside are left out.
        let mut reads = vec![(0, 0); is_in.len()];
        for link in self.links() {
            let (is_cut, target) = match link {
                Link::Edge(edge) => match (new_of(edge.source), new_of(edge.target)) {
                    (Some(source), Some(target)) => {
                        shape.edge(Edge { source, target, ..edge });
                        (false, edge.target)
                    }
                    _ => (true, edge.target),
                },
                Link::State { state, target } => {
                    new_of(target).into_iter().for_each(|target| shape.read_state(state, target));
                    (false, target)
                }
            };
            let is_order = matches!(link, Link::Edge(edge) if !edge.is_data());
            if let (Some(new), false) = (new_of(target), is_order) {
                let (before, after) = &mut reads[target.index()];
                if self.is_taken(target, *before) && !is_cut {
                    shape.take_input(new, *after);
                }
                (*before, *after) = (*before + 1, *after + u32::from(!is_cut));
            }
        }
        let outputs = self.outputs().iter().filter_map(|&(node, output)| Some((new_of(node)?, output)));
        outputs.for_each(|(node, output)| shape.output(node, output));
        (shape, new)
    }
}

/// Returns, for each node, whether it is one of `starts` or reached from one of them, in the direction that
/// `ends` gives. If `starts` is empty, all nodes are reached.
fn reached(shape: &Shape, starts: &[NodeId], ends: fn(&Edge) -> (NodeId, NodeId)) -> Vec<bool> {
    let count = shape.nodes().len();
    if starts.is_empty() {
        return vec![true; count];
    }
    let mut next: Vec<Vec<NodeId>> = vec![Vec::new(); count];
    shape.edges().iter().map(ends).for_each(|(from, to)| next[from.index()].push(to));
    let (mut is_reached, mut found) = (vec![false; count], starts.to_vec());
    while let Some(node) = found.pop() {
        if !std::mem::replace(&mut is_reached[node.index()], true) {
            found.extend(&next[node.index()]);
        }
    }
    is_reached
}

impl Graph {
    /// Returns the graph of the nodes on the paths from any of `from` to any of `to`, inclusive. An empty
    /// `from` means every source, an empty `to` every sink. Both graphs can be compiled and run
    /// independently.
    ///
    /// A value that these nodes read from other nodes becomes an input with the name of the node that makes
    /// it (with a number behind it, for the second and later values of a loop or branch). The values of `to`
    /// become outputs with the names of their nodes, beside the existing outputs of these nodes.
    ///
    /// # Errors
    /// If no node has one of these names, or there is no path; or the first mistake of the graph. If an input
    /// or an output would have the name of another one, `compile` of the section returns the error.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, inputs};
    ///
    /// let mut g = Graph::new();
    /// let text = g.input::<String>("text");
    /// let words = g.task("words", &text, |t: &String| t.split(' ').count());
    /// let square = g.task("square", &words, |n: &usize| n * n);
    /// g.output("square", &square);
    ///
    /// let second_half = g.section(&["square"], &[])?.compile()?;
    /// let exec = Executor::inline();
    /// let mut outputs = futures::executor::block_on(exec.run(&second_half, inputs! { "words" => 5usize }))?;
    /// assert_eq!(*outputs.take::<usize>("square")?, 25);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn section(&self, from: &[&str], to: &[&str]) -> Result<Graph> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if self.is_inner() {
            return Err(Kind::IsInner.into());
        }
        let is_in = self.shape.between(from, to)?;
        Ok(self.cut(&is_in, |cut| cut.take_outputs(to)))
    }

    /// Returns the graph of these nodes, with the outputs that they make and those that are inputs. The nodes
    /// read no values of other nodes.
    pub(crate) fn part(&self, is_in: &[bool]) -> Graph {
        let mut part = self.cut(is_in, |cut| {
            cut.take_outputs(&[]);
            cut.take_passed();
        });
        let mut is_read = vec![false; part.works.len()];
        part.shape.edges().iter().filter(|edge| edge.is_data()).for_each(|edge| is_read[edge.source.index()] = true);
        part.shape.outputs().iter().for_each(|(node, _)| is_read[node.index()] = true);
        part.unread = part.shape.ids().filter(|node| !is_read[node.index()]).collect();
        part
    }

    fn cut(&self, is_in: &[bool], take_outputs: impl FnOnce(&mut Cut<'_>)) -> Graph {
        let (shape, new) = self.shape.cut(is_in);
        let old: Vec<NodeId> = self.shape.ids().filter(|node| is_in[node.index()]).collect();
        let (layout, context, inner) = (self.layout, self.context, self.inner.clone());
        let wires = self.wires.clone();
        let mut section = Graph { layout, context, shape: Arc::new(shape), inner, wires, ..Graph::new() };
        section.bodies = self.bodies.pick(old.iter().map(|node| node.index()));
        let mut cut = Cut { graph: self, section: &mut section, new: &new, values: HashMap::new() };
        old.iter().for_each(|&node| cut.take_node(node));
        cut.take_reads();
        cut.take_controls();
        take_outputs(&mut cut);
        let names = section.shape.ids_by_name();
        section.details = self.details.iter().filter(|(name, _)| names.contains_key(&**name)).cloned().collect();
        section
    }
}

/// A section that is being cut out.
struct Cut<'a> {
    graph: &'a Graph,
    section: &'a mut Graph,
    new: &'a [Option<NodeId>],
    /// The value of the section for each value of the graph.
    values: HashMap<u32, u32>,
}

impl Cut<'_> {
    /// Returns the section's value for a value of the graph. A value that is made outside becomes an input.
    fn value(&mut self, value: u32) -> u32 {
        if let Some(&known) = self.values.get(&value) {
            return known;
        }
        let info = &self.graph.values[value as usize];
        let inside = |node: NodeId| self.new[node.index()];
        let maker = if let Maker::Node(node) = info.maker { inside(node) } else { None };
        let index = match maker {
            Some(node) => self.section.value_of_type(info.of, info.offset, Maker::Node(node)),
            None => {
                let name = self.name(value, info.maker);
                self.section.check_port(PortKind::Input, &name);
                self.section.input_of_type(name, info.of, info.offset)
            }
        };
        let cut = &mut self.section.values[index as usize];
        (cut.is_read, cut.taker) = (true, info.taker.and_then(inside));
        self.values.insert(value, index);
        index
    }

    /// Returns the name of a value as an input or an output.
    fn name(&self, value: u32, maker: Maker) -> Name {
        match maker {
            Maker::Node(node) => numbered(self.graph.shape.name_of(node), value - self.graph.works[node.index()].value),
            Maker::Input(input) => self.graph.inputs[input as usize].name.clone(),
        }
    }

    fn take_node(&mut self, node: NodeId) {
        let work = self.graph.works[node.index()];
        let value = self.section.values.len() as u32;
        (work.value..work.value + work.values).for_each(|value| _ = self.value(value));
        self.section.works.push(NodeWork { value, ..work });
    }

    /// Copies the loops and branches, with the values that they keep.
    fn take_controls(&mut self) {
        let graph = self.graph;
        for control in &graph.controls {
            if let Some(node) = self.new[control.node.index()] {
                let (states, flow) = (control.states.clone(), control.flow.clone());
                self.section.controls.push(ControlNode { node, states, flow });
            }
        }
        for &(keeper, value) in &graph.kept {
            let Some(keeper) = self.new[keeper.index()] else { continue };
            let value = self.value(value);
            self.section.share(value, Sharer::Control(keeper));
            self.section.kept.push((keeper, value));
        }
    }

    /// Makes inputs of the values that are read from outside, and records which values async nodes share.
    fn take_reads(&mut self) {
        let graph = self.graph;
        let reads = graph.shape.edges().iter().filter(|edge| edge.is_data());
        let of_nodes = reads.map(|edge| (graph.value_of(edge), edge.target));
        let of_inputs = graph.inputs.iter().flat_map(|port| port.readers.iter().map(|&reader| (port.value, reader)));
        for (value, reader) in of_nodes.chain(of_inputs) {
            let Some(reader) = self.new[reader.index()] else { continue };
            let value = self.value(value);
            let takes = self.section.values[value as usize].taker == Some(reader);
            if self.section.works[reader.index()].is_async && !takes {
                self.section.share(value, Sharer::Async(reader));
            }
            if let Maker::Input(input) = self.section.values[value as usize].maker {
                self.section.inputs[input as usize].readers.push(reader);
            }
        }
    }

    /// Keeps the outputs of these nodes, and adds the values of `to`.
    fn take_outputs(&mut self, to: &[&str]) {
        let graph = self.graph;
        for port in &graph.outputs {
            let value = self.values.get(&port.value).copied();
            let is_inside = |value: &u32| matches!(self.section.values[*value as usize].maker, Maker::Node(_));
            if let Some(value) = value.filter(is_inside) {
                self.add_output(port.name.clone(), value, false);
            }
        }
        let mut names: HashMap<Name, u32> = self.section.outputs.iter().map(|port| (port.name.clone(), port.value)).collect();
        let ids = graph.shape.ids_by_name();
        for &name in to {
            let Some(node) = ids.get(name).and_then(|node| self.new[node.index()]) else { continue };
            let work = self.section.works[node.index()];
            for value in work.value..work.value + work.values {
                self.take_output_of(value, numbered(&name.to_owned().into(), value - work.value), &mut names);
            }
        }
    }

    /// Keeps the outputs that are inputs.
    fn take_passed(&mut self) {
        let graph = self.graph;
        let is_input = |port: &&OutputPort| matches!(graph.values[port.value as usize].maker, Maker::Input(_));
        for port in graph.outputs.iter().filter(is_input) {
            let value = self.value(port.value);
            self.add_output(port.name.clone(), value, false);
        }
    }

    /// Adds an output, unless `names` has it. A value of type `()` is an output only if the graph declares
    /// it.
    fn take_output_of(&mut self, value: u32, name: Name, names: &mut HashMap<Name, u32>) {
        let is_unit = self.section.values[value as usize].of.id == TypeId::of::<()>();
        match names.get(&name) {
            None if is_unit => {}
            None if self.section.has_too_many("outputs", names.len()) => {}
            None => {
                names.insert(name.clone(), value);
                self.add_output(name, value, true);
            }
            Some(&known) if known == value => {}
            Some(_) => {
                let duplicate = Kind::DuplicatePort { first: PortKind::Output, second: PortKind::Output, name };
                self.section.mistake(duplicate.into());
            }
        }
    }

    fn add_output(&mut self, name: Name, value: u32, is_new: bool) {
        let output = self.section.outputs.len() as u32;
        self.section.share(value, Sharer::Output(output));
        let Graph { outputs, values, works, shape, .. } = &mut *self.section;
        let info = &mut values[value as usize];
        let maker = if let Maker::Node(node) = info.maker { Some((node, &works[node.index()])) } else { None };
        OutputPort::add_to(outputs, name, value, info, maker.is_some_and(|(_, work)| work.values > 1));
        if let Some((node, work)) = maker.filter(|_| is_new) {
            Arc::make_mut(shape).output(node, value - work.value);
        }
    }
}
