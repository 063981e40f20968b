//! The errors of a file: the place of the fault, and a bounded part of the text.

use std::borrow::Cow;

use crate::error::{Error, Kind};

/// The most characters of a fault that an error repeats.
const FAULT_CHARS_MAX: usize = 240;

/// Returns a name from the file, in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("'{}'", shortened(name, 64))
}

fn shortened(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Returns the error for a fault at a place in the file.
pub(crate) fn fault(path: &str, fault: &str) -> Error {
    let place = if path.is_empty() { String::new() } else { format!("{}: ", shortened(path, FAULT_CHARS_MAX)) };
    // The quoted text may be as long as the file. The line is at its end, and is kept.
    let fault = match fault.rsplit_once(" at line ") {
        Some((what, line)) => format!("{} at line {line}", shortened(what, FAULT_CHARS_MAX)),
        None => shortened(fault, FAULT_CHARS_MAX).into_owned(),
    };
    Kind::Json { place, fault }.into()
}
