//! The test's side: it loads the driver, registers kernels, plans faults and reads the findings.
//!
//! The driver is another copy of this crate, in a shared library with its own standard library. The two
//! communicate only through [`crate::wire`].

mod device;
mod kernel;
mod symbols;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

pub use device::{Device, Violation};
pub use kernel::Launch;

use crate::code::Code;
use crate::wire::{CONTROL_SYMBOL, Control, DEVICES, PROCESS, Param, RawKernel, Setting, Text, WIRE};

/// The file name of the driver, in the folder of the tests that use it.
const FILE: &str = "libanabranch_soft_cuda.so";

/// A loaded driver. It stays loaded for the life of the process.
#[derive(Clone, Copy)]
pub struct Client {
    control: &'static Control,
}

/// The reason why a driver could not be loaded or patched.
#[derive(Debug)]
pub struct LoadError {
    path: PathBuf,
    reason: String,
}

impl LoadError {
    pub(crate) fn new(path: &Path, reason: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use the soft driver at {}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for LoadError {}

impl Client {
    /// Loads the driver. All code that opens `libcuda.so` afterwards gets this one.
    ///
    /// # Errors
    /// If there is no such file, or it is not a soft driver of exactly this version.
    pub fn load(path: impl AsRef<Path>) -> Result<Client, LoadError> {
        let path = path.as_ref();
        // SAFETY: the library has no initialiser with effects.
        let library = unsafe { Library::open(Some(path.as_os_str()), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| LoadError::new(path, error))?;
        // SAFETY: a symbol of that name is a function of that type in every soft driver.
        let entry = unsafe { library.get::<extern "C" fn() -> *const Control>(CONTROL_SYMBOL) };
        let entry = entry.map_err(|error| LoadError::new(path, error))?;
        // SAFETY: the function returns a static of the library, which is never unloaded. The first field has
        // the same place in every version.
        let wire = unsafe { *entry().cast::<u32>() };
        if wire != WIRE {
            return Err(LoadError::new(path, format!("it speaks version {wire}, this client {WIRE}; build both again")));
        }
        // SAFETY: the function returns a static of the library, which is never unloaded and has this version.
        let control = unsafe { &*entry() };
        // The streams of the driver are threads that run its code, so it stays loaded.
        std::mem::forget(library);
        Ok(Client { control })
    }

    /// Loads the driver that was built with the running test, example or benchmark.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn beside_this_test() -> Result<Client, LoadError> {
        Self::load(Self::path_beside_this_test()?)
    }

    /// Returns the path where cargo has put the driver that was built with the running test, example or
    /// benchmark.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn path_beside_this_test() -> Result<PathBuf, LoadError> {
        let program = std::env::current_exe().map_err(|error| LoadError::new(Path::new(FILE), error))?;
        let folders = program.ancestors().skip(1).take(2);
        let places: Vec<PathBuf> = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]).collect();
        let found = places.iter().find(|place| place.is_file()).cloned();
        found.ok_or_else(|| {
            let reason = "it is not there, nor in the folder above or its `deps`. Is `anabranch-soft-cuda` among the \
                          dev-dependencies of the package that this program belongs to?";
            LoadError::new(&program.with_file_name(FILE), reason)
        })
    }

    /// Copies a driver with some of its symbols renamed, so that looking them up fails, and returns the path
    /// of the copy. The copy is in a folder of its own among the temporary files. Load it in a process of its
    /// own: a loaded driver cannot be replaced.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has no such symbol.
    pub fn without_symbols(path: impl AsRef<Path>, names: &[&str]) -> Result<PathBuf, LoadError> {
        symbols::without(path.as_ref(), names)
    }

    /// Registers a kernel under the name that modules use, permanently and for the whole process.
    ///
    /// The kernel is called once per launch, on the thread of the stream, and runs the whole grid. A panic in
    /// it is error 719 of the stream. If two kernels have one name, functions that are looked up later find
    /// the one that was registered last.
    pub fn register_kernel(&self, name: &str, params: &[Param], kernel: impl Fn(&Launch<'_>) + Send + Sync + 'static) {
        let (call, user) = kernel::leak(Box::new(kernel));
        let raw = RawKernel { name: Text::of(name), params: params.as_ptr(), count: params.len(), call, user };
        // SAFETY: all of `raw` lives as long as the call. `call` and `user` belong together and are never
        // freed.
        unsafe { (self.control.register_kernel)(&raw) };
    }

    /// Returns the control of one device.
    ///
    /// # Panics
    /// If the ordinal is not below 64.
    pub fn device(&self, ordinal: u32) -> Device {
        assert!(ordinal < DEVICES, "the soft driver has {DEVICES} devices, none of number {ordinal}");
        Device::new(self.control, ordinal)
    }

    /// Returns a device without a context, in its initial state, for tests that run at the same time. No
    /// other caller in this process gets the same device before it and its clones are dropped.
    ///
    /// # Panics
    /// If every device has an owner or a context.
    pub fn next_device(&self) -> Device {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed: the numbers only have to differ.
        let mut candidates = (0..DEVICES).map(|_| self.device(NEXT.fetch_add(1, Ordering::Relaxed) % DEVICES));
        let device = candidates.find_map(Device::claim);
        let Some(device) = device else { panic!("all {DEVICES} devices of the soft driver have an owner or a context") };
        device.reset();
        device
    }

    /// Makes `cuInit` and the other calls report that there is no device, in the whole process.
    pub fn no_device(&self, is_none: bool) {
        (self.control.set)(PROCESS, Setting::NoDevice, u64::from(is_none), 0, 0);
    }

    /// Sets the result of `cuDriverGetVersion`: 1000 times the major version plus 10 times the minor one.
    /// Applies to the whole process.
    pub fn driver_version(&self, version: u32) {
        (self.control.set)(PROCESS, Setting::DriverVersion, u64::from(version), 0, 0);
    }

    /// Makes the `nth` call from now (1 is the next) of a function that concerns no device fail: `cuInit`,
    /// `cuDriverGetVersion`, `cuDeviceGetCount`, `cuGetErrorName` or `cuGetErrorString`. Applies to the whole
    /// process.
    ///
    /// # Panics
    /// If the driver has no function of that name.
    pub fn fail_call(&self, name: &str, nth: u64, code: Code) {
        device::fail_call(self.control, PROCESS, name, nth, code);
    }

    /// Returns the functions that concern no device and were called, each with the number of calls.
    pub fn calls(&self) -> Vec<(String, u64)> {
        device::calls(self.control, PROCESS)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Returns the file name of a path, for error texts and copies.
fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new(FILE))
}
