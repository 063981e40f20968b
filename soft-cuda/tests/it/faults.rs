//! Each plannable fault, and its effects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch_soft_cuda::{Code, HostFunctions, Seen, Which};
use cudarc::driver::{CudaContext, CudaStream, result, sys};

use crate::support::{Bench, Said, client, code, nothing};

#[test]
fn the_nth_call_of_a_function_fails() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.fail_call("cuStreamSynchronize", 2, Code(999));
    assert_eq!(code(stream.synchronize()), 0);
    assert_eq!(code(stream.synchronize()), 999);
    assert_eq!(code(stream.synchronize()), 0);
}

#[test]
fn an_operation_that_fails_with_a_passing_code_is_reported_once() {
    let bench = Bench::new();
    let stream = bench.stream();
    let mut data = stream.alloc_zeros::<u8>(4).unwrap();
    bench.device.fail_operation(Which::Memset, 1, Code(701));
    stream.memset_zeros(&mut data).unwrap();
    nothing(&bench, &stream).unwrap();
    assert_eq!(code(stream.synchronize()), 701);
    assert_eq!(code(stream.synchronize()), 0);
    assert_eq!(code(bench.stream().synchronize()), 0);
}

#[test]
fn a_passing_code_is_reported_by_an_event_too() {
    let bench = Bench::new();
    let stream = bench.stream();
    let fail = || {
        bench.device.fail_operation(Which::Kernel, 1, Code(701));
        nothing(&bench, &stream).unwrap();
        stream.record_event(None).unwrap()
    };
    let event = fail();
    assert_eq!([(); 2].map(|()| code(event.synchronize())), [701, 0]);
    let event = fail();
    // SAFETY: the event is live.
    let query = || unsafe { sys::cuEventQuery(event.cu_event()) } as u32;
    // The stream fails before it reaches the event, so a query may return the code while the event is not
    // ready.
    let said = || std::iter::repeat_with(query).find(|&said| said != Code::NOT_READY.0);
    assert_eq!((said(), said(), code(stream.synchronize())), (Some(701), Some(0), 0));
}

#[test]
fn a_fatal_code_is_all_that_the_context_answers_from_then_on() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    // SAFETY: the word is pinned and live until the process ends.
    let word = unsafe { result::malloc_host(8, 0) }.unwrap().cast::<u64>();
    // SAFETY: the word is pinned and live until the process ends.
    unsafe { word.write(0) };
    bench.device.fail_operation(Which::Kernel, 1, Code::ILLEGAL_ADDRESS);
    let said = Said::new();
    nothing(&bench, &first).unwrap();
    // SAFETY: the word is live.
    let _ = unsafe { sys::cuStreamWriteValue64_v2(first.cu_stream(), word as u64, 1, 0) };
    let _ = said.launch(&first);
    assert_eq!(code(first.synchronize()), 700);
    assert_eq!(code(first.synchronize()), 700);
    // SAFETY: the stream is live.
    assert_eq!(unsafe { sys::cuStreamQuery(second.cu_stream()) } as u32, 700);
    assert_eq!(code(nothing(&bench, &second)), 700);
    assert_eq!(code(bench.context.new_event(None)), 700);
    assert_eq!(code(CudaContext::new(bench.device.ordinal())), 700);
    assert_eq!(bench.device.counters().executed, 0);
    // SAFETY: the word is pinned and live until the process ends.
    assert_eq!(unsafe { word.read_volatile() }, 0);
    assert!(said.0.try_recv().is_err());
}

#[test]
fn what_a_dead_context_is_given_back_is_gone() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.alloc_zeros::<u8>(10).unwrap();
    let event = stream.record_event(None).unwrap();
    bench.device.fail_operation(Which::Kernel, 1, Code::LAUNCH_FAILED);
    nothing(&bench, &stream).unwrap();
    assert_eq!(code(stream.synchronize()), 719);
    drop((event, data));
    // SAFETY: the stream is live, and not used later.
    assert_eq!(code(unsafe { result::stream::destroy(stream.cu_stream()) }), 719);
    let now = bench.device.counters();
    assert_eq!((now.retains, now.streams, now.events, now.allocations, now.bytes), (1, 0, 0, 0, 0));
    std::mem::forget(stream);
    // A forgotten stream keeps cudarc's context, so the test makes the last release.
    // SAFETY: no code uses the context later.
    assert_eq!(code(unsafe { result::primary_ctx::release(bench.device.ordinal() as i32) }), 0);
}

