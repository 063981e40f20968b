//! Memory: permitted accesses, and leaks.

use anabranch_soft_cuda::ViolationKind::{DoubleFree, Leak, OutOfBounds, Overrun, UseAfterFree};
use anabranch_soft_cuda::Which;
use cudarc::driver::{DevicePtr, LaunchConfig, PushKernelArg, result, sys};

use crate::support::{Bench, client, code, one};

#[test]
fn a_use_after_free_fails_and_is_named() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.alloc_zeros::<u8>(100).unwrap();
    let address = data.device_ptr(&stream).0;
    drop(data);
    // SAFETY: the driver keeps freed memory mapped, and refuses the access.
    unsafe { result::memset_d8_async(address, 1, 10, stream.cu_stream()) }.unwrap();
    let violation = bench.violation();
    assert_eq!(violation.kind, UseAfterFree);
    assert!(violation.text.contains("memset") && violation.text.contains("freed by free"), "{}", violation.text);
    assert_eq!(code(stream.synchronize()), 700);
    assert_eq!(code(bench.context.synchronize()), 700);
}

#[test]
fn freed_memory_is_poisoned() {
    let bench = Bench::new();
    let stream = bench.stream();
    // SAFETY: the host reads the memory only after the driver has finished with it, and the memory is kept in
    // quarantine.
    unsafe {
        let address = result::malloc_sync(16).unwrap();
        result::memset_d8_async(address, 7, 16, stream.cu_stream()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!((address as *const u8).read(), 7);
        result::free_sync(address).unwrap();
        assert_eq!((address as *const u8).read(), 0xDD);
    }
    bench.assert_clean();
}

#[test]
fn a_copy_beyond_an_allocation_is_out_of_bounds() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.alloc_zeros::<u8>(100).unwrap();
    let address = data.device_ptr(&stream).0;
    // SAFETY: the driver refuses the access.
    unsafe { result::memset_d8_async(address + 50, 1, 51, stream.cu_stream()) }.unwrap();
    let violation = bench.violation();
    assert_eq!(violation.kind, OutOfBounds);
    assert!(violation.text.contains("1 bytes beyond an allocation of 100"), "{}", violation.text);
    assert_eq!(code(stream.synchronize()), 700);
}

#[test]
fn a_kernel_that_is_given_no_allocation_fails() {
    let bench = Bench::new();
    let stream = bench.stream();
    let function = bench.function("overruns");
    let mut launch = stream.launch_builder(&function);
    launch.arg(&0x1234_0000u64).arg(&1u32);
    // SAFETY: the driver refuses the access.
    unsafe { launch.launch(one()) }.unwrap();
    assert_eq!(bench.kinds(), [OutOfBounds]);
    assert_eq!(code(stream.synchronize()), 700);
}

#[test]
fn a_kernel_may_be_given_an_empty_piece_or_nothing() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.alloc_zeros::<f32>(4).unwrap();
    let end = data.device_ptr(&stream).0 + 16;
    let function = bench.function("scale");
    for address in [end, 0] {
        let mut launch = stream.launch_builder(&function);
        launch.arg(&address).arg(&1.0f32).arg(&0u32);
        // SAFETY: the kernel accesses no element.
        unsafe { launch.launch(one()) }.unwrap();
    }
    stream.synchronize().unwrap();
    bench.assert_clean();
}

#[test]
fn a_write_behind_an_allocation_is_found_when_it_is_freed() {
    let bench = Bench::new();
    let stream = bench.stream();
    let mut data = stream.alloc_zeros::<u8>(100).unwrap();
    let function = bench.function("overruns");
    let mut launch = stream.launch_builder(&function);
    launch.arg(&mut data).arg(&100u32);
    // SAFETY: the kernel writes to the driver's guard, which is mapped.
    unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.unwrap();
    drop(data);
    stream.synchronize().unwrap();
    assert_eq!(bench.kinds(), [Overrun]);
}

#[test]
fn a_double_free_is_refused() {
    let bench = Bench::new();
    let stream = bench.stream();
    // SAFETY: the driver refuses the wrong calls.
    unsafe {
        let address = result::malloc_async(stream.cu_stream(), 16).unwrap();
        result::free_async(address, stream.cu_stream()).unwrap();
        assert_eq!(code(result::free_async(address, stream.cu_stream())), 1);
        stream.synchronize().unwrap();
        assert_eq!(code(result::free_sync(address)), 1);
        assert_eq!(code(result::free_sync(address + 1)), 1);
    }
    assert_eq!(bench.kinds(), [DoubleFree; 3]);
}

