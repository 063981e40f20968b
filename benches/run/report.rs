//! The measurements as tables: a figure per peer, our ratio to oneTBB, and the budget.
//!
//! A ratio compares figures of the same round, taken within seconds of each other on one machine, so a
//! temporary slowdown of the machine cancels out.

mod machine;
pub(crate) mod markers;
mod table;

pub(crate) use self::machine::Machine;
pub(crate) use self::table::{Table, median};
use crate::once::Drops;
use crate::peers::{self, Payload, Peer, Workers};
use crate::quiet::Quiet;
use crate::shapes::{Form, SEED, Shape};
use crate::{BUDGET_SIZE, WORK_NS, ours};

/// The budgets of DESIGN.md, section 6.
const VALUES_TO_EMPTY_MAX: f64 = 1.5;
const SHARE_OF_IDEAL_MIN: f64 = 0.9;
const ONE_NODE_NS_MAX: f64 = 300.0;
const DROP_US_MAX: f64 = 50.0;
fn ratio_max(form: Form) -> f64 {
    match form {
        Form::Chain | Form::Wavefront => 0.3,
        Form::Fan | Form::Random | Form::Tree => 0.5,
    }
}

/// A measurement, except for the shape and the peer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Case {
    /// The requested node count. The shape may have a few more or fewer.
    pub(crate) size: usize,
    pub(crate) workers: Workers,
    pub(crate) payload: Payload,
    pub(crate) work_ns: u64,
}

/// The figures of one shape and case.
pub(crate) struct Row {
    form: Form,
    nodes: usize,
    depth: usize,
    case: Case,
    /// By peer, in ns per node: one figure per round, none if the peer was skipped.
    pub(crate) figures: Vec<Vec<f64>>,
}

impl Row {
    pub(crate) fn new(shape: &Shape, case: Case, peers: usize) -> Self {
        Self { form: shape.form, nodes: shape.len(), depth: shape.depth(), case, figures: vec![Vec::new(); peers] }
    }

    /// Returns the shortest possible time per node: all workers busy all the time, or the longest path
    /// without a gap.
    fn ideal_ns(&self) -> f64 {
        let workers = match self.case.workers {
            Workers::Inline => 1,
            Workers::Threads(count) => count,
        };
        let steps = self.depth.max(self.nodes.div_ceil(workers));
        self.case.work_ns as f64 * steps as f64 / self.nodes as f64
    }
}

/// All measurements, and the peers.
pub(crate) struct Report {
    machine: Machine,
    rounds: usize,
    names: Vec<&'static str>,
    hints: Vec<String>,
    /// By peer, whether it cannot run here.
    is_missing: Vec<bool>,
    pub(crate) quiet: Quiet,
    pub(crate) rows: Vec<Row>,
    /// Figures that do not depend on the size: a run of one node in ns, and a drop in µs, median and largest.
    pub(crate) once: Option<(f64, (f64, f64), Drops)>,
}

impl Report {
    pub(crate) fn new(peers: &[Box<dyn Peer>], rounds: usize) -> Self {
        Self {
            machine: Machine::now(),
            rounds,
            names: peers.iter().map(|peer| peer.name()).collect(),
            hints: peers.iter().filter_map(|peer| peer.missing()).map(str::to_owned).collect(),
            is_missing: peers.iter().map(|peer| peer.missing().is_some()).collect(),
            quiet: Quiet::default(),
            rows: Vec::new(),
            once: None,
        }
    }

