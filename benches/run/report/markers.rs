//! The places in a document where a bench writes its report: between `<!-- NAME begin -->` and `<!-- NAME end
//! -->`.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

/// The output of a bench's report. Flattened into its arguments.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Writes the report between this bench's markers of a file [default: docs/performance/BENCH.md].
    #[arg(long, require_equals = true, value_name = "FILE")]
    write: Option<Option<PathBuf>>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

impl Output {
    /// Prints the report, and writes it to the file of `--write`. If that fails, prints the reason and ends
    /// the program.
    pub(crate) fn publish(&self, name: &str, report: &str) {
        println!("{report}");
        if let Some(path) = self.file(name)
            && let Err(error) = write_between(&path, name, report)
        {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }

    /// Returns the file that the report `name` is written to, if it is to be written.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        let bench = name.strip_prefix("bench:").unwrap_or(name);
        let default = || Path::new("docs/performance").join(bench).with_extension("md");
        self.write.as_ref().map(|path| path.clone().unwrap_or_else(default))
    }
}

/// Replaces the text between the markers `name` in the file at `path`, relative to the package's folder.
pub(crate) fn write_between(path: &Path, name: &str, text: &str) -> Result<(), String> {
    let (head, tail) = outside(path, name)?;
    let [begin, end] = marks(name);
    fs::write(in_package(path), format!("{head}{begin}\n\n{text}\n\n{end}{tail}")).map_err(|error| named(path, error))
}

/// Returns the text before and after the markers.
pub(crate) fn outside(path: &Path, name: &str) -> Result<(String, String), String> {
    let [begin, end] = marks(name);
    let text = fs::read_to_string(in_package(path)).map_err(|error| named(path, error))?;
    let parts = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let (head, tail) = parts.ok_or_else(|| named(path, format!("has no lines {begin} and {end}")))?;
    Ok((head.to_owned(), tail.to_owned()))
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|side| format!("<!-- {name} {side} -->"))
}

fn in_package(path: &Path) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn named(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}
