//! The corpus of the fuzz targets, with their checks.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../fuzz/bodies.rs"]
mod bodies;

/// Checks every file of a corpus; returns how many there are.
fn replay(corpus: &str, check: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| check(&fs::read(file.unwrap().path()).unwrap())).count()
}

#[test]
fn json_that_was_found_once_stays_right() {
    // Seen to fail with costs that are read with an error in their last digit.
    assert!(replay("json", bodies::json) > 100);
}

#[test]
fn graphs_that_were_found_once_are_planned_right() {
    // Seen to fail with a search for waits that takes any node of a stream for a hit.
    assert!(replay("plan", bodies::plan) > 100);
}
