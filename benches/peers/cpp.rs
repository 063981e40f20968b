//! Compiles the peers that are written in C++.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Advice for a peer that does not compile.
pub(crate) const HINT: &str =
    "oneTBB is not installed: it takes a C++ compiler and the library (Debian: apt install g++ libtbb-dev)";

/// Returns the program whose source is `benches/peers/NAME.cpp`, which uses oneTBB. It is compiled unless it
/// is newer than its source. If it cannot be compiled, prints the reason on standard error.
pub(crate) fn tbb(name: &str) -> Option<PathBuf> {
    program(name, name, &["-std=c++17", "-ltbb"])
}

/// Returns the program of this source that uses Taskflow, if the variable `TASKFLOW_DIR` names a folder with
/// its headers.
#[allow(dead_code)]
pub(crate) fn taskflow(name: &str) -> Option<PathBuf> {
    let headers = env::var("TASKFLOW_DIR").ok()?;
    program(name, &format!("{name}-taskflow"), &["-std=c++20", "-pthread", "-DTASKFLOW", "-I", &headers])
}

fn program(source: &str, program: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/peers/{source}.cpp"));
    let program = scratch(program);
    let is_there = is_newer(&program, &source) || compile(&source, &program, options);
    is_there.then_some(program)
}

/// Returns the path of a file in cargo's scratch folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn compile(source: &Path, program: &Path, options: &[&str]) -> bool {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(compiler);
    command.args(["-O3", "-o"]).arg(program).arg(source).args(options);
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("{command:?}: {error}");
            false
        }
    }
}

fn is_newer(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    matches!((changed(program), changed(source)), (Ok(built), Ok(written)) if built > written)
}
