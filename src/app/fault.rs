//! The errors of a description: the file, the place in it, and a bounded text.

use std::borrow::Cow;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Kind};

/// The longest text from a file that an error repeats, in characters.
const TEXT_CHARS_MAX: usize = 240;

/// A place in a file: a path through its objects and lists, as `connections[0].dests`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) file: Arc<Path>,
    pub(super) path: Arc<str>,
}

impl Place {
    pub(super) fn new(file: &Arc<Path>, path: impl Into<Arc<str>>) -> Self {
        Self { file: file.clone(), path: path.into() }
    }

    /// Returns the place below this one.
    pub(super) fn at(&self, rest: impl fmt::Display) -> Self {
        Self::new(&self.file, format!("{}{rest}", self.path))
    }

    pub(super) fn fault(&self, fault: impl fmt::Display) -> Error {
        // The line stands last, and is kept.
        let fault = fault.to_string();
        let fault = match fault.rsplit_once(" at line ") {
            Some((what, line)) => format!("{} at line {}", shortened(what, 4 * TEXT_CHARS_MAX), shortened(line, TEXT_CHARS_MAX)),
            None => shortened(&fault, 8 * TEXT_CHARS_MAX).into_owned(),
        };
        Kind::Description { place: self.to_string(), fault }.into()
    }
}

/// Prints the file and the path.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shortened(&self.file.display().to_string(), TEXT_CHARS_MAX))?;
        if self.path.is_empty() { Ok(()) } else { write!(f, ": {}", shortened(&self.path, TEXT_CHARS_MAX)) }
    }
}

/// Something in a description that is allowed, and may not be meant.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let log = &app.schedule(None)?.hyperepochs[0].epochs[1];
/// for warning in app.written(log)?.warnings.iter().chain(app.warnings()) {
///     println!("{warning}");
///     assert!(warning.file().ends_with("camera.app.json"));
/// }
/// # assert!(!app.written(log)?.warnings.is_empty());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    place: Place,
    text: String,
}

impl Warning {
    pub(super) fn new(place: &Place, text: impl Into<String>) -> Self {
        Self { place: place.clone(), text: text.into() }
    }

    /// Returns the file that it is about.
    pub fn file(&self) -> &Path {
        &self.place.file
    }
}

/// Prints the file, the place in it and the text.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Returns a name from a file, in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("'{}'", shortened(name, 256))
}

/// Returns names in quotes, of which the first few are given.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().take(9).collect();
    let mut all: Vec<String> = names.iter().take(8).map(|name| quoted(name)).collect();
    if names.len() > 8 {
        all.push("...".into());
    }
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

pub(super) fn shortened(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Returns a path without `.` and, where that is possible, without `..`.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(normal.components().next_back(), Some(Component::Normal(_))) => _ = normal.pop(),
            other => normal.push(other),
        }
    }
    normal
}
