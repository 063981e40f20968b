//! Calls of the tool, in the folder of its tests, and snapshots of what it prints.
#![allow(dead_code, reason = "each test binary has its own copy")]

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

/// Compares with the snapshot `name`, whose ending says how it is kept: a picture as a file of its own. Write
/// what is new by `INSTA_UPDATE=always`, or look at each by `cargo insta review`.
pub(crate) fn assert_snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| match name.strip_suffix(".svg") {
        Some(_) => insta::assert_binary_snapshot!(name, text.as_bytes().to_vec()),
        None => insta::assert_snapshot!(name, text),
    });
}
