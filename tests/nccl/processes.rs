//! Ranks that are processes of MPI, each with its own GPU: they exchange device memory as ranks of one
//! process do, and a rank that is killed or stopped ends the others.

use std::env::var;
use std::time::Duration;

use anabranch::comm::{Mpi, World};
use anabranch::graph::Peer;
use anabranch::scope::{Max, Product, Sum};
use anabranch::{Buffer, DeviceStream, HostBuffer, inputs};
use anabranch_soft_cuda::{Device, Which};
use futures::executor::block_on;

use crate::launch;
use crate::ranks::{NCCL, Rank, is_clean, next_device, output, run, run_graph, until, uploaded};

const RANKS: u32 = 3;

/// Says to the ranks which of them ends, and at which step.
const END: &str = "ANABRANCH_TEST_END";

/// Returns a rank with NCCL, and its GPU.
fn open(world: World) -> (Rank, Device) {
    let device = next_device();
    let rank = Rank::new(world, device.clone());
    block_on(rank.world.use_nccl(rank.gpu())).unwrap();
    (rank, device)
}

/// Checks that a rank leaves nothing on its GPU.
fn close(rank: Rank, device: &Device) {
    drop(rank);
    is_clean(device);
    assert_eq!(device.violations(), [], "{:?}", device.counters());
}

fn exchanges(ranks: u32, test: &str) {
    launch::each_rank(ranks, test, |world| {
        let (rank, device) = open(world);
        let (own, numbers) = (rank.world.rank(), 0..u64::from(ranks));
        let given = |rank: u64| vec![rank + 2, 10 * rank];
        let all = numbers.clone().map(given);
        for _ in 0..3 {
            let sum: Vec<u64> = run(&rank, given(own.into()), |g, x| g.all_reduce_on_device("sum", x, Sum)).unwrap();
            assert_eq!(sum, all.clone().fold(vec![0, 0], |sum, x| vec![sum[0] + x[0], sum[1] + x[1]]));
            let max: Vec<u64> = run(&rank, given(own.into()), |g, x| g.all_reduce_on_device("max", x, Max)).unwrap();
            assert_eq!(max, given(u64::from(ranks) - 1));
            let gathered: Vec<u64> = run(&rank, given(own.into()), |g, x| g.all_gather_on_device("all", x)).unwrap();
            assert_eq!(gathered, all.clone().flatten().collect::<Vec<_>>());
            let sent: Vec<u64> = run(&rank, given(own.into()), |g, x| g.broadcast_on_device("last", x, ranks - 1)).unwrap();
            assert_eq!(sent, given(u64::from(ranks) - 1));
            let many = vec![u64::from(own) + 1; ranks as usize];
            let part: Vec<u64> = run(&rank, many, |g, x| g.reduce_scatter_on_device("part", x, Product)).unwrap();
            assert_eq!(part, [(1..=u64::from(ranks)).product::<u64>()]);
            assert_eq!(neighbour(&rank), u64::from((own + ranks - 1) % ranks));
        }
        close(rank, &device);
    });
}

/// Gets the number of the rank before this one, by an exchange of buffers, and compares it with what the host
/// gets.
fn neighbour(rank: &Rank) -> u64 {
    let (mut g, up) = uploaded::<u64>();
    let halo = g.send_recv_on_device("halo", &up, Peer::ring(1), Peer::ring(-1));
    let down = g.try_kernel("down", &halo, |s: &mut DeviceStream, x: &Option<Buffer<u64>>| {
        Ok(s.download(x.as_ref().expect("each rank has a neighbour in a ring"))?)
    });
    let on_host = g.input::<Vec<u64>>("on host");
    let all = g.all_gather("all on the host", &on_host);
    let (own, size) = (rank.world.rank() as usize, rank.world.size() as usize);
    let out = g.task("out", (&down, &all), move |x: &HostBuffer<u64>, all: &Vec<u64>| {
        assert_eq!(x[0], all[(own + size - 1) % size]);
        x.to_vec()
    });
    g.output("out", &out);
    let x = vec![u64::from(rank.world.rank())];
    let plan = g.compile_for(&rank.world).unwrap();
    let mut outputs = block_on(rank.exec.run(&plan, inputs! { "x" => x.clone(), "on host" => x })).unwrap();
    outputs.take::<Vec<u64>>("out").unwrap()[0]
}

#[test]
fn one_process_exchanges_device_memory() {
    exchanges(1, "processes::one_process_exchanges_device_memory");
}

#[test]
fn two_processes_exchange_device_memory() {
    exchanges(2, "processes::two_processes_exchange_device_memory");
}

