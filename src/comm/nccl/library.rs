//! The functions of NCCL, looked up one by one. Codes are plain numbers: later versions have more of them.
//!
//! cudarc has bindings, too. They cast codes to an enum, panic if a function is missing, and do not look for
//! `libnccl.so.2`, the name that the library has where its headers are not installed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library as Loaded;

use crate::sync::OnceLock;

/// A code returned by NCCL.
pub(super) type Code = c_int;
/// A communicator.
pub(super) type Comm = *mut c_void;
/// A CUDA stream.
pub(super) type Stream = *mut c_void;

pub(super) const SUCCESS: Code = 0;
pub(super) const IN_PROGRESS: Code = 7;

/// The first version whose configuration has all fields of [`Config`].
const VERSION_MIN: c_int = 21800;
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The bytes by which the ranks of a communicator find each other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// `ncclConfig_t` of version 2.18. Later versions read as many bytes as `size` says.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Returns the configuration of a communicator whose calls do not block.
    pub(super) fn non_blocking() -> Self {
        // NCCL's mark of a field that keeps its default.
        const UNDEFINED: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: VERSION_MIN as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

macro_rules! library {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The library, which stays loaded.
        pub(super) struct Library {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($arg),*) -> Code,)*
            error_text: unsafe extern "C" fn(Code) -> *const c_char,
            _loaded: Loaded,
        }

        impl Library {
            fn of(loaded: Loaded) -> Result<Self, String> {
                Ok(Self {
                    $($name: symbol(&loaded, $symbol)?,)*
                    error_text: symbol(&loaded, "ncclGetErrorString")?,
                    _loaded: loaded,
                })
            }
        }
    };
}

library! {
    version = "ncclGetVersion": fn(*mut c_int);
    unique_id = "ncclGetUniqueId": fn(*mut UniqueId);
    /// Communicator, number of ranks, id, rank, configuration.
    init = "ncclCommInitRankConfig": fn(*mut Comm, c_int, UniqueId, c_int, *mut Config);
    async_error = "ncclCommGetAsyncError": fn(Comm, *mut Code);
    finalize = "ncclCommFinalize": fn(Comm);
    destroy = "ncclCommDestroy": fn(Comm);
    abort = "ncclCommAbort": fn(Comm);
    group_start = "ncclGroupStart": fn();
    group_end = "ncclGroupEnd": fn();
    /// From, to, count, type, operator.
    all_reduce = "ncclAllReduce": fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    /// From, to, count of a rank, type.
    all_gather = "ncclAllGather": fn(*const c_void, *mut c_void, usize, c_int, Comm, Stream);
    /// From, to, count of a rank's result, type, operator.
    reduce_scatter = "ncclReduceScatter": fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    /// From, to, count, type, root.
    broadcast = "ncclBroadcast": fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    /// From, count, type, peer.
    send = "ncclSend": fn(*const c_void, usize, c_int, c_int, Comm, Stream);
    /// To, count, type, peer.
    receive = "ncclRecv": fn(*mut c_void, usize, c_int, c_int, Comm, Stream);
}

fn symbol<F: Copy>(loaded: &Loaded, name: &str) -> Result<F, String> {
    // SAFETY: `F` is the function's type in NCCL's header, with the code as a plain number.
    let found = unsafe { loaded.get::<F>(name.as_bytes()) };
    found.map(|found| *found).map_err(|error| format!("the library is too old or no NCCL, update it: {error}"))
}

impl Library {
    /// Returns the library, loaded on first use.
    pub(super) fn get() -> Result<&'static Self, String> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = Self::of(find()?)?;
        let mut version = 0;
        // SAFETY: the call writes one number, and `version` outlives it.
        library.check(unsafe { (library.version)(&mut version) }, "ncclGetVersion")?;
        if version < VERSION_MIN {
            return Err(format!("its version is {version}, and {VERSION_MIN} (2.18) is needed: update it"));
        }
        Ok(LIBRARY.get_or_init(|| library))
    }

    /// Makes an id by which ranks find each other.
    pub(super) fn make_id(&self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the call writes an id, and `id` outlives it.
        self.check(unsafe { (self.unique_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id)
    }

    /// Turns a code into an error that names the call. Work that goes on is no error.
    pub(super) fn check(&self, code: Code, call: &str) -> Result<(), String> {
        if matches!(code, SUCCESS | IN_PROGRESS) { Ok(()) } else { Err(format!("{call}: {}", self.text(code))) }
    }

    fn text(&self, code: Code) -> String {
        // SAFETY: the function takes any code.
        let text = unsafe { (self.error_text)(code) };
        if text.is_null() {
            return format!("code {code}");
        }
        // SAFETY: NCCL returns static text.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }
}

fn find() -> Result<Loaded, String> {
    let mut faults = Vec::new();
    for name in NAMES {
        // SAFETY: NCCL may be loaded at any time; its initialisers do nothing that matters here.
        match unsafe { Loaded::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => faults.push(format!("{name}: {error}")),
        }
    }
    Err(format!("no library was found: install NCCL 2.18 or later ({})", faults.join("; ")))
}
