//! Work that is ordered, and work that is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anabranch_soft_cuda::ViolationKind;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg, result, sys};

use crate::support::{Bench, Said, one, scale, scale_some};

/// Two streams, and memory that both may use.
struct Pair {
    bench: Bench,
    first: Arc<CudaStream>,
    second: Arc<CudaStream>,
    data: CudaSlice<f32>,
}

impl Pair {
    fn new() -> Self {
        let bench = Bench::new();
        let (first, second) = (bench.stream(), bench.stream());
        let data = first.clone_htod(&[1.0f32; 4]).unwrap();
        first.synchronize().unwrap();
        Self { bench, first, second, data }
    }
}

#[test]
fn two_writers_on_two_streams_race() {
    let mut pair = Pair::new();
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.second.memset_zeros(&mut pair.data).unwrap();
    let violation = pair.bench.violation();
    assert_eq!(violation.kind, ViolationKind::Race);
    let (device, text) = (pair.bench.device.ordinal(), violation.text);
    let expected =
        format!("kernel `scale` (device {device}, stream 1, operation 3) and memset (device {device}, stream 2, operation 4)");
    assert_eq!(text, format!("{expected} have no order between them"));
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn kernels_on_parts_of_an_allocation_race_where_these_overlap() {
    let mut pair = Pair::new();
    scale_some(&pair.bench, &pair.first, &mut pair.data.slice_mut(0..2));
    scale_some(&pair.bench, &pair.second, &mut pair.data.slice_mut(2..4));
    pair.bench.assert_clean();
    scale_some(&pair.bench, &pair.second, &mut pair.data.slice_mut(1..3));
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn a_wait_between_two_writers_is_an_order() {
    let mut pair = Pair::new();
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.second.join(&pair.first).unwrap();
    pair.second.memset_zeros(&mut pair.data).unwrap();
    pair.first.join(&pair.second).unwrap();
    pair.bench.assert_clean();
}

#[test]
fn a_wait_orders_only_what_was_recorded() {
    let mut pair = Pair::new();
    let event = pair.first.record_event(None).unwrap();
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.second.wait(&event).unwrap();
    pair.second.memset_zeros(&mut pair.data).unwrap();
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn an_order_goes_through_a_third_stream() {
    let mut pair = Pair::new();
    let third = pair.bench.stream();
    scale(&pair.bench, &pair.first, &mut pair.data);
    third.join(&pair.first).unwrap();
    pair.second.join(&third).unwrap();
    pair.second.memset_zeros(&mut pair.data).unwrap();
    pair.first.join(&pair.second).unwrap();
    pair.bench.assert_clean();
}

#[test]
fn readers_do_not_race_with_each_other_but_with_the_next_writer() {
    let mut pair = Pair::new();
    let copies = (pair.first.clone_dtod(&pair.data).unwrap(), pair.second.clone_dtod(&pair.data).unwrap());
    pair.bench.assert_clean();
    scale(&pair.bench, &pair.first, &mut pair.data);
    let violation = pair.bench.violation();
    assert!(violation.text.contains("copy on the device") && violation.text.contains("stream 2"), "{}", violation.text);
    drop(copies);
}

#[test]
fn a_write_hides_no_earlier_reader() {
    // Reads on both streams, then a write that is ordered after only one of them: the other must be kept.
    let mut pair = Pair::new();
    let third = pair.bench.stream();
    let _copy = pair.second.clone_dtod(&pair.data).unwrap();
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.bench.device.reset();
    third.join(&pair.first).unwrap();
    scale(&pair.bench, &third, &mut pair.data);
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&third).unwrap();
}

#[test]
fn a_read_hides_no_earlier_write() {
    let mut pair = Pair::new();
    let third = pair.bench.stream();
    scale(&pair.bench, &pair.first, &mut pair.data);
    third.join(&pair.first).unwrap();
    let _ordered = third.clone_dtod(&pair.data).unwrap();
    pair.bench.assert_clean();
    let _unordered = pair.second.clone_dtod(&pair.data).unwrap();
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&third).unwrap();
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn many_readers_of_many_pieces_are_all_remembered() {
    let mut pair = Pair::new();
    let bytes = pair.second.alloc_zeros::<u8>(64).unwrap();
    let mut into = pair.first.alloc_zeros::<u8>(64).unwrap();
    pair.bench.context.synchronize().unwrap();
    for at in 0..64 {
        pair.second.memcpy_dtod(&bytes.slice(at..at + 1), &mut into.slice_mut(at..at + 1)).unwrap();
    }
    pair.bench.assert_clean();
    pair.first.memset_zeros(&mut into.slice_mut(5..6)).unwrap();
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&pair.second).unwrap();
    scale(&pair.bench, &pair.first, &mut pair.data);
}

#[test]
fn a_host_function_that_was_called_tells_the_host() {
    let mut pair = Pair::new();
    let said = Said::new();
    scale(&pair.bench, &pair.first, &mut pair.data);
    said.launch(&pair.first).unwrap();
    said.0.recv().unwrap();
    pair.second.memset_zeros(&mut pair.data).unwrap();
    pair.first.join(&pair.second).unwrap();
    pair.bench.assert_clean();
}

#[test]
fn a_written_word_tells_the_host_unless_it_has_to_be_told_that_it_saw() {
    let mut pair = Pair::new();
    // SAFETY: the word is pinned, and freed at the end.
    let word = unsafe { result::malloc_host(8, 0) }.unwrap().cast::<u64>();
    // SAFETY: the word is pinned, and freed at the end.
    let seen = unsafe { std::sync::atomic::AtomicU64::from_ptr(word) };
    seen.store(0, Ordering::Relaxed);
    let mut hand_over = |value: u64, host_saw: bool| {
        scale(&pair.bench, &pair.first, &mut pair.data);
        // SAFETY: the word is live.
        unsafe { sys::cuStreamWriteValue64_v2(pair.first.cu_stream(), word as u64, value, 0) };
        while seen.load(Ordering::Acquire) < value {
            std::thread::yield_now();
        }
        if host_saw {
            pair.bench.device.host_saw(word.cast());
        }
        pair.second.memset_zeros(&mut pair.data).unwrap();
        let kinds = pair.bench.kinds();
        pair.first.join(&pair.second).unwrap();
        kinds
    };
    assert_eq!(hand_over(1, false), []);
    pair.bench.device.words_inform_host(false);
    assert_eq!(hand_over(2, true), []);
    assert_eq!(hand_over(3, false), [ViolationKind::Race]);
    pair.first.synchronize().unwrap();
    // SAFETY: no code uses the word any more.
    unsafe { result::free_host(word.cast()) }.unwrap();
}

#[test]
fn a_synchronisation_tells_the_host_and_the_host_tells_the_next_call() {
    let mut pair = Pair::new();
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.first.synchronize().unwrap();
    pair.second.memset_zeros(&mut pair.data).unwrap();
    let event = pair.second.record_event(None).unwrap();
    while !event.try_is_complete().unwrap() {
        std::thread::yield_now();
    }
    scale(&pair.bench, &pair.first, &mut pair.data);
    pair.bench.assert_clean();
}

#[test]
fn pieces_that_do_not_overlap_do_not_race_in_copies() {
    let mut pair = Pair::new();
    let (mut left, mut right) = pair.data.split_at_mut(2);
    pair.first.memset_zeros(&mut left).unwrap();
    pair.second.memset_zeros(&mut right).unwrap();
    pair.bench.assert_clean();
    pair.second.memset_zeros(&mut left).unwrap();
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn memory_allocated_in_stream_order_is_not_there_for_others_before() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    // SAFETY: the memory is written before it is read.
    let mut early = unsafe { first.alloc::<f32>(4) }.unwrap();
    second.memset_zeros(&mut early).unwrap();
    let violation = bench.violation();
    assert!(violation.text.starts_with("allocation") && violation.text.contains("memset"), "{}", violation.text);
    bench.device.reset();
    // SAFETY: the memory is written before it is read.
    let mut waited = unsafe { first.alloc::<f32>(4) }.unwrap();
    second.join(&first).unwrap();
    second.memset_zeros(&mut waited).unwrap();
    first.join(&second).unwrap();
    bench.assert_clean();
}

#[test]
fn a_free_is_a_write() {
    let pair = Pair::new();
    let copy = pair.second.clone_dtod(&pair.data).unwrap();
    drop(pair.data);
    let violation = pair.bench.violation();
    assert_eq!(violation.kind, ViolationKind::Race);
    assert!(violation.text.contains("and free"), "{}", violation.text);
    drop(copy);
}

#[test]
fn a_kernel_touches_the_whole_allocation_of_its_pointer() {
    let mut pair = Pair::new();
    let function = pair.bench.function("scale");
    let (mut left, mut right) = pair.data.split_at_mut(2);
    let mut launch = pair.first.launch_builder(&function);
    launch.arg(&mut left).arg(&2.0f32).arg(&2u32);
    // SAFETY: the arguments match the kernel's parameters.
    unsafe { launch.launch(LaunchConfig::for_num_elems(2)) }.unwrap();
    pair.second.memset_zeros(&mut right).unwrap();
    assert_eq!(pair.bench.kinds(), [ViolationKind::Race]);
    pair.first.join(&pair.second).unwrap();
}

#[test]
fn nothing_is_said_where_races_are_not_tracked() {
    let bench = Bench::new();
    bench.device.track_races(false);
    let (first, second) = (bench.stream(), bench.stream());
    let mut data = first.alloc_zeros::<f32>(4).unwrap();
    second.memset_zeros(&mut data).unwrap();
    // SAFETY: the kernel takes no parameters.
    unsafe { second.launch_builder(&bench.function("nothing")).launch(one()) }.unwrap();
    first.join(&second).unwrap();
    bench.assert_clean();
}

#[test]
fn two_devices_that_meet_share_what_the_host_has_seen() {
    let (left, right) = (Bench::new(), Bench::new());
    let (here, there) = (left.stream(), right.stream());
    let from = here.clone_htod(&[3u32; 8]).unwrap();
    let mut into = there.alloc_zeros::<u32>(8).unwrap();
    here.synchronize().unwrap();
    there.memcpy_dtod(&from, &mut into).unwrap();
    assert_eq!(there.clone_dtoh(&into).unwrap(), [3; 8]);
    there.synchronize().unwrap();
    drop(from);
    left.assert_clean();
    right.assert_clean();
}

#[test]
fn memory_of_another_device_is_ordered_by_what_the_host_saw_there() {
    let (left, right) = (Bench::new(), Bench::new());
    let (here, there) = (left.stream(), right.stream());
    let from = here.clone_htod(&[3u32; 8]).unwrap();
    let mut into = there.alloc_zeros::<u32>(8).unwrap();
    here.synchronize().unwrap();
    let (from_address, into_address) = (from.device_ptr(&here).0, into.device_ptr_mut(&there).0);
    // SAFETY: both buffers are live, and all devices share one address space.
    unsafe { result::memcpy_dtod_async(into_address, from_address, 32, there.cu_stream()) }.unwrap();
    right.assert_clean();
    there.synchronize().unwrap();
}

#[test]
fn a_copy_between_devices_without_an_order_races() {
    let (left, right) = (Bench::new(), Bench::new());
    let (here, there) = (left.stream(), right.stream());
    let mut into = there.alloc_zeros::<u32>(8).unwrap();
    let from = here.clone_htod(&[3u32; 8]).unwrap();
    let (from_address, into_address) = (from.device_ptr(&here).0, into.device_ptr_mut(&there).0);
    let (from_context, into_context) = (left.context.cu_ctx(), right.context.cu_ctx());
    // SAFETY: all arguments are live. The race is intended.
    let copy =
        || unsafe { result::memcpy_peer_async(into_context, into_address, from_context, from_address, 32, there.cu_stream()) };
    copy().unwrap();
    assert_eq!(right.kinds(), [ViolationKind::Race]);
    right.device.reset();
    there.wait(&here.record_event(None).unwrap()).unwrap();
    copy().unwrap();
    right.assert_clean();
    there.synchronize().unwrap();
}
