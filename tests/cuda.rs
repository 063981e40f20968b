//! The CUDA device on a real GPU: properties that the tests over the software driver cannot show. Without a
//! driver, each test prints that it was skipped.
//!
//! `scripts/gpu` packs this and the benches for a machine that has a GPU and nothing else.

#![allow(missing_docs, clippy::unwrap_used, clippy::ptr_arg)]

#[path = "it/dice.rs"]
#[allow(dead_code)]
mod dice;
#[path = "it/cuda/graphs.rs"]
mod graphs;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anabranch::cuda::{Completion, Pace, self_test};
use anabranch::device::{Kernel, Launch};
use anabranch::device::{Out, kernels};
use anabranch::exec::{DeviceSpan, WorkSpan};
use anabranch::policy::{Policy, Single};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs, Plan, Ranked, Timeline, inputs};
use anabranch_soft_cuda::{Client, Code, Param, Which};
use futures::executor::block_on;

/// Set to run these tests on a machine without a GPU, over the software driver, to test them themselves.
const SOFTWARE: &str = "ANABRANCH_TEST_SOFTWARE";

/// The software driver, if requested.
static DRIVER: LazyLock<Option<Client>> = LazyLock::new(|| {
    std::env::var_os(SOFTWARE)?;
    let client = Client::beside_this_test().unwrap();
    client.register_kernel("add", &[Param::READ, Param::READ, Param::WRITE, Param::scalar::<u32>()], |launch| {
        // SAFETY: `graphs::add` has these parameters, and the kernel is registered with them.
        let n = unsafe { launch.scalar::<u32>(3) } as usize;
        // SAFETY: `graphs::add` is launched with three buffers of `n` elements.
        let [a, b, y] = [0, 1, 2].map(|param| unsafe { launch.slice::<f32>(param, n) });
        graphs::add_on_host(a, b, y);
    });
    client.register_kernel("wild", &[Param::WRITE], |_| ());
    Some(client)
});

/// Returns the settings of an executor on the first GPU, if there is a driver.
fn gpu(test: &str) -> Option<anabranch::exec::ExecutorBuilder> {
    LazyLock::force(&DRIVER);
    match Executor::cuda(0) {
        Ok(_) => Some(Executor::builder().workers(2).cuda(&[0]).sanitize(std::env::var_os("ANABRANCH_TEST_SANITIZED").is_some())),
        Err(error) => {
            eprintln!("{test}: skipped: {error}");
            None
        }
    }
}

fn bits(exec: &Executor, plan: &Plan) -> Vec<u32> {
    let x: Vec<f32> = (0..10_000).map(|i| i as f32 * 0.37).collect();
    block_on(exec.run(plan, inputs! { "x" => x })).unwrap().take::<Vec<u32>>("bits").unwrap().to_vec()
}

#[test]
fn random_graphs_give_bit_for_bit_what_the_host_gives() {
    let Some(settings) = gpu("random graphs") else { return };
    let (host, exec) = (Executor::inline(), settings.build().unwrap());
    for seed in 0..50 {
        let graph = graphs::random(seed, 60);
        for policy in [&Single as &dyn Policy, &Ranked::default(), &Ranked::default().max_streams(3)] {
            let plan = graph.compile_with(policy).unwrap();
            assert_eq!(bits(&exec, &plan), bits(&host, &plan), "seed {seed}, {}", policy.name());
        }
    }
}

#[test]
fn the_gpu_says_when_it_worked_on_each_node() {
    let Some(settings) = gpu("device times") else { return };
    let timeline = Arc::new(Timeline::new(100_000));
    let exec = settings.device_times(true).observer(timeline.clone()).build().unwrap();
    let plan = graphs::random(7, 200).compile_with(&Ranked::default()).unwrap();
    let begin = Instant::now();
    (0..10).for_each(|_| drop(bits(&exec, &plan)));
    let wall = begin.elapsed();
    let mut streams: BTreeMap<u32, Vec<DeviceSpan>> = BTreeMap::new();
    timeline.nodes().iter().filter_map(WorkSpan::on_device).for_each(|ran| streams.entry(ran.stream).or_default().push(ran));
    let nodes: usize = streams.values().map(Vec::len).sum();
    assert!(nodes >= 10 * 150, "{nodes}");
    for (stream, mut times) in streams {
        times.sort_by_key(|ran| ran.start);
        // Two anchors agree to some microseconds.
        let overlaps = times.windows(2).filter(|pair| pair[0].end > pair[1].start + Duration::from_micros(50));
        assert_eq!(overlaps.count(), 0, "stream {stream}: {times:?}");
        let busy: Duration = times.iter().map(|ran| ran.end - ran.start).sum();
        assert!(busy <= wall, "stream {stream}: {busy:?} of {wall:?}");
    }
}

