//! Kernels: Rust functions registered under the names that modules use.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock, RwLock};

use super::callback::foreign;
use super::{read, write};
use crate::code::{Code, Outcome};
use crate::wire::{KernelCall, Param, ParamKind, RawLaunch};

/// A registered kernel.
pub(crate) struct Kernel {
    pub(crate) name: Arc<str>,
    params: Box<[Param]>,
    call: KernelCall,
    /// The client's pointer, which is only passed back to `call`. The client never frees it, and guarantees
    /// that any thread may use it.
    user: usize,
}

/// The parameters of one launch. Each begins at a 16-byte cell.
pub(crate) type Arguments = Arc<[u128]>;

static REGISTERED: OnceLock<RwLock<HashMap<Arc<str>, Arc<Kernel>>>> = OnceLock::new();

/// Registers a kernel. It replaces an earlier kernel of that name for functions that are looked up from now
/// on.
pub(crate) fn register(name: &str, params: &[Param], call: KernelCall, user: *const c_void) {
    let name: Arc<str> = name.into();
    let kernel = Kernel { name: name.clone(), params: params.into(), call, user: user as usize };
    write(REGISTERED.get_or_init(RwLock::default)).insert(name, Arc::new(kernel));
}

pub(crate) fn registered(name: &str) -> Option<Arc<Kernel>> {
    read(REGISTERED.get_or_init(RwLock::default)).get(name).cloned()
}

/// Returns the number of cells of a parameter.
fn cells(param: &Param) -> usize {
    param.size.div_ceil(size_of::<u128>()).max(1)
}

impl Kernel {
    /// Copies the parameters.
    ///
    /// # Safety
    /// `params` points to as many pointers as the kernel has parameters, each to as many bytes as the
    /// parameter has, or the kernel has no parameters.
    pub(crate) unsafe fn copy_arguments(&self, params: *const *const c_void) -> Outcome<Arguments> {
        let count = self.params.iter().map(cells).sum();
        let mut arguments: Arguments = std::iter::repeat_n(0, count).collect();
        let cells_of_all = Arc::get_mut(&mut arguments).ok_or(Code::UNKNOWN)?;
        if !self.params.is_empty() && params.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut at = 0;
        for (index, param) in self.params.iter().enumerate() {
            // SAFETY: `params` has as many pointers as there are parameters: the contract of this function.
            let from = unsafe { params.wrapping_add(index).read() };
            if from.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let into = cells_of_all[at..at + cells(param)].as_mut_ptr();
            // SAFETY: the source has `size` bytes: the contract of this function. The cells are at least as
            // large and were allocated above.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), into.cast::<u8>(), param.size) };
            at += cells(param);
        }
        Ok(arguments)
    }

    /// Visits the pointers among the arguments, each with its number of bytes, if the kernel declares it, and
    /// whether the kernel writes there.
    pub(crate) fn for_each_pointer(&self, arguments: &[u128], mut visit: impl FnMut(usize, Option<usize>, bool)) {
        let mut at = 0;
        let value = |index: u32| {
            let before: usize = self.params[..index as usize].iter().map(cells).sum();
            let bits = 8 * self.params[index as usize].size.min(8) as u32;
            arguments[before] as usize & (u64::MAX >> (64 - bits)) as usize
        };
        for param in &self.params {
            // A pointer is the first eight bytes of its cell. The host is little-endian, as every CUDA host
            // is.
            let (counter, bytes) = param.counted;
            let len = (bytes > 0).then(|| value(counter) * bytes as usize);
            match param.kind {
                ParamKind::Scalar => {}
                ParamKind::Read => visit(arguments[at] as usize, len, false),
                ParamKind::Write | ParamKind::ReadWrite => visit(arguments[at] as usize, len, true),
            }
            at += cells(param);
        }
    }

    /// Runs the kernel on this thread.
    pub(crate) fn run(&self, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, arguments: &[u128]) -> Outcome {
        let mut at = 0;
        let mut pointers: Vec<*const c_void> = Vec::with_capacity(self.params.len());
        for param in &self.params {
            pointers.push(arguments[at..].as_ptr().cast());
            at += cells(param);
        }
        let count = pointers.len() as u32;
        let launch = RawLaunch { grid, block, shared_bytes, count, params: pointers.as_ptr() };
        // SAFETY: `call` and `user` were registered together. The launch lives as long as the call, and its
        // pointers match the kernel's parameters.
        match foreign(|| unsafe { (self.call)(self.user as *const c_void, &launch) }) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }
}
