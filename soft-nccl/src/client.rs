//! The test's side: it loads the library, plans faults and reads counts.

use std::fmt;
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::wire::{CONTROL_SYMBOL, Control};

/// The file name of the library, in the folder of the tests that use it.
const FILE: &str = "libanabranch_soft_nccl.so";

/// The loaded library. It stays loaded for the life of the process.
#[derive(Clone, Copy)]
pub struct Nccl {
    control: &'static Control,
}

impl Nccl {
    /// Loads the library that was built with the running test. All code that opens `libnccl.so.2` afterwards
    /// gets this one. The software driver must be loaded, with the kernel [`KERNEL`](Self::KERNEL).
    ///
    /// # Errors
    /// If there is no such file.
    pub fn beside_this_test() -> Result<Self, String> {
        let path = path_beside_this_test()?;
        // SAFETY: the library has no initialiser with effects.
        let library =
            unsafe { Library::open(Some(path.as_os_str()), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| error.to_string())?;
        // SAFETY: a symbol of that name is a function of that type in this library.
        let entry = unsafe { library.get::<extern "C" fn() -> *const Control>(CONTROL_SYMBOL) };
        let entry = entry.map_err(|error| error.to_string())?;
        // SAFETY: the function returns a static of the library, which is never unloaded.
        let control = unsafe { &*entry() };
        std::mem::forget(library);
        Ok(Self { control })
    }

    /// The name of the kernel that the test registers with the software driver. Its parameters are: a pointer
    /// that is read, its number of bytes, a pointer that is written, its number of bytes, and the number of
    /// an operation; the numbers have eight bytes. It calls [`run`](Self::run) with them.
    pub const KERNEL: &str = "anabranch_soft_nccl";

    /// Does an operation, as the kernel on a stream. It waits for the other ranks.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in its thread.
    pub unsafe fn run(&self, number: u64, from: (*const u8, u64), to: (*mut u8, u64)) {
        // SAFETY: the pointers have so many bytes, by the contract of this function.
        unsafe { (self.control.run)(number, from.0, from.1 as usize, to.0, to.1 as usize) };
    }

    /// Lets the `nth` operation from now, 1 for the next, of the communicator on a GPU end with a code of NCCL.
    /// It does nothing then, so the other ranks wait for it.
    pub fn fail_operation(&self, ordinal: u32, nth: u64, code: i32) {
        (self.control.fail)(ordinal, nth, code);
    }

    /// Returns the number of communicators on a GPU.
    pub fn live(&self, ordinal: u32) -> u64 {
        (self.control.live)(ordinal)
    }

    /// Returns the number of communicators on a GPU that were aborted.
    pub fn aborted(&self, ordinal: u32) -> u64 {
        (self.control.aborted)(ordinal)
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl").finish_non_exhaustive()
    }
}

fn path_beside_this_test() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]);
    places.find(|place| place.is_file()).ok_or_else(|| format!("{FILE} is not beside {}", program.display()))
}
