//! The gain of two threads for long tasks: 50 µs each, in two equal phases.
//!
//! A task spins until its time has passed on the clock, even if another process used its core meanwhile. So
//! the figures of a busy machine may be too good.

use std::time::Instant;

use crate::Args;
use crate::chain::{Chain, Serial};
use crate::figures::{Budget, min, ratio, show_ratio, show_us};
use crate::paced::spin;
use crate::peers::{CHANNELS, ONE_PHASE, ONE_PHASE_ON_WORKERS, PHASE_EACH, PHASE_EACH_ON_WORKERS, Peer, TBB};
use crate::quiet::Quiet;
use crate::table::{Table, median};

const WORK_NS: u64 = 50_000;
const WORKERS: usize = 2;
const IN_FLIGHT: usize = 4;
/// Bodies that are timed to calibrate.
const CALIBRATED: usize = 200;

const SHARE_OF_IDEAL_MIN: f64 = 0.95;
const SPEEDUP_MIN: f64 = 1.95;

/// The peers, and the names of their columns. Ours come twice: with the consumer on the workers, like the
/// peers' consumers, and with the consumer on the waiting thread, which is then a third thread.
const COLUMNS: [(usize, &str); 6] = [
    (ONE_PHASE_ON_WORKERS, "ours, one phase"),
    (PHASE_EACH_ON_WORKERS, "ours, a phase each"),
    (TBB, "oneTBB"),
    (CHANNELS, "tokio channels"),
    (ONE_PHASE, "one phase, third thread"),
    (PHASE_EACH, "a phase each, third thread"),
];

/// Returns the tables as Markdown: the times, and their ratios to the ideal.
pub(crate) fn report(args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> String {
    let names = COLUMNS.map(|(_, name)| name);
    let mut times = Table::new(["two tasks", "ideal"].into_iter().chain(names));
    let verdicts = ["two tasks", "oneTBB", "tokio channels", "ours", "budget", "third thread", "one phase/each", "budget"];
    let mut shares = Table::new(verdicts.into_iter().chain(["the same, third thread"]));
    for (name, serial) in [("without states", Serial::None), ("two engines: a state each", Serial::All)] {
        let chain = Chain { tasks: 2, serial, in_flight: IN_FLIGHT, workers: WORKERS, work_ns: WORK_NS };
        let ideal_ns = body_ns();
        let figures = measure(&chain, args, peers, quiet);
        let cells = COLUMNS.map(|(peer, _)| match &figures[peer][..] {
            [] => "not measured".into(),
            figures => show_us(figures),
        });
        times.push([name.to_owned(), format!("{:.2}", ideal_ns / 1e3)].into_iter().chain(cells));
        shares.push(shares_of(name, serial, ideal_ns, &figures));
    }
    format!(
        "**50 µs of work in each of two tasks, {WORKERS} workers, {IN_FLIGHT} items in flight, µs per item**\n\n{}\n\n\
         The ideal is the median of {CALIBRATED} bodies, timed alone: two workers without a gap. The consumer is a \
         future on the two workers, as that of the tokio chain. In the columns `third thread` it is on the thread that waits.\n\n\
         **The same as shares of the ideal, and what two phases gain**\n\n{}",
        times.markdown(),
        shares.markdown()
    )
}

fn shares_of(name: &str, serial: Serial, ideal_ns: f64, figures: &[Vec<f64>]) -> Vec<String> {
    let share = |peer: usize| (!figures[peer].is_empty()).then(|| ideal_ns / median(&figures[peer]));
    let show_share = |peer: usize| {
        share(peer).map_or_else(|| "–".into(), |share| format!("{share:.3} ({:.3})", ideal_ns / min(&figures[peer])))
    };
    let speedup = |one: usize, each: usize| (ratio(&figures[one], &figures[each]), show_ratio(&figures[one], &figures[each]));
    let (gain, shown) = speedup(ONE_PHASE_ON_WORKERS, PHASE_EACH_ON_WORKERS);
    // Without states, one phase processes two items side by side as well.
    let budget = if serial == Serial::All { Budget::AtLeast(SPEEDUP_MIN).verdict(gain) } else { String::new() };
    let ours = Budget::AtLeast(SHARE_OF_IDEAL_MIN).verdict(share(PHASE_EACH_ON_WORKERS));
    let [tbb, channels, own, third] = [TBB, CHANNELS, PHASE_EACH_ON_WORKERS, PHASE_EACH].map(show_share);
    vec![name.to_owned(), tbb, channels, own, ours, third, shown, budget, speedup(ONE_PHASE, PHASE_EACH).1]
}

fn measure(chain: &Chain, args: &Args, peers: &mut [Box<dyn Peer>], quiet: &mut Quiet) -> Vec<Vec<f64>> {
    let columns = COLUMNS.map(|(peer, _)| peer);
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
