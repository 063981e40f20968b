//! Contexts, streams, copies, kernels and events, as an ordinary program uses them.

use std::time::Duration;

use anabranch_soft_cuda::Which;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, result, sys};

use crate::support::{Bench, client, code, nothing, one};

#[test]
fn a_device_says_who_it_is() {
    let bench = Bench::new();
    assert_eq!(bench.context.name().unwrap(), format!("soft device {}", bench.device.ordinal()));
    assert_eq!(CudaContext::device_count().unwrap(), 64);
    assert_eq!(bench.context.compute_capability().unwrap(), (9, 0));
    assert!(bench.context.has_async_alloc());
    assert_eq!(bench.context.uuid().unwrap().bytes[15] as usize, bench.device.ordinal());
    assert!(bench.context.mem_get_info().unwrap().0 > 0);
}

#[test]
fn what_is_copied_in_comes_out() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap();
    let copy = stream.clone_dtod(&data).unwrap();
    assert_eq!(stream.clone_dtoh(&copy).unwrap(), [1.0, 2.0, 3.0]);
    bench.assert_clean();
}

#[test]
fn fresh_memory_is_poisoned_and_zeroed_memory_is_zero() {
    let bench = Bench::new();
    let stream = bench.stream();
    // SAFETY: any bytes are valid values.
    let fresh = unsafe { stream.alloc::<u8>(5) }.unwrap();
    assert_eq!(stream.clone_dtoh(&fresh).unwrap(), [0xCD; 5]);
    assert_eq!(stream.clone_dtoh(&stream.alloc_zeros::<u8>(5).unwrap()).unwrap(), [0; 5]);
}

#[test]
fn a_kernel_runs_with_its_parameters() {
    let bench = Bench::new();
    let stream = bench.stream();
    let mut data = stream.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap();
    let scale = bench.function("scale");
    let mut launch = stream.launch_builder(&scale);
    launch.arg(&mut data).arg(&2.0f32).arg(&3u32);
    // SAFETY: the arguments match the kernel's parameters.
    unsafe { launch.launch(LaunchConfig::for_num_elems(3)) }.unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [2.0, 4.0, 6.0]);
    bench.assert_clean();
}

#[test]
fn a_function_must_be_in_the_module_and_registered() {
    let bench = Bench::new();
    let module = bench.context.load_module(cudarc::nvrtc::Ptx::from_src(crate::support::PTX)).unwrap();
    assert_eq!(code(module.load_function("absent")), 500);
    let nobody = module.load_function("nobody").unwrap();
    // SAFETY: the kernel takes no parameters.
    assert_eq!(code(unsafe { bench.stream().launch_builder(&nobody).launch(one()) }), 98);
    assert_eq!(code(bench.context.load_module(cudarc::nvrtc::Ptx::from_src("no PTX"))), 218);
}

#[test]
fn a_function_ends_with_its_module() {
    let bench = Bench::new();
    let function = bench.function("nothing");
    let handle = function.cu_function();
    drop(function);
    let stream = bench.stream();
    // SAFETY: the test passes a stale handle, which this driver does not dereference.
    let launch = unsafe { result::launch_kernel(handle, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []) };
    assert_eq!(code(launch), 400);
}

#[test]
fn who_blocks_is_woken_at_once() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.delay_every_operation(std::time::Duration::from_micros(200));
    let times = (0..50).map(|_| {
        let begin = std::time::Instant::now();
        nothing(&bench, &stream).unwrap();
        stream.synchronize().unwrap();
        begin.elapsed()
    });
    // Without the wake the time would be 2 ms: the pause after which a waiting thread checks again.
    assert!(times.min().unwrap() < std::time::Duration::from_micros(1800));
}

#[test]
fn a_wait_orders_two_streams() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    bench.device.delay_operation(anabranch_soft_cuda::Which::Copy, 1, std::time::Duration::from_millis(20));
    let data = first.clone_htod(&[7u32; 100]).unwrap();
    second.wait(&first.record_event(None).unwrap()).unwrap();
    assert_eq!(second.clone_dtoh(&data).unwrap(), [7; 100]);
    bench.assert_clean();
}

#[test]
fn a_wait_for_an_event_never_recorded_is_none_and_a_later_record_changes_no_wait() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    let event = bench.context.new_event(None).unwrap();
    second.wait(&event).unwrap();
    assert!(event.try_is_complete().unwrap());
    event.record(&first).unwrap();
    second.wait(&event).unwrap();
    bench.device.stall_operation(anabranch_soft_cuda::Which::Any, 1);
    // SAFETY: the kernel takes no parameters.
    unsafe { first.launch_builder(&bench.function("nothing")).launch(one()) }.unwrap();
    event.record(&first).unwrap();
    assert!(!event.try_is_complete().unwrap());
    second.synchronize().unwrap();
    bench.device.release_stall();
    event.synchronize().unwrap();
}

#[test]
fn queries_say_not_ready_until_the_work_is_done() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.stall_operation(anabranch_soft_cuda::Which::Kernel, 1);
    // SAFETY: the kernel takes no parameters.
    unsafe { stream.launch_builder(&bench.function("nothing")).launch(one()) }.unwrap();
    let event = stream.record_event(None).unwrap();
    // SAFETY: the stream is live.
    let query = || unsafe { sys::cuStreamQuery(stream.cu_stream()) } as u32;
    assert_eq!((query(), event.try_is_complete()), (600, Ok(false)));
    bench.device.release_stall();
    stream.synchronize().unwrap();
    assert_eq!((query(), event.try_is_complete()), (0, Ok(true)));
}