#[test]
fn a_context_made_after_the_last_release_of_a_dead_one_lives() {
    let bench = Bench::new();
    let device = bench.device.clone();
    device.fail_operation(Which::Kernel, 1, Code::LAUNCH_FAILED);
    let stream = bench.stream();
    nothing(&bench, &stream).unwrap();
    assert_eq!(code(stream.synchronize()), 719);
    drop((stream, bench));
    assert_eq!(device.counters().retains, 0);
    let context = CudaContext::new(device.ordinal()).unwrap();
    context.new_stream().unwrap().synchronize().unwrap();
    assert_eq!(device.violations(), []);
}

#[test]
fn a_panic_in_a_kernel_is_a_failed_launch() {
    let bench = Bench::new();
    let stream = bench.stream();
    let function = bench.function("panics");
    // SAFETY: the kernel takes no parameters.
    unsafe { stream.launch_builder(&function).launch(crate::support::one()) }.unwrap();
    assert_eq!(code(stream.synchronize()), 719);
}

#[test]
fn an_operation_is_delayed() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.delay_operation(Which::Kernel, 2, Duration::from_millis(30));
    let begin = Instant::now();
    nothing(&bench, &stream).unwrap();
    nothing(&bench, &stream).unwrap();
    stream.synchronize().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(30));
}

#[test]
fn every_operation_is_delayed_until_faults_are_cleared() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.delay_every_operation(Duration::from_millis(10));
    let begin = Instant::now();
    nothing(&bench, &stream).unwrap();
    nothing(&bench, &stream).unwrap();
    stream.synchronize().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(20));
    bench.device.clear_faults();
    bench.device.delay_every_operation(Duration::ZERO);
    nothing(&bench, &stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_stalled_stream_holds_up_those_who_wait_for_it_and_nobody_else() {
    let bench = Bench::new();
    let (stalled, waiting, other) = (bench.stream(), bench.stream(), bench.stream());
    bench.device.stall_operation(Which::Kernel, 1);
    nothing(&bench, &stalled).unwrap();
    waiting.join(&stalled).unwrap();
    nothing(&bench, &waiting).unwrap();
    nothing(&bench, &other).unwrap();
    other.synchronize().unwrap();
    // SAFETY: the streams are live.
    let query = |stream: &CudaStream| unsafe { sys::cuStreamQuery(stream.cu_stream()) } as u32;
    assert_eq!((query(&stalled), query(&waiting), query(&other)), (600, 600, 0));
    while bench.device.counters().stalled == 0 {
        std::thread::yield_now();
    }
    bench.device.release_stall();
    waiting.synchronize().unwrap();
    assert_eq!(bench.device.counters().stalled, 0);
    assert_eq!(bench.device.counters().executed, 3);
}

#[test]
fn a_stall_released_before_the_stream_gets_there_is_over() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.delay_operation(Which::Any, 1, Duration::from_millis(10));
    bench.device.stall_operation(Which::Any, 2);
    nothing(&bench, &stream).unwrap();
    nothing(&bench, &stream).unwrap();
    bench.device.release_stall();
    stream.synchronize().unwrap();
}

#[test]
fn the_last_release_ends_a_stalled_stream_and_those_behind_it() {
    let bench = Bench::new();
    let device = bench.device.clone();
    let (stalled, waiting) = (bench.stream(), bench.stream());
    device.stall_operation(Which::Kernel, 1);
    let said = Said::new();
    nothing(&bench, &stalled).unwrap();
    said.launch(&stalled).unwrap();
    waiting.join(&stalled).unwrap();
    said.launch(&waiting).unwrap();
    drop((stalled, waiting, bench));
    let now = device.counters();
    assert_eq!((now.retains, now.threads, now.executed), (0, 0, 0));
    assert!(said.0.try_recv().is_err(), "what stood behind the stall is not done");
}

