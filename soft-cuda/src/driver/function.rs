//! Modules and their functions. A module is PTX text. The driver only reads the names of its entries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use super::kernel::{self, Kernel};
use super::lock;
use super::table::Handle;
use crate::code::{Code, Outcome};

/// A loaded module.
pub(crate) struct Module {
    entries: Vec<Arc<str>>,
    /// The functions that were looked up. They end with the module.
    functions: Mutex<Vec<Handle>>,
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    kernel: OnceLock<Arc<Kernel>>,
    pub(crate) attributes: Mutex<HashMap<u32, i32>>,
}

impl Module {
    /// Reads PTX.
    pub(crate) fn read(ptx: &str) -> Outcome<Self> {
        let entries = entries(ptx);
        if entries.is_empty() && !ptx.contains(".version") {
            return Err(Code::INVALID_PTX);
        }
        Ok(Self { entries, functions: Mutex::default() })
    }

    pub(crate) fn function(&self, name: &str) -> Outcome<Function> {
        let name = self.entries.iter().find(|entry| ***entry == *name).ok_or(Code::NOT_FOUND)?.clone();
        let kernel = match kernel::registered(&name) {
            Some(kernel) => OnceLock::from(kernel),
            None => OnceLock::new(),
        };
        Ok(Function { name, kernel, attributes: Mutex::default() })
    }

    pub(crate) fn remember(&self, function: Handle) {
        lock(&self.functions).push(function);
    }

    pub(crate) fn functions(&self) -> Vec<Handle> {
        lock(&self.functions).clone()
    }
}

impl Function {
    /// Returns the kernel that is registered under the function's name. It may have been registered after the
    /// function was looked up.
    pub(crate) fn kernel(&self) -> Outcome<&Arc<Kernel>> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(kernel);
        }
        let kernel = kernel::registered(&self.name).ok_or(Code::INVALID_DEVICE_FUNCTION)?;
        Ok(self.kernel.get_or_init(|| kernel))
    }
}

/// Returns the names after `.entry` outside of line comments.
fn entries(ptx: &str) -> Vec<Arc<str>> {
    let code: Vec<&str> = ptx.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    let code = code.join("\n");
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    code.split(".entry")
        .skip(1)
        .filter_map(|after| {
            let after = after.trim_start();
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            (end > 0).then(|| Arc::from(&after[..end]))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_names_after_entry_outside_of_comments() {
        let ptx = ".version 7.0\n.visible .entry first(\n.param .u64 a\n)\n{ ret; }\n// .entry third(\n.entry second () { ret; }";
        let names: Vec<_> = entries(ptx).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["first", "second"]);
    }
}