#[test]
fn stale_handles_are_found_out() {
    let bench = Bench::new();
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // SAFETY: the test passes a stale handle, which this driver does not dereference.
    unsafe {
        result::stream::destroy(stream).unwrap();
        assert_eq!(code(result::stream::destroy(stream)), 400);
        assert_eq!(code(result::stream::synchronize(stream)), 400);
        assert_eq!(code(result::event::query(stream.cast())), 400);
    }
    drop(bench);
}

#[test]
fn everything_counts_back_to_zero() {
    let bench = Bench::new();
    let device = bench.device.clone();
    {
        let stream = bench.stream();
        let data = stream.clone_htod(&[1u8; 1000]).unwrap();
        // SAFETY: the memory is written before it is read.
        let pinned = unsafe { bench.context.alloc_pinned::<u8>(100) }.unwrap();
        let event = stream.record_event(None).unwrap();
        let function = bench.function("nothing");
        stream.synchronize().unwrap();
        let now = device.counters();
        assert_eq!((now.retains, now.streams, now.modules, now.threads), (1, 1, 1, 1));
        assert_eq!((now.allocations, now.bytes, now.pinned_allocations, now.pinned_bytes), (1, 1000, 1, 100));
        assert!(now.events >= 1 && now.executed >= 2, "{now:?}");
        drop((data, pinned, event, function));
    }
    drop(bench.context);
    let now = device.counters();
    let done = anabranch_soft_cuda::Counters { issued: 0, executed: 0, peak_bytes: 0, pageable_copies: 0, ..now };
    assert_eq!(done, anabranch_soft_cuda::Counters::default());
    assert_eq!(now.peak_bytes, 1000);
    assert_eq!(device.violations(), []);
}

#[test]
fn two_retains_are_one_context_until_the_last_release() {
    let device = client().next_device();
    let first = CudaContext::new(device.ordinal()).unwrap();
    let second = CudaContext::new(device.ordinal()).unwrap();
    assert_eq!(first.cu_ctx(), second.cu_ctx());
    drop(first);
    second.new_stream().unwrap().synchronize().unwrap();
    let old = second.cu_ctx();
    drop(second);
    let third = CudaContext::new(device.ordinal()).unwrap();
    assert_ne!(third.cu_ctx(), old);
}

#[test]
fn a_device_without_a_context_has_one_owner() {
    // Seen to fail with a check of the context only.
    let device = client().next_device();
    let clone = device.clone();
    for round in 0..200 {
        assert_ne!(client().next_device().ordinal(), device.ordinal(), "round {round}");
    }
    drop(device);
    assert_ne!(client().next_device().ordinal(), clone.ordinal());
    let ordinal = clone.ordinal();
    drop(clone);
    assert!((0..200).any(|_| client().next_device().ordinal() == ordinal));
}

#[test]
fn many_threads_can_issue_at_once() {
    let bench = Bench::new();
    let function = bench.function("nothing");
    let shared = bench.stream();
    let (threads, rounds) = (4, 500);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let own = bench.stream();
                for _ in 0..rounds {
                    // SAFETY: the kernel takes no parameters.
                    unsafe { own.launch_builder(&function).launch(one()) }.unwrap();
                    shared.join(&own).unwrap();
                    // SAFETY: the kernel takes no parameters.
                    unsafe { shared.launch_builder(&function).launch(one()) }.unwrap();
                    own.join(&shared).unwrap();
                }
                own.synchronize().unwrap();
            });
        }
    });
    shared.synchronize().unwrap();
    assert_eq!(bench.device.counters().executed, 2 * threads * rounds);
    bench.assert_clean();
}

#[test]
fn calls_are_counted_and_logged_in_order() {
    let bench = Bench::new();
    let stream = bench.stream();
    let function = bench.function("nothing");
    bench.device.reset();
    bench.device.keep_log(true);
    // SAFETY: the kernel takes no parameters.
    unsafe { result::launch_kernel(function.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []) }.unwrap();
    // SAFETY: the stream is live.
    unsafe { result::stream::synchronize(stream.cu_stream()) }.unwrap();
    assert_eq!(bench.device.log(), ["cuLaunchKernel stream=1 kernel=nothing", "cuStreamSynchronize stream=1"]);
    assert_eq!(bench.device.calls_of("cuLaunchKernel"), 1);
}

#[test]
fn an_event_with_times_tells_when_the_device_came_to_it() {
    let bench = Bench::new();
    let stream = bench.stream();
    let event = |flags| bench.context.new_event(Some(flags)).unwrap();
    let (first, last) = (event(sys::CUevent_flags::CU_EVENT_DEFAULT), event(sys::CUevent_flags::CU_EVENT_DEFAULT));
    bench.device.delay_operation(Which::Kernel, 1, Duration::from_millis(3));
    first.record(&stream).unwrap();
    nothing(&bench, &stream).unwrap();
    last.record(&stream).unwrap();
    assert!(first.elapsed_ms(&last).unwrap() >= 3.0);
    assert!(last.elapsed_ms(&first).unwrap() <= -3.0);

    bench.device.stall_operation(Which::Kernel, 1);
    nothing(&bench, &stream).unwrap();
    last.record(&stream).unwrap();
    let mut ms = 0.0;
    // SAFETY: the events are live, and the call writes one number.
    let elapsed = unsafe { sys::cuEventElapsedTime_v2(&mut ms, first.cu_event(), last.cu_event()) };
    assert_eq!(elapsed as u32, 600);
    bench.device.release_stall();
    stream.synchronize().unwrap();

    let without = event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
    without.record(&stream).unwrap();
    assert_eq!(code(first.elapsed_ms(&without)), 400);
    bench.assert_clean();
}
