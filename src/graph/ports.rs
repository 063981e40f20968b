//! The named inputs and outputs of a graph, and the rules for them.

use super::PORTS_MAX;
use super::builder::Graph;
use super::check::check_name;
use super::values::{InputPort, Maker, OutputPort, Sharer, Type};
use crate::error::{Kind, PortKind};
use crate::name::Name;

impl Graph {
    /// Adds an input without a check of its name. Returns its value.
    pub(super) fn input_of_type(&mut self, name: Name, of: Type, offset: u32) -> u32 {
        let value = self.value_of_type(of, offset, Maker::Input(self.inputs.len() as u32));
        self.inputs.push(InputPort { name, of, value, offset, readers: Vec::new() });
        value
    }

    /// Declares a value, by its number, as an output. Does not check the name.
    pub(super) fn output_own(&mut self, name: Name, value: u32) {
        self.share(value, Sharer::Output(self.outputs.len() as u32));
        self.values[value as usize].is_read = true;
        let mut has_siblings = false;
        if let Maker::Node(node) = self.values[value as usize].maker {
            let work = &self.works[node.index()];
            has_siblings = work.values > 1;
            let output = value - work.value;
            self.shape_mut().output(node, output);
        }
        OutputPort::add_to(&mut self.outputs, name, value, &mut self.values[value as usize], has_siblings);
    }

    /// Records a mistake if the port cannot be added. An inner graph has no ports: it reads the graphs around
    /// it, and its closure returns its results.
    pub(super) fn check_port(&mut self, kind: PortKind, name: &Name) {
        if self.is_inner() {
            self.mistake(Kind::InnerPort { kind, name: name.clone() }.into());
        }
        if let Err(error) = check_name(name) {
            self.mistake(error);
        }
        let is_output = kind == PortKind::Output;
        let (ports, count) = if is_output { ("outputs", self.outputs.len()) } else { ("inputs", self.inputs.len()) };
        if self.has_too_many(ports, count) {
            return;
        }
        let same = if is_output {
            self.outputs.iter().any(|port| port.name == *name).then_some(kind)
        } else {
            let input = self.inputs.iter().position(|port| port.name == *name);
            input.map(|input| self.input_kind(input as u32))
        };
        if let Some(first) = same {
            self.mistake(Kind::DuplicatePort { first, second: kind, name: name.clone() }.into());
        }
    }

    /// Returns the kind of an input.
    pub(crate) fn input_kind(&self, input: u32) -> PortKind {
        // States and feedbacks are in the order of their inputs.
        let place = self.between.binary_search_by_key(&input, |between| between.input);
        place.map_or(PortKind::Input, |place| self.between[place].is.kind())
    }

    /// Returns true, and records a mistake, if there are too many ports to add another to `count`. The limit
    /// exists because their names are searched one by one.
    pub(super) fn has_too_many(&mut self, ports: &str, count: usize) -> bool {
        if count >= PORTS_MAX {
            self.mistake(Kind::Limit { what: format!("the number of {ports}"), got: count + 1, limit: PORTS_MAX }.into());
        }
        count >= PORTS_MAX
    }
}

/// Returns the name of the port for output number `output` of the node `name`.
pub(super) fn numbered(name: &Name, output: u32) -> Name {
    if output == 0 { name.clone() } else { format!("{name} {output}").into() }
}
