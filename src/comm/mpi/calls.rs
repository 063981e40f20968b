//! The functions and constants of an MPI library, loaded at run time. Nothing of MPI is needed to build.
//!
//! MPI has no binary interface of its own: Open MPI's handles are pointers, and its constants are addresses
//! of symbols; MPICH's handles are ints, and so are its constants (the MPICH ABI, which Intel MPI, MVAPICH
//! and Cray MPICH share). Both are here. All else is the same for both.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;

use libloading::Library;

use crate::comm::native::{Element, Operation};
use crate::comm::wire::Landing;

/// A handle of Open MPI.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Pointer(*mut c_void);

// SAFETY: a handle names an object of the library, which any thread may use in turn.
unsafe impl Send for Pointer {}
// SAFETY: a shared reference to a handle only lets a thread copy it.
unsafe impl Sync for Pointer {}

/// A type of handles.
pub(super) trait Handle: Copy + PartialEq + Send + Sync + Unpin + 'static {}

impl Handle for Pointer {}
impl Handle for c_int {}

/// The constants of a library.
pub(super) struct Constants<H> {
    pub(super) world: H,
    byte: H,
    pub(super) request_null: H,
    errors_return: H,
    /// The key of the largest tag, among the attributes of the world's communicator.
    tag_max: c_int,
    status_ignore: *mut c_void,
    elements: [H; 10],
    operations: [H; 4],
}

// SAFETY: the only pointer is a constant that is never read through.
unsafe impl<H: Send> Send for Constants<H> {}
// SAFETY: the same constant, which does not change.
unsafe impl<H: Sync> Sync for Constants<H> {}

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($of:ty),*);)*) => {
        pub(super) struct Functions<H> {
            $($field: unsafe extern "C" fn($($of),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            /// # Safety
            /// The library has the handles `H`.
            unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the MPI standard gives the types of these functions.
                Ok(Self { $($field: *unsafe { library.get($symbol) }?,)* })
            }
        }
    };
}

functions! {
    init_thread = b"MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    initialized = b"MPI_Initialized" (*mut c_int);
    query_thread = b"MPI_Query_thread" (*mut c_int);
    finalized = b"MPI_Finalized" (*mut c_int);
    finalize = b"MPI_Finalize" ();
    set_errhandler = b"MPI_Comm_set_errhandler" (H, H);
    rank = b"MPI_Comm_rank" (H, *mut c_int);
    size = b"MPI_Comm_size" (H, *mut c_int);
    idup = b"MPI_Comm_idup" (H, *mut H, *mut H);
    free = b"MPI_Comm_free" (*mut H);
    get_attribute = b"MPI_Comm_get_attr" (H, c_int, *mut *const c_int, *mut c_int);
    isend = b"MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    improbe = b"MPI_Improbe" (c_int, c_int, H, *mut c_int, *mut H, *mut Status);
    imrecv = b"MPI_Imrecv" (*mut c_void, c_int, H, *mut H, *mut H);
    get_count = b"MPI_Get_count" (*const Status, H, *mut c_int);
    test = b"MPI_Test" (*mut H, *mut c_int, *mut c_void);
    ibarrier = b"MPI_Ibarrier" (H, *mut H);
    ibcast = b"MPI_Ibcast" (*mut c_void, c_int, H, c_int, H, *mut H);
    iallreduce = b"MPI_Iallreduce" (*const c_void, *mut c_void, c_int, H, H, H, *mut H);
    iallgather = b"MPI_Iallgather" (*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    iallgatherv = b"MPI_Iallgatherv" (*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H, *mut H);
    ireduce_scatter = b"MPI_Ireduce_scatter_block" (*const c_void, *mut c_void, c_int, H, H, H, *mut H);
    ialltoall = b"MPI_Ialltoall" (*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    error_string = b"MPI_Error_string" (c_int, *mut c_char, *mut c_int);
}

/// The largest tag that every library supports.
const TAG_MAX: u32 = 32_767;

/// Room for the status of any library: 24 bytes in Open MPI, 20 in MPICH.
#[repr(C, align(8))]
pub(super) struct Status([u8; 64]);

/// `MPI_THREAD_SERIALIZED`, the same in all libraries: the path's lock keeps calls apart.
const SERIALIZED: c_int = 2;

pub(super) struct Calls<H> {
    functions: Functions<H>,
    pub(super) constants: Constants<H>,
    /// Keeps the functions.
    _library: Library,
}

/// A failed call.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) call: &'static str,
    pub(super) message: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.message)
    }
}

