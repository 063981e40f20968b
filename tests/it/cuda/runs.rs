//! The results of runs on a GPU: the same as on the host, bit for bit.

use anabranch::cuda::Completion;
use anabranch::policy::{CriticalPath, MinStreams, PerBackend, PerOperator, Policy, ReadySet, Single};
use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs, Plan, Ranked, inputs};

use anabranch_soft_cuda::{HostFunctions, Which};

use super::graphs::random;
use super::{Gpu, adding, download, output_by_host, upload, uploaded};
use crate::support::{block_on, plan, poll_once, until, value_of};

#[test]
fn a_sum_comes_back() {
    let gpu = Gpu::new();
    let mut g = Graph::new();
    let (a, b) = (g.input::<Vec<f32>>("a"), g.input::<Vec<f32>>("b"));
    let (a, b) = (g.try_kernel("up a", &a, upload), g.try_kernel("up b", &b, upload));
    let sum = g.try_kernel("add", (&a, &b), adding());
    output_by_host(&mut g, &sum, |x| x.to_vec());
    let plan = plan(&g);
    for workers in [1, 2] {
        let exec = gpu.executor(workers);
        for _ in 0..20 {
            let outputs = block_on(exec.run(&plan, inputs! { "a" => vec![1.0_f32, 2.0], "b" => vec![3.0_f32, 5.0] }));
            assert_eq!(*value_of::<Vec<f32>>(outputs, "out"), [4.0, 7.0]);
        }
    }
    gpu.is_clean();
}

#[test]
fn host_nodes_between_kernels_wait_for_the_device_and_the_device_for_them() {
    let gpu = Gpu::new();
    let mut g = Graph::new();
    let mut value = g.input::<Vec<f32>>("x");
    for turn in 0..5 {
        let up = g.try_kernel(format!("up {turn}"), &value, upload);
        let sum = g.try_kernel(format!("add {turn}"), (&up, &up), adding());
        let down = g.try_kernel(format!("down {turn}"), &sum, download);
        value = g.task(format!("one more {turn}"), &down, |x: &HostBuffer<f32>| x.iter().map(|x| x + 1.0).collect::<Vec<f32>>());
    }
    let slow = g.future("later", &value, async |x: std::sync::Arc<Vec<f32>>| Ok(x[0]));
    g.output("x", &slow);
    let plan = plan(&g);
    let exec = gpu.executor(1);
    assert_eq!(*value_of::<f32>(block_on(exec.run(&plan, inputs! { "x" => vec![1.0_f32; 1000] })), "x"), 63.0);
    drop(exec);
    gpu.is_clean();
}

fn bits(exec: &Executor, plan: &Plan) -> Vec<u32> {
    value_of::<Vec<u32>>(block_on(exec.run(plan, inputs! { "x" => vec![0.1_f32, 0.7, 3.3] })), "bits").to_vec()
}

#[test]
fn random_graphs_give_bit_for_bit_what_the_host_gives() {
    let policies: [&dyn Policy; 8] = [
        &Single,
        &PerBackend,
        &PerOperator,
        &ReadySet,
        &Ranked::default(),
        &Ranked::default().max_streams(3),
        &MinStreams,
        &CriticalPath::default().streams(4),
    ];
    let gpu = Gpu::new();
    let (host, one, two, calls) = (Executor::inline(), gpu.executor(1), gpu.executor(2), gpu.executor_of_calls(2));
    for seed in 0..if cfg!(debug_assertions) { 12 } else { 300 } {
        let graph = random(seed, 40);
        let expected = bits(&host, &graph.compile_with(&Single).unwrap());
        for policy in policies {
            let plan = graph.compile_with(policy).unwrap();
            // As CUDA graphs from the second time on.
            for turn in 0..3 {
                assert_eq!(bits(&one, &plan), expected, "seed {seed}, {}, turn {turn}", policy.name());
                assert_eq!(bits(&two, &plan), expected, "seed {seed}, {}, turn {turn}, two workers", policy.name());
            }
            assert_eq!(bits(&calls, &plan), expected, "seed {seed}, {}, call by call", policy.name());
        }
    }
    assert!(gpu.device.calls_of("cuGraphLaunch") > 100, "{:?}", gpu.device.calls());
    assert_eq!(gpu.device.violations(), []);
    drop((one, two, calls));
    gpu.is_clean();
}

/// Makes an executor that learns of completion in one way.
type Way = fn(&Gpu) -> Executor;

const WAYS: [(&str, Way); 5] = [
    ("cuStreamWriteValue64_v2", |gpu| gpu.executor_by(Completion::Lane)),
    ("cuStreamWriteValue32_v2", |gpu| {
        gpu.device.attribute(WORDS_64, 0);
        gpu.executor_by(Completion::Lane)
    }),
    ("cuEventQuery", |gpu| {
        gpu.device.attribute(WORDS_64, 0);
        gpu.device.attribute(WORDS, 0);
        gpu.executor(1)
    }),
    ("cuEventQuery", |gpu| gpu.executor_by(Completion::Event)),
    ("cuLaunchHostFunc", |gpu| gpu.executor_by(Completion::HostFunction)),
];

