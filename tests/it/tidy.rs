//! The house rules that a reader relies on, checked on the source itself: rooms name only rooms above them,
//! files and functions stay small, every file says what it is, the dangerous words stay where they belong,
//! and the index of the decisions is whole.

mod cycles;
mod decisions;
mod plain;

use std::fs;
use std::path::{Path, PathBuf};

use cycles::Room;
use decisions::Decision;
use plain::Fault;

/// Top to bottom: a room names only rooms above it.
const ROOMS: [&str; 22] = [
    "name", "error", "sync", "draw", "device", "value", "graph", "plan", "phases", "tiles", "app", "ranks", "sim", "runtime",
    "run", "engine", "flow", "pipe", "scope", "comm", "exec", "guide",
];
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const COMMENT_COLUMNS_MAX: usize = 110;
const CYCLE_FILES_MAX: usize = 3;
const ROOT_NAMES_MAX: usize = 25;
/// The rooms whose comments are plain.
const PLAIN: [&str; 22] = [
    "name", "error", "sync", "draw", "device", "value", "graph", "plan", "phases", "tiles", "app", "ranks", "sim", "runtime",
    "run", "engine", "flow", "pipe", "scope", "comm", "exec", "guide",
];

/// A source file: its path inside the package, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The room that a file in `src` belongs to; the facade belongs to none.
    fn room(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let room = inside.split(['/', '.']).next()?;
        (room != "lib").then_some(room)
    }

    /// The lines of code, numbered from 1, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.map(|(number, line)| (number, line.split("//").next().unwrap_or(line)))
    }
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in folders {
        let mut open = vec![root.join(folder)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(read(root, path));
            }
        }
    }
    assert!(!sources.is_empty());
    sources
}

fn read(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    Source { path, text }
}

#[test]
fn a_room_names_only_rooms_above_it() {
    // Seen to fail with a `use crate::run` in `runtime`.
    for source in sources(&["src"]) {
        let Some(room) = source.room() else { continue };
        let floor = ROOMS.iter().position(|known| *known == room);
        let floor =
            floor.unwrap_or_else(|| panic!("{} is in no known room: add '{room}' to ROOMS where it belongs", source.path));
        for (number, line) in source.code() {
            for named in line.split("crate::").skip(1) {
                let named: String = named.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_above = ROOMS[..=floor].contains(&named.as_str());
                let is_room = ROOMS.contains(&named.as_str());
                assert!(is_above || !is_room, "{}:{number}: the room '{room}' names '{named}', which is below it", source.path);
            }
        }
    }
}

#[test]
fn no_room_has_a_large_cycle_of_files() {
    // Seen to fail with a `use super::gpu::Gpu` in device/cuda/memory.rs.
    let sources = sources(&["src"]);
    for room in &ROOMS {
        let cycles = Room::new(sources.iter().filter(|source| source.room() == Some(*room))).cycles(CYCLE_FILES_MAX);
        let cycles: Vec<String> = cycles.iter().map(|cycle| cycle.join("\n")).collect();
        assert!(
            cycles.is_empty(),
            "more than {CYCLE_FILES_MAX} files of '{room}' import each other in a cycle:\n{}",
            cycles.join("\n\n")
        );
    }
}

#[test]
fn the_root_has_few_names() {
    // Seen to fail with a maximum of 20.
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let uses = text.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = uses.flat_map(|tree| tree.rsplit("::").next().unwrap().trim_matches(['{', '}', '\n']).split(','));
    let names: Vec<&str> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
    assert!(["Engine", "Run", "take"].iter().all(|name| names.contains(name)), "not understood: {names:?}");
    let count = names.len();
    assert!(count <= ROOT_NAMES_MAX, "the root has {count} names, and has room for {ROOT_NAMES_MAX}: {names:?}");
}

#[test]
fn every_room_has_a_door_sign() {
    for room in ROOMS.iter().skip(3) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{room}/mod.rs"));
        let text = fs::read_to_string(&path).unwrap();
        let sign: String = text.lines().take_while(|line| line.starts_with("//")).collect();
        assert!(sign.contains("ives here"), "src/{room}/mod.rs does not say what lives there");
        assert!(sign.contains("Never here") || sign.contains("never"), "src/{room}/mod.rs does not say what never does");
    }
}

#[test]
fn every_file_says_what_it_is() {
    for source in sources(&["src", "tests", "benches", "examples", "loom-tests"]) {
        let is_said = source.text.starts_with("//!") || source.text.starts_with("#![doc");
        assert!(is_said || source.path.starts_with("tests/misuse"), "{} does not begin with //!", source.path);
    }
}

#[test]
fn files_and_functions_stay_small() {
    for source in sources(&["src", "tests", "benches", "examples", "loom-tests"]) {
        let lines = source.text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines, the limit is {FILE_LINES_MAX}", source.path);
        for (name, length) in functions(&source.text) {
            assert!(
                length <= FUNCTION_LINES_MAX,
                "{}: {name} has {length} lines, the limit is {FUNCTION_LINES_MAX}",
                source.path
            );
        }
    }
}

