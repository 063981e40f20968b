//! Question: how long after the end of its kernel does a task that awaits a run resume, and how much
//! processor time does the wait take, for each way in which the host learns of the end?
//!
//! Method: a task of tokio repeatedly awaits a run of one kernel of a given duration. Beyond the kernel's
//! time, the await takes the submission, the notification of the host, and the wake of the task. The way by
//! hand is that of programs without a library: a launch, and a thread for blocking work that calls
//! `cuStreamSynchronize`. The operating system counts the processor time of all threads of the process; the
//! figure is its share of the round's time. The ways take turns; a figure is the median of the awaits of a
//! round, then of the rounds.
//!
//! Without a GPU, the software driver is used, where the kernel is a loop on the thread of its stream. That
//! thread does not count.
//!
//! ```text
//! cargo bench --features cuda --bench completion                 prints the table
//! cargo bench --features cuda --bench completion -- --write      writes docs/performance/completion.md, too
//! ```

#[path = "cuda/cpu.rs"]
mod cpu;
#[path = "cuda/driver.rs"]
mod driver;
#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch::cuda::{Completion, Pace, self_test};
use anabranch::device::{Kernel, Launch};
use anabranch::policy::Single;
use anabranch::{DeviceStream, Executor, Graph, Inputs, Plan};
use anabranch_soft_cuda::Param;
use clap::Parser;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use tokio::runtime::{Builder, Runtime};

use crate::machine::Machine;
use crate::markers::Output;
use crate::table::{Table, median};

const SPIN: &str = include_str!("cuda/spin.ptx");
const KERNELS_US: [u64; 4] = [2, 20, 200, 2000];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);
/// The prefix of the names of the software driver's threads.
const SOFTWARE: &str = "soft-cuda";

/// Measures awaits by completion.
#[derive(Parser)]
struct Args {
    /// The GPU's ordinal. Without a GPU it is one of the software driver's.
    #[arg(long, default_value_t = 0)]
    ordinal: u32,
    #[command(flatten)]
    output: Output,
}

/// Awaits one kernel of the given number of microseconds.
type Wait = Box<dyn Fn(&Runtime, u64)>;

/// One way to wait for a kernel.
struct Way {
    name: String,
    pace: String,
    wait: Wait,
}

fn main() {
    let args = Args::parse();
    let software = driver::software();
    if let Some(client) = software {
        client.device(args.ordinal).track_races(false);
        client.register_kernel("spin", &[Param::scalar::<u64>()], |launch| {
            // SAFETY: the parameter is registered as a u64.
            let time = Duration::from_nanos(unsafe { launch.scalar::<u64>(0) });
            let started = Instant::now();
            while started.elapsed() < time {
                spin_loop();
            }
        });
    }
    let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads start");
    let ways = ways(args.ordinal);
    let cells = KERNELS_US.map(|us| column(&tokio, &ways, us));
    let head = ["completion", "pace"].map(str::to_owned).into_iter();
    let mut table = Table::new(head.chain(KERNELS_US.map(|us| format!("kernel of {us} µs: later by, µs (% of a core)"))));
    for (number, way) in ways.iter().enumerate() {
        let row = cells.each_ref().map(|column| column[number].clone());
        table.push([way.name.clone(), way.pace.clone()].into_iter().chain(row));
    }
    let text = format!(
        "{} Over {}.\n\nMedians of {ROUNDS} rounds of {ROUND:?}.\n\n{}",
        Machine::now().text(),
        driver::name(software.as_ref()),
        table.markdown()
    );
    args.output.publish("bench:completion", &text);
}

/// All ways that work on the device.
fn ways(ordinal: u32) -> Vec<Way> {
    let test = self_test(ordinal).expect("a device opens");
    let all = [Completion::Lane, Completion::Event, Completion::HostFunction].into_iter();
    let all = all.filter(|&completion| test.works(completion));
    let all = all.flat_map(|completion| [Pace::Latency, Pace::Balanced, Pace::LowCpu].map(|pace| (completion, pace)));
    all.map(|(completion, pace)| ours(ordinal, completion, pace)).chain([by_hand(ordinal)]).collect()
}