#[test]
fn the_gpu_tells_the_host_of_the_end_of_work() {
    if gpu("self-test").is_none() {
        return;
    }
    let test = self_test(0).unwrap();
    println!("{test}");
    assert!(test.completion().is_some());
}

#[test]
fn every_way_to_hear_of_the_gpu_gives_the_same() {
    let plan = graphs::random(3, 60).compile().unwrap();
    let expected = bits(&Executor::inline(), &plan);
    for completion in [Completion::Lane, Completion::Event, Completion::HostFunction] {
        for pace in [Pace::Latency, Pace::Balanced, Pace::LowCpu] {
            let Some(settings) = gpu("completion") else { return };
            if !self_test(0).unwrap().works(completion) {
                eprintln!("{completion:?}: skipped: it does not work on this GPU");
                continue;
            }
            let exec = settings.completion(completion).pace(pace).build().unwrap();
            (0..20).for_each(|_| assert_eq!(bits(&exec, &plan), expected, "{completion:?}, {pace:?}"));
        }
    }
}

/// A picture of noise, and the built-in kernels on it.
fn pictures() -> Plan {
    let mut g = Graph::new();
    let seed = g.input::<Vec<u8>>("pixels");
    let up = g.try_kernel("up", &seed, |s: &mut DeviceStream, x: &Vec<u8>| Ok(s.upload(x)?));
    let (from, to) = (kernels::Size::new(61, 47), kernels::Size::new(23, 90));
    let small = g.try_kernel("resize", &up, move |s: &mut DeviceStream, x: &Buffer<u8>| Ok(kernels::resize(s, x, from, to)?));
    let norm = g.try_kernel("normalise", &small, move |s: &mut DeviceStream, x: &Buffer<u8>| {
        Ok(kernels::normalise(s, x, to, [0.017, 0.018, 0.016], [-2.1, -2.0, -1.8])?)
    });
    let sums = g.try_kernel("sums", &norm, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let (sum, mean) = (kernels::sum(s, x)?, kernels::mean(s, x)?);
        Ok(kernels::scale_add(s, 0.5, &sum, 3.0, &mean)?)
    });
    let down = g.try_kernel("down", (&norm, &sums), |s: &mut DeviceStream, x: &Buffer<f32>, sums: &Buffer<f32>| {
        Ok((s.download(x)?, s.download(sums)?))
    });
    let all = g.task("bits", &down, |(x, sums): &(HostBuffer<f32>, HostBuffer<f32>)| {
        x.iter().chain(sums.iter()).map(|x| x.to_bits()).collect::<Vec<u32>>()
    });
    g.output("bits", &all);
    g.compile().unwrap()
}

#[test]
fn built_in_kernels_give_the_bits_of_their_twins() {
    let Some(settings) = gpu("built-in kernels") else { return };
    if DRIVER.is_some() {
        return eprintln!("built-in kernels: skipped: the software driver runs no CUDA code");
    }
    let (exec, plan) = (settings.build().unwrap(), pictures());
    let mut dice = dice::Dice::new(5);
    let pixels: Vec<u8> = (0..61 * 47 * 3).map(|_| dice.below(256) as u8).collect();
    let run = |exec: &Executor| {
        let outputs = block_on(exec.run(&plan, inputs! { "pixels" => pixels.clone() }));
        outputs.unwrap().take::<Vec<u32>>("bits").unwrap().to_vec()
    };
    assert_eq!(run(&exec), run(&Executor::inline()));
}

