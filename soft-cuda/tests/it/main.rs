//! The driver as seen by cudarc. Every test has a device of its own, so all of them run at once in one
//! process. `tests/README.md` lists the mutations of the driver that each of them has caught.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a row of driver calls stands on one ground")]

mod basics;
mod faults;
mod graphs;
mod memory;
mod order;
mod support;
