//! A driver that lacks a function. The test has a process of its own, because a loaded driver cannot be
//! replaced.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a row of driver calls stands on one ground")]

use anabranch_soft_cuda::Client;
use cudarc::driver::{CudaContext, sys};

#[test]
fn a_symbol_taken_out_is_not_found_and_the_rest_works() {
    let whole = Client::path_beside_this_test().unwrap();
    assert!(Client::without_symbols(&whole, &["cuNobodyKnows"]).is_err());
    let patched = Client::without_symbols(&whole, &["cuStreamWriteValue64_v2", "cuGraphLaunch"]).unwrap();
    Client::load(&patched).unwrap();
    std::fs::remove_dir_all(patched.parent().unwrap()).unwrap();
    let has = |name: &[u8]| {
        // SAFETY: the driver is loaded, and the address is not called.
        unsafe { sys::culib().get::<*const std::ffi::c_void>(name) }.is_ok()
    };
    assert!(!has(b"cuStreamWriteValue64_v2\0") && !has(b"cuGraphLaunch\0"));
    assert!(has(b"cuStreamWriteValue32_v2\0") && has(b"cuGraphDestroy\0"));
    CudaContext::new(0).unwrap().new_stream().unwrap().synchronize().unwrap();
}
