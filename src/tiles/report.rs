//! How a scope streams, as text: the groups with their operations and windows, and why they end.

use std::fmt;

use super::memory::{Place, Window};
use super::outline::OpId;
use super::reason::Reason;
use super::streamed::{Group, Rule, Streamed};
use crate::plan::text::{bytes_text, printable};

/// The column where the rows begin.
const MARGIN: usize = 13;

impl fmt::Display for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        writeln!(
            f,
            "{:MARGIN$}{} with one batch in flight, {} with two, {} if nothing streams",
            "memory",
            bytes_text(self.bytes(1)),
            bytes_text(self.bytes(2)),
            bytes_text(self.unstreamed_bytes())
        )?;
        self.write_groups(f)
    }
}

impl Streamed {
    /// Returns how many operations and groups there are, and the rule.
    pub(crate) fn summary(&self) -> String {
        let (ops, groups) = (self.outline().ops().len() as u64, self.groups().len() as u64);
        format!("{}, {}: {}", count(ops, "operation"), count(groups, "group"), self.rule())
    }

    /// Writes the groups.
    pub(crate) fn write_groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (group, cut)) in self.groups().iter().zip(self.cuts()).enumerate() {
            let title = format!("group {}", number + 1);
            writeln!(f, "{title:MARGIN$}{} in {}", count(group.batches(), "batch"), count(group.steps(), "step"))?;
            self.write_group(f, group, &cut)?;
        }
        Ok(())
    }

    fn write_group(&self, f: &mut fmt::Formatter<'_>, group: &Group, cut: &[&Reason]) -> fmt::Result {
        let name = |op: OpId| printable(&self.outline().op_name(op.index()).unquoted());
        let width = group.ops().map(|op| name(op).chars().count()).max().unwrap_or(0);
        for ((op, place), number) in group.ops().zip(group.places()).zip(0..) {
            let title = if number == 0 { "operations" } else { "" };
            writeln!(f, "  {title:<11}{:<width$}   {place}", name(op))?;
        }
        let store = |window: &Window| printable(self.outline().store_name(window.store));
        let width = group.windows().iter().map(|window| store(window).chars().count()).max().unwrap_or(0);
        for (number, window) in group.windows().iter().enumerate() {
            let title = if number == 0 { "stores" } else { "" };
            writeln!(f, "  {title:<11}{:<width$}   {window}", store(window))?;
        }
        for reason in cut {
            writeln!(f, "  {:<11}before {}:", "cut", printable(&reason.op().to_string()))?;
            reason.to_string().split("; ").try_for_each(|piece| writeln!(f, "  {:<11}  {}", "", printable(piece)))?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact rule",
            Self::InOrder => "exact rule, in the order of batches",
            Self::Legate => "Legate's rule",
            Self::Off => "nothing streams",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before => f.write_str("once, before the batches"),
            Self::Batches { skew: 0 } => f.write_str("batch by batch"),
            Self::Batches { skew } => write!(f, "batch by batch, {} behind", count(*skew, "batch")),
            Self::Once { step } => write!(f, "once, after step {step}"),
            Self::All => f.write_str("does not stream: all batches at once"),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tiles {
            Some(tiles) => write!(f, "{} of {}", count(tiles, "tile"), bytes_text(self.tile_bytes)),
            None => write!(f, "whole: {}", bytes_text(self.store_bytes)),
        }
    }
}

/// Returns a number of things: `1 batch`, `2 batches`.
fn count(number: u64, what: &str) -> String {
    let ending = match what {
        _ if number == 1 => "",
        what if what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {what}{ending}")
}
