//! The files of a description: each is read once, and never more than a bounded number of bytes of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde::Deserialize;
use serde_path_to_error::Track;

use super::fault::{Place, Warning, normal, quoted};
use super::forms::{AppForm, GraphletForm, Map, NodeForm, Object};
use super::{slips, wcet};
use crate::error::Result;

/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The most files.
const FILES_MAX: usize = 4096;
/// The most bytes of all files.
const BYTES_MAX: u64 = 256 << 20;
/// The most warnings about keys.
const WARNINGS_MAX: usize = 100;

/// Reads the bytes of a file.
type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Vec<u8>> + 'a;

/// The file of a component.
#[derive(Clone)]
pub(super) enum Document {
    Node(Rc<NodeForm>),
    Graphlet(Rc<GraphletForm>),
}

pub(super) struct Files<'a> {
    read: &'a mut ReadFile<'a>,
    known: HashMap<PathBuf, (Arc<Path>, Document)>,
    files: usize,
    bytes: u64,
    /// The first of those about keys.
    warnings: Vec<Warning>,
}

/// Reads a file from disk. Refuses a directory, and a device or a pipe, which may have no end.
pub(super) fn from_disk(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a directory: name a file in it"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl<'a> Files<'a> {
    pub(super) fn new(read: &'a mut ReadFile<'a>) -> Self {
        Self { read, known: HashMap::new(), files: 0, bytes: 0, warnings: Vec::new() }
    }

    pub(super) fn app(&mut self, file: &Arc<Path>) -> Result<AppForm> {
        let place = Place::new(file, "");
        let text = self.text(file, &place)?;
        self.json::<AppForm>(&text, &place, "`name`, `subcomponents`, `connections`, `processes`, `states` and `stmSchedules`")
    }

    /// Returns the file of a component, which `place` names relative to its own file.
    pub(super) fn component(&mut self, relative: &str, place: &Place) -> Result<(Arc<Path>, Document)> {
        let path = beside(relative, place)?;
        let key = normal(&path);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let (is_node, is_graphlet) = (relative.ends_with(".node.json"), relative.ends_with(".graphlet.json"));
        if !is_node && !is_graphlet {
            return Err(place.fault(format_args!(
                "the file {} is neither a node nor a graphlet: its name ends in .node.json or .graphlet.json",
                quoted(relative)
            )));
        }
        let text = self.text(&path, place)?;
        let file: Arc<Path> = key.clone().into();
        let start = Place::new(&file, "");
        let document = match is_node {
            true => Document::Node(Rc::new(self.json(&text, &start, "`name`, `inputPorts`, `outputPorts` and `passes`")?)),
            false => Document::Graphlet(Rc::new(self.json(&text, &start, "`subcomponents` and `connections`")?)),
        };
        self.known.insert(key, (file.clone(), document.clone()));
        Ok((file, document))
    }

    /// Returns the costs in a file, in nanoseconds.
    pub(super) fn costs(&mut self, relative: &str, place: &Place) -> Result<(Arc<Path>, Map<f64>)> {
        let path = beside(relative, place)?;
        let text = self.text(&path, place)?;
        let file: Arc<Path> = normal(&path).into();
        let costs = wcet::costs(&text).map_err(|fault| Place::new(&file, "").fault(fault))?;
        Ok((file, costs))
    }

    /// Reads a file. Errors of its own name the file; that it cannot be read is an error of the place.
    fn text(&mut self, path: &Path, place: &Place) -> Result<String> {
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(place.fault(format_args!("the description has more than {FILES_MAX} files")));
        }
        let file: Arc<Path> = normal(path).into();
        let bytes = (self.read)(path).map_err(|error| match place.path.is_empty() {
            true => place.fault(format_args!("cannot read the file: {error}")),
            false => place.fault(format_args!("cannot read the file {}: {error}", quoted(&file.display().to_string()))),
        })?;
        self.bytes += bytes.len() as u64;
        let fault = |fault: String| Err(Place::new(&file, "").fault(fault));
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return fault(format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20));
        }
        if self.bytes > BYTES_MAX {
            return fault(format!("the files of the description are larger than {} MiB together", BYTES_MAX >> 20));
        }
        match bytes[..] {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return fault("the file is UTF-16: save it as UTF-8".into()),
            [0xef, 0xbb, 0xbf, ..] => {
                return fault("the file begins with a byte order mark: save it as UTF-8 without one".into());
            }
            _ => {}
        }
        String::from_utf8(bytes).or_else(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
            fault(format!("the file is not UTF-8 text at line {line}"))
        })
    }

    /// Reads a file that is an object with these keys, among others.
    fn json<T: for<'de> Deserialize<'de>>(&mut self, text: &str, start: &Place, keys: &str) -> Result<T> {
        if text.trim().is_empty() {
            return Err(start.fault(format_args!("the file is empty: it must be a JSON object, with {keys}")));
        }
        let (mut reader, mut track) = (serde_json::Deserializer::from_str(text), Track::new());
        let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
        let form = serde_ignored::deserialize(tracked, |path| {
            if self.warnings.len() < WARNINGS_MAX {
                self.warnings.extend(slips::of(&path, start));
            }
        });
        let form: Object<T> = form.map_err(|fault: serde_json::Error| {
            let path = track.path().to_string();
            let is_whole = path == "." || path == "?";
            match is_whole && !fault.is_data() {
                true => start.fault(format_args!("the file must be a JSON object, with {keys}: {fault}")),
                false => (if is_whole { start.clone() } else { start.at(path) }).fault(plain(&fault)),
            }
        })?;
        reader.end().map_err(|error| start.fault(format_args!("the file must be one JSON object, and no more: {error}")))?;
        Ok(form.into_inner())
    }

    /// Returns the warnings about keys.
    pub(super) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }
}

/// Returns the path of a file that another one names.
fn beside(relative: &str, place: &Place) -> Result<PathBuf> {
    let folder = place.file.parent().unwrap_or(Path::new(""));
    if relative.is_empty() || Path::new(relative).is_absolute() || relative.contains('\0') {
        return Err(place.fault(format_args!("{} is no path relative to this file", quoted(relative))));
    }
    Ok(folder.join(relative))
}

/// Says what serde says with JSON's words instead of Rust's types.
fn plain(fault: &serde_json::Error) -> String {
    let words = [
        (", expected u32", ", expected a whole number from 0 to 4294967295"),
        (", expected u64", ", expected a whole number from 0 on"),
        (", expected i64", ", expected a whole number"),
        (", expected a sequence", ", expected a list"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: map", "invalid type: object"),
    ];
    words.iter().fold(fault.to_string(), |text, (theirs, ours)| text.replace(theirs, ours))
}
