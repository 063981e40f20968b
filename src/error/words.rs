//! Words of messages.

use super::PortKind;
use crate::name::Name;

/// Returns `two inputs are`, or `a state and a feedback are`.
pub(super) fn two(first: PortKind, second: PortKind) -> String {
    if first == second { format!("two {first}s are") } else { format!("{} and {} are", a(first), a(second)) }
}

pub(super) fn a(kind: PortKind) -> String {
    format!("{} {kind}", if matches!(kind, PortKind::Input | PortKind::Output) { "an" } else { "a" })
}

pub(super) fn unused(kind: PortKind, name: &Name) -> String {
    match kind {
        PortKind::State => format!("no node holds state '{name}': let one read it as `&mut state`"),
        PortKind::Feedback => format!("nothing reads feedback '{name}': read it in a node as `&*feedback`"),
        _ => format!("nothing reads the {kind} '{name}': read it in a node"),
    }
}

pub(super) fn in_flight(items: u32) -> String {
    if items == 1 { "1 item in flight is".into() } else { format!("{items} items in flight are") }
}

/// Returns `'a' -> 'b' -> 'a'`. If the path is long, its middle is left out.
pub(super) fn cycle(path: &[Name]) -> String {
    let quoted: Vec<String> = path.iter().map(|name| format!("'{name}'")).collect();
    match quoted.len() {
        0..=12 => quoted.join(" -> "),
        n => format!("{} -> ... {} more ... -> {}", quoted[..6].join(" -> "), n - 12, quoted[n - 6..].join(" -> ")),
    }
}

/// Returns `phase 2`, or the words for a node without a phase.
pub(super) fn fixed(phase: &u32) -> String {
    if *phase == 0 { "unpipelined".into() } else { format!("phase {phase}") }
}

pub(super) fn list(names: &[Name]) -> String {
    match names {
        [] => "none".into(),
        _ => names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "),
    }
}

/// Returns `from 'a' or 'b' to 'c'`.
pub(super) fn between(from: &[String], to: &[String]) -> String {
    let names = |names: &[String]| names.iter().take(8).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" or ");
    format!("from {} to {}", names(from), names(to))
}

/// Returns the similar name if there is one, or else some of the known names.
pub(super) fn hint(near: &Option<Name>, some: &[Name], nodes: usize) -> String {
    match (near, nodes - some.len()) {
        (Some(near), _) => format!("; did you mean '{near}'?"),
        (None, 0) => format!("; the nodes: {}", list(some)),
        (None, more) => format!("; the nodes: {} and {more} more", list(some)),
    }
}

pub(super) fn plural(count: usize) -> String {
    if count == 1 { "one reason".into() } else { format!("{count} reasons") }
}