#[test]
fn four_processes_exchange_device_memory() {
    exchanges(4, "processes::four_processes_exchange_device_memory");
}

/// The operations of a round. A rank ends before the first of them, or in the midst of one.
const NODES: [&str; 2] = ["sum", "halo"];

/// Adds numbers and sends the sums to a neighbour.
fn round(rank: &Rank) -> anabranch::Result<Vec<f32>> {
    let (mut g, up) = uploaded::<f32>();
    let sum = g.all_reduce_on_device(NODES[0], &up, Sum);
    let halo = g.send_recv_on_device(NODES[1], &sum, Peer::ring(1), Peer::ring(-1));
    let first = g.try_kernel("first", &halo, |s: &mut DeviceStream, x: &Option<Buffer<f32>>| {
        let x = x.as_ref().expect("each rank has a neighbour in a ring");
        let mut y = s.alloc(x.len())?;
        s.copy(x, &mut y)?;
        Ok(y)
    });
    output(&mut g, &first);
    run_graph(rank, &g, vec![1.0_f32; 100])
}

/// Ends this rank by a signal: at step 0 before the round, else when the kernel of this number has begun.
fn end(rank: &Rank, step: usize, signal: &str) -> ! {
    if step > 0 {
        rank.device.stall_operation(Which::Kernel, step as u64);
    }
    std::thread::scope(|scope| {
        if step > 0 {
            scope.spawn(|| round(rank));
            until(|| rank.device.counters().stalled == 1);
        }
        launch::signal(signal)
    })
}

/// The part of each rank. One of them ends by the signal; the others say why, and leave nothing on their
/// GPUs.
fn rank_of_three(signal: &str, says: &str, deadline: Duration) {
    launch::keep_panics();
    let ends = var(END).unwrap();
    let (ending, step) = ends.split_once(' ').map(|(rank, step)| (rank.parse().unwrap(), step.parse().unwrap())).unwrap();
    let (rank, device) = open(Mpi::new().deadline(deadline).world().unwrap());
    let number = rank.world.rank();
    assert_eq!(round(&rank).unwrap(), [3.0; 100]);
    if number == ending {
        end(&rank, step, signal);
    }
    let error = round(&rank).unwrap_err();
    assert!(error.is_world_broken() && error.rank() == Some(ending), "{error:#}");
    assert_eq!(error.node(), Some(NODES[step.saturating_sub(1)]), "{error:#}");
    assert!(format!("{error:#}").contains(says), "{error:#}");
    let gpu = rank.gpu();
    close(rank, &device);
    assert_eq!(NCCL.aborted(gpu), 1);
    launch::note_well(number);
    launch::wait_for(RANKS - 1);
}

/// Ends a rank by a signal, before a round and in each operation. Rank 0 is the one where the others meet.
fn each_step(name: &str, signal: &'static str, says: &str, deadline_s: u64) {
    if launch::is_rank() {
        return rank_of_three(signal, says, Duration::from_secs(deadline_s));
    }
    launch::all(name, RANKS, |launcher, ranks, test| {
        for (ending, step) in (0..2).flat_map(|ending| (0..=NODES.len()).map(move |step| (ending, step))) {
            launcher.survives(ranks, test, Some((END, format!("{ending} {step}"))));
        }
    });
}

// Seen to fail when a rank aborted before the others had heard why: they took the end of its connection for
// an error of theirs.
#[test]
fn an_operation_that_fails_in_one_process_is_the_error_of_all() {
    launch::each_rank_alone(RANKS, "processes::an_operation_that_fails_in_one_process_is_the_error_of_all", |world| {
        let (rank, device) = open(world);
        assert_eq!(round(&rank).unwrap(), [3.0; 100]);
        if rank.world.rank() == 1 {
            NCCL.fail_operation(rank.gpu(), 2, 5);
        }
        let error = round(&rank).unwrap_err();
        assert!(error.is_world_broken(), "{error:#}");
        assert_eq!(error.node(), Some("halo"), "{error:#}");
        assert!(format!("{error:#}").contains("NCCL on rank 1: an operation: invalid usage (5)"), "{error:#}");
        close(rank, &device);
    });
}

// Seen to fail when a rank did not wait for what the control connection tells: its error was one of NCCL,
// which names no rank.
#[test]
fn one_of_three_processes_is_killed() {
    each_step("processes::one_of_three_processes_is_killed", "-KILL", "has died", 10);
}

// Seen to hang when the abort called nothing.
#[test]
fn one_of_three_processes_is_stopped() {
    each_step("processes::one_of_three_processes_is_stopped", "-STOP", "has not answered for", 2);
}
