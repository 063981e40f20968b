//! Any bytes are a graph or an error; a graph comes back as it was written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| anabranch_fuzz_bodies::json(bytes));

#[path = "../bodies.rs"]
mod anabranch_fuzz_bodies;
