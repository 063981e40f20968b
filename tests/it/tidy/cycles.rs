//! Which files of a room import each other, and the cycles that they form. It reads the text only: `use`
//! trees, and paths that begin with `crate`, `super`, `self` or a submodule. A name that a module imports or
//! re-exports counts as the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// A module of a room: a file, by its path in the crate.
struct Module {
    file: String,
    is_folder: bool,
    uses: Vec<Use>,
    /// Paths outside of `use` declarations.
    paths: Vec<Vec<String>>,
}

/// One name of a `use` declaration.
struct Use {
    path: Vec<String>,
    /// The name that it has in the module.
    name: String,
    is_public: bool,
}

type Path = Vec<String>;
pub(super) type Cycle = Vec<String>;

/// The modules of one room, without tests.
pub(super) struct Room(BTreeMap<Path, Module>);

impl Room {
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source>) -> Self {
        Self(sources.map(|source| (module_path(&source.path), Module::new(source))).collect())
    }

    /// Returns the cycles of more than `len_max` files, each as its imports.
    pub(super) fn cycles(&self, len_max: usize) -> Vec<Cycle> {
        let imports: BTreeMap<&Path, BTreeSet<&Path>> = self.0.keys().map(|from| (from, self.imports(from))).collect();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> = self.0.keys().map(|from| (from, reach(&imports, from))).collect();
        let mut cycles = Vec::new();
        let mut seen: BTreeSet<&Path> = BTreeSet::new();
        for from in self.0.keys() {
            let cycle: BTreeSet<&Path> = reached[from].iter().copied().filter(|to| reached[to].contains(from)).collect();
            if cycle.len() > len_max && !seen.contains(from) {
                let of = |one: &&Path| imports[*one].intersection(&cycle).map(|other| self.arrow(one, other)).collect::<Vec<_>>();
                cycles.push(cycle.iter().flat_map(of).collect());
            }
            seen.extend(cycle);
        }
        cycles
    }

    fn arrow(&self, from: &Path, to: &Path) -> String {
        format!("{} names {}", self.0[from].file, self.0[to].file)
    }

    /// Returns the modules that a module depends on. A folder's re-exports of its own files are not imports.
    fn imports(&self, from: &Path) -> BTreeSet<&Path> {
        let module = &self.0[from];
        let is_door = |used: &&Use| used.is_public && module.is_folder && !["super", "crate"].contains(&&*used.path[0]);
        let used = module.uses.iter().filter(|used| !is_door(used)).map(|used| &used.path);
        let found = used.chain(&module.paths).flat_map(|path| self.resolve(from, path, 0));
        found.filter(|to| *to != from).collect()
    }

    /// Returns the modules that define what a path in a module names; none if that is not of this room.
    fn resolve(&self, from: &Path, path: &[String], depth: usize) -> Vec<&Path> {
        let (mut at, mut rest) = match &*path[0] {
            "crate" => (Vec::new(), &path[1..]),
            "super" => (from[..from.len() - 1].to_vec(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            child if self.0.contains_key(&joined(from, child)) => (from.clone(), path),
            _ => return Vec::new(),
        };
        while let [next, more @ ..] = rest {
            match &**next {
                "super" => _ = at.pop(),
                _ if at.is_empty() || self.0.contains_key(&joined(&at, next)) => at.push(next.clone()),
                _ => break,
            }
            rest = more;
        }
        let Some((found, module)) = self.0.get_key_value(&at) else { return Vec::new() };
        // Names may be imported from module to module; a cycle of imports does not compile.
        let is_named = |used: &&Use| rest.first().is_some_and(|name| *name == used.name || name == "*");
        let further = module.uses.iter().filter(is_named).filter(|_| depth < 8);
        let further: Vec<&Path> = further.flat_map(|used| self.resolve(found, &used.path, depth + 1)).collect();
        if further.is_empty() { vec![found] } else { further }
    }
}

fn reach<'r>(imports: &BTreeMap<&'r Path, BTreeSet<&'r Path>>, from: &'r Path) -> BTreeSet<&'r Path> {
    let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(imports[next].iter().copied().filter(|to| reached.insert(to)));
    }
    reached
}

fn joined(path: &[String], name: &str) -> Path {
    path.iter().map(String::as_str).chain([name]).map(str::to_owned).collect()
}

fn module_path(file: &str) -> Path {
    let inside = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    inside.split('/').map(str::to_owned).collect()
}

