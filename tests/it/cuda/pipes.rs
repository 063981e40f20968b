//! Pipelines whose nodes are kernels: several items are on the device at once. The software driver finds work
//! that reads memory without an order after the work that writes it.

use std::sync::Arc;

use anabranch::device::Launch;
use anabranch::graph::{Graph, times};
use anabranch::pipe::{Beat, Phases};
use anabranch::{BoxError, Buffer, DeviceStream, Executor, HostBuffer, Inputs, Pipeline, Ranked, Value, take};
use anabranch_soft_cuda::{Code, Which};
use futures::{StreamExt, stream};

use super::graphs::{add, adding, download, upload};
use super::{Gpu, filling};
use crate::support::{block_on, executor, plan, until};

/// Uploads an item, doubles it on the device, adds the sum of the previous items, and downloads it. The sum
/// is kept on the host, in a state after a download.
fn doubled() -> Pipeline<Vec<f32>, (f32, f32)> {
    let built = Pipeline::new("doubled", &Ranked::default(), |g: &mut Graph, item: Value<Vec<f32>>| {
        let mut total = g.state("total", || 0.0_f32);
        let up = g.try_kernel("up", &item, upload);
        let double = g.try_kernel("double", (&up, &up), adding());
        let again = g.try_kernel("again", (&double, &up), adding());
        let down = g.try_kernel("down", &again, download);
        let first = g.task("first", &down, |x: &HostBuffer<f32>| x[0]);
        let sum = g.task("sum", (&mut total, &first), |total: &mut f32, x: &f32| {
            *total += x;
            *total
        });
        (first, sum)
    });
    built.unwrap()
}

fn items(len: u16) -> impl futures::Stream<Item = Vec<f32>> + Unpin {
    stream::iter((0..len).map(|item| vec![f32::from(item); 64]))
}

/// Returns the results, or the messages of the items that fail.
fn results(exec: &Executor, pipeline: &Pipeline<Vec<f32>, (f32, f32)>, len: u16) -> Vec<Result<(f32, f32), String>> {
    block_on(exec.pipe(pipeline, items(len)).map(|result| result.map_err(|error| format!("{error:#}"))).collect())
}

/// All ways to run the pipeline.
fn ways() -> Vec<Pipeline<Vec<f32>, (f32, f32)>> {
    let mut ways = Vec::new();
    for (phases, slots, beat) in [
        (Phases::Written, 1, Beat::Elastic),
        (Phases::Written, 4, Beat::Elastic),
        (Phases::Auto { depth: 2 }, 3, Beat::Elastic),
        (Phases::Each, 6, Beat::Elastic),
        (Phases::Each, 7, Beat::Lockstep),
    ] {
        let pipeline = doubled().phases(phases).and_then(|pipeline| pipeline.in_flight(slots));
        ways.push(pipeline.and_then(|pipeline| pipeline.beat(beat)).unwrap());
    }
    ways
}

#[test]
fn kernels_give_what_they_give_on_the_host() {
    for pipeline in ways() {
        let expected = results(&executor(0), &pipeline, 40);
        assert!(expected.iter().zip(0..).all(|(result, item)| result.as_ref().unwrap().0 == 3.0 * item as f32));
        for workers in [1, 2] {
            let gpu = Gpu::new();
            for exec in [gpu.executor(workers), gpu.executor_of_calls(workers)] {
                assert_eq!(results(&exec, &pipeline, 40), expected, "{pipeline:?}");
            }
            gpu.is_clean();
        }
    }
}

#[test]
fn several_items_are_on_the_device_at_once() {
    // Seen to fail (never to end) in one phase: a phase with a state has one item at a time.
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    gpu.device.stall_operation(Which::Kernel, 1);
    let pipeline = doubled().phases(Phases::Each).and_then(|pipeline| pipeline.in_flight(4)).unwrap();
    let mut results = exec.pipe(&pipeline, items(9));
    assert!(crate::support::poll_once(&mut results.next()).is_pending());
    // The first kernel of each of four items. The first kernel is stalled.
    until(|| gpu.device.calls_of("cuLaunchKernel") + gpu.device.calls_of("cuGraphLaunch") >= 4);
    gpu.device.release_stall();
    let rest = block_on(results.map(|result| result.unwrap().0).collect::<Vec<_>>());
    assert!(rest.into_iter().eq((0..9).map(|item| 3.0 * item as f32)));
    drop(exec);
    gpu.is_clean();
}

/// Counts the kernels that are queued while the first of all is stalled. Then lets all items finish.
fn queued_behind_the_first(gpu: &Gpu, pipeline: &Pipeline<Vec<f32>, HostBuffer<f32>>, expected: usize, value: fn(u16) -> f32) {
    for exec in [gpu.executor(1), gpu.executor(2), gpu.executor_of_calls(1)] {
        let before = gpu.device.calls_of("cuLaunchKernel") + gpu.device.calls_of("cuGraphLaunch");
        let launched = || (gpu.device.calls_of("cuLaunchKernel") + gpu.device.calls_of("cuGraphLaunch") - before) as usize;
        gpu.device.stall_operation(Which::Kernel, 1);
        let mut results = exec.pipe(pipeline, items(20));
        assert!(crate::support::poll_once(&mut results.next()).is_pending());
        until(|| launched() >= expected);
        gpu.device.release_stall();
        let rest = block_on(results.map(|result| result.unwrap()[0]).collect::<Vec<_>>());
        assert!(rest.into_iter().eq((0..20).map(value)));
    }
    gpu.is_clean();
}