#[test]
fn the_last_release_ends_a_stalled_stream_that_nobody_waits_for() {
    let bench = Bench::new();
    let device = bench.device.clone();
    let stream = bench.stream();
    device.stall_operation(Which::Kernel, 1);
    nothing(&bench, &stream).unwrap();
    drop((stream, bench));
    assert_eq!((device.counters().threads, device.counters().executed), (0, 0));
}

#[test]
fn the_last_release_ends_a_wait_for_another_devices_stalled_stream() {
    let (stalled, waiting) = (Bench::new(), Bench::new());
    let (here, there) = (stalled.stream(), waiting.stream());
    stalled.device.stall_operation(Which::Kernel, 1);
    nothing(&stalled, &here).unwrap();
    let event = here.record_event(None).unwrap();
    there.wait(&event).unwrap();
    nothing(&waiting, &there).unwrap();
    let device = waiting.device.clone();
    drop((there, waiting));
    assert_eq!((device.counters().threads, device.counters().executed), (0, 0));
    stalled.device.release_stall();
}

#[test]
fn a_destroyed_stream_still_does_what_was_issued() {
    let bench = Bench::new();
    let stream = bench.stream();
    let said = Said::new();
    bench.device.delay_operation(Which::Any, 1, Duration::from_millis(10));
    nothing(&bench, &stream).unwrap();
    said.launch(&stream).unwrap();
    drop(stream);
    said.0.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_fatal_error_ends_a_stall_and_those_who_block_on_it() {
    let bench = Bench::new();
    let (stalled, failing) = (bench.stream(), bench.stream());
    let data = stalled.alloc_zeros::<u8>(1).unwrap();
    stalled.synchronize().unwrap();
    bench.device.stall_operation(Which::Kernel, 1);
    bench.device.fail_operation(Which::Memset, 1, Code::ILLEGAL_ADDRESS);
    nothing(&bench, &stalled).unwrap();
    // A copy to pageable memory returns only after the stream has reached it.
    let blocked = std::thread::spawn(move || code(stalled.clone_dtoh(&data)));
    let _ = failing.alloc_zeros::<u8>(1);
    assert_eq!(blocked.join().unwrap(), 700);
}

#[test]
fn the_nth_allocation_and_one_over_the_limit_fail() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.device.fail_allocation(2);
    let _first = stream.alloc_zeros::<u8>(1).unwrap();
    assert_eq!(code(stream.alloc_zeros::<u8>(1)), 2);
    let _third = stream.alloc_zeros::<u8>(1).unwrap();
    bench.device.memory_limit(100);
    assert_eq!(code(stream.alloc_zeros::<u8>(99)), 2);
    let most = stream.alloc_zeros::<u8>(98).unwrap();
    drop(most);
    stream.alloc_zeros::<u8>(98).unwrap();
    assert_eq!(bench.context.mem_get_info().unwrap().0, 98);
}

#[test]
fn host_functions_are_called_dropped_or_late() {
    let bench = Bench::new();
    let stream = bench.stream();
    let said = Said::new();
    said.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(said.0.try_recv().is_ok());
    bench.device.host_functions(HostFunctions::Dropped);
    said.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(said.0.try_recv().is_err());
    bench.device.host_functions(HostFunctions::LateUs(20_000));
    let begin = Instant::now();
    said.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(said.0.try_recv().is_ok() && begin.elapsed() >= Duration::from_millis(20));
}

