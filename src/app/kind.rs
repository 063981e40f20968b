//! What the components of one node file share. It is checked and built once, however many components have
//! the file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::fault::{Place, list, quoted};
use super::forms::{Map, NodeForm, Object, PortForm};
use super::order::cycle;
use super::parts::PortShape;
use super::processor::Processor;
use crate::error::Result;
use crate::name::Name;

/// The most input ports, or output ports, of one component. Each end of a connection is looked up among
/// them.
const PORTS_OF_ONE_MAX: usize = 1 << 12;

/// A node as its file has it.
pub(super) struct NodeKind {
    pub(super) name: Name,
    pub(super) inputs: Arc<[PortShape]>,
    pub(super) outputs: Arc<[PortShape]>,
    pub(super) passes: Vec<PassKind>,
}

/// A pass as the file of its node has it.
pub(super) struct PassKind {
    pub(super) name: Name,
    pub(super) processor: Processor,
    /// The positions of the passes of the node that come before it, each once.
    pub(super) after: Vec<u32>,
    pub(super) is_implicit: bool,
}

impl NodeKind {
    pub(super) fn new(form: &NodeForm, file: &Arc<Path>) -> Result<Self> {
        let listed = Place::new(file, "passes");
        if form.passes.is_empty() {
            return Err(listed.fault("a node has at least one pass"));
        }
        check_ports(&form.input_ports, &form.output_ports, file)?;
        let passes = passes(form, &listed)?;
        check_cycle(&passes, &listed)?;
        let (inputs, outputs) = (shapes(&form.input_ports), shapes(&form.output_ports));
        Ok(Self { name: form.name.clone().into(), inputs, outputs, passes })
    }
}

/// Fails if a component has too many ports.
pub(super) fn check_ports(inputs: &Map<Object<PortForm>>, outputs: &Map<Object<PortForm>>, file: &Arc<Path>) -> Result<()> {
    for (key, ports) in [("inputPorts", inputs), ("outputPorts", outputs)] {
        let count = ports.0.len();
        if count > PORTS_OF_ONE_MAX {
            let fault = format!("a component has at most {PORTS_OF_ONE_MAX} of these ports, and not {count}");
            return Err(Place::new(file, key).fault(fault));
        }
    }
    Ok(())
}

/// Returns the position of each pass by its name.
fn numbers<'a>(form: &'a NodeForm, listed: &Place) -> Result<HashMap<&'a str, usize>> {
    let mut numbers = HashMap::new();
    for (number, pass) in form.passes.iter().enumerate() {
        let at = listed.at(format_args!("[{number}].name"));
        if pass.name.is_empty() || pass.name.contains('.') {
            return Err(at.fault(format_args!("{} is no name of a pass: it is not empty and has no '.'", quoted(&pass.name))));
        }
        if let Some(first) = numbers.insert(&*pass.name, number) {
            return Err(at.fault(format_args!("the name {} is that of passes[{first}]: give each its own", quoted(&pass.name))));
        }
    }
    Ok(numbers)
}

fn passes(form: &NodeForm, listed: &Place) -> Result<Vec<PassKind>> {
    let numbers = numbers(form, listed)?;
    let mut passes = Vec::new();
    // The last pass that depends on each pass: the file may name one twice.
    let mut dependent = vec![None; form.passes.len()];
    for (number, pass) in form.passes.iter().enumerate() {
        let at = listed.at(format_args!("[{number}]"));
        let [processor] = pass.processor_types[..] else {
            let count = pass.processor_types.len();
            return Err(at.at(".processorTypes").fault(format_args!("a pass has one processor, and not {count}")));
        };
        let mut after = Vec::new();
        for (index, name) in pass.dependencies.iter().flatten().enumerate() {
            let Some(&before) = numbers.get(&**name) else {
                let known = list(form.passes.iter().map(|pass| &*pass.name));
                let fault = format!("there is no pass {}; the node has {known}", quoted(name));
                return Err(at.at(format_args!(".dependencies[{index}]")).fault(fault));
            };
            if dependent[before].replace(number) != Some(number) {
                after.push(before as u32);
            }
        }
        let is_implicit = pass.dependencies.is_none();
        after.extend((is_implicit && number > 0).then(|| number as u32 - 1));
        passes.push(PassKind { name: pass.name.clone().into(), processor, after, is_implicit });
    }
    Ok(passes)
}

/// Fails if passes depend on each other in a cycle.
fn check_cycle(passes: &[PassKind], listed: &Place) -> Result<()> {
    let edges: Vec<(u32, u32)> =
        passes.iter().zip(0..).flat_map(|(pass, number)| pass.after.iter().map(move |&before| (before, number))).collect();
    let Some(cycle) = cycle(passes.len(), &edges) else { return Ok(()) };
    let mut names: Vec<&str> = cycle.iter().map(|&number| &*passes[number as usize].name).collect();
    let more = if names.len() > 16 { " -> ..." } else { "" };
    names.truncate(16);
    Err(listed.fault(format_args!(
        "passes depend on each other in a cycle: {}{more}: remove one of the dependencies",
        names.join(" -> ")
    )))
}

fn shapes(ports: &Map<Object<PortForm>>) -> Arc<[PortShape]> {
    let shape = |(name, form): (&str, &Object<PortForm>)| PortShape {
        name: Name::from(name.to_owned()),
        kind: form.kind.clone().map(Name::from),
        array: form.array,
        binding_required: form.binding_required.unwrap_or(false),
        bytes: form.bytes,
    };
    ports.iter().map(shape).collect()
}
