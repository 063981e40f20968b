//! `scripts/gpu-run`, the script that runs the parts packed for a machine with a GPU. The parts here pass,
//! fail and hang.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder as `scripts/gpu` packs it, with other parts.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, parts: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("anabranch-gpu-script-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let folder = Self(folder);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-run");
        folder.program("run", &fs::read_to_string(script).unwrap());
        folder.program("passes", "#!/bin/sh\necho '| a | table |'\n");
        folder.program("fails", "#!/bin/sh\necho 'the reason'\nexit 7\n");
        folder.program("hangs", "#!/bin/sh\ntrap '' TERM\necho 'it began'\nexec sleep 1000\n");
        fs::write(folder.0.join("parts"), parts).unwrap();
        fs::write(folder.0.join("commit"), "abc\n").unwrap();
        folder
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs all parts. Returns the exit code and the section, without the durations of the parts.
    fn run(&self) -> (Option<i32>, String) {
        let mut run = Command::new("bash");
        let Output { status, stdout, stderr } =
            run.arg(self.0.join("run")).arg("--software").env("OUT", self.0.join("out")).output().unwrap();
        let said = String::from_utf8(stdout).unwrap();
        assert_eq!(fs::read_to_string(self.0.join("out/gpu.md")).unwrap(), said, "{}", String::from_utf8_lossy(&stderr));
        (status.code(), said)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks that the section has a row that begins with `row`.
fn has_row(section: &str, row: &str) {
    assert!(section.lines().any(|line| line.starts_with(row)), "no {row}\n{section}");
}

#[test]
fn a_part_that_fails_or_hangs_is_reported_and_the_others_run() {
    // Seen to hang without `--kill-after`.
    let parts = "one|9|all|./passes\ntwo|9|all|./fails\nthree|1|no|./hangs\nfour|9|no|./absent\nfive|9|no|./passes\n";
    let folder = Folder::new("mixed", parts);
    let (code, section) = folder.run();
    assert_eq!(code, Some(1));
    has_row(&section, "| one | passed | ");
    has_row(&section, "| two | **failed**, exit code 7 | ");
    has_row(&section, "| three | **ended after 1 s** | ");
    has_row(&section, "| four | not packed | – | 9 |");
    has_row(&section, "| five | passed | ");
    assert_eq!(section.matches("| a | table |").count(), 1, "of part one only\n{section}");
    assert!(section.contains("the reason") && section.contains("it began"), "{section}");
}

#[test]
fn a_section_stands_between_the_markers_and_says_what_it_is_of() {
    let (code, section) = Folder::new("well", "one|9|all|./passes\n").run();
    assert_eq!(code, Some(0));
    assert!(section.starts_with("<!-- gpu begin -->\n\nOn the software driver: threads of this machine, no GPU. "), "{section}");
    assert!(section.ends_with("\n<!-- gpu end -->\n") && section.contains(", commit abc.\n"), "{section}");
}
