//! The errors without a driver, or with an unsuitable one. A driver is loaded once per process, so each test
//! has a process of its own.

use anabranch::Executor;
use anabranch_soft_cuda::{Client, Code};

use super::thumbnails::Device;
use crate::support::{alone, until};

fn refusal() -> String {
    Executor::cuda(0).unwrap_err().to_string()
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    alone("cuda::drivers::a_machine_without_a_driver_is_told_so", || match Executor::cuda(0) {
        Ok(_) => println!("skipped: this machine has a CUDA driver"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("no CUDA driver: ") || said.starts_with("there is no CUDA device 0"), "{said}");
        }
    });
}

#[test]
fn a_driver_that_lacks_a_function_is_too_old() {
    alone("cuda::drivers::a_driver_that_lacks_a_function_is_too_old", || {
        let path = Client::path_beside_this_test().unwrap();
        let old = Client::without_symbols(path, &["cuMemAllocAsync"]).unwrap();
        Client::load(&old).unwrap();
        std::fs::remove_dir_all(old.parent().unwrap()).unwrap();
        assert_eq!(refusal(), "the CUDA driver is too old: it has no cuMemAllocAsync. Update it to one for CUDA 12 or later");
    });
}

#[test]
fn a_driver_without_devices_says_so() {
    alone("cuda::drivers::a_driver_without_devices_says_so", || {
        Client::beside_this_test().unwrap().no_device(true);
        let none = "no CUDA driver: CUDA_ERROR_NO_DEVICE. Install NVIDIA's driver, or use an executor on the host device";
        assert_eq!(refusal(), none);
    });
}

#[test]
fn a_code_that_nobody_knows_is_an_error_like_others() {
    alone("cuda::drivers::a_code_that_nobody_knows_is_an_error_like_others", || {
        let client = Client::beside_this_test().unwrap();
        client.device(0).fail_call("cuMemHostAlloc", 1, Code(7_777));
        assert_eq!(refusal(), "the CUDA driver answered a code that this driver does not name (7777)");
    });
}

/// Fails each call of opening and closing in turn. Seen to fail (the process aborts) with a stream that
/// cudarc destroys.
#[test]
fn a_code_that_nobody_knows_never_ends_the_process() {
    alone("cuda::drivers::a_code_that_nobody_knows_never_ends_the_process", || {
        let client = Client::beside_this_test().unwrap();
        let open_and_close = |device: &anabranch_soft_cuda::Device| {
            let opened = Executor::builder().workers(1).cuda(&[device.ordinal() as u32]).build();
            let said = opened.map_err(|error| error.to_string()).map(drop);
            until(|| device.counters().retains == 0 || device.calls_of("cuDevicePrimaryCtxRelease_v2") > 0);
            said
        };
        let device = client.next_device();
        open_and_close(&device).unwrap();
        let calls = device.calls();
        assert!(calls.iter().any(|(call, _)| call == "cuStreamDestroy_v2") && calls.len() > 8, "{calls:?}");
        let mut refused = 0;
        for (call, count) in calls {
            for nth in 1..=count {
                let device = client.next_device();
                device.fail_call(&call, nth, Code(54_321));
                if let Err(said) = open_and_close(&device) {
                    assert_eq!(said, "the CUDA driver answered a code that this driver does not name (54321)", "{call} {nth}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 8, "{refused}");
    });
}

#[test]
fn a_device_without_stream_ordered_memory_is_refused() {
    alone("cuda::drivers::a_device_without_stream_ordered_memory_is_refused", || {
        Client::beside_this_test().unwrap().device(0).attribute(115, 0);
        assert_eq!(refusal(), "CUDA device 0 has no stream-ordered memory, which this library needs");
    });
}

/// Returns the device that the example `thumbnails` takes, or the reason why it takes none.
fn taken(device: Device) -> String {
    device.executor(|| Executor::builder().workers(1)).map_or_else(|error| error.to_string(), |(_, said)| said)
}

#[test]
fn the_example_takes_the_gpu_that_is_there() {
    // Seen to fail with `auto` and `host` exchanged.
    alone("cuda::drivers::the_example_takes_the_gpu_that_is_there", || {
        Client::beside_this_test().unwrap();
        assert_eq!(taken(Device::Auto), "device: CUDA device 0 (found)");
        assert_eq!(taken(Device::Cuda), "device: CUDA device 0 (asked for)");
        assert_eq!(taken(Device::Host), "device: the host (asked for)");
    });
}

#[test]
fn the_example_takes_the_host_where_there_is_no_gpu_and_says_why() {
    alone("cuda::drivers::the_example_takes_the_host_where_there_is_no_gpu_and_says_why", || {
        Client::beside_this_test().unwrap().no_device(true);
        let why = "no CUDA driver: CUDA_ERROR_NO_DEVICE. Install NVIDIA's driver, or use an executor on the host device";
        assert_eq!(taken(Device::Auto), format!("device: the host ({why})"));
        assert_eq!(taken(Device::Cuda), format!("--device cuda: {why} (--device host)"));
    });
}
