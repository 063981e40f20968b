//! Reads and writes files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use anabranch::graph::Shape;
use serde::de::IgnoredAny;

use crate::Failure;

/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 30;

/// Reads a graph. An error names the file and the place in it.
pub(crate) fn graph(path: &Path) -> Result<Shape, Failure> {
    let text = text(path)?;
    let mut shape = Shape::from_json(&text).map_err(|error| {
        let hint = match Looks::of(&text) {
            Some(Looks::Description) => "; this looks like an application description, which `anabranch pipeline` reads",
            Some(Looks::Plan) => "; this looks like a plan, which `anabranch verify GRAPH --plan PLAN` reads",
            _ => "",
        };
        Failure::Invalid(format!("{}: {error}{hint}", path.display()))
    })?;
    if shape.name().is_none()
        && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| *stem != "-")
    {
        shape.set_name(stem.to_owned());
    }
    Ok(shape)
}

/// The format that a file seems to have, for the error of a file that has the wrong one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    Graph,
    Plan,
    Description,
}

impl Looks {
    /// Guesses the format from the keys of the outermost object.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let keys: BTreeMap<String, IgnoredAny> = serde_json::from_str(text).ok()?;
        let has = |any: &[&str]| any.iter().any(|&key| keys.contains_key(key));
        match () {
            () if has(&["policy", "programs"]) => Some(Self::Plan),
            () if has(&["nodes"]) => Some(Self::Graph),
            () if has(&["subcomponents", "stmSchedules"]) => Some(Self::Description),
            () => None,
        }
    }
}

/// Reads a file, or the standard input if it is named `-`.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let cannot = |error: &io::Error| Failure::Usage(format!("{}: cannot read: {error}", path.display()));
    let reader: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(|error| cannot(&error))?),
    };
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    let invalid = |what: &str| Err(Failure::Invalid(format!("{}: {what}", path.display())));
    if bytes.len() as u64 > BYTES_MAX {
        return invalid(&format!("is larger than {} GiB", BYTES_MAX >> 30));
    }
    match bytes[..] {
        // Also the mark of UTF-32, where two zeros follow.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return invalid("is UTF-16: save it as UTF-8"),
        [0xef, 0xbb, 0xbf, ..] => return invalid("begins with a byte order mark: save it as UTF-8 without one"),
        [0, _, ..] | [_, 0, ..] => return invalid("is UTF-16, or binary: save it as UTF-8"),
        _ => {}
    }
    String::from_utf8(bytes).or_else(|_| invalid("is not UTF-8 text"))
}

/// Writes to a file, or to the standard output.
pub(crate) fn write(out: Option<&Path>, text: &str) -> Result<(), Failure> {
    match out {
        Some(path) => {
            std::fs::write(path, text).map_err(|error| Failure::Usage(format!("{}: cannot write: {error}", path.display())))
        }
        None => match io::stdout().lock().write_all(text.as_bytes()) {
            // A reader that closes the pipe early has read all it needs.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        },
    }
}
