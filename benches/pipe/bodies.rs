//! What is left of two threads where tasks take their time: 50 µs each, in two equal phases.
//!
//! A task spins until a clock says that its time is over, even if another process had its core meanwhile. So
//! the figures of a busy machine may be too good.

use std::time::Instant;

use crate::Args;
use crate::chain::{Chain, Serial};
use crate::figures::{Budget, min, ratio, show_ratio, show_us};
use crate::paced::spin;
use crate::peers::{CHANNELS, ONE_PHASE, PHASE_EACH, Peer, TBB};
use crate::quiet::Quiet;
use crate::table::{Table, median};

const WORK_NS: u64 = 50_000;
const WORKERS: usize = 2;
const IN_FLIGHT: usize = 4;
/// Bodies that are timed to calibrate.
const CALIBRATED: usize = 200;

const SHARE_OF_IDEAL_MIN: f64 = 0.95;
const SPEEDUP_MIN: f64 = 1.95;

/// Returns the table as Markdown.
pub(crate) fn report(args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> String {
    let head = ["two tasks", "ideal", "ours, one phase", "ours, a phase each", "oneTBB", "tokio channels"];
    let verdicts = ["share of ideal: oneTBB", "share of ideal: a phase each", "budget", "one phase/a phase each", "budget"];
    let mut table = Table::new(head.into_iter().chain(verdicts));
    for (name, serial) in [("without states", Serial::None), ("two engines: a state each", Serial::All)] {
        let chain = Chain { tasks: 2, serial, in_flight: IN_FLIGHT, workers: WORKERS, work_ns: WORK_NS };
        let ideal_ns = body_ns();
        let figures = measure(&chain, args, peers, quiet);
        let share = |peer: usize| (!figures[peer].is_empty()).then(|| ideal_ns / median(&figures[peer]));
        let speedup = ratio(&figures[ONE_PHASE], &figures[PHASE_EACH]);
        let show_share = |peer: usize| {
            share(peer).map_or_else(|| "–".into(), |share| format!("{share:.3} ({:.3})", ideal_ns / min(&figures[peer])))
        };
        // Without states one phase has two items side by side as well.
        let budget = if serial == Serial::All { Budget::AtLeast(SPEEDUP_MIN).verdict(speedup) } else { String::new() };
        let cells = [ONE_PHASE, PHASE_EACH, TBB, CHANNELS].map(|peer| match &figures[peer][..] {
            [] => "not measured".into(),
            figures => show_us(figures),
        });
        let shares = [show_share(TBB), show_share(PHASE_EACH), Budget::AtLeast(SHARE_OF_IDEAL_MIN).verdict(share(PHASE_EACH))];
        let cells = [name.to_owned(), format!("{:.2}", ideal_ns / 1e3)].into_iter().chain(cells);
        table.push(cells.chain(shares).chain([show_ratio(&figures[ONE_PHASE], &figures[PHASE_EACH]), budget]));
    }
    format!(
        "**50 µs of work in each of two tasks, {WORKERS} workers, {IN_FLIGHT} items in flight, µs per item**\n\n{}\n\n\
         The ideal is the median of {CALIBRATED} bodies, timed alone: two workers without a gap.",
        table.markdown()
    )
}

fn measure(chain: &Chain, args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> Vec<Vec<f64>> {
    let columns = [ONE_PHASE, PHASE_EACH, TBB, CHANNELS];
    let mut figures = vec![Vec::new(); peers.len()];
    for round in 0..args.rounds {
        for turn in 0..columns.len() {
            let peer = columns[(round + turn) % columns.len()];
            if args.has(peers[peer].name()) {
                figures[peer].extend(quiet.take(|| peers[peer].run(chain, args.target())));
            }
        }
    }
    figures
}

/// Returns how long a body takes on this clock.
fn body_ns() -> f64 {
    let time = |_| {
        let start = Instant::now();
        spin(WORK_NS);
        start.elapsed().as_nanos() as f64
    };
    median(&(0..CALIBRATED).map(time).collect::<Vec<_>>())
}