pub(super) type Called<T> = Result<T, Failed>;

impl Calls<Pointer> {
    /// # Safety
    /// The library is Open MPI.
    pub(super) unsafe fn open_mpi(library: Library) -> Result<Self, libloading::Error> {
        let at = |symbol: &[u8]| -> Result<Pointer, libloading::Error> {
            // SAFETY: only the address of the object is used.
            let object = unsafe { library.get::<*mut c_void>(symbol) }?;
            // SAFETY: the library stays loaded as long as the constants.
            let address = unsafe { object.try_as_raw_ptr() };
            Ok(Pointer(address.unwrap_or(std::ptr::null_mut())))
        };
        let constants = Constants {
            world: at(b"ompi_mpi_comm_world")?,
            byte: at(b"ompi_mpi_byte")?,
            request_null: at(b"ompi_request_null")?,
            errors_return: at(b"ompi_mpi_errors_return")?,
            tag_max: 0,
            status_ignore: std::ptr::null_mut(),
            elements: [
                at(b"ompi_mpi_int8_t")?,
                at(b"ompi_mpi_int16_t")?,
                at(b"ompi_mpi_int32_t")?,
                at(b"ompi_mpi_int64_t")?,
                at(b"ompi_mpi_uint8_t")?,
                at(b"ompi_mpi_uint16_t")?,
                at(b"ompi_mpi_uint32_t")?,
                at(b"ompi_mpi_uint64_t")?,
                at(b"ompi_mpi_float")?,
                at(b"ompi_mpi_double")?,
            ],
            operations: [at(b"ompi_mpi_op_sum")?, at(b"ompi_mpi_op_prod")?, at(b"ompi_mpi_op_min")?, at(b"ompi_mpi_op_max")?],
        };
        // SAFETY: the handles of Open MPI are pointers.
        Ok(Self { functions: unsafe { Functions::load(&library) }?, constants, _library: library })
    }
}

impl Calls<c_int> {
    /// # Safety
    /// The library has the MPICH ABI.
    pub(super) unsafe fn mpich(library: Library) -> Result<Self, libloading::Error> {
        let constants = Constants {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            request_null: 0x2c00_0000,
            errors_return: 0x5400_0001,
            tag_max: 0x6440_0001,
            status_ignore: std::ptr::without_provenance_mut(1),
            elements: [
                0x4c00_0137,
                0x4c00_0238,
                0x4c00_0439,
                0x4c00_083a,
                0x4c00_013b,
                0x4c00_023c,
                0x4c00_043d,
                0x4c00_083e,
                0x4c00_040a,
                0x4c00_080b,
            ],
            operations: [0x5800_0003, 0x5800_0004, 0x5800_0002, 0x5800_0001],
        };
        // SAFETY: the handles of MPICH are ints.
        Ok(Self { functions: unsafe { Functions::load(&library) }?, constants, _library: library })
    }
}

/// Memory that a call reads or writes until its request has completed.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) at: *mut u8,
    pub(super) bytes: usize,
}

// SAFETY: the memory is that of buffers, which go from thread to thread with it.
unsafe impl Send for Memory {}

/// The lists of counts and of starts, in the buffers of a gather.
#[derive(Clone, Copy)]
pub(super) struct ListsAt(pub(super) *const c_int, pub(super) *const c_int);

// SAFETY: the lists are those of buffers, which go from thread to thread with them.
unsafe impl Send for ListsAt {}

