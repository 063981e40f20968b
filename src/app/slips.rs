//! Keys that are not read because they are misspelt. Other keys that are not read are no mistake: the
//! original has many.

use serde_ignored::Path;

use super::fault::{Place, Warning, quoted};
use crate::graph::is_one_slip;

/// The keys that may be left out. Without one of the others, a file is an error anyway.
const OPTIONAL: [&str; 26] = [
    "aliasGroups",
    "array",
    "bindingRequired",
    "bytes",
    "connections",
    "data-offset",
    "default",
    "dependencies",
    "fifo-size",
    "frames",
    "indirect",
    "inputPorts",
    "mode",
    "outputPorts",
    "params",
    "passDependencies",
    "period",
    "processes",
    "resources",
    "reuse",
    "runOn",
    "states",
    "stmSchedules",
    "subcomponents",
    "type",
    "wcet",
];

/// Returns a warning if a key that was not read is like one that is.
pub(super) fn of(path: &Path<'_>, start: &Place) -> Option<Warning> {
    let Path::Map { parent, key } = path else { return None };
    let meant = OPTIONAL.into_iter().find(|known| key.len() < 2 * known.len() && is_slip(known, key))?;
    let text = format!("the key {} is not read: did you mean '{meant}'?", quoted(key));
    Some(Warning::new(&start.at(written(parent)), text))
}

/// Whether a key is another spelling, with one slip at most.
fn is_slip(known: &str, key: &str) -> bool {
    let letters = |key: &str| key.replace(['-', '_', ' '], "").to_lowercase();
    let (plain_known, plain) = (letters(known), letters(key));
    known != key && (plain_known == plain || is_one_slip(plain_known.as_bytes(), plain.as_bytes()))
}

/// Returns a path as errors have it: `connections[0].dests`.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => {
            let before = written(parent);
            if before.is_empty() { key.clone() } else { format!("{before}.{key}") }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => written(parent),
    }
}
