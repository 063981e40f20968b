//! The cost of an item in a chain of small tasks, compared with the peers.

use crate::Args;
use crate::chain::{Chain, Serial};
use crate::figures::{Budget, ratio, show, show_ratio};
use crate::peers::{CHANNELS, ONE_PHASE, PHASE_EACH, Peer, RUNS, TBB};
use crate::quiet::Quiet;
use crate::table::{Table, median};

/// The budgets of three tasks inline, by the items in flight.
const INLINE_NS_MAX: [(usize, f64); 2] = [(4, 40.0), (16, 30.0)];
/// The budget of two workers, over oneTBB.
const OVER_TBB_MAX: f64 = 1.0;

/// The figures of one chain, in ns per item.
struct Row {
    chain: Chain,
    /// By peer, one figure per round, or none if it has no such mode.
    figures: Vec<Vec<f64>>,
}

/// Returns the tables as Markdown.
pub(crate) fn report(args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> Vec<String> {
    let rows: Vec<Row> = chains(args).into_iter().map(|chain| measure(chain, args, peers, quiet)).collect();
    let is_missing = |row: &Row, peer: usize| peers[peer].missing().is_some() && row.figures[peer].is_empty();
    let cell = |row: &Row, peer: usize| match &row.figures[peer][..] {
        [] if is_missing(row, peer) => "not measured".into(),
        [] => "–".into(),
        figures => show(figures),
    };
    let (inline, threads): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.chain.workers == 0);
    let tables = [("Inline", inline_table(&inline, cell)), ("Two workers", threads_table(&threads, cell))];
    let tables = tables.into_iter().filter(|(_, table)| !table.is_empty());
    tables.map(|(title, table)| format!("**{title}, ns per item**\n\n{}", table.markdown())).collect()
}

fn chains(args: &Args) -> Vec<Chain> {
    let kinds: &[(usize, Serial)] = if args.quick {
        &[(3, Serial::None)]
    } else {
        &[(3, Serial::None), (4, Serial::None), (3, Serial::Middle), (3, Serial::All)]
    };
    let mut chains = Vec::new();
    for &workers in &args.workers {
        for &(tasks, serial) in kinds {
            let chain = |&in_flight| Chain { tasks, serial, in_flight, workers, work_ns: 0 };
            chains.extend(args.in_flight.iter().map(chain));
        }
    }
    chains
}

/// Measures one chain, round after round.
fn measure(chain: Chain, args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> Row {
    let mut figures = vec![Vec::new(); peers.len()];
    for round in 0..args.rounds {
        // The order of the peers changes from round to round.
        for turn in 0..peers.len() {
            let peer = (round + turn) % peers.len();
            if args.has(peers[peer].name()) {
                figures[peer].extend(quiet.take(|| peers[peer].run(&chain, args.target())));
            }
        }
    }
    Row { chain, figures }
}

fn inline_table(rows: &[&Row], cell: impl Fn(&Row, usize) -> String) -> Table {
    let head = ["tasks", "serial", "in flight", "ours", "oneTBB", "tokio channels", "buffered runs"];
    let mut table = Table::new(head.into_iter().chain(["ours/oneTBB", "ours/tokio", "ours/runs", "budget, ns"]));
    for row in rows {
        let Row { chain, figures } = row;
        let ours = &figures[ONE_PHASE];
        let limit = INLINE_NS_MAX.iter().find(|(in_flight, _)| *in_flight == chain.in_flight);
        let limit = limit.filter(|_| chain.tasks == 3 && chain.serial == Serial::None);
        let figure = (!ours.is_empty()).then(|| median(ours));
        let budget = limit.map_or_else(String::new, |&(_, limit)| Budget::AtMost(limit).verdict(figure));
        let cells = [ONE_PHASE, TBB, CHANNELS, RUNS].map(|peer| cell(row, peer));
        let ratios = [TBB, CHANNELS, RUNS].map(|peer| show_ratio(ours, &figures[peer]));
        table.push(first(chain).into_iter().chain(cells).chain(ratios).chain([budget]));
    }
    table
}

fn threads_table(rows: &[&Row], cell: impl Fn(&Row, usize) -> String) -> Table {
    let head =
        ["tasks", "serial", "in flight", "ours, one phase", "ours, a phase each", "oneTBB", "tokio channels", "buffered runs"];
    let over = ["one phase/oneTBB", "budget", "a phase each/oneTBB", "budget", "one phase/tokio", "one phase/runs"];
    let mut table = Table::new(head.into_iter().chain(over));
    for row in rows {
        let Row { chain, figures } = row;
        let over_tbb = [ONE_PHASE, PHASE_EACH].into_iter().flat_map(|ours| {
            let ratio = ratio(&figures[ours], &figures[TBB]);
            [show_ratio(&figures[ours], &figures[TBB]), Budget::AtMost(OVER_TBB_MAX).verdict(ratio)]
        });
        let cells = [ONE_PHASE, PHASE_EACH, TBB, CHANNELS, RUNS].map(|peer| cell(row, peer));
        let ratios = [CHANNELS, RUNS].map(|peer| show_ratio(&figures[ONE_PHASE], &figures[peer]));
        table.push(first(chain).into_iter().chain(cells).chain(over_tbb).chain(ratios));
    }
    table
}

fn first(chain: &Chain) -> [String; 3] {
    [chain.tasks.to_string(), chain.serial.to_string(), chain.in_flight.to_string()]
}
