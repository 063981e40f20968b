//! The rows: the work, the number of workers, the peers, and the budget.

use crate::work::Work;

/// A line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) workers: usize,
    /// Its name in the programs in C++, if they have it.
    pub(crate) peer: Option<&'static str>,
    /// In ns, or as a share.
    budget: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A run of a node without input or output.
    Empty,
    /// A run of a node that adds one to its input.
    One,
    /// A run of ten nodes of 50 ns, one after the other.
    Chain,
    /// A run of one node, eight nodes side by side, and one node, of 20 µs each.
    Fan,
    /// A run of one node of 50 µs: its time without these 50 µs.
    HandOver,
    ExecutorCall,
    FlowCall,
    /// A call of a node on the result of the call before it. Only the last one is awaited.
    CallAhead,
    Step,
    Operation,
    /// An iteration of a loop whose condition is a node.
    Loop,
    /// An operation that writes one of 100 variables and reads 2 to 19, pushed ahead.
    Wide,
    /// Operations in bulks of 100, on 1,000 variables.
    Bulk,
}

/// Nodes of the chain, of 50 ns each.
pub(crate) const CHAIN: usize = 10;
/// The work of each node of the fan.
pub(crate) const FAN_UNITS: u64 = 400;
/// Nodes side by side.
pub(crate) const FAN: usize = 8;
/// The runs of a node that is handed over. Their first tenth is not timed; it gives the operating system time
/// to place the threads.
pub(crate) const HANDED: u32 = 2_000;
/// The work of the node that is handed over.
pub(crate) const HANDED_UNITS: u64 = 1_000;

const fn row(name: &'static str, kind: Kind, workers: usize, peer: Option<&'static str>, budget: Option<f64>) -> Row {
    Row { name, kind, workers, peer, budget }
}

pub(crate) const ALL: [Row; 17] = [
    row("a run of one empty node", Kind::Empty, 0, Some("empty"), None),
    row("a run of one node, an input, an output", Kind::One, 0, Some("one"), Some(180.0)),
    row("the same on workers", Kind::One, 2, Some("one"), None),
    row("a run of ten nodes of 50 ns in a chain, inline", Kind::Chain, 0, Some("chain"), None),
    row("a run of ten nodes of 50 ns in a chain", Kind::Chain, 2, Some("chain"), Some(1_200.0)),
    row("a run of ten nodes of 20 µs, eight side by side: share of ideal", Kind::Fan, 2, Some("fan"), Some(0.9)),
    row("a run of one node of 50 µs, without these", Kind::HandOver, 2, Some("handover"), Some(5_000.0)),
    row("exec.call of one node, inline", Kind::ExecutorCall, 0, None, Some(250.0)),
    row("exec.call of one node", Kind::ExecutorCall, 2, None, Some(600.0)),
    row("f.call of one node, inline", Kind::FlowCall, 0, None, Some(250.0)),
    row("f.call of one node", Kind::FlowCall, 2, None, Some(600.0)),
    row("f.call of one node, only the last one awaited", Kind::CallAhead, 2, None, None),
    row("a flow's step on one variable, awaited", Kind::Step, 2, None, Some(400.0)),
    row("an operation, awaited", Kind::Operation, 2, None, Some(400.0)),
    row("an iteration of a loop with a condition node", Kind::Loop, 0, Some("loop"), Some(25.0)),
    row("an operation on 3 to 20 variables", Kind::Wide, 2, None, Some(350.0)),
    row("an operation in bulks of 100, independent variables", Kind::Bulk, 2, None, Some(25.0)),
];

impl Row {
    pub(crate) fn is_share(&self) -> bool {
        self.kind == Kind::Fan
    }

    /// Returns the figure of this row, from the ns of one run, call or step.
    pub(crate) fn figure(&self, ns: f64, work: Work) -> f64 {
        match self.kind {
            Kind::Fan => work.takes_ns((2 + FAN as u64 / 2) * FAN_UNITS) / ns,
            _ => ns,
        }
    }

    pub(crate) fn text(&self, figure: f64) -> String {
        if self.is_share() { format!("{figure:.2}") } else { format!("{figure:.0}") }
    }

    /// Returns the budget, and whether the figure keeps it.
    pub(crate) fn verdict(&self, figure: f64) -> String {
        let Some(budget) = self.budget else { return String::new() };
        let (sign, is_met) = if self.is_share() { ("≥", figure >= budget) } else { ("≤", figure <= budget) };
        format!("{sign} {budget} {}", if is_met { "met" } else { "missed" })
    }
}
