//! What the client and the library say to each other: two copies of this crate, each with its own standard
//! library.

/// The symbol of the function that returns the control.
pub(crate) const CONTROL_SYMBOL: &[u8] = b"anabranch_soft_nccl_control";

/// The functions of the library for its client.
#[repr(C)]
pub(crate) struct Control {
    /// Does an operation, as a kernel: its number, and where its bytes come from and go to.
    pub(crate) run: unsafe extern "C" fn(number: u64, from: *const u8, reads: usize, to: *mut u8, writes: usize),
    /// Lets the `nth` operation from now of the communicator on a GPU end with a code.
    pub(crate) fail: extern "C" fn(ordinal: u32, nth: u64, code: i32),
    /// Returns the number of communicators on a GPU.
    pub(crate) live: extern "C" fn(ordinal: u32) -> u64,
    /// Returns the number of aborted communicators on a GPU.
    pub(crate) aborted: extern "C" fn(ordinal: u32) -> u64,
}