/// Attributes of devices: whether a stream can write words, and words of 64 bits.
const WORDS: u32 = 92;
const WORDS_64: u32 = 122;

#[test]
fn every_way_to_hear_of_a_device_gives_the_same() {
    let graph = random(7, 60);
    let plan = graph.compile().unwrap();
    let expected = bits(&Executor::inline(), &plan);
    for (number, (call, way)) in WAYS.into_iter().enumerate() {
        let gpu = Gpu::new();
        let exec = way(&gpu);
        (0..20).for_each(|_| assert_eq!(bits(&exec, &plan), expected, "way {number}"));
        assert!(gpu.device.calls_of(call) > 20, "way {number}: {:?}", gpu.device.calls());
        drop(exec);
        gpu.is_clean();
    }
}

#[test]
fn a_host_function_that_is_never_called_keeps_nobody_waiting() {
    let gpu = Gpu::new();
    gpu.device.host_functions(HostFunctions::Dropped);
    let plan = plan(&random(1, 20));
    let exec = gpu.executor_by(Completion::HostFunction);
    assert_eq!(bits(&exec, &plan), bits(&Executor::inline(), &plan));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn runs_side_by_side_do_not_disturb_each_other() {
    let gpu = Gpu::new();
    let exec = gpu.executor(2);
    let plans: Vec<Plan> = (0..8).map(|seed| plan(&random(seed, 30))).collect();
    let expected: Vec<_> = plans.iter().map(|plan| bits(&Executor::inline(), plan)).collect();
    let runs = plans.iter().cycle().take(64).map(|plan| exec.run(plan, inputs! { "x" => vec![0.1_f32, 0.7, 3.3] }));
    let all = block_on(futures::future::join_all(runs));
    for (outputs, expected) in all.into_iter().zip(expected.iter().cycle()) {
        assert_eq!(*value_of::<Vec<u32>>(outputs, "bits"), *expected);
    }
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_node_that_is_awaited_is_done_when_its_device_is() {
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let sum = g.try_kernel("sum", (&up, &up), adding());
    let more = g.try_kernel("more", (&sum, &sum), adding());
    let down = g.try_kernel("down", &more, download);
    g.output("down", &down);
    let exec = gpu.executor(1);
    let run = exec.run(&plan(&g), inputs! { "x" => vec![1.0_f32] });
    gpu.device.stall_operation(Which::Kernel, 1);
    let [mut sum, mut down] = ["sum", "down"].map(|node| run.node(node));
    assert!(poll_once(&mut sum).is_pending());
    // All of it is submitted.
    until(|| gpu.device.calls_of("cuMemcpyDtoHAsync_v2") == 1);
    // Also a future that is made late.
    let up = run.node("up");
    for node in [&mut sum, &mut down] {
        (0..100).for_each(|_| assert!(poll_once(node).is_pending()));
    }
    let mut more = run.node("more");
    assert!(poll_once(&mut more).is_pending());
    gpu.device.release_stall();
    [sum, down, more, up].into_iter().for_each(|node| block_on(node).unwrap());
    assert_eq!(value_of::<HostBuffer<f32>>(block_on(run), "down")[..], [4.0]);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_plan_for_more_devices_than_there_are_says_so() {
    let gpu = Gpu::new();
    let mut g = Graph::new();
    let far = g.try_kernel("far", (), |s: &mut DeviceStream| Ok(s.alloc::<f32>(1)?));
    g.node(&far).devices([3]);
    g.output("far", &far);
    let error = block_on(gpu.executor(1).run(&plan(&g), Inputs::new())).unwrap_err();
    assert_eq!(error.node(), Some("far"));
    assert!(
        format!("{error:#}").contains("of this executor: there is no device 3, counted from 0: the executor has 1"),
        "{error:#}"
    );
    gpu.is_clean();
}

/// Seen to fail with an empty download that is forgotten together with the requests of a failed node at the
/// same place.
#[test]
fn what_is_empty_is_there_whatever_fails_beside_it() {
    for warm in [0, 2] {
        let gpu = Gpu::new();
        let exec = gpu.executor(1);
        let mut g = Graph::new();
        let empty = crate::kernels::empties(&mut g);
        let fails = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = fails.clone();
        let bad = g.try_kernel("bad", (), move |s: &mut DeviceStream| {
            let mut x = s.alloc::<f32>(4)?;
            s.fill(&mut x, 1.0)?;
            if told.load(std::sync::atomic::Ordering::SeqCst) { Err("told to".into()) } else { Ok(()) }
        });
        g.order(&empty, &bad);
        // After both, so that they are submitted together.
        crate::kernels::lengths(&mut g, &empty);
        let plan = g.compile_with(&Single).unwrap();
        let is_well = || assert_eq!(*value_of::<usize>(block_on(exec.run(&plan, Inputs::new())), "lengths"), 0);
        (0..warm).for_each(|_| is_well());
        fails.store(true, std::sync::atomic::Ordering::SeqCst);
        let run = exec.run(&plan, Inputs::new());
        let lengths = run.node("lengths");
        let error = block_on(run).unwrap_err();
        assert_eq!(error.node(), Some("bad"));
        block_on(lengths).unwrap();
        drop((exec, error));
        gpu.is_clean();
    }
}
