//! The tree of components: each subcomponent of each graphlet, with the files read that it needs. Components
//! are added to a list, and the list is worked off, so that nothing recurses over files.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::fault::{Place, list, quoted};
use super::files::{Document, Files};
use super::forms::{AppForm, ConnectionForm, GraphletForm, Map, NodeForm, Object, PortForm, SubcomponentForm};
use super::order::circle;
use super::parts::{Component, ComponentId, Pass, PassId, PortShape};
use crate::error::{Kind, Result};
use crate::graph::NAME_BYTES_MAX;
use crate::name::Name;

/// How deep graphlets may be nested.
const NESTING_MAX: usize = 64;
/// The most components, graphlets included.
const COMPONENTS_MAX: usize = 1 << 15;
/// The most passes.
pub(super) const PASSES_MAX: usize = 1 << 15;

/// What a component of the tree is.
pub(super) enum Content {
    App(Rc<AppForm>),
    Graphlet(Rc<GraphletForm>),
    Node(Rc<NodeForm>, ComponentId),
}

/// A component of the tree: the application itself, a graphlet or a node.
pub(super) struct Member {
    /// Its path; empty for the application.
    pub(super) name: String,
    pub(super) file: Arc<Path>,
    pub(super) content: Content,
    pub(super) children: HashMap<String, usize>,
    parent: Option<usize>,
    depth: usize,
}

impl Member {
    fn subcomponents(&self) -> Option<&Map<Object<SubcomponentForm>>> {
        match &self.content {
            Content::App(form) => Some(&form.subcomponents),
            Content::Graphlet(form) => Some(&form.subcomponents),
            Content::Node(..) => None,
        }
    }

    pub(super) fn connections(&self) -> &[Object<ConnectionForm>] {
        match &self.content {
            Content::App(form) => &form.connections,
            Content::Graphlet(form) => &form.connections,
            Content::Node(..) => &[],
        }
    }

    /// Returns its input ports, or its output ports.
    pub(super) fn ports(&self, is_input: bool) -> Option<&Map<Object<PortForm>>> {
        match (&self.content, is_input) {
            (Content::App(_), _) => None,
            (Content::Graphlet(form), true) => Some(&form.input_ports),
            (Content::Graphlet(form), false) => Some(&form.output_ports),
            (Content::Node(form, _), true) => Some(&form.input_ports),
            (Content::Node(form, _), false) => Some(&form.output_ports),
        }
    }
}

/// All components, the application first; those with passes also as flat lists.
pub(super) struct Tree {
    pub(super) members: Vec<Member>,
    pub(super) components: Vec<Component>,
    pub(super) passes: Vec<Pass>,
}

impl Tree {
    pub(super) fn new(file: &Arc<Path>, app: Rc<AppForm>, files: &mut Files<'_>) -> Result<Self> {
        let content = Content::App(app);
        let root = Member { name: String::new(), file: file.clone(), content, children: HashMap::new(), parent: None, depth: 0 };
        let mut tree = Self { members: vec![root], components: Vec::new(), passes: Vec::new() };
        let mut next = 0;
        while next < tree.members.len() {
            tree.add_subcomponents(next, files)?;
            next += 1;
        }
        Ok(tree)
    }

    /// Returns the component of a path below another one.
    pub(super) fn find(&self, from: usize, path: &str) -> Option<usize> {
        path.split('.').try_fold(from, |member, name| self.members[member].children.get(name).copied())
    }

    /// Returns the components with passes in a part of the tree, in their order.
    pub(super) fn below(&self, member: usize) -> Vec<ComponentId> {
        let (mut open, mut found) = (vec![member], Vec::new());
        while let Some(member) = open.pop() {
            open.extend(self.members[member].children.values());
            if let Content::Node(_, component) = self.members[member].content {
                found.push(component);
            }
        }
        found.sort();
        found
    }

    /// Returns the names of the subcomponents, or of the passes, of a component.
    pub(super) fn below_names(&self, member: &Member) -> Vec<String> {
        let mut names: Vec<String> = match &member.content {
            Content::Node(form, _) => return form.passes.iter().map(|pass| pass.name.clone()).collect(),
            _ => member.children.keys().cloned().collect(),
        };
        names.sort();
        names
    }

    fn add_subcomponents(&mut self, parent: usize, files: &mut Files<'_>) -> Result<()> {
        let member = &self.members[parent];
        let (depth, start) = (member.depth + 1, Place::new(&member.file, "subcomponents"));
        let Some(forms) = member.subcomponents() else { return Ok(()) };
        let forms: Vec<(String, String)> =
            forms.iter().map(|(name, form)| (name.to_owned(), form.component_type.clone())).collect();
        for (name, relative) in forms {
            let place = start.at(format_args!(".{name}"));
            if name.is_empty() || name.contains(['.', '[', ']']) {
                return Err(
                    place.fault(format_args!("{} is no name: a name is not empty and has no '.', '[' or ']'", quoted(&name)))
                );
            }
            let prefix = &self.members[parent].name;
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if path.len() > NAME_BYTES_MAX {
                return Err(Kind::Limit {
                    what: format!("the length of a name of {place}"),
                    got: path.len(),
                    limit: NAME_BYTES_MAX,
                }
                .into());
            }
            let typed = place.at(".componentType");
            let (file, document) = files.component(&relative, &typed)?;
            self.check_circle(parent, &file, &typed)?;
            if depth > NESTING_MAX {
                return Err(typed.fault(format_args!("graphlets are nested more than {NESTING_MAX} deep")));
            }
            if self.members.len() > COMPONENTS_MAX {
                return Err(typed.fault(format_args!("the application has more than {COMPONENTS_MAX} components")));
            }
            let content = match document {
                Document::Graphlet(form) => Content::Graphlet(form),
                Document::Node(form) => {
                    let component = self.add_component(&path, &file, place, &form)?;
                    Content::Node(form, component)
                }
            };
            let number = self.members.len();
            self.members.push(Member { name: path, file, content, children: HashMap::new(), parent: Some(parent), depth });
            self.members[parent].children.insert(name, number);
        }
        Ok(())
    }

