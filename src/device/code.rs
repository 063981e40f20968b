//! A kernel without its types: the code that a GPU runs, and the number of its threads.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

/// The number of threads of a launch: a grid of blocks, and the threads of a block.
///
/// ```
/// use anabranch::device::Launch;
///
/// // A thread for each pixel of a picture of 1920 x 1080, in blocks of 16 x 16.
/// let [width, height] = [1920_u32, 1080];
/// let launch = Launch::new([width.div_ceil(16), height.div_ceil(16), 1], [16, 16, 1]);
/// # assert_eq!(launch.grid, [120, 68, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory that a block gets beside what the code declares.
    pub shared_bytes: u32,
}

/// Threads of a block in a launch by length.
const BLOCK: u32 = 256;

impl Launch {
    /// Returns a launch of `grid` blocks of `block` threads, both in x, y and z.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared_bytes: 0 }
    }

    /// Sets the bytes of shared memory that a block gets beside what the code declares.
    pub fn shared_bytes(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// Returns a launch of at least one thread for each of `len` elements, in blocks of 256. A grid has at
    /// most 2³¹ - 1 blocks: beyond 5·10¹¹ elements, each thread must process several.
    pub fn for_len(len: usize) -> Self {
        let blocks = len.div_ceil(BLOCK as usize).clamp(1, i32::MAX as usize);
        Self::new([blocks as u32, 1, 1], [BLOCK, 1, 1])
    }
}

/// The code of a kernel.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) struct Code {
    pub(crate) name: Arc<str>,
    pub(crate) text: Text,
    /// The first device that loaded the code, and the function there: a launch on that device needs no
    /// lookup.
    pub(crate) first: OnceLock<(Weak<dyn Any + Send + Sync>, usize)>,
}

impl Code {
    pub(super) fn new(name: Arc<str>, text: Text) -> Arc<Self> {
        Arc::new(Self { name, text, first: OnceLock::new() })
    }
}

/// The code in its language.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) enum Text {
    CudaC(Arc<str>),
    Ptx(Arc<str>),
}

/// The most parameters of a kernel.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(super) const PARAMS_MAX: usize = 8;
