//! Calls of the tool, in the folder of its tests, and golden files.
#![allow(dead_code, reason = "each test binary has its own copy")]

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn tool(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).output().unwrap()
}

pub(crate) fn printed(args: &[&str]) -> String {
    let output = tool(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and the message of a call that fails.
pub(crate) fn refused(args: &[&str]) -> (i32, String) {
    let output = tool(args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Compares with a golden file; with `BLESS` set, writes it.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{name}: run the test with BLESS=1 if this is how it should be");
}
