//! Question: how soon does a run end after the end of its work on the device, and how much of a core does the
//! reactor use meanwhile?
//!
//! Method: a graph of one kernel on the software driver, whose operation begins after a given delay; a run is
//! awaited repeatedly. Submission, the reactor and two wakes of threads take the time beyond the sleeps of
//! the stream's thread. The operating system counts the reactor's time on a core, as a share of the time of
//! the runs, and of a second without runs.
//!
//! ```text
//! cargo bench --features cuda --bench reactor                 prints the table
//! cargo bench --features cuda --bench reactor -- --write      and writes it into docs/performance/reactor.md
//! ```

#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::fs;
use std::time::{Duration, Instant};

use anabranch::cuda::{Completion, Pace};
use anabranch::device::{Kernel, Launch};
use anabranch::policy::Single;
use anabranch::{DeviceStream, Executor, Graph, Inputs, Plan};
use anabranch_soft_cuda::{Client, Device, Param};
use clap::Parser;
use futures::executor::block_on;

use crate::machine::Machine;
use crate::markers::Output;
use crate::table::{Table, median};

const DELAYS: [Duration; 5] = [
    Duration::from_micros(20),
    Duration::from_micros(200),
    Duration::from_millis(2),
    Duration::from_millis(20),
    Duration::from_millis(200),
];
const PACES: [Pace; 3] = [Pace::Latency, Pace::Balanced, Pace::LowCpu];
const ROUNDS: usize = 5;
/// How long the runs of a round may take.
const ROUND: Duration = Duration::from_millis(300);
const IDLE: Duration = Duration::from_secs(1);

/// Measures the reactor.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    output: Output,
}

fn main() {
    let args = Args::parse();
    let client = Client::beside_this_test().expect("cargo builds the software driver");
    client.register_kernel("nothing", &[Param::scalar::<u32>()], |_| ());
    let device = client.device(0);
    device.track_races(false);
    let plan = plan();
    let mut table = Table::new(
        ["completion", "pace", "idle, % of a core"]
            .into_iter()
            .map(str::to_owned)
            .chain(DELAYS.iter().map(|delay| format!("work of {delay:?}: later by, µs (% of a core)"))),
    );
    for completion in [Completion::Lane, Completion::Event] {
        for pace in PACES {
            let exec =
                Executor::builder().workers(1).cuda(&[0]).completion(completion).pace(pace).build().expect("a device opens");
            run(&exec, &plan);
            // The kernel, and the word after it. An event is no operation.
            let operations = if completion == Completion::Lane { 2 } else { 1 };
            let cells = DELAYS.map(|delay| waiting(&exec, &plan, &device, (delay, operations)));
            device.clear_faults();
            let first = [format!("{completion:?}"), format!("{pace:?}"), format!("{:.2}", idle())];
            table.push(first.into_iter().chain(cells));
            block_on(exec.shutdown()).expect("nothing runs any more");
        }
    }
    let text = format!("{}\n\nMedians of {ROUNDS} rounds.\n\n{}", Machine::now().text(), table.markdown());
    args.output.publish("bench:reactor", &text);
}

fn plan() -> Plan {
    // SAFETY: the software driver calls the function that is registered under this name, with this parameter.
    // It accesses no memory.
    let kernel = unsafe { Kernel::<(u32,)>::ptx("nothing", ".visible .entry nothing(") };
    let mut g = Graph::new();
    let one = g.try_kernel("one", (), move |s: &mut DeviceStream| Ok(s.launch(&kernel, Launch::for_len(1), (7,))?));
    g.output("one", &one);
    g.compile_with(&Single).expect("a valid graph")
}

fn run(exec: &Executor, plan: &Plan) {
    drop(block_on(exec.run(plan, Inputs::new())).expect("no node fails"));
}

/// Returns the delay from the end of the work to the end of its run, and the reactor's share of a core.
fn waiting(exec: &Executor, plan: &Plan, device: &Device, (delay, operations): (Duration, usize)) -> String {
    device.clear_faults();
    device.delay_every_operation(delay);
    let (mut later, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (before, start, mut runs) = (reactor_ns(), Instant::now(), 0_u32);
        while start.elapsed() < ROUND {
            run(exec, plan);
            runs += 1;
        }
        let took = start.elapsed();
        later.push((took / runs).as_secs_f64() * 1e6 - floor_us(delay, operations));
        shares.push((reactor_ns() - before) as f64 / took.as_nanos() as f64 * 100.0);
    }
    format!("{:.0} ({:.1})", median(&later), median(&shares))
}

/// Returns how long a stream's thread sleeps for a number of operations.
fn floor_us(delay: Duration, operations: usize) -> f64 {
    let start = Instant::now();
    let times = if delay > Duration::from_millis(50) { 2 } else { 20 };
    (0..times * operations).for_each(|_| std::thread::sleep(delay));
    start.elapsed().as_secs_f64() * 1e6 / times as f64
}

/// Returns the reactor's share of a core without pending runs, in percent.
fn idle() -> f64 {
    let before = reactor_ns();
    std::thread::sleep(IDLE);
    (reactor_ns() - before) as f64 / IDLE.as_nanos() as f64 * 100.0
}

/// Returns the time on a core of all reactors of this process.
fn reactor_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let reactors = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| "anabranch-reactor".starts_with(name.trim()))
    });
    let on_core =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    reactors.filter_map(on_core).sum()
}
