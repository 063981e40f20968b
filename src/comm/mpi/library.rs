//! Which MPI library this process uses.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;
use libloading::os::unix;

use super::calls::{Calls, Handle};

/// The libraries of each launcher, by a variable that it sets in each process.
const LAUNCHED: [(&str, &[&str]); 2] =
    [("OMPI_COMM_WORLD_SIZE", &["libmpi.so.40", "libmpi.so"]), ("PMI_RANK", &["libmpich.so.12", "libmpi.so.12", "libmpi.so"])];
/// All names, for a process that no launcher has started.
const NAMES: [&str; 5] = ["libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi.so", "libmpich.so"];

/// Something that is done with a library of any handles.
pub(super) trait Visit {
    type Output;
    fn visit<H: Handle>(self, calls: Calls<H>) -> Self::Output;
}

/// Loads the library of the launcher, or the first that there is.
pub(super) fn load<T, V: Visit<Output = Result<T, String>>>(visit: V) -> Result<T, String> {
    let library = find()?;
    let text = |error: libloading::Error| error.to_string();
    if version(&library).map_err(text)?.contains("Open MPI") {
        // SAFETY: it says that it is Open MPI.
        visit.visit(unsafe { Calls::open_mpi(library) }.map_err(text)?)
    } else {
        // SAFETY: all libraries that are not Open MPI have the ABI of MPICH.
        visit.visit(unsafe { Calls::mpich(library) }.map_err(text)?)
    }
}

fn find() -> Result<Library, String> {
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