    /// Returns the report as Markdown, its tables aligned for reading as they stand.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![format!("{} {}", self.machine.text(), self.quiet.text()), self.method()];
        parts.extend(self.hints.iter().cloned());
        for (title, table) in [
            ("A run of one empty node, ns", self.one_node()),
            ("Empty nodes, ns per node", self.empty()),
            ("A `u64` along every edge, ns per node", self.values()),
            ("5 µs of work in every node, ns per node", self.work()),
        ] {
            if !table.is_empty() {
                parts.push(format!("**{title}**\n\n{}", table.markdown()));
            }
        }
        parts.extend(self.once.as_ref().map(|(node_ns, (drop_us, drop_max_us), drops)| {
            let Drops { runs, median_us, first_us, last_us, one_in_500_us, max_us } = drops;
            format!(
                "**Once per run**\n\nA run of one node on the inline host device, awaited: {node_ns:.0} ns (budget ≤ 300 ns: {}). \
                 Dropping a run whose worker is inside of a node: {drop_us:.1} µs, at most {drop_max_us:.1} µs (budget ≤ 50 µs: {}). \
                 Dropping {runs} runs, none of which ends meanwhile: {median_us:.2} µs each (the first tenth {first_us:.2}, the last {last_us:.2}), \
                 one in 500 more than {one_in_500_us:.1} µs, at most {max_us:.1} µs (budget ≤ 50 µs: {}).",
                verdict(Some(*node_ns <= ONE_NODE_NS_MAX)),
                verdict(Some(*drop_us <= DROP_US_MAX)),
                verdict(Some(*one_in_500_us <= DROP_US_MAX)),
            )
        }));
        parts.join("\n\n")
    }

    fn method(&self) -> String {
        format!(
            "Method: each graph built once, run many times; the time of a run divided by its nodes; the median over the runs of a \
             round, then the median of {} interleaved rounds (smallest–largest); a ratio is the median of the rounds' ratios. `inline` runs on the thread that waits, as oneTBB \
             with 1 worker does, which is what it is compared with. `Assorted closures` are empty nodes with as many different closures as the values take. Random graphs: SplitMix64, seed {SEED:#x}. \
             Every peer was checked to run each node once per run, and to pass the values.",
            self.rounds
        )
    }

    fn one_node(&self) -> Table {
        let mut table = self.table(&[]);
        self.rows.iter().filter(|row| row.case.size == 1).for_each(|row| table.push(self.cells(row, [])));
        table
    }

    /// Returns the rows of graphs without work.
    fn rows(&self, payload: Payload) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.case.size > 1 && row.case.payload == payload && row.case.work_ns == 0)
    }

    fn empty(&self) -> Table {
        let mut table = self.table(&["ours/oneTBB", "budget"]);
        for row in self.rows(Payload::Empty) {
            let ratio = ratio(self.ours(row), self.tbb(row));
            let is_budgeted = row.case.size == BUDGET_SIZE && row.case.workers != Workers::Inline;
            let budget = if is_budgeted { at_most(ratio, ratio_max(row.form)) } else { String::new() };
            table.push(self.cells(row, [show(ratio), budget]));
        }
        table
    }

    fn values(&self) -> Table {
        let mut table = self.table(&["ours/oneTBB", "ours/ours empty", "budget", "ours, empty, assorted closures", "ours/that"]);
        for row in self.rows(Payload::Values) {
            let other = |payload| self.row(row.form, Case { payload, ..row.case }).and_then(|other| self.ours(other));
            let to_empty = ratio(self.ours(row), other(Payload::Empty));
            let is_budgeted = row.case.size == BUDGET_SIZE;
            let budget = if is_budgeted { at_most(to_empty, VALUES_TO_EMPTY_MAX) } else { String::new() };
            let assorted = other(Payload::Assorted);
            let to_assorted = ratio(self.ours(row), assorted);
            let to_tbb = ratio(self.ours(row), self.tbb(row));
            let verdicts = [show(to_tbb), show(to_empty), budget, spread(assorted.unwrap_or_default()), show(to_assorted)];
            table.push(self.cells(row, verdicts));
        }
        table
    }

    fn work(&self) -> Table {
        let mut table = self.table(&["ideal", "oneTBB: share of ideal", "ours: share of ideal", "budget"]);
        for row in self.rows.iter().filter(|row| row.case.work_ns == WORK_NS) {
            let ideal = row.ideal_ns();
            let [tbb, ours] = [self.tbb(row), self.ours(row)].map(|figures| Some(ideal / median(figures?)));
            let budget = at_least(ours, SHARE_OF_IDEAL_MIN);
            table.push(self.cells(row, [format!("{ideal:.0}"), show(tbb), show(ours), budget]));
        }
        table
    }

    fn table(&self, verdicts: &[&str]) -> Table {
        let first = ["shape", "nodes", "workers"];
        Table::new(first.iter().chain(&self.names).chain(verdicts).copied())
    }

    fn cells(&self, row: &Row, verdicts: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut cells = vec![row.form.to_string(), row.nodes.to_string(), row.case.workers.to_string()];
        for (figures, &is_missing) in row.figures.iter().zip(&self.is_missing) {
            cells.push(if is_missing { "not installed".into() } else { spread(figures) });
        }
        cells.extend(verdicts);
        cells
    }

    fn row(&self, form: Form, case: Case) -> Option<&Row> {
        self.rows.iter().find(|row| row.form == form && row.case == case)
    }

    fn ours<'a>(&self, row: &'a Row) -> Option<&'a [f64]> {
        self.figures(row, ours::NAME)
    }

    /// Returns oneTBB's figures. Its one worker is the thread that waits, so it is also compared with inline.
    fn tbb(&self, row: &Row) -> Option<&[f64]> {
        let workers = if row.case.workers == Workers::Inline { Workers::Threads(1) } else { row.case.workers };
        self.figures(self.row(row.form, Case { workers, ..row.case })?, peers::TBB)
    }

    fn figures<'a>(&self, row: &'a Row, name: &str) -> Option<&'a [f64]> {
        let column = self.names.iter().position(|&peer| peer == name)?;
        let figures = &row.figures[column];
        (!figures.is_empty()).then_some(figures)
    }
}

/// Returns the median of the ratios of each round.
fn ratio(above: Option<&[f64]>, below: Option<&[f64]>) -> Option<f64> {
    let ratios: Vec<f64> = above?.iter().zip(below?).map(|(above, below)| above / below).collect();
    Some(median(&ratios))
}

pub(crate) fn show(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.3}"))
}

pub(crate) fn at_most(ratio: Option<f64>, limit: f64) -> String {
    format!("≤ {limit:.1}{}", verdict(ratio.map(|ratio| ratio <= limit)))
}

fn at_least(ratio: Option<f64>, limit: f64) -> String {
    format!("≥ {limit:.1}{}", verdict(ratio.map(|ratio| ratio >= limit)))
}

fn verdict(is_met: Option<bool>) -> &'static str {
    match is_met {
        Some(true) => " met",
        Some(false) => " **missed**",
        None => "",
    }
}

pub(crate) fn spread(figures: &[f64]) -> String {
    if figures.is_empty() {
        return "–".into();
    }
    let digits = if median(figures) < 100.0 { 1 } else { 0 };
    let [least, most] = [f64::min, f64::max].map(|pick| figures.iter().copied().fold(figures[0], pick));
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(figures))
}
