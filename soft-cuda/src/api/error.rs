//! Names of codes, and the calls that query the driver as a whole.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

use super::Out;
use super::enter::{has_no_device, on_process};
use crate::code::Code;
use crate::driver::calls::Api;
use crate::driver::control::PROCESS_STATE;

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> u32 {
    on_process(Api::cuInit, || {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if has_no_device() {
            return Err(Code::NO_DEVICE);
        }
        // ORDERING: Release pairs with the Acquire in `check_initialized`.
        PROCESS_STATE.is_initialized.store(true, Ordering::Release);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> u32 {
    // ORDERING: Relaxed: a number that a test sets before it calls.
    on_process(Api::cuDriverGetVersion, || version.put(PROCESS_STATE.version.load(Ordering::Relaxed) as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, name: Out<*const c_char>) -> u32 {
    on_process(Api::cuGetErrorName, || put_text(Code(code).name(), name))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, text: Out<*const c_char>) -> u32 {
    on_process(Api::cuGetErrorString, || put_text(Code(code).text(), text))
}

fn put_text(text: Option<&'static std::ffi::CStr>, into: Out<*const c_char>) -> crate::code::Outcome {
    match text {
        Some(text) => into.put(text.as_ptr()),
        None => {
            into.put(std::ptr::null())?;
            Err(Code::INVALID_VALUE)
        }
    }
}
