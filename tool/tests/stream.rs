//! `anabranch stream`: its output for a scope, and its messages for bad calls.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use support::assert_snapshot;

const HEAT: &str = "streams/heat.json";
const CASES: &str = "../../tests/it/cases/streaming.json";

fn printed(args: &[&str]) -> String {
    support::printed(&[&["stream"], args].concat())
}

fn refused(args: &[&str]) -> (i32, String) {
    support::refused(&[&["stream"], args].concat())
}

#[test]
fn a_scope_prints_as_it_did() {
    for (format, ending) in [("text", "txt"), ("json", "json"), ("svg", "svg")] {
        assert_snapshot(&format!("heat.{ending}"), &printed(&[HEAT, "--format", format]));
    }
}

#[test]
fn all_cases_of_a_list_are_printed() {
    assert_snapshot("streaming.txt", &printed(&[CASES]));
    let one = printed(&[CASES, "--case", "shifted_read"]);
    assert!(one.starts_with("shifted_read\n") && one.ends_with("by Legate    streams\n"), "{one}");
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_would_do() {
    let least = "33554440";
    let text = printed(&[HEAT, "--memory-max", least]);
    assert!(text.contains("32.0 MiB with one batch in flight"), "{text}");
    let (code, message) = refused(&[HEAT, "--memory-max", "33554439"]);
    let expected = format!(
        "error: {HEAT}: heat: the groups need {least} bytes with one batch in flight, and may use 33554439: allow {least}\n"
    );
    assert_eq!((code, message), (1, expected));
}

#[test]
fn bad_calls_are_told_what_to_do() {
    let (code, message) = refused(&[CASES, "--format", "svg"]);
    assert_eq!(code, 2);
    assert!(message.contains("a picture shows one case: choose one of 'fill_inc_sum', "), "{message}");
    let (code, message) = refused(&[CASES, "--case", "blur"]);
    assert_eq!(code, 2);
    assert!(message.contains("there is no case 'blur'; there are 'fill_inc_sum', "), "{message}");
    let (code, message) = refused(&["graphs/worked.json"]);
    assert_eq!(code, 1);
    assert!(message.ends_with("; this looks like a graph, which `anabranch plan` reads\n"), "{message}");
}
