//! Recorded operations, one after the other. They take little memory, because all of them are compared
//! whenever a recording may repeat.

use std::ffi::c_void;

use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUfunction};

use crate::device::code::{Launch, PARAMS_MAX};

#[derive(Clone, Default)]
pub(super) struct Ops {
    list: Vec<Op>,
    /// The parameters of all launches, one after the other.
    words: Vec<u64>,
}

/// Room for this many operations is kept for the next recording.
const KEPT: usize = 4096;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Op {
    /// A launch. Its parameters are `len` words, from `first` on.
    Launch {
        function: CUfunction,
        launch: Launch,
        first: u32,
        len: u8,
    },
    /// The provenance of an address of the host is exposed.
    Copy {
        way: Way,
        from: u64,
        to: u64,
        bytes: usize,
    },
    Fill {
        to: CUdeviceptr,
        pattern: Pattern,
        count: usize,
    },
    /// A copy from another device's context.
    Fetch {
        from: (CUdeviceptr, CUcontext),
        to: CUdeviceptr,
        bytes: usize,
    },
}

/// The memories that a copy connects.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Way {
    /// From the host to the device.
    Up,
    /// From the device to the host.
    Down,
    Within,
}

/// The pattern of a fill.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Pattern {
    Byte(u8),
    Word(u32),
}

impl Ops {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn list(&self) -> &[Op] {
        &self.list
    }

    pub(super) fn push(&mut self, op: Op) {
        self.list.push(op);
    }

    /// Adds a parameter of the next launch.
    pub(super) fn push_word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Adds a launch whose parameters are the last `len` words.
    pub(super) fn push_launch(&mut self, function: CUfunction, launch: &Launch, len: usize) {
        let first = (self.words.len() - len) as u32;
        self.list.push(Op::Launch { function, launch: *launch, first, len: len as u8 });
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.words.clear();
        self.list.shrink_to(KEPT);
        self.words.shrink_to(KEPT * PARAMS_MAX);
    }

    /// Returns true if both have the same operation at a place.
    pub(super) fn is_same(&self, other: &Self, at: usize) -> bool {
        self.list.get(at) == other.list.get(at) && self.words_of(at) == other.words_of(at)
    }

    /// Replaces the operations by those of another recording.
    pub(super) fn set(&mut self, other: &Self) {
        self.list.clone_from(&other.list);
        self.words.clone_from(&other.words);
    }

    fn words_of(&self, at: usize) -> &[u64] {
        match self.list[at] {
            Op::Launch { first, len, .. } => &self.words[first as usize..first as usize + usize::from(len)],
            _ => &[],
        }
    }

    /// Returns pointers to the parameters of a launch, in the form that the driver takes: it reads as many as
    /// the function has, and copies the parameters.
    pub(super) fn pointers(&self, at: usize) -> [*mut c_void; PARAMS_MAX] {
        let mut pointers = [std::ptr::null_mut(); PARAMS_MAX];
        let words = self.words_of(at).iter();
        words.zip(&mut pointers).for_each(|(word, pointer)| *pointer = std::ptr::from_ref(word).cast_mut().cast());
        pointers
    }
}
