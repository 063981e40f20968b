//! Which MPI library this process uses.

use std::ffi::{CStr, OsString, c_char, c_int};

use libloading::Library;
use libloading::os::unix;

use super::calls::{Calls, Handle};

/// Names the library: its path, or its file name.
const NAMED: &str = "ANABRANCH_MPI";

const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so"];
const MPICH: [&str; 3] = ["libmpich.so.12", "libmpi.so.12", "libmpi.so"];

/// The numbers of processes, as launchers say them to each process.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Something that is done with a library of any handles.
pub(super) trait Visit {
    type Output;
    fn visit<H: Handle>(self, calls: Calls<H>) -> Self::Output;
}

/// Loads the library of the launcher, or the first that there is.
pub(super) fn load<T, V: Visit<Output = Result<T, String>>>(visit: V) -> Result<T, String> {
    let library = find()?;
    if version(&library).map_err(text)?.contains("Open MPI") {
        // SAFETY: it says that it is Open MPI.
        visit.visit(unsafe { Calls::open_mpi(library) }.map_err(text)?)
    } else {
        // SAFETY: all libraries that are not Open MPI have the ABI of MPICH.
        visit.visit(unsafe { Calls::mpich(library) }.map_err(text)?)
    }
}

/// Returns the text of an error, with its cause: the file, or the symbol.
fn text(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn find() -> Result<Library, String> {
    let named = std::env::var_os(NAMED);
    // A program that uses MPI itself has loaded it.
    let own: Library = unix::Library::this().into();
    if named.is_none() && version(&own).is_ok() {
        return Ok(own);
    }
    let is_named = named.is_some();
    let names = named.map_or_else(names, |name| vec![name]);
    let mut faults = Vec::new();
    for name in names {
        // The plugins of the library find its symbols only if they are global.
        // SAFETY: an MPI library may be loaded at any time; its initialisers do nothing that matters here.
        match unsafe { unix::Library::open(Some(&name), unix::RTLD_NOW | unix::RTLD_GLOBAL) } {
            Ok(library) => return Ok(library.into()),
            Err(error) => faults.push(format!("{}: {}", name.display(), text(error))),
        }
    }
    let faults = faults.join("; ");
    if is_named {
        return Err(format!("the library that {NAMED} names cannot be loaded: {faults}"));
    }
    Err(format!("no library was found: install Open MPI or MPICH, or name the file of another one in {NAMED} (tried {faults})"))
}

/// Returns the names that fit the launcher of this process, the best one first.
fn names() -> Vec<OsString> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    let known: [&[&str]; 2] = if is_set("OMPI_COMM_WORLD_SIZE") {
        [&OPEN_MPI, &[]]
    } else if is_set("PMI_RANK") && !is_set("SLURM_JOB_ID") {
        // The launcher of MPICH. A process with Open MPI would be alone.
        [&MPICH, &[]]
    } else if is_set("PMI_RANK") && !is_set("PMIX_RANK") {
        // Slurm starts processes of any library.
        [&MPICH, &OPEN_MPI]
    } else {
        [&OPEN_MPI, &MPICH]
    };
    known.concat().into_iter().map(OsString::from).collect()
}

/// Checks that the library sees the other processes, of which there are so many.
pub(super) fn check_size(size: u32) -> Result<(), String> {
    let launched = |variable: &&str| std::env::var(variable).ok()?.parse::<u32>().ok();
    match SIZES.iter().find_map(launched) {
        Some(launched) if size == 1 && launched > 1 => Err(format!(
            "{launched} processes were started, and the library sees one: it does not fit the launcher, name the right one in {NAMED}"
        )),
        _ => Ok(()),
    }
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