    /// Fails if a graphlet contains itself: then one of the components around has the same file.
    fn check_circle(&self, parent: usize, file: &Arc<Path>, place: &Place) -> Result<()> {
        let around: Vec<usize> = std::iter::successors(Some(parent), |&member| self.members[member].parent).collect();
        let Some(first) = around.iter().position(|&member| self.members[member].file == *file) else { return Ok(()) };
        let files = around[..=first].iter().rev().map(|&member| &self.members[member].file).chain([file]);
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        Err(place.fault(format_args!("a graphlet contains itself: {}", files.join(" -> "))))
    }

    fn add_component(&mut self, path: &str, file: &Arc<Path>, place: Place, form: &NodeForm) -> Result<ComponentId> {
        let component = ComponentId(self.components.len() as u32);
        let start = self.passes.len();
        let listed = Place::new(file, "passes");
        if form.passes.is_empty() {
            return Err(listed.fault("a node has at least one pass"));
        }
        if start + form.passes.len() > PASSES_MAX {
            return Err(place.fault(format_args!("the application has more than {PASSES_MAX} passes")));
        }
        let mut numbers = HashMap::new();
        for (number, pass) in form.passes.iter().enumerate() {
            let at = listed.at(format_args!("[{number}].name"));
            if pass.name.is_empty() || pass.name.contains('.') {
                return Err(at.fault(format_args!("{} is no name of a pass: it is not empty and has no '.'", quoted(&pass.name))));
            }
            if let Some(first) = numbers.insert(&*pass.name, number) {
                return Err(
                    at.fault(format_args!("the name {} is that of passes[{first}]: give each its own", quoted(&pass.name)))
                );
            }
        }
        for (number, pass) in form.passes.iter().enumerate() {
            let at = listed.at(format_args!("[{number}]"));
            let [processor] = pass.processor_types[..] else {
                let count = pass.processor_types.len();
                return Err(at.at(".processorTypes").fault(format_args!("a pass has one processor, and not {count}")));
            };
            let mut after = Vec::new();
            for (index, name) in pass.dependencies.iter().flatten().enumerate() {
                let Some(&known) = numbers.get(&**name) else {
                    let known = list(form.passes.iter().map(|pass| &*pass.name));
                    let fault = format!("there is no pass {}; the node has {known}", quoted(name));
                    return Err(at.at(format_args!(".dependencies[{index}]")).fault(fault));
                };
                after.push(PassId((start + known) as u32));
            }
            let is_implicit = pass.dependencies.is_none();
            after.extend((is_implicit && number > 0).then(|| PassId((start + number - 1) as u32)));
            let name = format!("{path}.{}", pass.name);
            if name.len() + "_submittee".len() > NAME_BYTES_MAX {
                return Err(Kind::Limit {
                    what: format!("the length of a name of {place}"),
                    got: name.len(),
                    limit: NAME_BYTES_MAX,
                }
                .into());
            }
            self.passes.push(Pass { name: name.into(), component, number: number as u32, processor, after, is_implicit });
        }
        self.check_passes(start, &listed)?;
        self.components.push(Component {
            name: path.to_owned().into(),
            kind: form.name.clone().into(),
            process: None,
            machine: None,
            inputs: shapes(&form.input_ports),
            outputs: shapes(&form.output_ports),
            passes: start as u32..self.passes.len() as u32,
            file: file.clone(),
            place,
        });
        Ok(component)
    }

    /// Fails if passes of one component depend on each other in a circle.
    fn check_passes(&self, start: usize, place: &Place) -> Result<()> {
        let passes = &self.passes[start..];
        let edges: Vec<(u32, u32)> = passes
            .iter()
            .zip(0..)
            .flat_map(|(pass, number)| pass.after.iter().map(move |source| (source.0 - start as u32, number)))
            .collect();
        let Some(circle) = circle(passes.len(), &edges) else { return Ok(()) };
        let names: Vec<&str> = circle.iter().map(|&number| &*passes[number as usize].name).collect();
        Err(place.fault(format_args!(
            "passes depend on each other in a circle: {}: remove one of the dependencies",
            names.join(" -> ")
        )))
    }
}

fn shapes(ports: &Map<Object<PortForm>>) -> Vec<PortShape> {
    let shape = |(name, form): (&str, &Object<PortForm>)| PortShape {
        name: Name::from(name.to_owned()),
        kind: form.kind.clone().map(Name::from),
        array: form.array,
        binding_required: form.binding_required.unwrap_or(false),
        bytes: form.bytes,
    };
    ports.iter().map(shape).collect()
}