/// The number of communicators of a world.
pub(super) const COMMS: usize = 3;

/// Where new communicators are written, in the buffers of their requests.
#[derive(Clone, Copy)]
pub(super) struct CommsAt<H>(*mut H);

// SAFETY: the memory is that of buffers, which go from thread to thread with it.
unsafe impl<H> Send for CommsAt<H> {}

impl<H> CommsAt<H> {
    pub(super) fn of(comms: &mut [H; COMMS]) -> Self {
        Self(comms.as_mut_ptr())
    }
}

impl Memory {
    pub(super) fn of(bytes: &mut [u8]) -> Self {
        Self::at(bytes.as_mut_ptr(), bytes.len())
    }

    pub(super) fn to_receive(landing: &mut dyn Landing) -> Self {
        let (at, bytes) = landing.memory();
        Self::at(at, bytes)
    }

    /// Returns memory that a call only reads.
    pub(super) fn to_read(bytes: &[u8]) -> Self {
        Self::at(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Memory of no bytes has an address that is no special one of MPI: `MPI_IN_PLACE` of Open MPI is 1, the
    /// address of an empty `Vec<u8>`.
    fn at(at: *mut u8, bytes: usize) -> Self {
        static EMPTY: [u64; 1] = [0];
        Self { at: if bytes == 0 { EMPTY.as_ptr().cast_mut().cast() } else { at }, bytes }
    }

    fn count(self) -> Called<c_int> {
        count(self.bytes)
    }
}

/// Returns a number of elements as MPI takes it.
pub(super) fn count(elements: usize) -> Called<c_int> {
    c_int::try_from(elements).map_err(|_| Failed {
        call: "the operation",
        message: format!("{elements} elements are more than MPI moves at once ({}): divide the value", c_int::MAX),
    })
}

/// Each of the functions that start a request has these rules.
///
/// # Safety
/// The caller keeps the memory, and does not touch the memory that is written, until the request has
/// completed. Only one thread at a time calls methods of this.
impl<H: Handle> Calls<H> {
    fn check(&self, call: &'static str, code: c_int) -> Called<()> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut length) = ([0_u8; 1024], 0);
        // SAFETY: the buffer is larger than MPI_MAX_ERROR_STRING of all libraries.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        let text = &text[..usize::try_from(length).unwrap_or(0).min(text.len())];
        Err(Failed { call, message: String::from_utf8_lossy(text).into_owned() })
    }

    /// Starts MPI in this process, if nothing else did.
    pub(super) fn init(&self) -> Called<()> {
        let (mut is_initialized, mut provided) = (0, 0);
        // SAFETY: may be called at any time.
        self.check("MPI_Initialized", unsafe { (self.functions.initialized)(&raw mut is_initialized) })?;
        if is_initialized == 0 {
            let (none, out) = (std::ptr::null_mut(), &raw mut provided);
            // SAFETY: MPI-2 and later accept null for both arguments of the program.
            let code = unsafe { (self.functions.init_thread)(none, none.cast(), SERIALIZED, out) };
            self.check("MPI_Init_thread", code)?;
        } else {
            // SAFETY: MPI is initialised.
            self.check("MPI_Query_thread", unsafe { (self.functions.query_thread)(&raw mut provided) })?;
        }
        if provided >= SERIALIZED {
            return Ok(());
        }
        let message = format!("it supports thread level {provided} here: level {SERIALIZED}, MPI_THREAD_SERIALIZED, is needed");
        Err(Failed { call: "MPI_Init_thread", message })
    }

    /// Ends MPI in this process, unless it has ended.
    pub(super) fn finalize(&self) -> Called<()> {
        let mut is_finalized = 0;
        // SAFETY: may be called at any time.
        self.check("MPI_Finalized", unsafe { (self.functions.finalized)(&raw mut is_finalized) })?;
        if is_finalized != 0 {
            return Ok(());
        }
        // SAFETY: MPI is initialised, and not finalised.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }

    /// Returns the rank and the size of a communicator.
    pub(super) fn place(&self, comm: H) -> Called<(u32, u32)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid.
        self.check("MPI_Comm_rank", unsafe { (self.functions.rank)(comm, &raw mut rank) })?;
        // SAFETY: the communicator is valid.
        self.check("MPI_Comm_size", unsafe { (self.functions.size)(comm, &raw mut size) })?;
        Ok((rank as u32, size as u32))
    }

    /// Lets failed calls with a communicator return. By default, they end the process.
    pub(super) fn return_errors(&self, comm: H) -> Called<()> {
        // SAFETY: the communicator is valid.
        let code = unsafe { (self.functions.set_errhandler)(comm, self.constants.errors_return) };
        self.check("MPI_Comm_set_errhandler", code)
    }

    /// Returns the largest tag of a message.
    pub(super) fn tag_max(&self) -> Called<u32> {
        let (mut value, mut is_there) = (std::ptr::null(), 0);
        let (key, out) = (self.constants.tag_max, &raw mut value);
        // SAFETY: the communicator is valid, and the value of this key is a pointer to an int.
        let code = unsafe { (self.functions.get_attribute)(self.constants.world, key, out, &raw mut is_there) };
        self.check("MPI_Comm_get_attr", code)?;
        if is_there == 0 || value.is_null() {
            return Ok(TAG_MAX);
        }
        // SAFETY: the library has set the pointer to an int that it keeps.
        Ok(u32::try_from(unsafe { *value }).unwrap_or(TAG_MAX))
    }

    /// Starts a copy of the world's communicator, as number `number` of the new ones. All ranks must call
    /// this.
    pub(super) unsafe fn duplicate(&self, into: CommsAt<H>, number: usize) -> Called<H> {
        let world = self.constants.world;
        assert!(number < COMMS, "there is memory for so many");
        // SAFETY: the memory has more communicators than this number.
        let into = unsafe { into.0.add(number) };
        // SAFETY: the caller keeps the memory.
        self.request("MPI_Comm_idup", |out| unsafe { (self.functions.idup)(world, into, out) })
    }

    /// Frees a communicator that all ranks free, and that none of them uses any more.
    pub(super) fn free(&self, mut comm: H) -> Called<()> {
        // SAFETY: the communicator is valid, and has no requests.
        self.check("MPI_Comm_free", unsafe { (self.functions.free)(&raw mut comm) })
    }

    /// Returns the request that `start` makes.
    fn request(&self, call: &'static str, start: impl FnOnce(*mut H) -> c_int) -> Called<H> {
        let mut request = self.constants.request_null;
        self.check(call, start(&raw mut request))?;
        Ok(request)
    }

    pub(super) unsafe fn send(&self, from: Memory, to: u32, tag: c_int, comm: H) -> Called<H> {
        let (count, to) = (from.count()?, to as c_int);
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.isend)(from.at.cast(), count, self.constants.byte, to, tag, comm, out) };
        self.request("MPI_Isend", start)
    }