/// Waits for the end of the stream, by queries instead of a wait.
fn query_until_done(stream: &CudaStream) {
    // SAFETY: the stream is live.
    while unsafe { sys::cuStreamQuery(stream.cu_stream()) } as u32 == Code::NOT_READY.0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_written_value_is_there_at_once_after_a_wait_or_never() {
    let bench = Bench::new();
    let stream = bench.stream();
    // SAFETY: the result is checked, and the memory is freed once, below.
    let pinned = unsafe { result::malloc_host(8, 0) }.unwrap();
    // SAFETY: the memory has eight bytes, and is freed at the end.
    let word = unsafe { AtomicU64::from_ptr(pinned.cast()) };
    word.store(0, Ordering::Relaxed);
    let write = |seen, value| {
        bench.device.written_values(seen);
        // SAFETY: the word is live.
        assert_eq!(unsafe { sys::cuStreamWriteValue64_v2(stream.cu_stream(), pinned as u64, value, 0) } as u32, 0);
        query_until_done(&stream);
        let before = word.load(Ordering::Acquire);
        stream.synchronize().unwrap();
        (before, word.load(Ordering::Acquire))
    };
    assert_eq!(write(Seen::AfterSync, 1), (0, 1));
    assert_eq!(write(Seen::Never, 2), (1, 1));
    assert_eq!(write(Seen::AtOnce, 3), (3, 3));
    // SAFETY: the stream has ended, and the word is not used again.
    unsafe { result::free_host(pinned) }.unwrap();
    bench.assert_clean();
}

#[test]
fn an_event_is_complete_at_once_after_a_wait_or_never() {
    let bench = Bench::new();
    let stream = bench.stream();
    let query = |seen| {
        bench.device.event_queries(seen);
        nothing(&bench, &stream).unwrap();
        let event = stream.record_event(None).unwrap();
        query_until_done(&stream);
        // SAFETY: the event is live.
        let query = || unsafe { sys::cuEventQuery(event.cu_event()) } as u32;
        let before = query();
        stream.synchronize().unwrap();
        (before, query())
    };
    assert_eq!(query(Seen::AfterSync), (600, 0));
    assert_eq!(query(Seen::Never), (600, 600));
    assert_eq!(query(Seen::AtOnce), (0, 0));
    bench.assert_clean();
}

#[test]
fn serialised_host_functions_share_one_thread() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    let said = Said::new();
    let threads = |said: &Said| {
        said.launch(&first).unwrap();
        said.launch(&second).unwrap();
        bench.context.synchronize().unwrap();
        (said.0.recv().unwrap(), said.0.recv().unwrap())
    };
    let (left, right) = threads(&said);
    assert_ne!(left, right);
    bench.device.host_functions(HostFunctions::Serialised);
    let (left, right) = threads(&said);
    assert_eq!(left, right);
}

#[test]
fn a_call_from_a_host_function_is_refused_and_reported() {
    unsafe extern "C" fn query(answer: *mut std::ffi::c_void) {
        let mut free = [0usize; 2];
        // SAFETY: `free` has room for both numbers.
        let [free, total] = &mut free;
        // SAFETY: both pointers are valid for the call.
        let code = unsafe { sys::cuMemGetInfo_v2(free, total) } as u32;
        let stream = answer.cast::<(sys::CUstream, u32)>();
        // SAFETY: the test passes a pointer to such a pair, which lives until the stream was synchronised.
        let pair = unsafe { &mut *stream };
        // SAFETY: the stream is live.
        pair.1 = unsafe { sys::cuStreamQuery(pair.0) } as u32;
        assert_ne!(code, 0, "no context is current on the stream's thread");
    }
    let bench = Bench::new();
    let stream = bench.stream();
    let mut pair = (stream.cu_stream(), 0u32);
    // SAFETY: the pair lives until the stream was synchronised.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), query, (&raw mut pair).cast()) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(pair.1, 800);
    assert_eq!(bench.kinds(), [anabranch_soft_cuda::ViolationKind::CallInCallback]);
}

#[test]
fn an_attribute_can_be_denied() {
    let device = client().next_device();
    device.attribute(115, 0);
    device.attribute(122, 0);
    let context = CudaContext::new(device.ordinal()).unwrap();
    assert!(!context.has_async_alloc());
    let stream = context.new_stream().unwrap();
    let data = stream.alloc_zeros::<u64>(1).unwrap();
    assert_eq!((device.calls_of("cuMemAlloc_v2"), device.calls_of("cuMemAllocAsync")), (1, 0));
    // SAFETY: the driver refuses the call and does not use the address.
    assert_eq!(unsafe { sys::cuStreamWriteValue64_v2(stream.cu_stream(), 8, 1, 0) } as u32, 801);
    drop(data);
    assert_eq!(device.violations(), []);
}

#[test]
fn a_device_can_be_absent() {
    let device = client().next_device();
    device.absent(true);
    assert_eq!(code(CudaContext::new(device.ordinal())), 101);
    device.reset();
    CudaContext::new(device.ordinal()).unwrap();
    assert_eq!(code(CudaContext::new(64)), 101);
}
