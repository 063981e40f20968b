//! A machine with a driver and no device, and one with an old driver. The settings apply to the whole
//! process, so the test has a process of its own.

#![allow(clippy::unwrap_used, reason = "a test may")]

use anabranch_soft_cuda::{Client, Code};
use cudarc::driver::{CudaContext, sys};

#[test]
fn a_process_sees_no_device_then_an_old_driver() {
    let client = Client::beside_this_test().unwrap();
    client.no_device(true);
    let number = |error: cudarc::driver::DriverError| error.0 as u32;
    assert_eq!(CudaContext::new(0).map_err(number), Err(100));
    assert_eq!(CudaContext::device_count().map_err(number), Err(100));
    client.no_device(false);
    client.fail_call("cuInit", 1, Code(999));
    assert_eq!(CudaContext::new(0).map_err(number), Err(999));
    CudaContext::new(0).unwrap();
    client.driver_version(12020);
    let mut version = 0;
    // SAFETY: `version` has room for the number.
    assert_eq!(unsafe { sys::cuDriverGetVersion(&mut version) } as u32, 0);
    assert_eq!(version, 12020);
    assert!(client.calls().contains(&("cuDriverGetVersion".to_owned(), 1)));
}