fn ours(ordinal: u32, completion: Completion, pace: Pace) -> Way {
    let builder = Executor::builder().workers(1).cuda(&[ordinal]).completion(completion).pace(pace);
    let exec = builder.build().expect("the completion works");
    let plans = KERNELS_US.map(|us| (us, plan(us)));
    let wait = move |tokio: &Runtime, us| {
        let (_, plan) = plans.iter().find(|(of, _)| *of == us).expect("a plan for each kernel");
        drop(tokio.block_on(exec.run(plan, Inputs::new())).expect("no node fails"));
    };
    Way { name: format!("{completion:?}"), pace: format!("{pace:?}"), wait: Box::new(wait) }
}

fn plan(us: u64) -> Plan {
    // SAFETY: the kernel has this parameter, and accesses no memory.
    let kernel = unsafe { Kernel::<(u64,)>::ptx("spin", SPIN) };
    let mut g = Graph::new();
    let mut launch = Launch::for_len(1);
    launch.block = [1, 1, 1];
    let one = g.try_kernel("spin", (), move |s: &mut DeviceStream| Ok(s.launch(&kernel, launch, (us * 1000,))?));
    g.output("spin", &one);
    g.compile_with(&Single).expect("a valid graph")
}

fn by_hand(ordinal: u32) -> Way {
    let context = CudaContext::new(ordinal as usize).expect("the device opens");
    let stream = context.new_stream().expect("a stream opens");
    let function =
        context.load_module(Ptx::from_src(SPIN)).expect("the module loads").load_function("spin").expect("it is there");
    let wait = move |tokio: &Runtime, us| {
        tokio.block_on(async {
            launch(&stream, &function, us);
            let stream: Arc<CudaStream> = stream.clone();
            let waited = tokio::task::spawn_blocking(move || stream.synchronize()).await;
            waited.expect("no panic").expect("no kernel fails");
        });
    };
    Way { name: "cuStreamSynchronize, by hand".into(), pace: "–".into(), wait: Box::new(wait) }
}

fn launch(stream: &Arc<CudaStream>, function: &CudaFunction, us: u64) {
    let (ns, one) = (us * 1000, LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 });
    let mut launch = stream.launch_builder(function);
    launch.arg(&ns);
    // SAFETY: the kernel has this parameter, and touches no memory.
    unsafe { launch.launch(one) }.expect("the launch is accepted");
}

/// Returns a cell for each way.
fn column(tokio: &Runtime, ways: &[Way], us: u64) -> Vec<String> {
    ways.iter().for_each(|way| _ = round(tokio, way, us));
    let rounds: Vec<Vec<(f64, Option<f64>)>> =
        (0..ROUNDS).map(|_| ways.iter().map(|way| round(tokio, way, us)).collect()).collect();
    let cell = |way: usize| {
        let later = median(&rounds.iter().map(|round| round[way].0).collect::<Vec<_>>());
        let on_cores: Option<Vec<f64>> = rounds.iter().map(|round| round[way].1).collect();
        let on_cores = on_cores.map_or("unknown".into(), |all| format!("{:.0}", median(&all)));
        format!("{later:.0} ({on_cores})")
    };
    (0..ways.len()).map(cell).collect()
}

/// Returns how much later than their kernels the awaits of a round end, in microseconds, and the processor
/// time, in percent of the time of the round.
fn round(tokio: &Runtime, way: &Way, us: u64) -> (f64, Option<f64>) {
    let (before, started, mut later) = (cpu::on_core_ns(SOFTWARE), Instant::now(), Vec::new());
    while started.elapsed() < ROUND {
        let asked = Instant::now();
        (way.wait)(tokio, us);
        later.push(asked.elapsed().as_secs_f64() * 1e6 - us as f64);
    }
    let took = started.elapsed();
    let on_cores = cpu::on_core_ns(SOFTWARE).zip(before).map(|(after, before)| after.saturating_sub(before));
    (median(&later), on_cores.map(|ns| ns as f64 / took.as_nanos() as f64 * 100.0))
}
