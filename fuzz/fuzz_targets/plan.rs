//! Every policy makes a plan of every graph that keeps every edge, with no wait too many and no race.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| anabranch_fuzz_bodies::plan(bytes));

#[path = "../bodies.rs"]
mod anabranch_fuzz_bodies;
