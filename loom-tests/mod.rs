//! MODELS of the protocols between threads. Each runs under loom, which tries every interleaving and every
//! value that the memory model lets a load return, and once more on plain threads with every `cargo test`.
//!
//! ```sh
//! RUSTFLAGS="--cfg anabranch_loom" cargo test -p anabranch --profile loom --lib loom_tests
//! ```
//!
//! Lives here: models, one file per protocol, and the [`harness`] that they share. Never here: tests of the
//! library's behaviour; those are in `tests/it`. The comment of each model says how it was seen to fail:
//! which change in `src/` loom reported, and how. After a change to a protocol, repeat this.

mod control;
mod countdown;
mod deque;
mod devices;
mod drain;
mod flows;
mod hand_over;
mod harness;
mod inspection;
mod lane;
mod lend;
mod limbo;
mod pipe;
mod polls;
mod queue;
mod ranks;
mod reactor;
mod runs;
mod searcher;
mod sleep;
mod state;
mod try_lock;
mod vars;
mod wake_set;