    /// Returns a message that has come, and its size in bytes.
    pub(super) fn probe(&self, from: u32, tag: c_int, comm: H) -> Called<Option<(H, usize)>> {
        let (mut is_there, mut message, mut status) = (0, self.constants.request_null, Status([0; 64]));
        let (flag, out) = (&raw mut is_there, &raw mut message);
        // SAFETY: the communicator is valid.
        let code = unsafe { (self.functions.improbe)(from as c_int, tag, comm, flag, out, &raw mut status) };
        self.check("MPI_Improbe", code)?;
        if is_there == 0 {
            return Ok(None);
        }
        let mut count = 0;
        // SAFETY: the status is that of the message.
        let code = unsafe { (self.functions.get_count)(&raw const status, self.constants.byte, &raw mut count) };
        self.check("MPI_Get_count", code)?;
        Ok(Some((message, usize::try_from(count).unwrap_or(0))))
    }

    pub(super) unsafe fn receive(&self, mut message: H, into: Memory) -> Called<H> {
        let (count, message) = (into.count()?, &raw mut message);
        // SAFETY: the caller keeps the memory; the message is one that `probe` returned.
        let start = |out| unsafe { (self.functions.imrecv)(into.at.cast(), count, self.constants.byte, message, out) };
        self.request("MPI_Imrecv", start)
    }

