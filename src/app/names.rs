//! The names that schedules use: components, graphlets, single passes, processes.

use std::collections::HashMap;

use super::fault::{Place, list, quoted};
use super::parts::PassId;
use super::tree::Tree;
use crate::error::Result;

/// The passes of a name.
pub(super) struct Named {
    pub(super) passes: Vec<PassId>,
    /// True if the name is that of one pass, not of a component.
    pub(super) is_single: bool,
}

pub(super) struct Names<'a> {
    tree: &'a Tree,
    processes: Vec<&'a str>,
    /// Runnables that are no passes.
    external: Vec<&'a str>,
    passes: HashMap<&'a str, PassId>,
}

impl<'a> Names<'a> {
    pub(super) fn new(tree: &'a Tree, processes: Vec<&'a str>, external: Vec<&'a str>) -> Self {
        let passes = tree.passes.iter().zip(0..).map(|(pass, number)| (&*pass.name, PassId(number))).collect();
        Self { tree, processes, external, passes }
    }

    pub(super) fn is_process(&self, name: &str) -> bool {
        self.processes.contains(&name)
    }

    pub(super) fn is_external(&self, name: &str) -> bool {
        self.external.contains(&name)
    }

    pub(super) fn name_of(&self, pass: PassId) -> &str {
        &self.tree.passes[pass.index()].name
    }

    /// Returns the passes of a component, of all components in a graphlet, or one pass.
    pub(super) fn find(&self, name: &str, place: &Place) -> Result<Named> {
        if let Some(&pass) = self.passes.get(name) {
            return Ok(Named { passes: vec![pass], is_single: true });
        }
        if let Some(member) = self.tree.find(0, name) {
            let components = self.tree.below(member);
            let passes = components.into_iter().flat_map(|component| self.tree.components[component.index()].passes());
            return Ok(Named { passes: passes.collect(), is_single: false });
        }
        let hint = match name.rsplit_once('.').and_then(|(component, _)| self.tree.find(0, component)) {
            Some(member) => {
                let member = &self.tree.members[member];
                let children = self.tree.below_names(member);
                format!("; {} has {}", quoted(&member.name), list(children.iter().map(String::as_str)))
            }
            None => format!("; there are {}", list(self.tree.components.iter().map(|component| &*component.name))),
        };
        Err(place.fault(format_args!("there is no component or pass {}{hint}", quoted(name))))
    }

    pub(super) fn pass(&self, name: &str, place: &Place) -> Result<PassId> {
        let found = self.find(name, place)?;
        match (found.is_single, &found.passes[..]) {
            (true, &[pass]) => Ok(pass),
            _ => Err(place.fault(format_args!("{} is a component: name one of its passes", quoted(name)))),
        }
    }

    pub(super) fn all_passes(&self, names: &[String], place: &Place) -> Result<Vec<PassId>> {
        let mut passes = Vec::new();
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !self.is_external(name)) {
            passes.extend(self.find(name, &place.at(format_args!("[{index}]")))?.passes);
        }
        passes.sort();
        passes.dedup();
        Ok(passes)
    }
}
