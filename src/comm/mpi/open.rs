//! The start of MPI in this process, once.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, OnceLock};

use libloading::Library;
use libloading::os::unix;

use super::calls::{Calls, Handle};
use super::engine::Mpi;
use super::path::Path;
use super::progress::Progress;
use crate::comm::engine::Engine;
use crate::comm::op::Place;
use crate::comm::world::World;
use crate::error::{Error, Kind, Result};

/// The libraries, by the variable that their launcher sets in each process.
const LAUNCHED: [(&str, &[&str]); 2] =
    [("OMPI_COMM_WORLD_SIZE", &["libmpi.so.40", "libmpi.so"]), ("PMI_RANK", &["libmpich.so.12", "libmpi.so.12", "libmpi.so"])];
/// All names, for a process that no launcher has started.
const NAMES: [&str; 5] = ["libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi.so", "libmpich.so"];

/// The largest tag that every library supports.
const TAG_MAX: u32 = 32_767;

/// MPI can be started once in a process.
static STARTED: OnceLock<Result<Box<dyn Started>>> = OnceLock::new();

impl World {
    /// Returns the world of this process among those that `mpirun` has started: all processes of
    /// `MPI_COMM_WORLD`. Without `mpirun`, it has one rank.
    ///
    /// The library is loaded at run time: Open MPI, or one with the ABI of MPICH. It is that of the launcher
    /// that started the process. The first call starts MPI, unless the program has done so: then it needs
    /// `MPI_THREAD_SERIALIZED`, and must not call MPI itself while the world exists. Each further call
    /// returns a further world of the same ranks. All ranks must call this equally often. It waits until all
    /// ranks have called it.
    ///
    /// # Errors
    /// If there is no library, or MPI cannot be started.
    pub fn mpi() -> Result<Self> {
        let started = STARTED.get_or_init(|| start().map_err(|why| Kind::Mpi { why }.into()));
        let engine = started.as_ref().map_err(Error::clone)?.engine().map_err(|why| -> Error { Kind::Mpi { why }.into() })?;
        Ok(Self::of(engine))
    }
}

/// MPI in this process, for handles of any type.
trait Started: Send + Sync {
    fn engine(&self) -> Result<Box<dyn Engine>, String>;
    /// Ends MPI, if that is safe.
    fn finalize(&self);
}

impl<H: Handle> Started for Arc<Progress<H>> {
    fn engine(&self) -> Result<Box<dyn Engine>, String> {
        let of_world = |calls: &Calls<H>| {
            let comm = calls.duplicate(calls.constants.world)?;
            Ok((comm, calls.place(comm)?))
        };
        let (comm, (rank, size)) = self.path.with(of_world).map_err(|failed: super::calls::Failed| failed.to_string())?;
        Ok(Box::new(Mpi::new(self.clone(), comm, Place { rank, size }, TAG_MAX)))
    }

    fn finalize(&self) {
        // MPI waits for all ranks at its end, so that it never comes if a world has broken.
        if self.is_whole() {
            let _ = self.path.with(Calls::finalize);
        }
    }
}

fn start() -> Result<Box<dyn Started>, String> {
    let library = load()?;
    let version = version(&library).map_err(|error| error.to_string())?;
    let text = |error: libloading::Error| error.to_string();
    if version.contains("Open MPI") {
        // SAFETY: it says that it is Open MPI.
        launch(unsafe { Calls::open_mpi(library) }.map_err(text)?)
    } else {
        // SAFETY: all libraries that are not Open MPI have the ABI of MPICH.
        launch(unsafe { Calls::mpich(library) }.map_err(text)?)
    }
}

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

extern "C" fn finalize() {
    if let Some(Ok(started)) = STARTED.get() {
        started.finalize();
    }
}

fn launch<H: Handle>(calls: Calls<H>) -> Result<Box<dyn Started>, String> {
    calls.init().map_err(|failed| failed.to_string())?;
    // SAFETY: the function does not panic, and may be called at the end of the process.
    unsafe { atexit(finalize) };
    let progress = Progress::start(Path::new(calls)).map_err(|error| error.to_string())?;
    Ok(Box::new(progress))
}

/// Loads the library of the launcher, or the first that there is.
fn load() -> Result<Library, String> {
    let launcher = LAUNCHED.iter().find(|(variable, _)| std::env::var_os(variable).is_some());
    let names = launcher.map_or(&NAMES[..], |(_, names)| names);
    let mut faults = Vec::new();
    for &name in names {
        // The plugins of the library find its symbols only if they are global.
        // SAFETY: an MPI library may be loaded at any time; its initialisers do nothing that matters here.
        match unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_GLOBAL) } {
            Ok(library) => return Ok(library.into()),
            Err(error) => faults.push(error.to_string()),
        }
    }
    Err(format!("no library was found: install Open MPI or MPICH ({})", faults.join("; ")))
}

/// Returns the library's own description.
fn version(library: &Library) -> Result<String, libloading::Error> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the MPI standard gives the type of this function.
    let version = unsafe { library.get::<Version>(b"MPI_Get_library_version") }?;
    // Larger than MPI_MAX_LIBRARY_VERSION_STRING of all libraries.
    let (mut text, mut length) = (vec![0_u8; 1 << 14], 0);
    // SAFETY: it may be called before MPI is initialised.
    unsafe { version(text.as_mut_ptr().cast(), &raw mut length) };
    Ok(CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned()))
}