#[test]
fn out_of_memory_is_an_error_and_the_next_run_is_right() {
    let Some(settings) = gpu("out of memory") else { return };
    let exec = settings.build().unwrap();
    let mut g = Graph::new();
    let big = g.try_kernel("big", (), |s: &mut DeviceStream| Ok(s.alloc::<u8>(1 << 45)?));
    g.output("big", &big);
    let error = block_on(exec.run(&g.compile_with(&Single).unwrap(), Inputs::new())).unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
    let plan = graphs::random(1, 30).compile().unwrap();
    assert_eq!(bits(&exec, &plan), bits(&Executor::inline(), &plan));
}

/// A kernel that writes to an unmapped address.
const WILD: &str = include_str!("it/cuda/wild.ptx");
/// Set in the process that loses its GPU.
const CHILD: &str = "ANABRANCH_TEST_CHILD";

#[test]
fn a_fault_ends_every_run_on_its_gpu() {
    if gpu("a fault").is_none() {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        return lose_the_gpu();
    }
    // A process cannot use a GPU that it has lost.
    let program = std::env::current_exe().unwrap();
    let child =
        Command::new(program).args(["--exact", "a_fault_ends_every_run_on_its_gpu", "--nocapture"]).env(CHILD, "1").output();
    let child = child.unwrap();
    let said = [child.stdout, child.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(child.status.success() && said.contains("lost after"), "{said}");
    println!("{said}");
}

fn lose_the_gpu() {
    let exec = gpu("a fault").unwrap().build().unwrap();
    if let Some(driver) = &*DRIVER {
        // Each of the launches below, as on a GPU.
        (1..=8).for_each(|launch| driver.device(0).fail_operation(Which::Kernel, launch, Code::ILLEGAL_ADDRESS));
    }
    // SAFETY: it breaks the contract, on purpose. The address is unmapped, so the GPU refuses the write, and
    // this process has no other use for the GPU.
    let wild = unsafe { Kernel::<(Out<f32>,)>::ptx("wild", WILD) };
    let mut g = Graph::new();
    let x = g.try_kernel("wild", (), move |s: &mut DeviceStream| {
        let mut x = s.alloc::<f32>(1)?;
        s.launch(&wild, Launch::for_len(1), (&mut x,))?;
        Ok(x)
    });
    let x = g.try_kernel("down", &x, graphs::download);
    g.output("x", &x);
    let plan = g.compile().unwrap();
    let started = Instant::now();
    let runs = futures::future::join_all((0..8).map(|_| exec.run(&plan, Inputs::new())));
    for outputs in block_on(runs) {
        let error = outputs.unwrap_err();
        assert!(error.is_device_lost(), "{error:?}");
    }
    let took = started.elapsed();
    println!("lost after {took:?}");
    assert!(took < Duration::from_secs(1), "the watchdog asks every two milliseconds");
}

/// One rank is a world: NCCL moves its memory within the GPU.
#[cfg(feature = "nccl")]
#[test]
fn one_rank_gets_the_sum_of_its_device_memory() {
    let Some(settings) = gpu("NCCL") else { return };
    let world = anabranch::comm::World::local(1).unwrap().remove(0);
    if let Err(error) = block_on(world.use_nccl(0)) {
        eprintln!("NCCL: skipped: {error}");
        return;
    }
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let up = g.try_kernel("up", &x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?));
    let sum = g.all_reduce_on_device("sum", &up, anabranch::scope::Sum);
    let all = g.all_gather_on_device("all", &sum);
    let down = g.try_kernel("down", &all, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
    let out = g.task("out", &down, |x: &HostBuffer<f32>| x.to_vec());
    g.output("out", &out);
    let (exec, plan) = (settings.build().unwrap(), g.compile_for(&world).unwrap());
    for turn in 0..100 {
        let given: Vec<f32> = (0..1000).map(|at| (turn * at) as f32).collect();
        let mut outputs = block_on(exec.run(&plan, inputs! { "x" => given.clone() })).unwrap();
        assert_eq!(*outputs.take::<Vec<f32>>("out").unwrap(), given);
    }
}
