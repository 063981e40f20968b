//! The driver that is measured: NVIDIA's, or where there is none the software driver, whose streams are
//! threads.

use anabranch_soft_cuda::Client;

/// Loads the software driver if there is no other. Ends the program if there is neither.
pub(crate) fn software() -> Option<Client> {
    // SAFETY: the call searches for a library with a well-known name.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        return None;
    }
    Some(Client::beside_this_test().unwrap_or_else(|no_driver| {
        println!("skipped: no CUDA driver, and {no_driver}");
        std::process::exit(0)
    }))
}

/// Names the driver.
pub(crate) fn name(software: Option<&Client>) -> &'static str {
    if software.is_some() { "the software driver" } else { "NVIDIA's driver" }
}