impl Module {
    fn new(source: &Source) -> Self {
        let tokens = without_tests(tokens(&source.text));
        let (mut uses, mut paths, mut at) = (Vec::new(), Vec::new(), 0);
        while at < tokens.len() {
            let before = at.checked_sub(1).map_or("", |before| &tokens[before]);
            if tokens[at] == "use" && tokens[at + 1] != "<" {
                // `pub use`, and `pub(crate) use`.
                let is_public = before == "pub" || before == ")";
                at = leaves(&tokens, at + 1, &[], &mut |path, name| uses.push(Use { path, name, is_public }));
            } else if is_name(&tokens[at])
                && before != "::"
                && before != "."
                && tokens.get(at + 1).is_some_and(|next| next == "::")
            {
                let mut path = vec![tokens[at].clone()];
                while tokens[at + 1] == "::" && is_name(&tokens[at + 2]) {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                paths.push(path);
            }
            at += 1;
        }
        Self { file: source.path.clone(), is_folder: source.path.ends_with("/mod.rs"), uses, paths }
    }
}

/// Reads one tree of a `use` declaration. Returns the place behind it.
fn leaves(tokens: &[String], mut at: usize, prefix: &[String], found: &mut dyn FnMut(Path, String)) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match &*tokens[at] {
            "::" => {}
            "{" => {
                while tokens[at] != "}" {
                    at = leaves(tokens, at + 1, &path, found);
                }
                return at + 1;
            }
            "as" => {
                found(path, tokens[at + 1].clone());
                return at + 2;
            }
            "," | "}" | ";" => {
                if path.len() > prefix.len() {
                    // `a::{self}` names `a`.
                    let is_self = path.len() > 1 && path.last().is_some_and(|last| last == "self");
                    path.truncate(path.len() - usize::from(is_self));
                    let name = path.last().cloned().unwrap_or_default();
                    found(path, name);
                }
                return at;
            }
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits code into names, `::` and single characters. Comments, literals and white space are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let begins = |at: usize, what: &str| what.chars().enumerate().all(|(place, c)| chars.get(at + place) == Some(&c));
    let skip_to =
        |at: usize, what: &str| (at..chars.len()).find(|&at| begins(at, what)).map_or(chars.len(), |at| at + what.len());
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
        match chars[at] {
            '/' if begins(at, "//") => at = skip_to(at, "\n"),
            'r' if begins(at + 1 + hashes, "\"") => at = skip_to(at + hashes + 2, &format!("\"{}", "#".repeat(hashes))),
            '"' => {
                at += 1;
                while chars[at] != '"' {
                    at += 1 + usize::from(chars[at] == '\\');
                }
                at += 1;
            }
            '\'' if begins(at + 1, "\\") => at = skip_to(at + 3, "'"),
            '\'' if chars.get(at + 2) == Some(&'\'') => at += 3,
            c if c.is_alphanumeric() || c == '_' => {
                let name: String = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                at += name.chars().count();
                tokens.push(name);
            }
            ':' if begins(at, "::") => {
                tokens.push("::".into());
                at += 2;
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.into());
                }
                at += 1;
            }
        }
    }
    tokens
}

/// Leaves out what is compiled for tests only: the items behind `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let begins = |at: usize, what: &str| {
        what.split(' ').enumerate().all(|(place, token)| tokens.get(at + place).is_some_and(|t| t == token))
    };
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if !begins(at, "# [ cfg ( test )") && !begins(at, "# [ cfg ( all ( test") {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        loop {
            depth += i32::from(tokens[at] == "{") - i32::from(tokens[at] == "}");
            let is_end = depth == 0 && (tokens[at] == "}" || tokens[at] == ";");
            at += 1;
            if is_end {
                break;
            }
        }
    }
    kept
}

/// Whether files form a cycle. Each room has this door.
fn has_cycle(files: &[(&str, &str)]) -> bool {
    let door = ("mod.rs", "mod a;\npub(crate) use a::{A, self as alias};\npub use b::B;\nmod b;\npub const N: u32 = 1;");
    let source = |(path, text): &(&str, &str)| Source { path: format!("src/r/{path}"), text: (*text).to_owned() };
    let sources: Vec<Source> = files.iter().chain([&door]).map(source).collect();
    !Room::new(sources.iter()).cycles(1).is_empty()
}

/// Seen to fail without each arm of the parser and of the resolution.
#[test]
fn cycles_are_found_through_each_kind_of_import() {
    for (a, b) in [
        ("use super::b::B;", "use super::{A, C};"),
        ("use super::B as C;", "fn f(a: &crate::r::a::A) {}"),
        ("use crate::{error::E, r::{b::{self}}};", "use super::alias::f;"),
        ("use super::*;", "use super::A;"),
        ("fn f() -> impl I + use<'_> { super::b::f() }", "use super::A;"),
    ] {
        assert!(has_cycle(&[("a.rs", a), ("b.rs", b)]), "{a} {b}");
    }
    for (a, c, b) in [
        ("mod c;", "use super::super::b::B;", "use super::a::c::C;"),
        ("mod c;\nfn f() { c::g() }", "use super::f;", ""),
        ("mod c;\nfn f() { self::c::g() }", "use super::f;", ""),
    ] {
        assert!(has_cycle(&[("a/mod.rs", a), ("a/c.rs", c), ("b.rs", b)]), "{a} {c} {b}");
    }
}

/// Seen to fail without each arm of the lexer.
#[test]
fn doors_tests_comments_and_literals_close_no_cycle() {
    assert!(!has_cycle(&[
        ("a/mod.rs", "mod c;\npub use c::C;\nuse super::B;"),
        ("a/c.rs", "use super::super::N;"),
        ("b.rs", "")
    ]));
    for a in [
        "use super::N;",
        "#[cfg(test)]\nmod tests { use crate::r::B; }",
        "#[cfg(all(test, feature = \"cuda\"))]\nmod tests { use crate::r::B; }",
        "// use super::b::B;",
        "const A: &str = \"super::b\";",
        "const A: &str = r#\"a \" use super::b::B; \"#;",
        "const A: char = '\"'; const C: &str = \"; use super::b::B;\";",
        "const A: char = '\\\"'; const C: &str = \"; use super::b::B;\";",
    ] {
        assert!(!has_cycle(&[("a.rs", a), ("b.rs", "use super::A;")]), "{a}");
    }
}