#[test]
fn a_loop_on_the_host_keeps_no_kernels_from_being_queued() {
    // Seen to fail (never to end) when the code of the loop's body was taken for the code of the whole.
    let pipeline = Pipeline::new("chain", &Ranked::default(), |g: &mut Graph, item: Value<Vec<f32>>| {
        let same = g.repeat("same", &item, times(2), |b, x| b.task("clone", &x, Vec::clone));
        let up = g.try_kernel("up", &same, upload);
        let double = g.try_kernel("double", (&up, &up), adding());
        let again = g.try_kernel("again", (&double, &up), adding());
        g.try_kernel("down", &again, download)
    });
    let pipeline = pipeline.unwrap().phases(Phases::Each).and_then(|pipeline| pipeline.in_flight(5)).unwrap();
    queued_behind_the_first(&Gpu::new(), &pipeline, 5 * 2, |item| 3.0 * f32::from(item));
}

#[test]
fn phases_are_queued_behind_earlier_ones_of_their_item() {
    // Seen to fail (never to end) when each phase waited for the end of the one before: then no second kernel
    // is queued. Seen to fail (memory is read before it is written) without the events between phases.
    let pipeline = Pipeline::new("chain", &Ranked::default(), |g: &mut Graph, item: Value<Vec<f32>>| {
        let up = g.try_kernel("up", &item, upload);
        let double = g.try_kernel("double", (&up, &up), adding());
        let again = g.try_kernel("again", (&double, &up), adding());
        g.try_kernel("down", &again, download)
    });
    let pipeline = pipeline.unwrap().phases(Phases::Each).and_then(|pipeline| pipeline.in_flight(5)).unwrap();
    queued_behind_the_first(&Gpu::new(), &pipeline, 5 * 2, |item| 3.0 * f32::from(item));
}

/// A sum on the device.
type Sum = Option<Arc<Buffer<f32>>>;

/// Adds the item to the sum of the previous items.
fn summing() -> impl Fn(&mut DeviceStream, &Buffer<f32>, &Sum) -> Result<Sum, BoxError> {
    let add = adding();
    move |s, x, before| {
        let sum = match before {
            Some(before) => add(s, x, before)?,
            None => {
                let new = s.alloc(x.len())?;
                let zero = filling(0.0)(s, new)?;
                add(s, x, &zero)?
            }
        };
        Ok(Some(Arc::new(sum)))
    }
}

fn download_sum(s: &mut DeviceStream, sum: &Sum) -> Result<HostBuffer<f32>, BoxError> {
    Ok(s.download(sum.as_ref().expect("it was made"))?)
}

/// Sums of all items so far, kept on the device by feedback, or in a state.
fn sums() -> [Pipeline<Vec<f32>, HostBuffer<f32>>; 2] {
    let fed = |g: &mut Graph, item: Value<Vec<f32>>| {
        let before = g.feedback("before", Sum::default);
        let up = g.try_kernel("up", &item, upload);
        let sum = g.try_kernel("sum", (&up, &*before), summing());
        g.feed(before, &sum);
        g.try_kernel("down", &sum, download_sum)
    };
    let kept = |g: &mut Graph, item: Value<Vec<f32>>| {
        let mut total = g.state("total", Sum::default);
        let (up, add) = (g.try_kernel("up", &item, upload), summing());
        let sum = g.try_kernel("sum", (&mut total, &up), move |s: &mut DeviceStream, total: &mut Sum, x: &Buffer<f32>| {
            *total = add(s, x, total)?;
            Ok(total.clone())
        });
        g.try_kernel("down", &sum, download_sum)
    };
    [Pipeline::new("fed", &Ranked::default(), fed).unwrap(), Pipeline::new("kept", &Ranked::default(), kept).unwrap()]
}

#[test]
fn a_phase_is_queued_behind_that_of_the_item_before() {
    // Seen to fail (never to end) when a phase with feedback, or a state, waited for the end of the item
    // before. Seen to fail (memory is read before it is written) when the items of such a phase are on
    // several lanes.
    for (pipeline, phases) in sums().iter().flat_map(|pipeline| [(pipeline, Phases::Written), (pipeline, Phases::Each)]) {
        let pipeline = pipeline.clone().phases(phases).and_then(|pipeline| pipeline.in_flight(4)).unwrap();
        queued_behind_the_first(&Gpu::new(), &pipeline, 4, |item| (0..=item).map(f32::from).sum());
    }
}

