//! Checks of comments, for rooms whose comments are plain: each atomic access has its ORDERING reason, each
//! SAFETY comment names what grants the right, and no comment has a person or a clause as its subject.

/// Comment lines that may have a forbidden word, without their slashes.
const ALLOWED: [&str; 0] = [];
const FORBIDDEN: [&str; 4] = ["who ", "what is ", "somebody", "nobody"];
const REFERENCES: [&str; 5] = ["as above", "as below", "as before", "as in `", "by the caller's promise"];
const ACCESSES: [&str; 6] = [".load(", ".store(", ".swap(", ".fetch_", ".compare_exchange", "fence("];

/// Something to mend: the number of a line, and why.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault(pub(super) usize, pub(super) &'static str);

/// Comment lines that stand together.
struct Block<'t> {
    /// The number of its first line, from 1.
    first: usize,
    lines: Vec<&'t str>,
}

impl Block<'_> {
    /// Returns the text in one line, in lower case.
    fn text(&self) -> String {
        let lines = self.lines.iter().filter(|line| !ALLOWED.contains(*line));
        lines.flat_map(|line| [line, " "]).collect::<String>().to_lowercase()
    }
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim())
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    for (line, number) in text.lines().zip(1..) {
        if let Some(line) = comment(line) {
            if !is_open {
                blocks.push(Block { first: number, lines: Vec::new() });
            }
            blocks.last_mut().expect("a block is open").lines.push(line);
        }
        is_open = comment(line).is_some();
    }
    blocks
}

/// Returns the comments that have a person or a clause for a subject.
pub(super) fn dialect(text: &str) -> Vec<Fault> {
    let is_faulty = |text: &str| FORBIDDEN.iter().any(|word| format!("{text} ").to_lowercase().contains(word));
    let mut faults = Vec::new();
    for block in blocks(text).iter().filter(|block| is_faulty(&block.text())) {
        let place = block.lines.iter().position(|line| is_faulty(line) && !ALLOWED.contains(line));
        // Without a line, the words are parted by the end of one.
        let line = block.first + place.unwrap_or(0);
        faults.push(Fault(line, "a comment has one of the words who, what is, somebody, nobody"));
    }
    faults
}

/// Returns the SAFETY comments that refer to another place instead of naming a state or a contract.
pub(super) fn references(text: &str) -> Vec<Fault> {
    let is_faulty = |block: &Block<'_>| {
        let text = block.text();
        let reason = text.split_once("safety: ").map(|(_, reason)| reason);
        reason.is_some_and(|reason| reason.starts_with("as ") || REFERENCES.iter().any(|phrase| reason.contains(phrase)))
    };
    let faulty = blocks(text).into_iter().filter(is_faulty);
    faulty.map(|block| Fault(block.first, "a SAFETY comment refers to another place: name the state or the contract")).collect()
}

/// Returns the atomic accesses without an ORDERING reason: above their statement, or above an earlier access
/// of the same function.
pub(super) fn orderings(text: &str) -> Vec<Fault> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let (mut has_reason, mut faults) = (false, Vec::new());
    for at in 0..lines.len() {
        if comment(lines[at]).is_some() {
            continue;
        }
        if lines[at].split_whitespace().any(|word| word == "fn") {
            has_reason = false;
        }
        if ACCESSES.iter().any(|access| is_access(&lines, at, access)) {
            has_reason |= has_reason_above(&lines, at);
            if !has_reason {
                faults.push(Fault(at + 1, "an atomic access has no ORDERING reason"));
            }
        }
    }
    faults
}

/// Whether a call begins in this line that names an ordering, here or before its closing parenthesis.
fn is_access(lines: &[&str], at: usize, access: &str) -> bool {
    let Some((_, call)) = lines[at].split_once(access) else { return false };
    let mut depth = i32::from(access.ends_with('('));
    for line in std::iter::once(call).chain(lines[at + 1..].iter().copied()) {
        for (place, c) in line.char_indices() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 && c == ')' {
                return line[..place].contains("Ordering::");
            }
        }
        if line.contains("Ordering::") {
            return true;
        }
    }
    false
}

/// Whether the comment above the statement of a line gives a reason, or one in the line does.
fn has_reason_above(lines: &[&str], at: usize) -> bool {
    let is_end = |line: &str| line.is_empty() || line.ends_with([';', '{', '}']);
    let mut above = lines[..at].iter().rev().map(|line| line.trim()).peekable();
    while above.next_if(|line| comment(line).is_none() && !is_end(line)).is_some() {}
    let is_named = |line: &str| line.contains("ORDERING");
    lines[at].split_once("//").is_some_and(|(_, comment)| is_named(comment)) || above.map_while(comment).any(is_named)
}

/// Returns the lines of faults.
fn lines(faults: &[Fault]) -> Vec<usize> {
    faults.iter().map(|Fault(line, _)| *line).collect()
}

const NONE: [usize; 0] = [];

/// Seen to fail without each step of the search.
#[test]
fn words_of_the_dialect_are_found() {
    let found = |text: &str| lines(&dialect(text));
    assert_eq!(found("/// Wakes the waiter.\nfn wake() {}\n    // Nobody waits.\n"), [3]);
    assert_eq!(found("//! The end.\n//! For those who\n//! wait, and for\n//! somebody else\n"), [2]);
    assert_eq!(found("x();\n// Returns what\n// is there.\n"), [2]);
    assert_eq!(found("// The whole of it. What isolates it.\nlet nobody = \"who is there\";\n"), NONE);
}

/// Seen to fail without each step of the search.
#[test]
fn safety_comments_by_reference_are_found() {
    let found = |text: &str| lines(&references(text));
    assert_eq!(found("// SAFETY: as above.\nunsafe {}\n// SAFETY: As `f`.\nunsafe {}\n"), [1, 3]);
    assert_eq!(found("x();\n    // SAFETY: the slot is full,\n    // by the caller's\n    // promise.\n"), [2]);
    assert_eq!(found("// SAFETY: the lock is held, as in `take`, and\n"), [1]);
    assert_eq!(found("// As above.\nx();\n// SAFETY: the lock is held as long as `self` lives.\n"), NONE);
}

/// Seen to fail without each step of the search.
#[test]
fn accesses_without_a_reason_are_found() {
    let found = |text: &str| lines(&orderings(text));
    let load = "fn f() {
    // ORDERING: Acquire pairs with
    // the store.
    let x = self
        .a
        .load(Ordering::Acquire);
";
    assert_eq!(found(load), NONE);
    assert_eq!(found(&format!("{load}    b.store(1, Ordering::Release);\n}}\n")), NONE, "the function has a reason above");
    assert_eq!(found(&format!("{load}}}\nfn g() {{\n    b.store(1, Ordering::Release);\n}}\n")), [9], "another function");
    assert_eq!(found("fn f() {\n    // ORDERING: of x.\n    x();\n    fence(Ordering::SeqCst);\n}\n"), [4]);
    assert_eq!(found("fn f() {\n    a.compare_exchange(\n        0,\n        1,\n        Ordering::AcqRel,\n    );\n}\n"), [2]);
    assert_eq!(found("fn f() {\n    a.fetch_add(f(1), Ordering::Relaxed)\n}\n"), [2]);
    assert_eq!(found("fn f() {\n    a.swap(0, 1);\n    file.load(path);\n    b.cmp(c) == Ordering::Less\n}\n"), NONE);
    assert_eq!(found("#[cfg(test)]\nmod tests {\n    fn f() {\n        a.load(Ordering::Relaxed);\n    }\n}\n"), NONE);
}
