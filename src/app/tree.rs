//! The tree of components: each subcomponent of each graphlet, with the files read that it needs. Components
//! are added to a list, and the list is worked off, so that nothing recurses over files.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::fault::{Place, quoted};
use super::files::{Document, Files};
use super::forms::{AppForm, ConnectionForm, GraphletForm, Map, NodeForm, Object, PortForm, SubcomponentForm};
use super::kind::{NodeKind, PassKind, check_ports};
use super::parts::{Component, ComponentId, Pass, PassId};
use crate::error::{Kind, Result};
use crate::graph::NAME_BYTES_MAX;

/// How deep graphlets may be nested.
const NESTING_MAX: usize = 64;
/// The most components, graphlets included.
const COMPONENTS_MAX: usize = 1 << 15;
/// The most passes.
pub(super) const PASSES_MAX: usize = 1 << 15;
/// The most ports of all components with passes.
const PORTS_MAX: usize = 1 << 20;
/// The most dependencies between the passes of a component, of all components. Each schedule copies those
/// of the passes that it has.
const DEPENDENCIES_MAX: usize = 1 << 18;

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
    /// What the components of one file share, so that a file of many ports is not copied for each of them.
    kinds: HashMap<Arc<Path>, Rc<NodeKind>>,
    ports: usize,
    dependencies: usize,
}

impl Tree {
    pub(super) fn new(file: &Arc<Path>, app: Rc<AppForm>, files: &mut Files<'_>) -> Result<Self> {
        let content = Content::App(app);
        let root = Member { name: String::new(), file: file.clone(), content, children: HashMap::new(), parent: None, depth: 0 };
        let mut tree = Self {
            members: vec![root],
            components: Vec::new(),
            passes: Vec::new(),
            kinds: HashMap::new(),
            ports: 0,
            dependencies: 0,
        };
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
            self.check_cycle(parent, &file, &typed)?;
            if depth > NESTING_MAX {
                return Err(typed.fault(format_args!("graphlets are nested more than {NESTING_MAX} deep")));
            }
            if self.members.len() > COMPONENTS_MAX {
                return Err(typed.fault(format_args!("the application has more than {COMPONENTS_MAX} components")));
            }
            let content = match document {
                Document::Graphlet(form) => {
                    check_ports(&form.input_ports, &form.output_ports, &file)?;
                    Content::Graphlet(form)
                }
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
    fn check_cycle(&self, parent: usize, file: &Arc<Path>, place: &Place) -> Result<()> {
        let around: Vec<usize> = std::iter::successors(Some(parent), |&member| self.members[member].parent).collect();
        let Some(first) = around.iter().position(|&member| self.members[member].file == *file) else { return Ok(()) };
        let files = around[..=first].iter().rev().map(|&member| &self.members[member].file).chain([file]);
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        Err(place.fault(format_args!("a graphlet contains itself: {}", files.join(" -> "))))
    }

    fn add_component(&mut self, path: &str, file: &Arc<Path>, place: Place, form: &NodeForm) -> Result<ComponentId> {
        let component = ComponentId(self.components.len() as u32);
        let start = self.passes.len();
        if start + form.passes.len() > PASSES_MAX {
            return Err(place.fault(format_args!("the application has more than {PASSES_MAX} passes")));
        }
        let kind = match self.kinds.get(file) {
            Some(known) => known.clone(),
            None => {
                let kind = Rc::new(NodeKind::new(form, file)?);
                self.kinds.insert(file.clone(), kind.clone());
                kind
            }
        };
        self.ports += kind.inputs.len() + kind.outputs.len();
        if self.ports > PORTS_MAX {
            return Err(place.fault(format_args!("the components of the application have more than {PORTS_MAX} ports")));
        }
        self.dependencies += kind.passes.iter().map(|pass| pass.after.len()).sum::<usize>();
        if self.dependencies > DEPENDENCIES_MAX {
            return Err(place.fault(format_args!(
                "the passes of the application have more than {DEPENDENCIES_MAX} dependencies within their components"
            )));
        }
        for (pass, number) in kind.passes.iter().zip(0..) {
            let name = format!("{path}.{}", pass.name);
            if name.len() + "_submittee".len() > NAME_BYTES_MAX {
                return Err(Kind::Limit {
                    what: format!("the length of a name of {place}"),
                    got: name.len(),
                    limit: NAME_BYTES_MAX,
                }
                .into());
            }
            let after = pass.after.iter().map(|before| PassId(start as u32 + before)).collect();
            let PassKind { processor, is_implicit, .. } = *pass;
            self.passes.push(Pass { name: name.into(), component, number, processor, after, is_implicit });
        }
        self.components.push(Component {
            name: path.to_owned().into(),
            kind: kind.name.clone(),
            process: None,
            machine: None,
            inputs: kind.inputs.clone(),
            outputs: kind.outputs.clone(),
            passes: start as u32..self.passes.len() as u32,
            file: file.clone(),
            place,
        });
        Ok(component)
    }
}