#[test]
fn a_fault_fails_only_items_that_were_in_flight() {
    // Seen to fail with a count of faults that is read once for all items: all later items failed.
    for pipeline in ways() {
        for operation in [1, 2, 5, 9] {
            let gpu = Gpu::new();
            let exec = gpu.executor(1);
            gpu.device.fail_operation(Which::Kernel, operation, Code::INVALID_VALUE);
            let found = results(&exec, &pipeline, 30);
            assert_eq!(found.len(), 30);
            let failed = found.iter().filter(|result| result.is_err()).count();
            assert!((1..=pipeline.max_in_flight() as usize).contains(&failed), "{pipeline:?} {operation}: {failed} failed");
            for (result, item) in found.into_iter().zip(0..) {
                match result {
                    Ok((value, _)) => assert_eq!(value, 3.0 * item as f32),
                    Err(said) => assert!(said.contains("CUDA_ERROR_INVALID_VALUE"), "{said}"),
                }
            }
            drop(exec);
            gpu.is_clean();
        }
    }
}

#[test]
fn dropping_a_pipeline_on_the_way_leaks_nothing() {
    for pipeline in ways() {
        for polls in 0..8 {
            let gpu = Gpu::new();
            let exec = gpu.executor(2);
            if polls % 2 == 1 {
                gpu.device.stall_operation(Which::Kernel, polls);
            }
            let mut results = exec.pipe(&pipeline, items(100));
            (0..polls).for_each(|_| _ = crate::support::poll_once(&mut results.next()));
            drop(results);
            gpu.device.clear_faults();
            gpu.device.release_stall();
            until(|| exec.in_limbo() == 0 && exec.in_flight() == 0);
            assert_eq!(self::results(&exec, &pipeline, 3).len(), 3);
            drop(exec);
            gpu.is_clean();
        }
    }
}

#[test]
fn a_buffer_goes_from_item_to_item_as_a_state() {
    // The state is a buffer of the device, made by the first item that has none.
    let pipeline = Pipeline::new("filled", &Ranked::default(), |g: &mut Graph, item: Value<Vec<f32>>| {
        let mut last = g.state("last", || None::<Buffer<f32>>);
        let up = g.try_kernel("up", &item, upload);
        let add = adding();
        let sum = g.try_kernel(
            "sum",
            (&mut last, take(&up)),
            move |s: &mut DeviceStream, last: &mut Option<Buffer<f32>>, x: Buffer<f32>| {
                let before = match last.take() {
                    Some(before) => before,
                    None => {
                        let new = s.alloc(x.len())?;
                        filling(0.0)(s, new)?
                    }
                };
                let sum = add(s, &before, &x)?;
                *last = Some(x);
                Ok(sum)
            },
        );
        let down = g.try_kernel("down", &sum, download);
        g.task("first", &down, |x: &HostBuffer<f32>| x[0])
    });
    let pipeline = pipeline.unwrap().in_flight(4).unwrap();
    let gpu = Gpu::new();
    let exec = gpu.executor(2);
    let found = block_on(exec.pipe(&pipeline, items(20)).map(Result::unwrap).collect::<Vec<_>>());
    assert!(found.into_iter().eq((0..20).map(|item| item as f32 + (item as f32 - 1.0).max(0.0))));
    drop(exec);
    gpu.is_clean();
}

/// The buffers that an item of the next test uses. They are made once, and reused.
type Buffers = [Buffer<f32>; 2];

fn buffers(exec: &Executor) -> Buffers {
    let (mut g, x, first) = super::uploaded("first");
    let second = g.try_kernel("second", &x, upload);
    g.output("first", &first);
    g.output("second", &second);
    let mut made = block_on(exec.run(&plan(&g), Inputs::new().with("x", vec![1.0_f32; 64]))).unwrap();
    ["first", "second"].map(|name| Arc::into_inner(made.take(name).unwrap()).unwrap())
}

#[test]
fn each_item_in_flight_has_a_cuda_graph_of_its_own() {
    // Seen to fail with one graph for all items: then launches set the addresses of other items.
    const SLOTS: u32 = 4;
    let pipeline = Pipeline::new("again", &Ranked::default(), |g: &mut Graph, item: Value<Buffers>| {
        let add = add();
        g.try_kernel("twice", take(&item), move |s: &mut DeviceStream, [mut x, mut y]: Buffers| {
            let len = x.len();
            s.launch(&add, Launch::for_len(len), (&x, &x, &mut y, len as u32))?;
            s.launch(&add, Launch::for_len(len), (&y, &y, &mut x, len as u32))?;
            Ok([x, y])
        })
    });
    let pipeline = pipeline.unwrap().in_flight(SLOTS).unwrap();
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let (free, taken) = futures::channel::mpsc::unbounded();
    (0..SLOTS).for_each(|_| free.unbounded_send(buffers(&exec)).unwrap());
    let mut results = exec.pipe(&pipeline, taken);
    for _ in 0..100 {
        let buffers = block_on(results.next()).unwrap().unwrap();
        free.unbounded_send(buffers).unwrap();
    }
    assert!(gpu.device.calls_of("cuGraphLaunch") > 90);
    assert_eq!(gpu.device.calls_of("cuGraphInstantiateWithFlags"), u64::from(SLOTS));
    assert_eq!(gpu.device.calls_of("cuGraphExecKernelNodeSetParams_v2"), 0);
    drop((results, free, exec));
    gpu.is_clean();
}
