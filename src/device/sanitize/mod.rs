//! The stream sanitizer: it checks that streams and waits order all declared uses of a buffer. Order in time
//! is not enough: a wait must have caused it.
//!
//! ```text
//! strand 1   write x · record ─────────────┐            clock of each use: how far it knows every strand
//! strand 2                  wait ◀─────────┘ · read x   knows (1, 1): ordered
//! strand 3                                     read x   does not:     a race of strand 1 and strand 3
//! ```
//! A *strand* is work in order, such as the kernels of one stream. A use of memory ticks its strand, and the
//! pair of strand and tick is the *epoch* of the use. Waits and records join vector clocks (Mattern, 1989). A
//! block of memory keeps the epochs of its last writes and of the reads since, by bytes, as FastTrack does
//! (Flanagan and Freund, 2009). Two uses race if one of them writes and the clock of the later one does not
//! know the epoch of the earlier one.
//!
//! Two devices report here. A CUDA device checks what it submits, with a clock for each lane and each event.
//! The simulated executor has clocks for programs and gates. Both have one clock for the host: all work whose
//! end the host has seen is before all work that it submits later.

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