    /// Returns whether a request has completed.
    pub(super) fn test(&self, request: &mut H) -> Called<bool> {
        let mut is_complete = 0;
        let ignored = self.constants.status_ignore;
        // SAFETY: the request is one that a call returned, and has not completed before.
        let code = unsafe { (self.functions.test)(request, &raw mut is_complete, ignored) };
        self.check("MPI_Test", code)?;
        Ok(is_complete != 0)
    }

    pub(super) unsafe fn barrier(&self, comm: H) -> Called<H> {
        // SAFETY: the communicator is valid.
        self.request("MPI_Ibarrier", |out| unsafe { (self.functions.ibarrier)(comm, out) })
    }

    pub(super) unsafe fn broadcast(&self, at: Memory, root: u32, comm: H) -> Called<H> {
        let (count, root) = (at.count()?, root as c_int);
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.ibcast)(at.at.cast(), count, self.constants.byte, root, comm, out) };
        self.request("MPI_Ibcast", start)
    }

    pub(super) unsafe fn all_reduce(
        &self,
        from: Memory,
        into: Memory,
        (element, operation): (Element, Operation),
        comm: H,
    ) -> Called<H> {
        let (of, by) = (self.element(element), self.constants.operations[operation as usize]);
        let count = count(from.bytes / element.bytes())?;
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.iallreduce)(from.at.cast(), into.at.cast(), count, of, by, comm, out) };
        self.request("MPI_Iallreduce", start)
    }

    pub(super) unsafe fn reduce_scatter(
        &self,
        from: Memory,
        into: Memory,
        (element, operation): (Element, Operation),
        comm: H,
    ) -> Called<H> {
        let (of, by) = (self.element(element), self.constants.operations[operation as usize]);
        let count = count(into.bytes / element.bytes())?;
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.ireduce_scatter)(from.at.cast(), into.at.cast(), count, of, by, comm, out) };
        self.request("MPI_Ireduce_scatter_block", start)
    }

    /// Gathers as many bytes from each rank.
    pub(super) unsafe fn all_gather(&self, from: Memory, into: Memory, comm: H) -> Called<H> {
        let (count, of) = (from.count()?, self.constants.byte);
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.iallgather)(from.at.cast(), count, of, into.at.cast(), count, of, comm, out) };
        self.request("MPI_Iallgather", start)
    }

    /// Gathers `counts[r]` bytes from rank r, to the place `starts[r]`. The caller keeps both lists, too.
    pub(super) unsafe fn all_gather_parts(
        &self,
        from: Memory,
        into: Memory,
        ListsAt(counts, starts): ListsAt,
        comm: H,
    ) -> Called<H> {
        let (count, of) = (from.count()?, self.constants.byte);
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe {
            (self.functions.iallgatherv)(from.at.cast(), count, of, into.at.cast(), counts, starts, of, comm, out)
        };
        self.request("MPI_Iallgatherv", start)
    }

    /// Exchanges parts of `part` bytes.
    pub(super) unsafe fn all_to_all(&self, from: Memory, into: Memory, part: usize, comm: H) -> Called<H> {
        let (count, of) = (count(part)?, self.constants.byte);
        // SAFETY: the caller keeps the memory.
        let start = |out| unsafe { (self.functions.ialltoall)(from.at.cast(), count, of, into.at.cast(), count, of, comm, out) };
        self.request("MPI_Ialltoall", start)
    }

    fn element(&self, element: Element) -> H {
        self.constants.elements[element as usize]
    }
}
