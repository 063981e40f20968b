//! Checks of the decisions, one file each: a number of its own, a status, rooms that exist, links that lead
//! to files, and one place in the index, under its first room.

use std::collections::BTreeSet;

use super::Source;

/// The room of tests, benches, documents and tools.
const PROJECT: &str = "project";
const STATUSES: [&str; 3] = ["valid", "superseded by [", "partly superseded by ["];

/// A file of a decision: its name, and its text.
pub(super) struct Decision {
    file: String,
    text: String,
}

impl Decision {
    /// Makes a decision of a file, whose path is its name.
    pub(super) fn new(source: Source) -> Self {
        Self { file: source.path, text: source.text }
    }

    /// Returns the number that begins both the name and the title.
    fn number(&self) -> Option<&str> {
        let number = self.file.get(..3).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
        let is_in_title = self.text.strip_prefix("# ")?.strip_prefix(number)?.starts_with(". ");
        is_in_title.then_some(number)
    }

    /// Returns the value of a line of the head, such as `- Status: valid`.
    fn head(&self, key: &str) -> Option<&str> {
        let mut lines = self.text.lines().take_while(|line| !line.starts_with("## "));
        lines.find_map(|line| line.strip_prefix("- ")?.strip_prefix(key)?.strip_prefix(": "))
    }

    fn rooms(&self) -> Vec<&str> {
        self.head("Rooms").map(|rooms| rooms.split(", ").collect()).unwrap_or_default()
    }

    fn has_status(&self) -> bool {
        let is_known = |status: &str| status == STATUSES[0] || STATUSES[1..].iter().any(|known| status.starts_with(known));
        self.head("Status").is_some_and(is_known)
    }
}

/// Returns the targets of the links to files of the same folder.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| target.ends_with(".md") && !target.contains('/')).collect()
}

/// Returns the rooms under which the index has a link to a file, once for each link.
fn places<'i>(index: &'i str, file: &str) -> Vec<&'i str> {
    let mut places = Vec::new();
    for section in index.split("\n### ").skip(1) {
        let room = section.lines().next().unwrap_or_default();
        places.extend(links(section).iter().filter(|target| **target == file).map(|_| room));
    }
    places
}

/// Returns the faults of the decisions, and of their index.
pub(super) fn faults(decisions: &[Decision], index: &str, is_room: impl Fn(&str) -> bool) -> Vec<String> {
    let files: BTreeSet<&str> = decisions.iter().map(|decision| decision.file.as_str()).collect();
    let (mut numbers, mut faults) = (BTreeSet::new(), Vec::new());
    for decision in decisions {
        let (number, rooms) = (decision.number(), decision.rooms());
        let are_rooms = !rooms.is_empty() && rooms.iter().all(|room| *room == PROJECT || is_room(room));
        let is_linked = links(&decision.text).iter().all(|target| files.contains(target));
        let is_indexed = places(index, &decision.file).iter().eq(rooms.first());
        for (is_right, fault) in [
            (number.is_some(), "its name and its title do not begin with the same number of three digits"),
            (number.is_none_or(|number| numbers.insert(number)), "another decision has its number"),
            (decision.has_status(), "no line `- Status: ` with a status of the README"),
            (are_rooms, "no line `- Rooms: ` with folders of `src`, or `project`"),
            (is_linked, "a link leads to no decision"),
            (is_indexed, "the README does not link to it exactly once, under its first room"),
        ] {
            if !is_right {
                faults.push(format!("{}: {fault}", decision.file));
            }
        }
    }
    let lost = links(index).into_iter().filter(|target| !files.contains(target));
    faults.extend(lost.map(|target| format!("README.md: no decision is in {target}")));
    faults
}

const DECISION: &str = "# 001. Why?\n\n- Status: valid\n- Rooms: run, plan\n\n## Answer\n\nYes.\n";
const INDEX: &str = "# Decisions\n\n### run\n\n[Why?](001-why.md)\n\n### plan\n\nAlso: 1.\n";

/// Returns the number of faults of one decision and its index.
fn count(text: &str, index: &str) -> usize {
    let decision = Decision { file: "001-why.md".into(), text: text.into() };
    faults(&[decision], index, |room| ["run", "plan"].contains(&room)).len()
}

#[test]
fn faults_of_a_decision_are_found() {
    assert_eq!(count(DECISION, INDEX), 0);
    for (right, wrong, faults) in [
        ("# 001. ", "# 002. ", 1),
        ("valid", "old", 1),
        ("- Status: valid\n", "", 1),
        ("run, plan", "run, roof", 1),
        ("run, plan", "plan, run", 1),
        ("- Rooms: run, plan\n", "", 2),
        ("Yes.", "See [2](002-how.md).", 1),
    ] {
        assert_eq!(count(&DECISION.replace(right, wrong), INDEX), faults, "{wrong}");
    }
    let is_right = DECISION.replace("valid", "superseded by [001](001-why.md)").replace("plan", PROJECT);
    assert_eq!(count(&is_right, INDEX), 0);
}

#[test]
fn faults_of_the_index_of_decisions_are_found() {
    for (right, wrong) in [
        ("[Why?](001-why.md)", "Why?"),
        ("[Why?](001-why.md)", "[Why?](001-why.md) [again](001-why.md)"),
        ("Also: 1.", "[Why?](001-why.md)"),
        ("Also: 1.", "[How?](002-how.md)"),
    ] {
        assert_eq!(count(DECISION, &INDEX.replace(right, wrong)), 1, "{wrong}");
    }
    let one = || Decision { file: "001-why.md".into(), text: DECISION.into() };
    assert_eq!(faults(&[one(), one()], INDEX, |_| true), ["001-why.md: another decision has its number"]);
}