#[test]
fn what_was_never_freed_is_a_leak() {
    let bench = Bench::new();
    let device = bench.device.clone();
    // SAFETY: the memory is not accessed. The test leaks it on purpose.
    unsafe { result::malloc_sync(24) }.unwrap();
    // SAFETY: the memory is not accessed. The test leaks it on purpose.
    unsafe { result::malloc_host(8, 0) }.unwrap();
    drop(bench);
    let texts: Vec<String> = device.violations().into_iter().map(|violation| violation.text).collect();
    assert_eq!(device.violations().iter().map(|violation| violation.kind).collect::<Vec<_>>(), [Leak, Leak]);
    assert!(
        texts.iter().any(|text| text.contains("24 bytes of Device"))
            && texts.iter().any(|text| text.contains("8 bytes of Pinned"))
    );
    assert_eq!(device.counters().allocations, 0);
}

#[test]
fn pinned_memory_is_mapped_and_written_by_streams() {
    let bench = Bench::new();
    let stream = bench.stream();
    // SAFETY: after the word is written, it is only read by atomic loads.
    unsafe {
        let word = result::malloc_host(16, sys::CU_MEMHOSTALLOC_DEVICEMAP).unwrap().cast::<u64>();
        let mut address = 0;
        assert_eq!(sys::cuMemHostGetDevicePointer_v2(&mut address, word.cast(), 0) as u32, 0);
        assert_eq!(address, word as u64);
        assert_eq!(sys::cuStreamWriteValue64_v2(stream.cu_stream(), address, 1 << 40, 0) as u32, 0);
        assert_eq!(sys::cuStreamWriteValue32_v2(stream.cu_stream(), address + 8, 5, 0) as u32, 0);
        assert_eq!(sys::cuStreamWriteValue64_v2(stream.cu_stream(), address + 4, 5, 0) as u32, 1);
        stream.synchronize().unwrap();
        assert_eq!((word.read(), word.add(1).cast::<u32>().read()), (1 << 40, 5));
        result::free_host(word.cast()).unwrap();
    }
    bench.assert_clean();
}

#[test]
fn a_pageable_source_is_the_callers_again_at_once() {
    let bench = Bench::new();
    let stream = bench.stream();
    let mut data = stream.alloc_zeros::<u32>(4).unwrap();
    bench.device.stall_operation(Which::Copy, 1);
    let mut source = vec![1u32; 4];
    stream.memcpy_htod(&source, &mut data).unwrap();
    source.fill(9);
    bench.device.release_stall();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [1; 4]);
    assert_eq!(bench.device.counters().pageable_copies, 2);
}

#[test]
fn a_pinned_source_is_read_when_the_stream_gets_there() {
    let bench = Bench::new();
    let stream = bench.stream();
    let mut data = stream.alloc_zeros::<u8>(4).unwrap();
    // SAFETY: the memory is pinned, live, and written while the stream is stopped.
    unsafe {
        let source = result::malloc_host(4, 0).unwrap().cast::<u8>();
        source.write_bytes(1, 4);
        bench.device.stall_operation(Which::Copy, 1);
        let slice = std::slice::from_raw_parts(source, 4);
        stream.memcpy_htod(slice, &mut data).unwrap();
        source.write_bytes(2, 4);
        bench.device.release_stall();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [2; 4]);
        result::free_host(source.cast()).unwrap();
    }
    bench.assert_clean();
}

#[test]
fn the_host_races_with_a_stream_over_pinned_memory() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.alloc_zeros::<u8>(4).unwrap();
    // SAFETY: the memory is pinned and live.
    unsafe {
        let into = result::malloc_host(4, 0).unwrap();
        let slice = std::slice::from_raw_parts_mut(into.cast::<u8>(), 4);
        stream.memcpy_dtoh(&data, slice).unwrap();
        bench.device.host_reads(into, 4);
        let violation = bench.violation();
        assert!(violation.text.contains("copy to the host") && violation.text.contains("host)"), "{}", violation.text);
        bench.device.reset();
        stream.synchronize().unwrap();
        bench.device.host_reads(into, 4);
        bench.device.host_writes(into, 4);
        result::free_host(into).unwrap();
    }
    bench.assert_clean();
}

#[test]
fn a_pageable_copy_out_returns_when_the_bytes_are_there() {
    let bench = Bench::new();
    let stream = bench.stream();
    let data = stream.clone_htod(&[5u8; 3]).unwrap();
    bench.device.delay_operation(Which::Copy, 1, std::time::Duration::from_millis(10));
    let mut bytes = [0u8; 3];
    stream.memcpy_dtoh(&data, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 3]);
    assert_eq!(client().device(bench.device.ordinal() as u32).counters().pageable_copies, 2);
}