#[test]
fn comments_are_not_wide() {
    // Seen to fail with a comment of 120 columns.
    for source in sources(&["src", "tests/it", "benches", "examples", "loom-tests"]) {
        let mut is_code = false;
        for (index, line) in source.text.lines().enumerate() {
            let Some(text) = line.trim_start().strip_prefix("//") else {
                is_code = false;
                continue;
            };
            let text = text.trim_start_matches(['/', '!']).strip_prefix(' ').unwrap_or("");
            is_code ^= text.starts_with("```");
            let is_picture = text.starts_with([' ', '|']) || text.contains(['─', '│']);
            let is_wide = line.chars().count() > COMMENT_COLUMNS_MAX;
            assert!(
                !is_wide || is_code || is_picture,
                "{}:{}: a comment goes beyond column {COMMENT_COLUMNS_MAX}: wrap it",
                source.path,
                index + 1
            );
        }
    }
}

#[test]
fn comments_of_plain_rooms_are_plain() {
    // Seen to fail with all rooms on the list.
    let mut all = Vec::new();
    let is_plain = |source: &&Source| source.room().is_some_and(|room| PLAIN.contains(&room));
    for Source { path, text } in sources(&["src"]).iter().filter(is_plain) {
        let faults = [plain::dialect(text), plain::references(text), plain::orderings(text)].concat();
        all.extend(faults.iter().map(|Fault(line, why)| format!("{path}:{line}: {why}")));
    }
    assert!(all.is_empty(), "{} faults:\n{}", all.len(), all.join("\n"));
}

#[test]
fn comments_of_tests_and_benches_are_plain() {
    // Seen to fail with a forbidden word in a comment of a test.
    let mut all = Vec::new();
    let is_exempt = |source: &&Source| ["tests/misuse/", "tests/it/tidy/"].iter().any(|path| source.path.starts_with(path));
    for Source { path, text } in sources(&["tests", "benches"]).iter().filter(|source| !is_exempt(source)) {
        let faults = [plain::dialect(text), plain::references(text)].concat();
        all.extend(faults.iter().map(|Fault(line, why)| format!("{path}:{line}: {why}")));
    }
    assert!(all.is_empty(), "{} faults:\n{}", all.len(), all.join("\n"));
}

/// The functions of a formatted file with their lengths: from the line with `fn` to the brace that closes at
/// its indentation.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function = line.trim_start().split(' ').take(6).any(|word| word == "fn") && !line.trim_start().starts_with("//");
        let closing = format!("{}}}", " ".repeat(indent));
        if !is_function || line.ends_with(';') || line.ends_with('}') {
            continue;
        }
        if let Some(length) = lines[start..].iter().position(|line| *line == closing) {
            functions.push((line.trim().to_owned(), length + 1));
        }
    }
    functions
}

#[test]
fn only_the_sync_room_names_loom_and_only_the_cuda_device_names_cudarc() {
    for source in sources(&["src"]) {
        let mut code = source.code();
        let is_free_of = |word: &str, home: &str, line: &str| !line.contains(word) || source.path.starts_with(home);
        code.by_ref().for_each(|(number, line)| {
            assert!(is_free_of("loom::", "src/sync.rs", line), "{}:{number} names loom", source.path);
            assert!(is_free_of("cudarc", "src/device/cuda", line), "{}:{number} names cudarc", source.path);
        });
    }
}

#[test]
fn unsafe_stays_where_it_is_watched() {
    const WATCHED: [&str; 11] = [
        "src/value/",
        "src/device/",
        "src/runtime/",
        "src/run/",
        "src/engine/order/",
        "src/scope/",
        "src/comm/control/",
        "src/comm/given.rs",
        "src/comm/mpi/",
        "src/comm/nccl/",
        "src/comm/wire.rs",
    ];
    for source in sources(&["src"]) {
        let is_watched = WATCHED.iter().any(|folder| source.path.starts_with(folder));
        for (number, line) in source.code() {
            assert!(is_watched || !line.contains("unsafe"), "{}:{number}: unsafe outside of {WATCHED:?}", source.path);
        }
    }
}

#[test]
fn graphs_and_plans_are_pure() {
    const IMPURE: [&str; 6] = ["std::thread", "Instant", "std::fs", "std::net", "Waker", "spawn"];
    for source in sources(&["src/graph", "src/plan", "src/phases", "src/ranks"]) {
        for (number, line) in source.code() {
            let impure = IMPURE.iter().find(|word| line.contains(**word));
            assert!(
                impure.is_none(),
                "{}:{number} names {impure:?}: graph, plan and phases never start, wait or look at a clock",
                source.path
            );
        }
    }
}

#[test]
fn the_library_reads_no_environment_and_leaves_no_marks() {
    const MARKS: [&str; 5] = ["TODO", "FIXME", "todo!", "unimplemented!", "dbg!"];
    for source in sources(&["src"]) {
        for (number, line) in source.code() {
            // Only its environment says which MPI has started a process.
            let may_read = source.path == "src/comm/mpi/library.rs";
            assert!(may_read || !line.contains("env::var"), "{}:{number} reads the environment", source.path);
        }
        let mark = MARKS.iter().find(|mark| source.text.contains(**mark));
        assert!(mark.is_none(), "{} has a {mark:?}", source.path);
    }
}

#[test]
fn decisions_have_a_status_and_a_place_in_the_index() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("docs/decisions");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.ends_with("README.md"));
    paths.sort();
    let decisions: Vec<Decision> = paths.into_iter().map(|path| Decision::new(read(&folder, path))).collect();
    assert!(!decisions.is_empty());
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let is_room = |room: &str| ROOMS.contains(&room) && root.join("src").join(room).is_dir();
    let faults = decisions::faults(&decisions, &index, is_room);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
