//! The stream sanitizer: it checks that all declared uses of a buffer are ordered, by streams and by what
//! they wait for. Order in time is not enough: a wait must have caused it.
//!
//! ```text
//! strand 1   write x · record ─────────────┐            clock of each use: how far it knows every strand
//! strand 2                  wait ◀─────────┘ · read x   knows (1, 1): ordered
//! strand 3                                     read x   does not:     a race of strand 1 and strand 3
//! ```
//! A *strand* is work in order, such as the kernels of one stream. A use of memory ticks its strand, and the
//! pair of both numbers is its *epoch*. Waits and records join vector clocks (Mattern, 1989). A memory keeps
//! the epochs of its last writes and of the reads since, by bytes, as FastTrack does (Flanagan and Freund,
//! 2009). A use is a race if its clock does not know the epoch of an earlier one, and one of them writes.
//!
//! Two devices report here. A CUDA device checks what it submits, with a clock for each lane and each event.
//! The simulated executor has clocks for programs and gates. Both have one clock for the host: whatever the
//! host has seen the end of is before all that it submits later.

mod clock;
mod here;
mod memory;
mod order;
mod sanitizer;
mod shadow;

pub(super) use here::allocate;
pub(crate) use here::within;
pub(crate) use order::Key;
pub(crate) use sanitizer::Sanitizer;
#[cfg_attr(not(feature = "cuda"), allow(unused_imports))]
pub(super) use {clock::Clock, shadow::Shadow};

/// The bytes of freed memory.
pub(super) const POISON: u8 = 0xDD;
